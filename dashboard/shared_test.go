package dashboard

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestPagesAreSharedForAShortTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s sharedPages
		get := func(key string, wantRender bool) *sharedPage {
			t.Helper()
			page, render := s.get(key, livePace)
			if render != wantRender {
				t.Errorf("%q is rendered: %v, want %v", key, render, wantRender)
			}
			return page
		}
		first := get("ops", true)
		if get("ops", false) != first {
			t.Error("another page is shared")
		}
		get("other", true)
		time.Sleep(livePace)
		get("ops", false)
		time.Sleep(1)
		get("ops", true)
		if len(s.byKey) != 1 {
			t.Errorf("%d pages are kept, want only the new one", len(s.byKey))
		}
		time.Sleep(2 * livePace)
		if _, render := s.get("ops", time.Hour); !render {
			t.Error("a page is shared for longer than was said when it was rendered")
		}
		s.clear() // somebody has changed something
		get("ops", true)
		for i := range 3 * maxShared {
			get(fmt.Sprint(i), true)
			if len(s.byKey) > maxShared {
				t.Fatalf("%d pages are kept", len(s.byKey))
			}
		}
	})
}

// TestManyPagesAreToldLessOften checks the time between two messages to a page, and how long pages are shared.
func TestManyPagesAreToldLessOften(t *testing.T) {
	var d Dashboard
	for open, want := range map[int64]struct{ pace, shared time.Duration }{
		1: {livePace, livePace}, 10: {livePace, livePace}, 100: {5 * time.Second, 2500 * time.Millisecond},
	} {
		d.streams.Store(open)
		if got := d.pace(); got != want.pace {
			t.Errorf("%d pages: %v, want %v", open, got, want.pace)
		}
		if got := d.sharedFor(); got != want.shared {
			t.Errorf("%d pages are shared for %v, want %v", open, got, want.shared)
		}
	}
}

// PretendSlow sets how long a part of an action on many jobs takes, and of a search.
func (d *Dashboard) PretendSlow(part time.Duration) { d.bulkStep, d.searchStep = part, part }

// PretendOpen sets the number of open pages.
func (d *Dashboard) PretendOpen(n int64) { d.streams.Store(n) }
