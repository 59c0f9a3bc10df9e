package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// ServerTime returns the CPU time of a server on this machine and of all its processes,
// those that have ended included. backend is one of them, and program its name.
func ServerTime(backend int, program string) (time.Duration, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(backend) + "/stat")
	name, parent, _, ok := parseFamily(stat)
	if err != nil || !ok || name != program {
		return 0, false
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, false
	}
	total := time.Duration(0)
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		_, of, used, ok := parseFamily(stat)
		if ok && (of == parent || filepath.Base(filepath.Dir(file)) == strconv.Itoa(parent)) {
			total += used
		}
	}
	return total, true
}

// parseFamily parses the program, the parent and the CPU time of a process, including that
// of children that have ended, from its stat file.
func parseFamily(stat []byte) (name string, parent int, used time.Duration, ok bool) {
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", 0, 0, false
	}
	fields := bytes.Fields(stat[end+1:])
	const parentField, firstTime, lastTime = 1, 11, 14 // index after the name
	if len(fields) <= lastTime {
		return "", 0, 0, false
	}
	parent, err := strconv.Atoi(string(fields[parentField]))
	if err != nil {
		return "", 0, 0, false
	}
	for _, f := range fields[firstTime : lastTime+1] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return "", 0, 0, false
		}
		used += time.Duration(n) * tick
	}
	return string(stat[open+1 : end]), parent, used, true
}
