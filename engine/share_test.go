package engine

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// TestShared checks that callers that wait share one execution, which begins after all of
// them have called.
func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shared[int]
		n := 0
		release := make(chan struct{})
		read := func(context.Context) (int, error) {
			n++ // one at a time
			now := n
			<-release
			return now, nil
		}
		got := make(chan int, 4)
		call := func() {
			v, err := s.do(t.Context(), read)
			if err != nil {
				t.Error(err)
			}
			got <- v
		}
		go call()
		synctest.Wait()
		for range 3 {
			go call()
		}
		synctest.Wait()
		if n != 1 {
			t.Fatalf("%d executions at once", n)
		}
		release <- struct{}{}
		if v := <-got; v != 1 {
			t.Errorf("the first caller got %d", v)
		}
		close(release)
		for range 3 {
			if v := <-got; v != 2 {
				t.Errorf("a caller that waited got execution %d", v)
			}
		}
		if n != 2 {
			t.Errorf("%d executions for one caller and three more", n)
		}
	})
}

// TestSharedAfterCancel checks that a caller whose context ends takes nobody else's answer
// away.
func TestSharedAfterCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s shared[string]
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan struct{})
		block := func(context.Context) (string, error) {
			<-first
			return "first", nil
		}
		go func() { _, _ = s.do(t.Context(), block) }() // keeps the others waiting
		synctest.Wait()
		read := func(ctx context.Context) (string, error) {
			cancel() // whoever executes first loses its context, if it is the one with ctx
			return "read", ctx.Err()
		}
		type answer struct {
			value string
			err   error
		}
		cancelled, kept := make(chan answer, 1), make(chan answer, 1)
		go func() {
			v, err := s.do(ctx, read)
			cancelled <- answer{v, err}
		}()
		synctest.Wait()
		go func() {
			v, err := s.do(t.Context(), read)
			kept <- answer{v, err}
		}()
		synctest.Wait()
		close(first)
		if a := <-kept; a.value != "read" || a.err != nil {
			t.Errorf("the caller that stayed got %q, %v", a.value, a.err)
		}
		if a := <-cancelled; !errors.Is(a.err, context.Canceled) && a.value != "read" {
			t.Errorf("the caller that left got %q, %v", a.value, a.err)
		}
	})
}
