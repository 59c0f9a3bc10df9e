package dashboard

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
)

func TestSharedOverviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedOverviews
		var reads atomic.Int64
		var broken atomic.Bool
		read := func() (overviewView, error) {
			time.Sleep(10 * time.Millisecond)
			if broken.Load() {
				return overviewView{}, gq.ErrUnavailable
			}
			return overviewView{Rest: int(reads.Add(1))}, nil
		}
		get := func(key string, want int) {
			t.Helper()
			if view, err := s.get(t.Context(), key, read); err != nil || view.Rest != want {
				t.Errorf("%q got view %d, %v, want %d", key, view.Rest, err, want)
			}
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { get("ops", 1) })
		}
		all.Wait()
		get("other", 2)
		get("", 3) // shares nothing
		get("", 4)
		get("ops", 1)
		time.Sleep(sharedFor)
		get("ops", 5)
		s.clear() // somebody has changed something
		get("ops", 6)
		time.Sleep(2 * sharedFor)
		broken.Store(true)
		if _, err := s.get(t.Context(), "ops", read); !errors.Is(err, gq.ErrUnavailable) {
			t.Error(err)
		}
		broken.Store(false)
		get("ops", 7) // an error is not shared
	})
}

// TestManyPagesAreToldLessOften checks the time between two messages to a page.
func TestManyPagesAreToldLessOften(t *testing.T) {
	var d Dashboard
	for open, want := range map[int64]time.Duration{1: livePace, 10: livePace, 100: 5 * time.Second} {
		d.streams.Store(open)
		if got := d.pace(); got != want {
			t.Errorf("%d pages: %v, want %v", open, got, want)
		}
	}
}
