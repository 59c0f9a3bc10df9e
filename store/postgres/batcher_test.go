package postgres

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
)

// TestOnlyHeavyCallsRunBesideATransaction checks which calls start a second transaction and
// which wait for the first one.
func TestOnlyHeavyCallsRunBesideATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			all     sync.WaitGroup
			mu      sync.Mutex
			begun   [][]int
			proceed = make(chan struct{})
		)
		runner := newRunner(&all)
		defer runner.stop()
		l := batcher[int, int]{
			most: 2, heavy: 10, runner: runner,
			weight: func(n *int) int { return *n },
			beside: func(n *int) bool { return *n != 50 },
			run: func(_ context.Context, items []int, _ bool) ([]int, error) {
				mu.Lock()
				begun = append(begun, items)
				mu.Unlock()
				<-proceed
				return items, nil
			},
		}
		ask := func(n int) {
			all.Go(func() {
				if got, err := l.do(t.Context(), []int{n}); err != nil || !slices.Equal(got, []int{n}) {
					t.Errorf("%d got %v, %v", n, got, err)
				}
			})
			synctest.Wait()
		}
		want := func(transactions ...[]int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.EqualFunc(begun, transactions, slices.Equal) {
				t.Fatalf("transactions %v, want %v", begun, transactions)
			}
		}
		ask(1)
		ask(2)
		want([]int{1})
		ask(50) // heavy, but must not run beside another
		want([]int{1})
		proceed <- struct{}{}
		want([]int{1}, []int{2, 50})
		ask(20)
		want([]int{1}, []int{2, 50}, []int{20})
		ask(3)
		ask(30) // two are in flight
		want([]int{1}, []int{2, 50}, []int{20})
		close(proceed)
		all.Wait()
		mu.Lock()
		defer mu.Unlock()
		if n := len(begun); n < 4 || n > 5 {
			t.Errorf("transactions %v", begun)
		}
		if l.flights != 0 || len(l.waiting) != 0 {
			t.Errorf("%d flights and %d calls are left", l.flights, len(l.waiting))
		}
	})
}

// TestCallsOutliveALostTransaction: while the database does not answer, only calls whose time is over fail. The
// others share the next transaction with those that came meanwhile.
func TestCallsOutliveALostTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			all     sync.WaitGroup
			begun   [][]int // guarded by the order of events: one transaction at a time
			results = make(chan error)
		)
		runner := newRunner(&all)
		defer runner.stop()
		l := batcher[int, int]{
			most: 1, heavy: 10, runner: runner,
			weight: func(*int) int { return 1 },
			run: func(_ context.Context, items []int, _ bool) ([]int, error) {
				begun = append(begun, slices.Clone(items))
				return items, <-results
			},
		}
		answers := make([]error, 5)
		ask := func(n int) {
			all.Go(func() { _, answers[n] = l.do(t.Context(), []int{n}) })
			synctest.Wait()
		}
		ask(0)
		ask(1)
		time.Sleep(retryWithin / 2)
		ask(2)
		ask(3)
		results <- nil
		synctest.Wait()
		ask(4) // while the others are in flight
		time.Sleep(retryWithin / 2)
		results <- gq.ErrUnavailable
		synctest.Wait()
		results <- nil
		all.Wait()
		if want := [][]int{{0}, {1, 2, 3}, {2, 3, 4}}; !slices.EqualFunc(begun, want, slices.Equal) {
			t.Errorf("transactions %v, want %v", begun, want)
		}
		for n, err := range answers {
			if lost := n == 1; errors.Is(err, gq.ErrUnavailable) != lost || !lost && err != nil {
				t.Errorf("call %d: %v", n, err)
			}
		}
	})
}
