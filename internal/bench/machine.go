package bench

import (
	"bytes"
	"context"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"
)

// reading is the CPU time of the whole machine and of this process so far.
type reading struct {
	own      time.Duration
	ownKnown bool

	total, used, stolen time.Duration // since boot, over all cores; from /proc
	known               bool
}

// tick is the unit of /proc/stat, the same on every Linux.
const tick = 10 * time.Millisecond

func readMachine() reading {
	stat, err := os.ReadFile("/proc/stat")
	m, known := parseStat(stat)
	m.known = err == nil && known
	m.own, m.ownKnown = processTime()
	return m
}

// readMachine returns a reading that counts a measured server as part of this process. If
// its share is unknown, the share of other processes is too.
func (s Settings) readMachine() reading {
	m := readMachine()
	if s.Remote == nil {
		return m
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(s.RemoteProcess) + "/stat")
	used, known := parseProcessStat(stat)
	m.own += used
	m.known = m.known && s.RemoteProcess > 0 && err == nil && known
	return m
}

// parseProcessStat parses user and system time from a process's stat file. The fields
// before them end with the program name in parentheses.
func parseProcessStat(stat []byte) (used time.Duration, ok bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12 // index after the name
	if len(fields) <= system {
		return 0, false
	}
	for _, f := range [][]byte{fields[user], fields[system]} {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return 0, false
		}
		used += time.Duration(n) * tick
	}
	return used, true
}

// parseStat parses the first line of /proc/stat: user, nice, system, idle, iowait, irq,
// softirq and steal, and guest times, which user and nice include. Interrupts are not
// counted as used: most of them are caused by our own writes.
func parseStat(stat []byte) (m reading, ok bool) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	const wanted = 8
	if len(fields) < 1+wanted || string(fields[0]) != "cpu" {
		return m, false
	}
	var times [wanted]time.Duration
	for i := range times {
		n, err := strconv.ParseInt(string(fields[1+i]), 10, 64)
		if err != nil {
			return m, false
		}
		times[i] = time.Duration(n) * tick
		m.total += times[i]
	}
	m.used = times[0] + times[1] + times[2]
	m.stolen = times[7]
	return m, m.total > 0
}

// span is the difference between two readings.
type span struct {
	own    *time.Duration
	others *float64 // percent of all CPU time used by others or taken by the hypervisor; nil if unknown
}

// shortest is the shortest span for which the tick resolution is sufficient.
const shortest = 20 * tick

func (m reading) until(end reading) (s span) {
	if m.ownKnown && end.ownKnown {
		s.own = new(end.own - m.own)
	}
	total := end.total - m.total
	if s.own == nil || !m.known || !end.known || total < shortest {
		return s
	}
	taken := end.used - m.used - *s.own + end.stolen - m.stolen
	s.others = new(100 * float64(max(taken, 0)) / float64(total))
	return s
}

// add adds the own CPU time of another span.
func (s *span) add(more span) {
	if more.own == nil {
		return
	}
	if s.own == nil {
		s.own = new(time.Duration)
	}
	*s.own += *more.own
}

// perJob returns the CPU time of this process per job in microseconds.
func (s span) perJob(jobs int64) *float64 {
	if s.own == nil || jobs == 0 {
		return nil
	}
	return new(float64(*s.own) / float64(time.Microsecond) / float64(jobs))
}

// residentBytes returns the resident memory of this process.
func residentBytes() (int64, bool) {
	statm, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(statm)
	if err != nil || len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}

// watchMemory tracks the largest resident size, without the recorder's part, until stop
// is called.
func watchMemory(r *recorder) (stop func() *int64) {
	const interval = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(context.Background())
	var most atomic.Int64
	look := func() {
		if n, ok := residentBytes(); ok {
			most.Store(max(most.Load(), n-r.resident()))
		}
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		timer := time.NewTicker(interval)
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
				look()
			}
		}
	}()
	return func() *int64 {
		cancel()
		<-finished
		look()
		if most.Load() == 0 {
			return nil
		}
		return new(most.Load())
	}
}

// liveHeap returns the memory in use after garbage collection. It collects twice, because
// the second pass frees what the first one finalized.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
