package gqtest

import "testing"

// SetMaxRuns changes the limit of executions for one test.
func SetMaxRuns(t testing.TB, n int) {
	before := maxRuns
	maxRuns = n
	t.Cleanup(func() { maxRuns = before })
}
