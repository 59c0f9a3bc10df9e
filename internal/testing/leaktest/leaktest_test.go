package leaktest_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/leaktest"
)

// A goroutine that ends later than goleak itself would wait has not leaked.
func TestLateIsNoLeak(t *testing.T) {
	go func() { <-time.After(time.Second) }()
	if err := leaktest.Find(); err != nil {
		t.Error(err)
	}
}
