package e2e_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
)

// told is what the queue finally says about an acknowledged job. Every handler of the
// test returns the version of its lease as the result.
type told struct {
	id      gq.JobID
	err     error // of the query
	job     gq.Job
	history []gq.Event
}

// faults returns everything that is wrong with a job's history: it must have been
// completed once, under the newest lease, by the handler that held it.
func (j *told) faults() (all []string) {
	add := func(format string, args ...any) {
		all = append(all, fmt.Sprintf("job %s: ", j.id)+fmt.Sprintf(format, args...))
	}
	if j.err != nil {
		add("acknowledged and lost: %v", j.err)
		return all
	}
	state := &j.job.State
	if state.Status != gq.StatusCompleted {
		add("ended %s (%s)", state.Status, state.Reason)
	}
	var (
		seq         uint64
		newest      gq.LeaseVersion
		starts      int
		completions int
	)
	for _, e := range j.history {
		if e.Seq <= seq {
			add("event %d follows event %d", e.Seq, seq)
		}
		seq = e.Seq
		if completions > 0 {
			add("%s after it was completed", e.Type)
		}
		switch e.Type { //nolint:exhaustive // the others are no matter here
		case gq.EventStarted:
			starts++
			if e.Version <= newest {
				add("lease version %d follows %d", e.Version, newest)
			}
			newest = e.Version
			if e.Attempt != starts {
				add("start %d is called attempt %d", starts, e.Attempt)
			}
		case gq.EventCompleted:
			completions++
			if e.Version != newest {
				add("completed under version %d, and %d was given out", e.Version, newest)
			}
		}
	}
	if len(j.history) == 0 || j.history[0].Type != gq.EventSubmitted {
		add("its history does not begin with its submission")
	}
	if completions != 1 {
		add("completed %d times", completions)
	}
	if state.Version != newest {
		add("its last version is %d, and its history's %d", state.Version, newest)
	}
	if state.Attempt != starts || starts < 1 || starts > state.Bound {
		add("attempt %d after %d starts, at most %d allowed", state.Attempt, starts, state.Bound)
	}
	if want := strconv.FormatUint(uint64(newest), 10); string(j.job.Result) != want {
		add("its result is that of version %.20q, and %s was the newest", j.job.Result, want)
	}
	return all
}

// The checker itself must find faults.
func TestCrashCheckFindsFaults(t *testing.T) {
	sound := func() *told {
		j := &told{id: gq.JobID{1}}
		j.job.State = gq.State{Status: gq.StatusCompleted, Attempt: 2, Bound: 3, Version: 2}
		j.job.Result = []byte("2")
		for i, e := range []gq.Event{
			{Type: gq.EventSubmitted},
			{Type: gq.EventScheduled},
			{Type: gq.EventStarted, Version: 1, Attempt: 1},
			{Type: gq.EventRetrying, Version: 1},
			{Type: gq.EventScheduled},
			{Type: gq.EventStarted, Version: 2, Attempt: 2},
			{Type: gq.EventCompleted, Version: 2},
		} {
			e.Seq = uint64(10 + 3*i)
			j.history = append(j.history, e)
		}
		return j
	}
	if faults := sound().faults(); len(faults) > 0 {
		t.Fatalf("a sound story has faults: %v", faults)
	}
	const started, completed = 5, 6 // the second start, and the end
	for name, test := range map[string]struct {
		spoil func(j *told)
		want  string
	}{
		"lost":             {func(j *told) { j.err = gq.ErrNotFound }, "acknowledged and lost"},
		"not completed":    {func(j *told) { j.job.State.Status = gq.StatusDeadLetter }, "ended DEAD_LETTER"},
		"still running":    {func(j *told) { j.job.State.Status = gq.StatusRunning; j.history = j.history[:completed] }, "completed 0 times"},
		"stale completion": {func(j *told) { j.history[completed].Version = 1 }, "completed under version 1, and 2 was given out"},
		"stale result":     {func(j *told) { j.job.Result = []byte("1") }, `version "1"`},
		"version repeated": {func(j *told) { j.history[started].Version = 1 }, "lease version 1 follows 1"},
		"completed twice": {func(j *told) {
			j.history = append(j.history, gq.Event{Seq: 99, Type: gq.EventCompleted, Version: 2})
		}, "completed 2 times"},
		"life after the end": {func(j *told) {
			j.history = append(j.history, gq.Event{Seq: 99, Type: gq.EventStarted, Version: 3, Attempt: 3})
		}, "after it was completed"},
		"too many attempts": {func(j *told) { j.job.State.Bound = 1 }, "at most 1 allowed"},
		"attempt forgotten": {func(j *told) { j.job.State.Attempt = 1 }, "attempt 1 after 2 starts"},
		"event forgotten":   {func(j *told) { j.history = j.history[1:] }, "does not begin with its submission"},
		"order":             {func(j *told) { j.history[1].Seq = 1 }, "event 1 follows event 10"},
		"version forgotten": {func(j *told) { j.job.State.Version = 1 }, "its last version is 1"},
	} {
		j := sound()
		test.spoil(j)
		if got := strings.Join(j.faults(), "\n"); !strings.Contains(got, test.want) {
			t.Errorf("%s: found %q, want %q", name, got, test.want)
		}
	}
}
