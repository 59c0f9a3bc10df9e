package machine_test

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

// TestAsk: a holder that waits for capacity keeps the job and learns when to ask again.
func TestAsk(t *testing.T) {
	j := submit(t, gq.PresetScheduler.Policy())
	ref := j.claim(machine.Grant{})
	ask := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Ask(s, ref, 10*time.Second, now)
	}
	for i := range 3 {
		j.after(50 * time.Second).do(ask)
		if j.s.Detail != gq.DetailLeasePending || !j.s.RunAt.Equal(j.now.Add(10*time.Second)) || !j.s.Lease.ExpiresAt.Equal(j.now.Add(time.Minute)) {
			t.Errorf("asked %d times: %+v", i+1, j.s)
		}
	}
	j.do(start(ref, 0))
	if j.s.RunAt.After(j.now) {
		t.Errorf("a running job is to run at %v, now %v", j.s.RunAt, j.now)
	}
	j.refuses(gq.ErrIllegalMove, map[string]verb{"Ask while running": ask})

	j = submit(t, gq.PresetScheduler.Policy())
	ref = j.claim(machine.Grant{})
	j.do(ask)
	j.after(time.Minute)
	j.refuses(gq.ErrStaleLease, map[string]verb{"Ask too late": ask})
	j.do(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Advance(s, machine.Draw{}, now)
	})
	if !machine.Claimable(&j.s, j.now) || j.s.RunAt.After(j.now) {
		t.Errorf("after its hold the job is %s from %v on, now %v", j.s.Status, j.s.RunAt, j.now)
	}
}

// TestDeny: denials in a row with the same numbers are one event, and another that counts them.
func TestDeny(t *testing.T) {
	full := machine.CapacityError{Pool: "p", Used: 60, Requested: 30, Capacity: 70}
	const text = "capacity exceeded: used=60, requested=30, capacity=70, count="
	ways := map[string]verb{
		"start": nil,
		"cancel": func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Cancel(s, "enough", now)
		},
		"loss": func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Advance(s, machine.Draw{}, now.Add(time.Hour))
		},
	}
	for name, leave := range ways {
		for n := 1; n <= 3; n++ {
			j := submit(t, gq.PresetScheduler.Policy())
			ref := j.claim(machine.Grant{})
			deny := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Deny(s, ref, &full, now)
			}
			j.refuses(gq.ErrIllegalMove, map[string]verb{"Deny before it asks": deny})
			j.do(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Ask(s, ref, time.Second, now)
			})
			for range n {
				j.do(deny)
			}
			if want := text + strconv.Itoa(n); j.s.Reason != want || j.last().Reason != text+"1" || j.last().Worker != j.s.Lease.Worker {
				t.Errorf("%d denials: %q, and the event %+v", n, j.s.Reason, j.last())
			}
			told := len(j.events)
			if leave == nil {
				j.do(start(ref, 0))
			} else {
				j.do(leave)
			}
			var reasons []string
			for _, e := range j.events[told:] {
				if e.Type == gq.EventUpdated {
					reasons = append(reasons, e.Reason)
				}
			}
			if n == 1 && len(reasons) > 0 || n > 1 && !slices.Equal(reasons, []string{text + strconv.Itoa(n)}) {
				t.Errorf("%s after %d denials: %q", name, n, reasons)
			}
			if _, denied := machine.ParseDenial(j.s.Reason); denied || name == "cancel" && j.s.Reason != "enough" {
				t.Errorf("%s: the reason of the job is %q", name, j.s.Reason)
			}
		}
	}
	denyOtherNumbers(t)
	for _, other := range []string{"", "capacity", text + "0", text + "1 ", text + "01"} {
		if d, ok := machine.ParseDenial(other); ok {
			t.Errorf("%q is the denial %+v", other, d)
		}
	}
}

// denyOtherNumbers changes the numbers of a denial one by one: each change begins another row, and
// an event says how long the one before was.
func denyOtherNumbers(t *testing.T) {
	t.Helper()
	j := submit(t, gq.PresetScheduler.Policy())
	ref := j.claim(machine.Grant{})
	j.do(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Ask(s, ref, time.Second, now)
	})
	told := len(j.events)
	var want []string
	for _, full := range []machine.CapacityError{
		{Used: 60, Requested: 30, Capacity: 70}, {Used: 60, Requested: 30, Capacity: 80}, {Used: 60, Requested: 40, Capacity: 80}, {Used: 61, Requested: 40, Capacity: 80},
	} {
		for range 2 {
			j.do(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Deny(s, ref, &full, now) })
		}
		row := machine.Denial{Used: full.Used, Requested: full.Requested, Capacity: full.Capacity, Count: 1}
		want = append(want, row.String())
		row.Count = 2
		want = append(want, row.String())
		if j.s.Reason != row.String() {
			t.Errorf("the reason is %q, want %q", j.s.Reason, row)
		}
	}
	var got []string
	for _, e := range j.events[told:] {
		got = append(got, e.Reason)
	}
	if want = want[:len(want)-1]; !slices.Equal(got, want) { // the last row goes on
		t.Errorf("the denials are\n%q, want\n%q", got, want)
	}
}

func TestPoolAdmits(t *testing.T) {
	p := gq.Pool{Name: "p", Capacity: 70, Used: 60}
	for cost, fits := range map[int64]bool{0: true, 1: true, 10: true, 11: false, 1 << 40: false} {
		err := machine.AdmitToPool(p, cost)
		if (err == nil) != fits || err != nil && !errors.Is(err, gq.ErrNoCapacity) {
			t.Errorf("cost %d beside 60 of 70: %v", cost, err)
		}
		if full, is := errors.AsType[*machine.CapacityError](err); is && *full != (machine.CapacityError{Pool: "p", Used: 60, Requested: cost, Capacity: 70}) {
			t.Errorf("cost %d beside 60 of 70 is refused with %+v", cost, *full)
		}
	}
	over := gq.Pool{Capacity: 10, Used: 20} // reduced while jobs ran
	if machine.AdmitToPool(over, 0) != nil || machine.AdmitToPool(over, 1) == nil {
		t.Error("a pool with more in use than it has admits the wrong jobs")
	}
	for _, s := range enum.All[gq.Status]() {
		if got := machine.CountsInPool((gq.Pool{}), s); got != s.Held() {
			t.Errorf("%s counts: %v", s, got)
		}
		if got := machine.CountsInPool((gq.Pool{AtStart: true}), s); got != (s == gq.StatusRunning) {
			t.Errorf("%s counts at the start: %v", s, got)
		}
	}
}

// TestSampleCounts compares the counts with the whole lives of jobs.
func TestSampleCounts(t *testing.T) {
	requeue := gq.PresetScheduler.Policy()
	requeue.OnLoss = gq.LossCounts
	advance := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Advance(s, machine.Draw{}, now)
	}
	cancel := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Cancel(s, "", now) }
	type counts map[machine.Measure]int64
	for name, c := range map[string]struct {
		live func(j *subject)
		want counts
	}{
		"success": {func(j *subject) {
			ref := j.claim(machine.Grant{Start: true})
			j.do(complete(ref))
		}, counts{machine.StartedCount: 1, machine.CompletedCount: 1, machine.ReleasedCount: 1}},
		"a held job is cancelled": {func(j *subject) {
			j.claim(machine.Grant{})
			j.do(cancel)
		}, counts{machine.ClaimedCount: 1, machine.CancelledCount: 1}},
		"a hold runs out, then a run, then it is cancelled": {func(j *subject) {
			j.claim(machine.Grant{})
			j.after(time.Minute).do(advance)
			j.claim(machine.Grant{Start: true})
			j.after(time.Minute).do(advance)
			j.do(cancel)
		}, counts{machine.ClaimedCount: 1, machine.StartedCount: 1, machine.ExpiredCount: 1, machine.CancelledCount: 1}},
		"a hold is given back with a delay, then lost": {func(j *subject) {
			for range 2 {
				ref := j.claim(machine.Grant{})
				j.do(release(ref, time.Second))
				j.after(time.Second)
			}
			ref := j.claim(machine.Grant{})
			j.do(start(ref, 0))
			j.do(release(ref, time.Second))
		}, counts{machine.ClaimedCount: 3, machine.StartedCount: 1, machine.ReleasedCount: 1}},
		"it ran out, is claimed again and cancelled": {func(j *subject) {
			j.claim(machine.Grant{Start: true})
			j.after(time.Minute).do(advance)
			j.claim(machine.Grant{})
			j.do(cancel)
		}, counts{machine.ClaimedCount: 1, machine.StartedCount: 1, machine.ExpiredCount: 1, machine.CancelledCount: 1}},
		"a timeout is reported": {func(j *subject) {
			ref := j.claim(machine.Grant{Start: true})
			j.do(fail(ref, gq.CategoryTimeout))
		}, counts{machine.StartedCount: 1, machine.TimedOutCount: 1, machine.ReleasedCount: 1}},
		"a failure": {func(j *subject) {
			ref := j.claim(machine.Grant{Start: true})
			j.do(fail(ref, gq.CategoryPermanent))
		}, counts{machine.StartedCount: 1, machine.FailedCount: 1, machine.ReleasedCount: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			j := submit(t, requeue)
			c.live(j)
			var s machine.Sample
			for i := range j.events {
				s.Count(&j.events[i])
			}
			for m := range machine.MeasureEnd {
				want := c.want[m]
				if m == machine.SubmittedCount {
					want = 1
				}
				if s.Values[m] != want {
					t.Errorf("%s is %d, want %d", m, s.Values[m], want)
				}
			}
		})
	}
	if got := machine.MeasureEnd.String(); got != "unknown(14)" {
		t.Errorf("what is no measure is called %s", got)
	}
}
