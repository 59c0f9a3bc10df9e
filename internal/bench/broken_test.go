package bench

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Stores that violate their contract must fail the run.
func TestBrokenStores(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(store.Store) store.Store
	}{
		{"Loses", func(s store.Store) store.Store { return losing{s} }},
		{"ClaimsTooFew", func(s store.Store) store.Store { return short{s} }},
		{"Miscounts", func(s store.Store) store.Store { return miscounting{s} }},
		{"CompletesNothing", func(s store.Store) store.Store { return lazy{s} }},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := Run(t.Context(), memory{test.change}, small(Cycle))
			if !errors.Is(err, errWrong) {
				t.Errorf("the run ended with %v, want %v", err, errWrong)
			}
		})
	}
}

// losing acknowledges jobs that it does not insert.
type losing struct{ store.Store }

func (s losing) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	answers, err := s.Store.Insert(ctx, groups[:len(groups)-1])
	return append(answers, store.Inserted{Jobs: make([]store.Placed, 1)}), err
}

// short finds fewer jobs than there are.
type short struct{ store.Store }

func (s short) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	answers, err := s.Store.Claim(ctx, claims)
	if err == nil && len(answers[0].Jobs) > 1 {
		answers[0].Jobs = answers[0].Jobs[1:]
	}
	return answers, err
}

// A store may find fewer jobs than there are if it says when to look again.
func TestStoreThatIsShortForAWhile(t *testing.T) {
	if _, err := Run(t.Context(), memory{func(s store.Store) store.Store { return halving{s} }}, small(Cycle)); err != nil {
		t.Error(err)
	}
}

// halving claims half of what it is asked for and says when to look again.
type halving struct{ store.Store }

func (s halving) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	asked := claims[0]
	asked.N = (asked.N + 1) / 2
	answers, err := s.Store.Claim(ctx, []store.Claim{asked})
	if err == nil && asked.N < claims[0].N {
		answers[0].RetryAt = time.Now()
	}
	return answers, err
}

type miscounting struct{ store.Store }

func (s miscounting) Counts(ctx context.Context, queues ...string) ([]gq.Count, error) {
	counts, err := s.Store.Counts(ctx, queues...)
	if err == nil {
		counts[0].By[gq.StatusCompleted]--
	}
	return counts, err
}

// lazy acknowledges completions without making them.
type lazy struct{ store.Store }

func (s lazy) Update(_ context.Context, updates []store.Update) ([]store.Updated, error) {
	return make([]store.Updated, len(updates)), nil
}
