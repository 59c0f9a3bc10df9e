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

var cost = flag.Bool("cost", false, "measure what special jobs cost beside plain ones")

// A unique job costs at most half as much again as a plain one while 100,000 keys are live, in
// this process and in the database together.
func TestUniqueCost(t *testing.T) {
	if !*cost {
		t.Skip("measures for a minute; needs -cost and an idle machine")
	}
	s, err := postgres.Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // a measurement
	for _, shape := range []struct{ callers, batch, jobs int }{{64, 1, 10_000}, {64, 100, 30_000}} {
		c := storetest.Cost{Store: s, CPU: allTime, Callers: shape.callers, Batch: shape.batch, Jobs: shape.jobs, Rounds: 5}
		plain, unique := c.Unique(t, 100_000)
		ratio := float64(unique) / float64(plain)
		t.Logf("%d callers, batches of %d: plain %v, unique %v a job, ratio %.2f", shape.callers, shape.batch, plain, unique, ratio)
		if ratio > 1.5 {
			t.Errorf("a unique job costs %.2f times a plain one, want at most 1.5", ratio)
		}
	}
}

// A job with an order key costs at most half as much again as a plain one while 100,000 keys are
// live.
func TestOrderedCost(t *testing.T) {
	if !*cost {
		t.Skip("measures for a minute; needs -cost and an idle machine")
	}
	s, err := postgres.Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // a measurement
	c := storetest.Cost{Store: s, CPU: allTime, Callers: 64, Batch: 100, Jobs: 30_000, Rounds: 5}
	plain, ordered := c.Ordered(t, 100_000)
	ratio := float64(ordered) / float64(plain)
	t.Logf("plain %v, with an order key %v a job, ratio %.2f", plain, ordered, ratio)
	if ratio > 1.5 {
		t.Errorf("a job with an order key costs %.2f times a plain one, want at most 1.5", ratio)
	}
}

// A job whose limit key has a rate costs at most half as much again as a plain one while 100,000
// keys are live.
func TestRatedCost(t *testing.T) {
	if !*cost {
		t.Skip("measures for a minute; needs -cost and an idle machine")
	}
	s, err := postgres.Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // a measurement
	for _, shape := range []struct{ callers, batch, jobs int }{{64, 1, 10_000}, {64, 100, 30_000}} {
		c := storetest.Cost{Store: s, CPU: allTime, Callers: shape.callers, Batch: shape.batch, Jobs: shape.jobs, Rounds: 3}
		plain, rated := c.Rated(t, 100_000)
		ratio := float64(rated) / float64(plain)
		t.Logf("%d callers, batches of %d: plain %v, rated %v a job, ratio %.2f", shape.callers, shape.batch, plain, rated, ratio)
		if ratio > 1.5 {
			t.Errorf("a job whose key has a rate costs %.2f times a plain one, want at most 1.5", ratio)
		}
	}
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
