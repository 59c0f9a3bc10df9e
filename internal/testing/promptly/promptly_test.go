package promptly_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/promptly"
)

// recorder is a test that records whether it failed.
type recorder struct {
	testing.TB
	failed bool
}

func (*recorder) Helper()                 {}
func (*recorder) Logf(string, ...any)     {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Failed() bool          { return r.failed }

func TestMedian(t *testing.T) {
	const limit = 100 * time.Millisecond
	for name, c := range map[string]struct {
		took  func(call int) time.Duration // of three a round
		calls int
		fails bool
	}{
		"at the limit":          {func(int) time.Duration { return limit }, 3, false},
		"one of three is late":  {func(n int) time.Duration { return limit * time.Duration(n%3) * 10 / 11 }, 3, false},
		"late in the beginning": {func(n int) time.Duration { return max(limit, 9*time.Second-9*limit*time.Duration(n)) }, 12, false},
		"always late":           {func(int) time.Duration { return 9 * time.Second }, 24, true},
	} {
		t.Run(name, func(t *testing.T) {
			r, calls := &recorder{}, 0
			promptly.Median(r, limit, 3, func() time.Duration {
				calls++
				return c.took(calls - 1)
			})
			if r.failed != c.fails || calls != c.calls {
				t.Errorf("failed is %t after %d measurements, want %t after %d", r.failed, calls, c.fails, c.calls)
			}
		})
	}
}

// A test that failed while it measured does not measure again.
func TestMedianOfAFailedTest(t *testing.T) {
	r, calls := &recorder{}, 0
	promptly.Within(r, time.Second, func() time.Duration {
		calls++
		r.Errorf("it broke")
		return time.Hour
	})
	if calls != 1 {
		t.Errorf("measured %d times, want once", calls)
	}
}
