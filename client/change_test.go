package client_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Concurrent changes of different settings of one queue do not undo each other: unchanged
// settings are not sent.
func TestChangingAQueueLeavesTheRest(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	changed, err := f.ChangeQueue(ctx, "q", func(q *gq.Queue) {
		q.MaxRunning = 7
		q.Policy.MaxAttempts = 9
		// A concurrent change:
		must(f.ChangeQueue(ctx, "q", func(q *gq.Queue) {
			q.MaxDepth, q.Fair, q.Rate = 100, true, gq.Rate{Count: 5, Per: time.Second}
			q.Policy.LeaseTTL = time.Minute
			q.Policy.Backoff.Initial = 3 * time.Second
		}))(t)
	})
	if err != nil {
		t.Fatal(err)
	}
	want := machine.NewQueue("q")
	want.MaxRunning, want.MaxDepth, want.Fair, want.Rate = 7, 100, true, gq.Rate{Count: 5, Per: time.Second}
	want.Policy.MaxAttempts, want.Policy.LeaseTTL, want.Policy.Backoff.Initial = 9, time.Minute, 3*time.Second
	want.UpdatedAt = changed.UpdatedAt
	same(t, "both changes", want, changed)
	same(t, "what the engine has", must(f.engine.Queue(ctx, "q"))(t), changed)

	// Back to the defaults, also by a preset.
	changed = must(f.ChangeQueue(ctx, "q", func(q *gq.Queue) {
		q.MaxRunning, q.MaxDepth, q.Fair, q.Rate, q.Policy = 0, 0, false, gq.Rate{}, gq.PresetSemantics.Policy()
	}))(t)
	want = machine.NewQueue("q")
	want.Policy, want.UpdatedAt = gq.PresetSemantics.Policy(), changed.UpdatedAt
	same(t, "a queue that was set back", want, changed)

	for name, change := range map[string]func(*gq.Queue){
		"negative": func(q *gq.Queue) { q.MaxRunning = -1 },
		"rate":     func(q *gq.Queue) { q.Rate = gq.Rate{Count: -1} },
		"pool":     func(q *gq.Queue) { q.Pool = "none" },
	} {
		if _, err := f.ChangeQueue(ctx, "q", change); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	same(t, "after refusals", must(f.engine.Queue(ctx, "q"))(t), changed)
}

func TestPurging(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	ended, live := f.job(), f.job()
	must(f.Cancel(ctx, ended, ""))(t)
	if err := f.Purge(ctx, live); !errors.Is(err, gq.ErrIllegalMove) {
		t.Errorf("a live job: %v", err)
	}
	if err := f.Purge(ctx, ended); err != nil {
		t.Error(err)
	}
	if err := f.Purge(ctx, ended); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("again: %v", err)
	}
	if _, err := f.PurgeWhere(ctx, gq.Query{}); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("of no state: %v", err)
	}
	must(f.Cancel(ctx, live, ""))(t)
	if n := must(f.PurgeWhere(ctx, gq.Query{Statuses: []gq.Status{gq.StatusCancelled}}))(t); n != 1 {
		t.Errorf("purged %d", n)
	}
}
