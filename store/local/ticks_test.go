package local

import (
	"runtime"
	"strings"
	"testing"
	"time"
)

// A store in memory has no goroutine that wakes up at short intervals: tests advance their
// clocks by days, which would wake it a million times. A store on disk has one, so the test
// notices if Pebble renames it.
func TestMemoryDoesNotTick(t *testing.T) {
	for _, on := range []struct {
		name  string
		open  func() (*Store, error)
		ticks bool
	}{
		{"disk", func() (*Store, error) { return Open(t.TempDir(), Options{}) }, true},
		{"memory", func() (*Store, error) { return OpenMemory(Options{}) }, false},
	} {
		s, err := on.open()
		if err != nil {
			t.Fatal(err)
		}
		ticks := func() bool {
			stacks := make([]byte, 1<<20)
			return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "periodicGranter")
		}
		for limit := time.Now().Add(20 * time.Second); ticks() != on.ticks && time.Now().Before(limit); {
			time.Sleep(time.Millisecond) //nolint:forbidigo // the goroutine of a store that was closed before ends in real time
		}
		if ticks() != on.ticks {
			t.Errorf("%s: a goroutine looks for compactions at intervals: %t, want %t", on.name, !on.ticks, on.ticks)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
