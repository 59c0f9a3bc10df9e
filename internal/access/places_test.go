package access

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
)

// No token takes the places of all others, all together take no more than a server has, and a
// refusal names the limit. security.md has the same numbers.
func TestPlaces(t *testing.T) {
	a, b := With(t.Context(), newIdentity("a", "a", nil)), With(t.Context(), newIdentity("b", "b", nil))
	nobody := With(t.Context(), Everyone())
	g := NewGuard(nil)
	for _, c := range []struct {
		places    *Places
		each, all int
		named     [2]string
	}{
		{g.waiting, 12_000, 20_000, [2]string{"12000 waiting calls", "20000 waiting calls"}},
		{g.subscribers, 5_000, 10_000, [2]string{"5000 event subscriptions", "10000 event subscriptions"}},
		{NewStreams(), 12_000, 20_000, [2]string{"12000 Work streams", "20000 Work streams"}},
	} {
		var free []func()
		fill := func(ctx context.Context, want int, named string) {
			t.Helper()
			n := 0
			for {
				f, err := c.places.Take(ctx)
				if err == nil {
					free = append(free, f)
					n++
					continue
				}
				later, ok := errors.AsType[interface {
					error
					RetryAfter() time.Duration
				}](err)
				if n != want || !errors.Is(err, gq.ErrTooMany) || !strings.Contains(err.Error(), named) || !ok || later.RetryAfter() <= 0 {
					t.Errorf("after %d places, want %d: %v", n, want, err)
				}
				return
			}
		}
		fill(a, c.each, c.named[0])
		f, err := c.places.Take(b)
		if err != nil {
			t.Errorf("another token: %v", err)
		}
		f()
		fill(nobody, c.all-c.each, c.named[1])
		fill(b, 0, c.named[1])
		free[0]()
		free[0]() // counts once
		fill(a, 1, c.named[0])
		for _, f := range free {
			f()
		}
		fill(nobody, c.all, c.named[1])
		for _, f := range free {
			f()
		}
		if c.places.taken != 0 || len(c.places.of) != 0 {
			t.Errorf("%s: %d are taken, of %v", c.named[0], c.places.taken, c.places.of)
		}
	}
	var none *Places
	if f, err := none.Take(a); err != nil {
		t.Errorf("without a limit: %v", err)
	} else {
		f()
	}
}

// Claims that wait and waits for jobs share places; a claim that does not wait needs none. When a
// wait ends its place is free again.
func TestWaitingCallsTakePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.guard.waiting = NewPlaces("waiting calls", 2, 2)
		job := f.job("q")
		me, stop := context.WithTimeout(f.as("work,read@q,r"), 2*time.Hour)
		defer stop()
		wait, cancel := context.WithCancel(me)
		ended := make(chan error, 2)
		claim := gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, TTL: time.Minute, N: 1, Wait: time.Hour}
		several := claim
		several.Queues = []string{"q", "r"}
		go func() { _, err := f.guard.Claim(wait, several); ended <- err }()
		go func() { _, err := f.guard.Wait(wait, job.State.ID); ended <- err }()
		synctest.Wait()
		if _, err := f.guard.Claim(me, claim); !errors.Is(err, gq.ErrTooMany) || !strings.Contains(err.Error(), "2 waiting calls") {
			t.Errorf("the third call: %v", err)
		}
		if _, err := f.guard.Wait(me, job.State.ID); !errors.Is(err, gq.ErrTooMany) {
			t.Errorf("a third wait: %v", err)
		}
		now := claim
		now.Wait = 0
		if _, err := f.guard.Claim(me, now); err != nil {
			t.Errorf("a claim that does not wait: %v", err)
		}
		cancel()
		<-ended
		<-ended
		claim.Wait = time.Second
		if _, err := f.guard.Claim(me, claim); err != nil {
			t.Errorf("after the others have ended: %v", err)
		}
		if f.guard.waiting.taken != 0 {
			t.Errorf("%d places are still taken", f.guard.waiting.taken)
		}
	})
}
