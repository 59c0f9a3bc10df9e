package engine_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/storetest"
)

// Now returns the time of the store's clock if it is known. Like the store's time it never
// runs backwards.
func TestNowIsTheStoresTime(t *testing.T) {
	begin := time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)
	clock := storetest.NewClock(begin)
	s, err := local.OpenMemory(local.Options{Config: store.Config{Clock: clock}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e := newEngine(t, s, engine.Options{})
	if got := e.Now(); !got.Equal(begin) {
		t.Errorf("it is %v, want %v", got, begin)
	}
	later := clock.Advance(time.Hour)
	if _, err := e.Submit(t.Context(), gq.Spec{Type: "t"}); err != nil {
		t.Fatal(err)
	}
	clock.Set(begin)
	if got := e.Now(); got.Before(later) {
		t.Errorf("after a clock was set back it is %v, before %v, at which the store has stamped a job", got, later)
	}
}
