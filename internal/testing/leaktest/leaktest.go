// Package leaktest finds goroutines that outlive the tests of a package. It gives
// goroutines as much time to end as they may need on a busy machine.
package leaktest

import (
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end. It delays only tests that leak.
const patience = time.Minute

// Main runs the tests of a package, and fails if a goroutine outlives them. Call it in
// TestMain with its *testing.M, or with something that runs it.
func Main(m goleak.TestingM, options ...goleak.Option) { goleak.VerifyTestMain(tests{m}, options...) }

// tests runs the tests and waits until their goroutines have ended.
type tests struct{ goleak.TestingM }

func (t tests) Run() int {
	status := t.TestingM.Run()
	if status == 0 {
		_ = Find() // goleak checks again
	}
	return status
}

// Find returns an error that names goroutines that do not end.
func Find() error {
	deadline := time.Now().Add(patience)
	for {
		err := goleak.Find()
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
