// Package race tells tests whether the race detector makes them several times slower.
package race

import "os"

// Share reports whether a long test should run a share of its cases: under the race
// detector, unless GQ_RACE_ALL is set. make test runs all of them without the detector.
func Share() bool { return Enabled && os.Getenv("GQ_RACE_ALL") == "" }

// Spare skips a test that the race detector makes many times slower. make test runs it in
// full without the detector.
func Spare(t interface {
	Helper()
	Skip(args ...any)
}) {
	if t.Helper(); Share() {
		t.Skip("runs without the race detector")
	}
}
