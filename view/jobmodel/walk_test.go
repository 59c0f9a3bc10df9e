package jobmodel_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/view/jobmodel"
)

// ways are the transitions of the job model, copied by hand: those of section 2; from every state
// DEAD_LETTER, by section 4; and from PENDING the ends of section 6, which names CANCELLED, the end of
// whatever a user cancels. There is no way back.
var ways = map[jobmodel.State]string{
	"":          "PENDING",
	"PENDING":   "SCHEDULED DELAYED FAILED DEAD_LETTER CANCELLED",
	"DELAYED":   "SCHEDULED DEAD_LETTER CANCELLED",
	"SCHEDULED": "RUNNING DEAD_LETTER CANCELLED",
	"RUNNING":   "COMPLETED FAILED RETRYING DEAD_LETTER CANCELLED",
	"RETRYING":  "SCHEDULED DEAD_LETTER CANCELLED",
}

// Every history goes the ways of the document, with the policies of every API and whatever workers
// and operators call, and a job reads as its history ends.
func TestNoWayBack(t *testing.T) {
	spec.Covers(t, "J-17")
	seen := make(map[string]int)
	for _, preset := range enum.All[gq.Preset]() {
		for seed := range uint64(400) {
			w := walk{Rand: rand.New(rand.NewPCG(seed, uint64(preset))), now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
			w.policy = preset.Policy()
			w.policy.HoldFault = w.policy.HoldFault || seed%3 == 0
			w.policy.MaxAttempts = 2 + w.IntN(4)
			w.policy.Lifetime = time.Duration(w.IntN(3)) * 3 * time.Minute
			w.submit(machine.Submission{RunAt: w.now.Add(time.Duration(w.IntN(3)-1) * time.Minute), Waits: w.IntN(2), AnyOpen: w.IntN(4) == 0})
			for range 40 {
				w.step()
				w.check(t, fmt.Sprintf("%v, seed %d", preset, seed), seen)
			}
		}
	}
	for from, all := range ways {
		for _, to := range strings.Fields(all) {
			if seen[string(from)+" "+to] == 0 {
				t.Errorf("no history went from %s to %s", from, to)
			}
		}
	}
	for _, what := range []string{"put off", "hold lost", "linked across a hold"} {
		if seen[what] == 0 {
			t.Errorf("no job was %s", what)
		}
	}
}

// walk is a job, and those whose places it has taken.
type walk struct {
	*rand.Rand
	now    time.Time
	policy gq.Policy
	jobs   int
	s      gq.State
	events []gq.Event   // of the newest job
	ran    []gq.LeaseID // the attempts, of all the jobs
	putOff bool
	verbs  []string
}

func (w *walk) submit(b machine.Submission) {
	w.jobs++
	b.ID, b.Sequence, b.Policy, b.Own, b.Depth = machine.NewJobID([16]byte{byte(w.jobs)}), uint64(w.jobs), &w.policy, gq.PriorityNormal, 1
	s, events := machine.Submit(b, w.now)
	w.events = nil
	w.take(s, events)
}

// take records a step as a store does.
func (w *walk) take(s gq.State, events []gq.Event) {
	w.s = s
	for _, e := range events {
		e.Time = w.now
		w.events = append(w.events, e)
		if e.Type == gq.EventStarted {
			w.ran = append(w.ran, e.Lease)
		}
	}
}

func (w *walk) step() {
	w.now = w.now.Add(time.Duration(w.IntN(4)*w.IntN(40)) * time.Second)
	var ref gq.LeaseRef
	if w.s.Lease != nil {
		ref = w.s.Lease.Ref()
	}
	draw := machine.Draw{U: w.Float64()}
	at := w.now.Add(time.Duration(w.IntN(100)-20) * time.Second)
	verbs := map[string]func() (gq.State, []gq.Event, error){
		"claim": func() (gq.State, []gq.Event, error) {
			return machine.Claim(w.s, machine.Grant{Lease: gq.LeaseID(fmt.Sprint(w.now.UnixNano(), w.s.Version)), Worker: "w", Start: w.IntN(2) == 0}, w.now)
		},
		"start":    func() (gq.State, []gq.Event, error) { return machine.Start(w.s, ref, 0, w.now) },
		"complete": func() (gq.State, []gq.Event, error) { return machine.Complete(w.s, ref, nil, w.now) },
		"fail": func() (gq.State, []gq.Event, error) {
			return machine.Fail(w.s, ref, gq.Failure{Category: gq.Category(1 + w.IntN(5))}, draw, w.now)
		},
		"release": func() (gq.State, []gq.Event, error) {
			return machine.Release(w.s, ref, time.Duration(w.IntN(2))*time.Minute, "", w.now)
		},
		"revoke":     func() (gq.State, []gq.Event, error) { return machine.Revoke(w.s, ref, "", w.now) },
		"lose":       func() (gq.State, []gq.Event, error) { return machine.Lose(w.s, ref, w.now, draw, w.now) },
		"advance":    func() (gq.State, []gq.Event, error) { return machine.Advance(w.s, draw, w.now) },
		"reschedule": func() (gq.State, []gq.Event, error) { return machine.Reschedule(w.s, at, w.now) },
		"dependency": func() (gq.State, []gq.Event, error) {
			kind, end := gq.DependencyKind(1+w.IntN(5)), gq.StatusCompleted+gq.Status(w.IntN(4))
			return machine.DependencyEnded(w.s, machine.EndedDependency{Kind: kind, Status: end, Priority: gq.PriorityHigh}, w.now)
		},
	}
	if w.IntN(25) == 0 {
		verbs = map[string]func() (gq.State, []gq.Event, error){"cancel": func() (gq.State, []gq.Event, error) { return machine.Cancel(w.s, "", w.now) }}
	}
	names := make([]string, 0, len(verbs))
	for name := range verbs {
		names = append(names, name)
	}
	slices.Sort(names)
	name := names[w.IntN(len(names))]
	next, events, err := verbs[name]()
	w.putOff = errors.Is(err, machine.ErrClaimable)
	switch {
	case w.putOff:
		by := machine.NewJobID([16]byte{byte(w.jobs + 1)})
		old, _, err := machine.PutOff(w.s, by, w.s.Version, w.now)
		if err != nil {
			panic(err)
		}
		w.submit(machine.Submission{RunAt: at, Replaces: &old, CarriesOn: true})
	case err == nil:
		w.take(next, events)
	}
	w.verbs = append(w.verbs, name)
}

func (w *walk) check(t *testing.T, what string, seen map[string]int) {
	t.Helper()
	last := jobmodel.State("")
	history := jobmodel.History(w.events)
	var parts []jobmodel.Event // as a stream shows them
	for i := range w.events {
		parts = append(parts, jobmodel.History(w.events[i:i+1])...)
	}
	if !reflect.DeepEqual(parts, history) {
		t.Fatalf("%s: event by event the history is %+v, at once %+v: %v", what, parts, history, w.verbs)
	}
	for _, e := range history {
		if !slices.Contains(strings.Fields(ways[last]), string(e.State)) {
			t.Fatalf("%s: %q leads to %s: %v", what, last, e.State, w.verbs)
		}
		seen[string(last)+" "+string(e.State)]++
		last = e.State
	}
	job, end := jobmodel.Of(&gq.Job{State: w.s}), history[len(history)-1]
	if job.State != last {
		t.Fatalf("%s: a job reads %s, its history ends with %s: %v", what, job.State, last, w.verbs)
	}
	if !job.UpdatedAt.Equal(end.UpdatedAt) {
		t.Fatalf("%s: %s since %v, its history ends at %v: %v", what, last, job.UpdatedAt, end.UpdatedAt, w.verbs)
	}
	if last == jobmodel.Scheduled && !job.ScheduledAt.Equal(end.UpdatedAt) {
		t.Fatalf("%s: scheduled at %v, its history has %v: %v", what, job.ScheduledAt, end.UpdatedAt, w.verbs)
	}
	w.checkPrevious(t, what, job.PreviousAttemptID, seen)
	if w.s.Status == gq.StatusRetrying && last == jobmodel.Scheduled {
		seen["hold lost"]++
	}
	if w.putOff {
		seen["put off"]++
	}
}

// checkPrevious expects the attempt before the current one, or the last one of a job that waits.
func (w *walk) checkPrevious(t *testing.T, what string, got gq.LeaseID, seen map[string]int) {
	t.Helper()
	before := w.ran
	if l := w.s.Lease; l != nil && l.Attempt > 0 && w.s.Attempting() {
		before = before[:len(before)-1]
	}
	var want gq.LeaseID
	if len(before) > 0 {
		want = before[len(before)-1]
	}
	if got != want {
		t.Fatalf("%s: the previous attempt of a %s job is %q, want %q of %q: %v", what, w.s.Status, got, want, w.ran, w.verbs)
	}
	if l := w.s.Lease; l != nil && l.Attempt > 1 && w.s.PreviousLease != want {
		seen["linked across a hold"]++
	}
}
