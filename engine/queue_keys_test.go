package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
)

func TestQueueKeys(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		rate := gq.Rate{Count: 10, Per: time.Second}
		set := must[gq.QueueKey](t)(f.SetQueueKey(ctx, gq.QueueKey{Queue: "new", Key: "acme", Limit: 2, Rate: rate}))
		if set.Limit != 2 || set.Rate != rate || set.UpdatedAt.IsZero() {
			t.Errorf("set %+v", set)
		}
		if q := must[gq.Queue](t)(f.Queue(ctx, "new")); q.OwnKeys != 1 {
			t.Errorf("the queue says it has %d such keys", q.OwnKeys)
		}
		_, err := f.SetQueueKey(ctx, gq.QueueKey{Queue: "new", Key: "acme"})
		wantErr(t, "neither limit nor rate", err, gq.ErrInvalid)
		_, err = f.SetQueueKey(ctx, gq.QueueKey{Queue: "new", Key: "acme", Limit: -3})
		wantErr(t, "a negative limit", err, gq.ErrInvalid)
		if keys := must[[]gq.QueueKey](t)(f.QueueKeys(ctx, "new", "", 0)); len(keys) != 1 || keys[0] != set {
			t.Errorf("listed %+v", keys)
		}
		if err := f.UnsetQueueKey(ctx, "new", "acme"); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "unset it again", f.UnsetQueueKey(ctx, "new", "acme"), gq.ErrNotFound)
		must[gq.Queue](t)(f.DeclareQueue(ctx, gq.Queue{Name: "new", KeyRate: rate}))
		must[gq.QueueKey](t)(f.SetQueueKey(ctx, gq.QueueKey{Queue: "new", Key: "acme", Limit: 2}))
		if q := must[gq.Queue](t)(f.DeclareQueue(ctx, gq.Queue{Name: "new", KeyRate: gq.Rate{Count: 1, Per: time.Second}})); q.KeyRate.Count != 1 || q.OwnKeys != 1 {
			t.Errorf("declared again it is %+v", q)
		}
	})
}

// A claim that waits gets a job as soon as the rate of its key allows it.
func TestWaitForKeyRate(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.putQueue(gq.Queue{Name: "default", KeyRate: gq.Rate{Count: 1, Per: time.Minute}})
		f.submit(gq.Spec{LimitKey: "acme", Weight: 3})
		f.submit(gq.Spec{LimitKey: "acme"})
		start := time.Now()
		wait := func(r *gq.ClaimRequest) { r.Wait, r.TTL = 10*time.Minute, time.Hour }
		f.claim(1, wait)
		f.claim(1, wait)
		if took := time.Since(start); took != 3*time.Minute {
			t.Errorf("the second job came after %v, want 3 minutes", took)
		}
	})
}

// A claim that waits learns at once that a key got another rate.
func TestWaitForKeyRateChange(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.putQueue(gq.Queue{Name: "default", KeyRate: gq.Rate{Count: 1, Per: time.Hour}})
		f.submit(gq.Spec{LimitKey: "acme"})
		f.submit(gq.Spec{LimitKey: "acme"})
		f.claim(1)
		start := time.Now()
		time.AfterFunc(10*time.Second, func() {
			must[gq.QueueKey](t)(f.SetQueueKey(t.Context(), gq.QueueKey{Queue: "default", Key: "acme", Rate: gq.Rate{Count: 1, Per: time.Second}}))
		})
		f.claim(1, func(r *gq.ClaimRequest) { r.Wait = 10 * time.Minute })
		if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("the second job came after %v, want 10 to 11 seconds", took)
		}
	})
}

func TestClaimByPattern(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for i := range 100 {
			f.submit(gq.Spec{Queue: "mail.busy"})
			if i < 5 {
				f.submit(gq.Spec{Queue: fmt.Sprint("mail.", i)})
			}
		}
		f.submit(gq.Spec{Queue: "mailer"})
		f.submit(gq.Spec{Queue: "mail.paused"})
		f.putQueue(gq.Queue{Name: "mail.paused", Paused: true})
		queues := map[string]int{}
		for range 12 { // two rounds over the six queues that have jobs
			queues[f.claim(1, on("mail.*"))[0].Spec.Queue]++
		}
		for i := range 5 {
			if queues[fmt.Sprint("mail.", i)] != 1 {
				t.Errorf("after twelve claims jobs came from %v", queues)
			}
		}
		rest := f.claim(93, on("mail.*"), func(r *gq.ClaimRequest) { r.N = 200 })
		if slices.ContainsFunc(rest, func(j gq.Job) bool { return j.Spec.Queue != "mail.busy" }) {
			t.Error("a claim got jobs of other queues")
		}
		f.claim(1, onAny("other", "mail*")) // mailer
		f.claim(0, on("*"))
		f.submit(gq.Spec{Queue: "z"})
		f.claim(1, on("*"))
	})
}

// A claim that waits for a pattern is woken by a queue that did not exist before.
func TestWaitForPattern(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		start := time.Now()
		time.AfterFunc(time.Minute, func() { f.submit(gq.Spec{Queue: "mail.new"}) })
		time.AfterFunc(time.Second, func() { f.submit(gq.Spec{Queue: "other"}) })
		got := f.claim(1, onAny("mail.*", "one"), func(r *gq.ClaimRequest) { r.Wait = time.Hour })
		if took := time.Since(start); got[0].Spec.Queue != "mail.new" || took != time.Minute {
			t.Errorf("a job of %s came after %v", got[0].Spec.Queue, took)
		}
		synctest.Wait() // the claim may have its job before the submission returns
	})
}

// More queues than one step of a claim names.
func TestClaimByPatternManyQueues(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for i := range 200 {
			f.submit(gq.Spec{Queue: fmt.Sprintf("q.%03d", i)})
		}
		seen := map[string]bool{}
		for _, n := range []int{1, 50, 149} {
			for _, j := range f.claim(n, on("q.*")) {
				seen[j.Spec.Queue] = true
			}
		}
		if len(seen) != 200 {
			t.Errorf("claims got jobs of %d queues, want 200", len(seen))
		}
		f.claim(0, on("q.*"))
	})
}

// A claim gets no more jobs than it asks for, also if it needs several steps.
func TestClaimByPatternInSteps(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for i := range 80 {
			for range 1 + i/70*20 { // the last queues have more
				f.submit(gq.Spec{Queue: fmt.Sprintf("q.%03d", i)})
			}
		}
		f.claim(100, on("q.*"), func(r *gq.ClaimRequest) { r.N = 100 })
	})
}

func TestBadPatterns(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for _, bad := range [][]string{{"a*b"}, {"*x"}, {"**"}, {"mail *"}, {"ok", ""}, slices.Repeat([]string{"a*"}, 17)} {
			_, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1, Queues: bad})
			wantErr(t, fmt.Sprint(bad), err, gq.ErrInvalid)
		}
	})
}

// onAny claims from several queues.
func onAny(queues ...string) func(*gq.ClaimRequest) {
	return func(r *gq.ClaimRequest) { r.Queues = queues }
}

// A list begins after a name: text that no name has is refused before it reaches a store that cannot compare it.
func TestListsBeginAfterAName(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for _, after := range []string{"\x00", "mail\x00", "\xff\xfe", strings.Repeat("x", gq.MaxNameBytes+1)} {
			_, err := f.QueuesAfter(t.Context(), after, 10)
			wantErr(t, "queues after "+after, err, gq.ErrInvalid)
			_, err = f.QueueKeys(t.Context(), "mail", after, 10)
			wantErr(t, "keys after "+after, err, gq.ErrInvalid)
			_, err = f.QueueKeys(t.Context(), after, "", 10)
			wantErr(t, "keys of "+after, err, gq.ErrInvalid)
		}
		if _, err := f.QueuesAfter(t.Context(), "a name, not of a queue", 10); err != nil {
			t.Error(err)
		}
	})
}

// News of a queue wakes the claims of every pattern that it matches.
func TestWaitForSeveralPatterns(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.putQueue(gq.Queue{Name: "mail.new", Paused: true})
		for range 3 {
			f.submit(gq.Spec{Queue: "mail.new"})
		}
		start := time.Now()
		var waits sync.WaitGroup
		for i, pattern := range []string{"*", "mail.*", "mail.new*"} {
			waits.Go(func() {
				f.claim(1, as(fmt.Sprint(i)), on(pattern), waiting(time.Hour))
				if took := time.Since(start); took != time.Minute {
					t.Errorf("a claim by %s got its job after %v", pattern, took)
				}
			})
		}
		time.Sleep(time.Minute)
		must[gq.Queue](t)(f.Resume(t.Context(), "mail.new"))
		waits.Wait()
	})
}
