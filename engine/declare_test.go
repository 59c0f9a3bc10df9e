package engine_test

import (
	"errors"
	"reflect"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// TestDeclareQueueKeepsTheOperator starts a program several times while an operator changes
// its queue.
func TestDeclareQueueKeepsTheOperator(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		policy := machine.DefaultPolicy()
		policy.MaxAttempts = 7
		q := gq.Queue{Name: "mail", Policy: policy, MaxRunning: 3, MaxDepth: 100, KeyLimit: 2}
		declare := func() gq.Queue {
			t.Helper()
			out := must[gq.Queue](t)(f.DeclareQueue(ctx, q))
			if read := must[gq.Queue](t)(f.Queue(ctx, "mail")); !reflect.DeepEqual(read, out) {
				t.Errorf("declared %+v, and it reads %+v", out, read)
			}
			return out
		}
		first := declare()
		want := q
		want.UpdatedAt = first.UpdatedAt
		if first != want {
			t.Errorf("declared %+v as %+v", want, first)
		}
		if again := declare(); again != first {
			t.Errorf("declaring the same again made %+v of %+v", again, first)
		}

		must[gq.Queue](t)(f.Pause(ctx, "mail"))
		must[gq.Queue](t)(f.ChangeQueue(ctx, "mail", func(q *gq.Queue) { q.MaxRunning, q.KeyLimit = 9, 0 }))
		if got := declare(); !got.Paused || got.MaxRunning != 9 || got.KeyLimit != 0 || got.MaxDepth != 100 {
			t.Errorf("a restart undid the operator: %+v", got)
		}

		q.Policy.MaxAttempts, q.MaxDepth, q.MaxRunning = 5, 50, 4 // the program's next version
		if got := declare(); !got.Paused || got.MaxRunning != 9 || got.KeyLimit != 0 || got.MaxDepth != 50 || got.Policy.MaxAttempts != 5 {
			t.Errorf("the next version made it %+v", got)
		}
		must[gq.Queue](t)(f.Resume(ctx, "mail"))
		must[gq.Queue](t)(f.ChangeQueue(ctx, "mail", func(q *gq.Queue) { q.MaxRunning = 4 })) // as declared
		q.MaxRunning = 6
		if got := declare(); got.Paused || got.MaxRunning != 6 {
			t.Errorf("what the operator has set back to the declaration does not follow it: %+v", got)
		}
	})
}

// TestDeclareQueueThatExists declares a queue that already had jobs, or that an operator
// configured before the first start.
func TestDeclareQueueThatExists(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.submit(gq.Spec{Queue: "used"})
		if got := must[gq.Queue](t)(f.DeclareQueue(t.Context(), gq.Queue{Name: "used", MaxRunning: 3})); got.MaxRunning != 3 {
			t.Errorf("a queue that had a job was declared as %+v", got)
		}
		must[gq.Queue](t)(f.Pause(t.Context(), "early"))
		if got := must[gq.Queue](t)(f.DeclareQueue(t.Context(), gq.Queue{Name: "early", MaxRunning: 3})); got.MaxRunning != 3 || !got.Paused {
			t.Errorf("a queue that was paused was declared as %+v", got)
		}
		if _, err := f.DeclareQueue(t.Context(), gq.Queue{Name: "a b", MaxRunning: -1}); !errors.Is(err, gq.ErrInvalid) || len(errs.FaultsOf(err)) != 2 {
			t.Errorf("a queue that cannot be: %v", err)
		}
	})
}
