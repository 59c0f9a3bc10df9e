//go:build linux

package postgres_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
	"github.com/gopherqueue/gq/store/storetest"
)

var (
	cost = flag.Bool("cost", false, "measure what jobs with keys cost beside plain ones")
	keys = flag.Int("keys", 100_000, "live keys of other jobs while -cost measures")
)

// A unique job, one with an order key and one whose limit key has a rate cost at most half as much
// again as a plain one while 100,000 keys are live, in this process and in the database together.
func TestCost(t *testing.T) {
	if !*cost {
		t.Skip("measures for minutes; needs -cost and an idle machine")
	}
	open := func(t testing.TB) store.Store {
		s, err := postgres.Open(t.Context(), pgtest.Database(t), store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	storetest.Cost{Open: open, CPU: allTime, Keys: *keys, Jobs: 10_000, Batched: 30_000, Rounds: 3}.Run(t)
}

// allTime is the CPU time of this process and of its descendants that run PostgreSQL.
func allTime() (total time.Duration) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		total = time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	type process struct {
		parent int
		used   time.Duration
	}
	all := make(map[int]process)
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		parent, _ := strconv.Atoi(string(fields[1]))
		p := process{parent: parent}
		for _, field := range fields[11:15] { // user and system time, and those of ended children
			ticks, _ := strconv.ParseInt(string(field), 10, 64)
			p.used += time.Duration(ticks) * 10 * time.Millisecond
		}
		all[pid] = p
	}
	for _, p := range all {
		for up := p.parent; up > 1; up = all[up].parent {
			if up == os.Getpid() {
				total += p.used
				break
			}
		}
	}
	return total
}
