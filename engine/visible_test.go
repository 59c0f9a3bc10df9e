package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/store"
)

// lateStore shows a new job to claims only some time after its submission, without a
// notification.
type lateStore struct {
	store.Store
	lag time.Duration

	mu      sync.Mutex
	visible time.Time // claims find nothing before; guarded by mu
	misses  int       // claims before that; guarded by mu
}

func (l *lateStore) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	l.mu.Lock()
	l.visible = time.Now().Add(l.lag)
	l.mu.Unlock()
	return l.Store.Insert(ctx, withoutClaims(groups))
}

func (l *lateStore) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	l.mu.Lock()
	hidden := time.Now().Before(l.visible)
	if hidden {
		l.misses++
	}
	l.mu.Unlock()
	if hidden {
		return make([]store.Claimed, len(claims)), nil
	}
	return l.Store.Claim(ctx, claims)
}

// An accepted job need not be claimable at once. A waiting claim gets it soon after it
// becomes visible, whether the job was submitted before the claim or while it waited.
func TestJobsThatAreVisibleLate(t *testing.T) {
	spec.Covers(t, "Q-19")
	const later = 10*time.Second + 37*time.Millisecond // not when a waiting claim retries anyway
	for _, lag := range []time.Duration{1500 * time.Millisecond, 5 * time.Second} {
		for _, waits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var late *lateStore
				f := newFixture(t, engine.Options{}, func(s store.Store) store.Store {
					late = &lateStore{Store: s, lag: lag}
					return late
				})
				f.run()
				submitted := make(chan gq.JobID, 1)
				if waits {
					go func() {
						time.Sleep(later)
						submitted <- f.submit(gq.Spec{})
					}()
				} else {
					id := f.submit(gq.Spec{})
					submitted <- id
					if s := f.get(id).State.Status; s != gq.StatusScheduled {
						t.Errorf("an accepted job that claims do not find yet reads as %s", s)
					}
				}
				begun := time.Now()
				j, lease := f.take(func(r *gq.ClaimRequest) { r.Wait = time.Minute })
				took := time.Since(begun)
				if waits {
					took -= later
				}
				id := <-submitted
				if j.State.ID != id || took < lag || took > lag+3*time.Second {
					t.Errorf("visible after %v, claim waits %t: got %s after %v, want %s", lag, waits, j.State.ID, took, id)
				}
				if late.misses == 0 {
					t.Error("no claim came too early")
				}
				must[gq.State](t)(f.Complete(t.Context(), lease, nil))
			})
		}
	}
}
