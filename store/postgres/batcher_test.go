package postgres

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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
