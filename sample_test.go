package gq_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

// TestAsk: whoever waits for capacity keeps the job, and is told when to come back.
func TestAsk(t *testing.T) {
	j := submit(t, gq.PresetScheduler.Policy())
	ref := j.claim(gq.Grant{})
	ask := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return s.Ask(ref, 10*time.Second, now) }
	for i := range 3 {
		j.after(50 * time.Second).do(ask)
		if j.s.Detail != gq.LeasePending || !j.s.RunAt.Equal(j.now.Add(10*time.Second)) || !j.s.Lease.ExpiresAt.Equal(j.now.Add(time.Minute)) {
			t.Errorf("asked %d times: %+v", i+1, j.s)
		}
	}
	j.do(start(ref, 0))
	if j.s.RunAt.After(j.now) {
		t.Errorf("a running job is to run at %v, now %v", j.s.RunAt, j.now)
	}
	j.refuses(gq.ErrIllegalMove, map[string]verb{"Ask while running": ask})

	j = submit(t, gq.PresetScheduler.Policy())
	ref = j.claim(gq.Grant{})
	j.do(ask)
	j.after(time.Minute)
	j.refuses(gq.ErrStaleLease, map[string]verb{"Ask too late": ask})
	j.do(func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return s.Advance(gq.Draw{}, now) })
	if !j.s.Claimable(j.now) || j.s.RunAt.After(j.now) {
		t.Errorf("after its hold the job is %s from %v on, now %v", j.s.Status, j.s.RunAt, j.now)
	}
}

func TestPoolAdmits(t *testing.T) {
	p := gq.Pool{Name: "p", Capacity: 70, Used: 60}
	for cost, fits := range map[int64]bool{0: true, 1: true, 10: true, 11: false, 1 << 40: false} {
		err := p.Admit(cost)
		if (err == nil) != fits || err != nil && !errors.Is(err, gq.ErrNoCapacity) {
			t.Errorf("cost %d beside 60 of 70: %v", cost, err)
		}
	}
	over := gq.Pool{Capacity: 10, Used: 20} // made smaller while jobs ran
	if over.Admit(0) != nil || over.Admit(1) == nil {
		t.Error("a pool with more in use than it has admits the wrong jobs")
	}
	for _, s := range gq.Statuses() {
		if got := (gq.Pool{}).Counts(s); got != s.Held() {
			t.Errorf("%s counts: %v", s, got)
		}
		if got := (gq.Pool{AtStart: true}).Counts(s); got != (s == gq.Running) {
			t.Errorf("%s counts at the start: %v", s, got)
		}
	}
}

// TestSampleCounts follows whole lives: what is counted is what happened.
func TestSampleCounts(t *testing.T) {
	requeue := gq.PresetScheduler.Policy()
	requeue.OnLoss = gq.LossCounts
	advance := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return s.Advance(gq.Draw{}, now) }
	cancel := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return s.Cancel("", now) }
	type counts map[gq.Measure]int64
	for name, c := range map[string]struct {
		live func(j *subject)
		want counts
	}{
		"success": {func(j *subject) {
			ref := j.claim(gq.Grant{Start: true})
			j.do(complete(ref))
		}, counts{gq.StartedCount: 1, gq.CompletedCount: 1, gq.ReleasedCount: 1}},
		"a held job is cancelled": {func(j *subject) {
			j.claim(gq.Grant{})
			j.do(cancel)
		}, counts{gq.ClaimedCount: 1, gq.CancelledCount: 1}},
		"a hold runs out, then a run, then it is cancelled": {func(j *subject) {
			j.claim(gq.Grant{})
			j.after(time.Minute).do(advance)
			j.claim(gq.Grant{Start: true})
			j.after(time.Minute).do(advance)
			j.do(cancel)
		}, counts{gq.ClaimedCount: 1, gq.StartedCount: 1, gq.ExpiredCount: 1, gq.CancelledCount: 1}},
		"it ran out, is claimed again and cancelled": {func(j *subject) {
			j.claim(gq.Grant{Start: true})
			j.after(time.Minute).do(advance)
			j.claim(gq.Grant{})
			j.do(cancel)
		}, counts{gq.ClaimedCount: 1, gq.StartedCount: 1, gq.ExpiredCount: 1, gq.CancelledCount: 1}},
		"a timeout is reported": {func(j *subject) {
			ref := j.claim(gq.Grant{Start: true})
			j.do(fail(ref, gq.CategoryTimeout))
		}, counts{gq.StartedCount: 1, gq.TimedOutCount: 1, gq.ReleasedCount: 1}},
		"a failure": {func(j *subject) {
			ref := j.claim(gq.Grant{Start: true})
			j.do(fail(ref, gq.CategoryPermanent))
		}, counts{gq.StartedCount: 1, gq.FailedCount: 1, gq.ReleasedCount: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			j := submit(t, requeue)
			c.live(j)
			var s gq.Sample
			for i := range j.events {
				s.Count(&j.events[i])
			}
			for m := range gq.MeasureEnd {
				want := c.want[m]
				if m == gq.SubmittedCount {
					want = 1
				}
				if s.Values[m] != want {
					t.Errorf("%s is %d, want %d", m, s.Values[m], want)
				}
			}
		})
	}
	if got := gq.MeasureEnd.String(); got != "unknown(14)" {
		t.Errorf("what is no measure is called %s", got)
	}
}
