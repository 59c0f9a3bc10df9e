// Package leaktest finds goroutines that outlive the tests of a package. It waits
// for those that are about to end for as long as that may take on a busy machine.
package leaktest

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end. Where none leaks nobody waits.
const patience = time.Minute

// Main runs the tests of a package, and fails it if a goroutine outlives them. It
// is for TestMain.
func Main(m *testing.M, options ...goleak.Option) { goleak.VerifyTestMain(tests{m}, options...) }

// tests are over when what they began is.
type tests struct{ *testing.M }

func (t tests) Run() int {
	status := t.M.Run()
	if status == 0 {
		_ = Find() // is asked again
	}
	return status
}

// Find tells of goroutines that stay.
func Find() error {
	deadline := time.Now().Add(patience)
	for {
		err := goleak.Find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
