package local

import "flag"

// raceAll runs every test in full with the race detector, which takes minutes: make test-local.
var raceAll = flag.Bool("race-all", false, "run every test in full with the race detector")

// RaceShare reports whether to run only a share of a long test: under the race detector
// unless -race-all is set. make check runs all of it without the detector.
func RaceShare() bool { return raceEnabled && !*raceAll }
