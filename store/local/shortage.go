package local

import (
	"fmt"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
)

// shortage is the time during which the disk has no room for new jobs. It begins with the first
// call that is refused and ends when there is room for such a call again.
type shortage struct {
	mu     sync.Mutex
	lasts  bool   // guarded by mu, as is the rest
	jobs   uint64 // free bytes that the smallest refused call with new jobs needs; 0 is none
	writes uint64 // the same of other calls
	calls  uint64 // refused since the last log line
	all    uint64 // refused since the beginning
	logged time.Time
}

// How often a shortage looks whether it is over, and says that it is not.
const (
	shortageLooks = time.Second
	shortageSays  = time.Minute
)

// refused notes a call that was refused, and reports whether a shortage begins with it.
func (h *shortage) refused(p purpose, need uint64) (begins bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	smallest := &h.jobs
	if p != forJobs {
		smallest = &h.writes
	}
	if *smallest == 0 || need < *smallest {
		*smallest = need
	}
	h.calls++
	h.all++
	begins = !h.lasts
	h.lasts = true
	return begins
}

// refuses returns what is refused while so many bytes are free, as [gq.Stats] has it.
func (h *shortage) refuses(free, reserve uint64) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case reserve == 0:
		return ""
	case free < max(h.writes, reserve/uint64(forChanges)):
		return gq.RefusesWrites
	case free < max(h.jobs, reserve):
		return gq.RefusesSubmissions
	default:
		return ""
	}
}

// due returns how many calls were refused since the last line, and whether it is time for
// another one.
func (h *shortage) due(now time.Time) (calls uint64, due bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now.Sub(h.logged) < shortageSays {
		return 0, false
	}
	calls, h.calls, h.logged = h.calls, 0, now
	return calls, true
}

// end forgets the shortage and returns how many calls it refused. The time of the last line
// stays, so that a disk at its limit does not fill the log.
func (h *shortage) end() (all uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all = h.all
	h.lasts, h.jobs, h.writes, h.calls, h.all = false, 0, 0, 0, 0
	return all
}

// fits returns an error if the disk has no room for a call, and notes that.
func (s *Store) fits(p purpose, bytes int) error {
	err := s.disk.room(p, bytes)
	if err != nil && s.shortage.refused(p, s.disk.reserve/uint64(p)+uint64(bytes)) && s.reading() {
		go func() {
			defer s.reads.Done()
			s.watchShortage()
		}()
	}
	return err
}

// watchShortage logs a shortage until it is over or the store is being closed.
func (s *Store) watchShortage() {
	ticker := time.NewTicker(shortageLooks)
	defer ticker.Stop()
	said := false
	for {
		free, _ := s.disk.available()
		refuses := s.shortage.refuses(free, s.disk.reserve)
		if refuses == "" {
			if all := s.shortage.end(); said {
				s.log.Info("the disk has room again and new jobs are accepted", "event", "disk_room", "dir", s.dir,
					"free_bytes", free, "calls_refused", all)
			}
			return
		}
		if calls, due := s.shortage.due(time.Now()); due {
			said = true
			s.log.Warn("the disk has no room and "+refuses+" are refused; free some space", "event", "disk_full", "dir", s.dir,
				"free_bytes", free, "reserve_bytes", s.disk.reserve, "refuses", refuses, "calls_refused", calls)
		}
		select {
		case <-ticker.C:
		case <-s.stopped:
			return
		}
	}
}

// sizeText returns a size that people can read. The reserve of a small disk is less than a MiB.
func sizeText(bytes uint64) string {
	if bytes < 1<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
}
