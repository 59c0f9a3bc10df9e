package machine_test

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store/codec"
	"github.com/gopherqueue/gq/view/semantics"
)

// TestRandomWalk applies random verbs to jobs, under random policies, and checks the
// invariants after each step.
func TestRandomWalk(t *testing.T) {
	spec.Covers(t, "Q-21", "Q-35", "Q-36", "Q-53", "Q-58", "Q-84", "J-36", "J-37", "J-38", "J-71", "J-136", "J-137", "J-141")
	reached := map[gq.Status]int{}
	for _, preset := range enum.All[gq.Preset]() {
		t.Run(preset.String(), func(t *testing.T) {
			rapid.Check(t, func(r *rapid.T) {
				w := newWalker(r, preset)
				for range rapid.IntRange(5, 60).Draw(r, "steps") {
					w.step()
					reached[w.s.Status]++
				}
			})
		})
	}
	for _, s := range enum.All[gq.Status]() {
		if reached[s] == 0 {
			t.Errorf("no walk came to %s: they prove little", s)
		}
	}
}

type walker struct {
	*rapid.T
	s      gq.State
	now    time.Time
	refs   []gq.LeaseRef // every lease so far, and one that was never issued
	moved  gq.Status     // status after the last event
	starts int
}

func newWalker(r *rapid.T, preset gq.Preset) *walker {
	p := preset.Policy()
	seconds := func(label string, choices ...int) time.Duration {
		return time.Duration(rapid.SampledFrom(choices).Draw(r, label)) * time.Second
	}
	if rapid.Bool().Draw(r, "own policy") {
		p.MaxAttempts = rapid.IntRange(1, 4).Draw(r, "max attempts")
		p.MaxLeaseLosses = rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(r, "max losses")
		p.RetryTimeout, p.RetrySystem = rapid.Bool().Draw(r, "retry timeout"), rapid.Bool().Draw(r, "retry system")
		p.ExecutionTimeout = seconds("timeout", 0, 3, 10, 60)
		p.Lifetime, p.RunLifetime = seconds("lifetime", 0, 20, 600), seconds("run lifetime", 0, 0, 20)
		p.StartWithin = seconds("start within", 0, 0, 15)
		p.LeaseTTL, p.Hold = seconds("ttl", 2, 10), seconds("hold", 2, 10)
		p.OnLoss = rapid.SampledFrom([]gq.LossRule{gq.LossCounts, gq.LossFree, gq.LossBackoff, gq.LossFails}).Draw(r, "on loss")
		p.HoldFault, p.CancelWins = rapid.Bool().Draw(r, "hold fault"), rapid.Bool().Draw(r, "cancel wins")
	}
	if err := machine.CheckPolicy(p); err != nil {
		r.Fatal(err)
	}
	w := &walker{T: r, now: verbsStart, refs: []gq.LeaseRef{{ID: "never"}, {}}}
	b := machine.Submission{
		ID: machine.NewJobID([16]byte{1}), Sequence: 1, Policy: &p, Own: gq.PriorityNormal,
		Waits: rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(r, "waits"), AnyOpen: rapid.IntRange(0, 5).Draw(r, "any") == 0,
	}
	if rapid.IntRange(0, 3).Draw(r, "delayed") == 0 {
		b.RunAt = w.now.Add(5 * time.Second)
	}
	next, events := machine.Submit(b, w.now)
	if events[0].Type != gq.EventSubmitted || events[0].Status != gq.StatusPending {
		r.Fatalf("the first event is %+v", events[0])
	}
	w.history(next, events)
	w.s = next
	w.always()
	return w
}

// move is a verb with its arguments.
type move struct {
	name    string
	apply   verb
	ref     *gq.LeaseRef // the lease in the call
	settles bool
}

func (w *walker) draw() move {
	ref := w.refs[len(w.refs)-1] // mostly the newest
	if rapid.IntRange(0, 3).Draw(w.T, "any lease") == 0 {
		ref = rapid.SampledFrom(w.refs).Draw(w.T, "lease")
	}
	holder := func(name string, settles bool, v verb) move { return move{name, v, &ref, settles} }
	draw := machine.Draw{U: rapid.Float64Range(0, 0.999).Draw(w.T, "u")}
	name := rapid.SampledFrom([]string{
		"claim", "claim", "claim", "claim", "complete", "complete", "fail", "fail", "release", "heartbeat", "heartbeat", "prepare",
		"start", "start", "cancel", "advance", "advance", "update", "dependency", "reschedule", "reschedule",
	}).Draw(w.T, "verb")
	switch name {
	case "claim":
		g := machine.Grant{Lease: gq.LeaseID(fmt.Sprint("lease-", len(w.refs))), Worker: "w", Start: rapid.Bool().Draw(w.T, "start")}
		return move{name: name, apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Claim(s, g, now) }}
	case "complete":
		return holder(name, true, complete(ref))
	case "fail":
		f := gq.Failure{Category: rapid.SampledFrom(enum.All[gq.Category]()).Draw(w.T, "category")}
		return holder(name, true, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Fail(s, ref, f, draw, now)
		})
	case "release":
		return holder(name, true, release(ref, rapid.SampledFrom([]time.Duration{0, 3 * time.Second}).Draw(w.T, "delay")))
	case "heartbeat":
		return holder(name, false, heartbeat(ref))
	case "prepare":
		return holder(name, false, prepare(ref, rapid.SampledFrom([]gq.Detail{gq.DetailClaimed, gq.DetailPreparing, gq.DetailLeasePending}).Draw(w.T, "detail")))
	case "start":
		return holder(name, false, start(ref, 0))
	case "cancel":
		return move{name: name, apply: cancel}
	case "update":
		return move{name: name, apply: setPriority(rapid.SampledFrom(enum.All[gq.Priority]()).Draw(w.T, "priority"))}
	case "reschedule":
		at := w.now.Add(time.Duration(rapid.SampledFrom([]int{-1, 0, 2, 10, 3600}).Draw(w.T, "at")) * time.Second)
		return move{name: name, apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Reschedule(s, at, now) }}
	case "dependency":
		e := machine.EndedDependency{
			Kind:   rapid.SampledFrom(enum.All[gq.DependencyKind]()).Draw(w.T, "kind"),
			Status: rapid.SampledFrom([]gq.Status{gq.StatusCompleted, gq.StatusCompleted, gq.StatusFailed, gq.StatusDeadLetter, gq.StatusCancelled}).Draw(w.T, "ended"),
		}
		return move{name: name, apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.DependencyEnded(s, e, now)
		}}
	default:
		return move{name: "advance", apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Advance(s, draw, now) }}
	}
}

func (w *walker) step() {
	due := machine.Due(&w.s)
	switch rapid.SampledFrom([]string{"now", "now", "now", "now", "soon", "soon", "due", "late"}).Draw(w.T, "time") {
	case "soon":
		w.now = w.now.Add(time.Second)
	case "due":
		if due.After(w.now) {
			w.now = due
		}
	case "late":
		w.now = w.now.Add(time.Minute)
	}
	m := w.draw()
	before := deepCopy(w.s)
	next, events, err := m.apply(w.s, w.now)
	if !reflect.DeepEqual(before, w.s) {
		w.Fatalf("%s changed its argument:\n%s", m.name, cmp.Diff(before, w.s))
	}
	if err != nil && !errors.Is(err, gq.ErrStaleLease) && !errors.Is(err, gq.ErrIllegalMove) && (m.name != "reschedule" || !errors.Is(err, gq.ErrInvalid)) {
		w.Fatalf("%s: %v", m.name, err)
	}
	unchanged := reflect.DeepEqual(before, next)
	if (err != nil || before.Status.Terminal()) && (!unchanged || len(events) > 0) {
		w.Fatalf("%s of a %s job, with the error %v, changed it:\n%s\n%+v", m.name, before.Status, err, cmp.Diff(before, next), events)
	}
	w.fenced(m, before, err, unchanged)
	w.onTime(m, before, next, events)
	w.history(next, events)
	w.counted(m, before, next, events, err == nil)
	w.retried(before, next)
	w.s = next
	if m.name == "claim" && err == nil {
		w.refs = append(w.refs, next.Lease.Ref())
	}
	w.always()
}

// fenced: a caller that does not hold the job changes nothing.
func (w *walker) fenced(m move, before gq.State, err error, unchanged bool) {
	if m.ref == nil {
		return
	}
	l := before.Lease
	holds := l != nil && m.ref.ID == l.ID && m.ref.ID != "" && l.State == gq.LeaseActive && w.now.Before(l.ExpiresAt)
	repeated := err == nil && unchanged && m.settles
	if !holds && !repeated && !errors.Is(err, gq.ErrStaleLease) {
		w.Fatalf("%s under lease %q of a job held under %+v: %v", m.name, m.ref.ID, l, err)
	}
}

// onTime: Advance changes a job when it is due, and not otherwise.
func (w *walker) onTime(m move, before, next gq.State, events []gq.Event) {
	if m.name != "advance" {
		return
	}
	due := machine.Due(&before)
	if come := !due.IsZero() && !due.After(w.now); come != (len(events) > 0) {
		w.Fatalf("%s job, due at %v, now %v: %d events", before.Status, due, w.now, len(events))
	}
	if due := machine.Due(&next); !due.IsZero() && !due.After(w.now) {
		w.Fatalf("%s job is due at %v again right after, at %v", next.Status, due, w.now)
	}
}

// history: the events follow the table of moves.
func (w *walker) history(next gq.State, events []gq.Event) {
	moved := false
	for _, e := range events {
		if e.Job != next.ID {
			w.Fatalf("an event of another job: %+v", e)
		}
		if e.Type == gq.EventStarted {
			w.starts++
		}
		switch e.Type {
		case gq.EventPreparing, gq.EventRenewed, gq.EventUpdated, gq.EventCancelRequested, gq.EventCancelDelivered:
			if e.Status != w.moved {
				w.Fatalf("%s is no move, but leads from %s to %s", e.Type, w.moved, e.Status)
			}
		default:
			if !machine.CanMove(w.moved, e.Status) {
				w.Fatalf("%s leads from %s to %s", e.Type, w.moved, e.Status)
			}
			w.moved, moved = e.Status, true
		}
	}
	if w.moved != next.Status {
		w.Fatalf("the job is %s, its history ends with %s", next.Status, w.moved)
	}
	if want := w.s.UpdatedAt; moved && !next.UpdatedAt.Equal(w.now) || !moved && !next.UpdatedAt.Equal(want) {
		w.Fatalf("updated at %v, moved %v, now %v", next.UpdatedAt, moved, w.now)
	}
}

// counted: how the counters may change in one step.
func (w *walker) counted(m move, before, next gq.State, events []gq.Event, done bool) {
	claimed := m.name == "claim" && done
	if want := before.Version + map[bool]gq.LeaseVersion{true: 1}[claimed]; next.Version != want {
		w.Fatalf("%s: version %d after %d", m.name, next.Version, before.Version)
	}
	if m.name == "claim" && done != machine.Claimable(&before, w.now) {
		w.Fatalf("claim of a %s job, claimable %v: %v", before.Status, machine.Claimable(&before, w.now), done)
	}
	faults, bound, losses := next.Faults-before.Faults, next.Bound-before.Bound, next.Losses-before.Losses
	reported := m.name == "fail" && len(events) > 0
	timedOut := m.name == "advance" && faults == 1 && next.Failure.Code == "execution_timeout"
	free := before.Policy.OnLoss == gq.LossFree
	switch {
	case reported || timedOut:
		if faults != 1 || bound != 0 || losses != 0 {
			w.Fatalf("%s cost %d faults, %d losses, %d more attempts", m.name, faults, losses, bound)
		}
		if next.Live() && next.Status != gq.StatusRetrying && events[0].Type != gq.EventRetrying {
			w.Fatalf("a failure led to %s", next.Status)
		}
	case losses != 0:
		if losses != 1 || (faults == 1) == free || (bound == 1) != free {
			w.Fatalf("a loss cost %d faults, %d losses, %d more attempts", faults, losses, bound)
		}
	case bound != 0:
		if m.name != "release" || bound != 1 || faults != 0 || before.Status != gq.StatusRunning {
			w.Fatalf("%s of a %s job: %d more attempts, %d faults", m.name, before.Status, bound, faults)
		}
	case faults != 0:
		w.Fatalf("%s cost %d faults", m.name, faults)
	}
	if next.Own != before.Own && (m.name != "update" || before.Status.Held()) {
		w.Fatalf("%s changed the priority of a %s job", m.name, before.Status)
	}
	if !before.FirstStartedAt.IsZero() && !next.FirstStartedAt.Equal(before.FirstStartedAt) {
		w.Fatalf("the first start moved to %v", next.FirstStartedAt)
	}
}

// retried: retries that are used up stay so, and a failure that ends a job uses up none, unless its
// end has another reason too.
func (w *walker) retried(before, next gq.State) {
	was, is := semantics.Of(&gq.Job{State: before}), semantics.Of(&gq.Job{State: next})
	if is.Retries < was.Retries || is.Retries > is.MaxRetries {
		w.Fatalf("%d retries of %d after %d:\n%s", is.Retries, is.MaxRetries, was.Retries, cmp.Diff(before, next))
	}
	if end := next.Status; (end == gq.StatusFailed || next.Reason == "attempts_exhausted") && is.Retries != was.Retries {
		w.Fatalf("the end as %s used up a retry: %d after %d", end, is.Retries, was.Retries)
	}
}

// always has the invariants of every state.
func (w *walker) always() {
	s := w.s
	switch view := semantics.StateOf(&s); view {
	case "Ready", "InFlight", "Succeeded", "Failed":
	default:
		w.Fatalf("the job reads %q", view)
	}
	if active := s.Lease != nil && s.Lease.State == gq.LeaseActive; active != s.Status.Held() {
		w.Fatalf("a %s job has the lease %+v", s.Status, s.Lease)
	}
	if s.Attempt != w.starts || s.Attempt > s.Bound || s.Faults > s.Policy.MaxAttempts {
		w.Fatalf("after %d starts: attempt %d of %d, %d faults of %d", w.starts, s.Attempt, s.Bound, s.Faults, s.Policy.MaxAttempts)
	}
	if s.Status.Terminal() == s.CompletedAt.IsZero() || s.Status.Terminal() && !machine.Due(&s).IsZero() {
		w.Fatalf("%s, ended at %v, due at %v", s.Status, s.CompletedAt, machine.Due(&s))
	}
	if s.Status != gq.StatusClaimed && s.Detail != gq.DetailNone || s.Status == gq.StatusClaimed && s.Detail == gq.DetailNone {
		w.Fatalf("a %s job has the detail %q", s.Status, s.Detail)
	}
	raw, err := codec.AppendState(&s, nil)
	if err != nil {
		w.Fatal(err)
	}
	back, err := codec.DecodeState(raw, s.Sequence, func(p gq.Policy) *gq.Policy { return &p })
	if err != nil {
		w.Fatalf("the state cannot be read back: %v", err)
	}
	if !reflect.DeepEqual(s, back) {
		w.Fatalf("the state is read back as another (-written +read):\n%s", cmp.Diff(s, back))
	}
}
