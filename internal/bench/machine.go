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

// reading is a reading of CPU time, of the whole machine and of this process.
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

// readMachine is a reading in which the server that is measured is no other.
// Without knowing its share nothing is known of the others.
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

// parseProcessStat reads user and system time from a process's stat file. The
// fields before them end with the name of the program, in parentheses.
func parseProcessStat(stat []byte) (used time.Duration, ok bool) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12 // counted from the one after the name
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

// parseStat reads the first line of /proc/stat: user, nice, system, idle,
// iowait, irq, softirq and steal, and guest times that user and nice contain
// already. Interrupts belong to nobody: most of them are our own writes.
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

// span is what happened between two readings.
type span struct {
	own    *time.Duration
	others *float64 // percent of all CPU time that others used or the hypervisor took; nil if unknown
}

// shortest is the shortest span over which ticks say anything.
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

// add makes a span longer by the own time of another.
func (s *span) add(more span) {
	if more.own == nil {
		return
	}
	if s.own == nil {
		s.own = new(time.Duration)
	}
	*s.own += *more.own
}

// perJob is the CPU time of this process per job in microseconds.
func (s span) perJob(jobs int64) *float64 {
	if s.own == nil || jobs == 0 {
		return nil
	}
	return new(float64(*s.own) / float64(time.Microsecond) / float64(jobs))
}

// residentBytes is the memory of this process that is in RAM.
func residentBytes() (int64, bool) {
	statm, err := os.ReadFile("/proc/self/statm")
	fields := bytes.Fields(statm)
	if err != nil || len(fields) < 2 {
		return 0, false
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	return pages * int64(os.Getpagesize()), err == nil
}

// watchMemory notes the largest resident size until it is stopped, without
// what the recorder has of it.
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

// liveHeap is what is in use after a garbage collection. The second one frees
// what the first one finalised.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
