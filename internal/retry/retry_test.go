package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq/internal/retry"
)

func TestDelay(t *testing.T) {
	const first, most = 100 * time.Millisecond, 3 * time.Second
	for failures, whole := range map[int]time.Duration{1: first, 2: 2 * first, 5: 16 * first, 6: most, 10: most, 1000: most} {
		seen := map[time.Duration]bool{}
		for range 100 {
			d := retry.Delay(failures, first, most)
			if d < whole/2 || d >= whole {
				t.Fatalf("after %d failures %v, want between %v and %v", failures, d, whole/2, whole)
			}
			seen[d] = true
		}
		if len(seen) < 10 {
			t.Errorf("after %d failures only %d different delays", failures, len(seen))
		}
	}
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if whole := retry.Pause(t.Context(), time.Minute); !whole || time.Since(began) != time.Minute {
			t.Errorf("it took %v: %t", time.Since(began), whole)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if whole := retry.Pause(ctx, time.Minute); whole || time.Since(began) != time.Minute+time.Second {
			t.Errorf("it went on after its context: %v, %t", time.Since(began), whole)
		}
	})
}
