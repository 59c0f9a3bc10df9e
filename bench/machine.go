package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// machine describes this machine. What cannot be told is left out.
func machine() string {
	parts := []string{runtime.GOOS + "/" + runtime.GOARCH, fmt.Sprintf("%d CPUs", runtime.NumCPU())}
	if model := field("/proc/cpuinfo", "model name"); model != "" {
		parts = append(parts, model)
	}
	kilobytes, _, _ := strings.Cut(field("/proc/meminfo", "MemTotal"), " ")
	if n, err := strconv.ParseInt(kilobytes, 10, 64); err == nil {
		parts = append(parts, fmt.Sprintf("%d GiB", (n+1<<19)>>20))
	}
	return strings.Join(append(parts, runtime.Version()), ", ")
}

// field returns the value of the first line "name: value" of a file.
func field(file, name string) string {
	text, _ := os.ReadFile(file) // not on every system
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// reading is CPU time in ticks: of the machine, and of this process with everything it
// has started, server and peers. written is how many bytes these have sent to a disk.
type reading struct{ total, used, own, server, written int64 }

// busyAbove is the share of the CPU, in percent, above which others make a row
// doubtful. gq bench uses the same.
const busyAbove = 10

func read(server int) (r reading) {
	stat, _ := os.ReadFile("/proc/stat") // if missing, nothing is known and others are 0
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	for i, f := range bytes.Fields(line) {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil || i > 8 {
			continue
		}
		r.total += n
		if i <= 3 || i == 8 { // user, nice, system; stolen
			r.used += n
		}
	}
	sums := families(os.Getpid(), server)
	r.own, r.server, r.written = sums[0].ticks, sums[1].ticks, sums[0].written
	return r
}

// usage is what processes have used.
type usage struct{ ticks, written int64 }

// families sums the CPU time and the bytes written of processes and their descendants,
// including those that have ended and were waited for.
func families(roots ...int) []usage {
	parents, used := make(map[int]int), make(map[int]usage)
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if err != nil || len(fields) < 15 {
			continue
		}
		parents[pid], _ = strconv.Atoi(string(fields[1]))
		u := usage{written: written(pid)}
		for _, f := range fields[11:15] { // user and system time, own and of children
			n, _ := strconv.ParseInt(string(f), 10, 64)
			u.ticks += n
		}
		used[pid] = u
	}
	sums := make([]usage, len(roots))
	for pid, u := range used {
		for at := pid; at > 0; at = parents[at] {
			if i := slices.Index(roots, at); i >= 0 {
				sums[i].ticks += u.ticks
				sums[i].written += u.written
			}
		}
	}
	return sums
}

// written returns how many bytes a process has caused to be written to a disk. Those that
// are still in the page cache count; other users' processes do not.
func written(pid int) int64 {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "io"))
	if err != nil {
		return 0
	}
	_, after, _ := bytes.Cut(text, []byte("\nwrite_bytes: "))
	digits, _, _ := bytes.Cut(after, []byte("\n"))
	n, _ := strconv.ParseInt(string(digits), 10, 64)
	return n
}

// tick is the unit of /proc, in seconds.
const tick = 0.01

// others returns the share of the CPU that other processes used between two readings.
func (r reading) others(end reading) float64 {
	if end.total == r.total {
		return 0
	}
	return 100 * float64(max(end.used-r.used-(end.own-r.own), 0)) / float64(end.total-r.total)
}
