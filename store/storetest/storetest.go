package storetest

import (
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/store"
)

// Backend tells the suite how to open the store under test.
type Backend struct {
	// Open returns a new, empty store with that configuration. The suite closes it; Open
	// registers any other cleanup with t.
	Open func(t testing.TB, cfg store.Config) store.Store

	// Reopen closes s, if it is still open, and opens the same data again. It is nil if
	// closing a store loses its data; cases that need it are then skipped.
	Reopen func(t testing.TB, s store.Store, cfg store.Config) store.Store

	// Late says that a claim may miss jobs submitted just before. The suite then claims
	// again before it fails.
	Late bool

	// Patience is how long the suite waits for an expected notification; 0 is 2 minutes.
	Patience time.Duration

	// Parallel lets cases run at the same time, each on its own store.
	Parallel bool

	// Only selects the cases that [Run] runs; nil runs all of them.
	Only func(Case) bool

	// Again says that the suite also runs on the same store reached directly, which is
	// where its cases are listed among the tests of requirements.
	Again bool

	// Stories is how many stories [RunModel] runs unless -rapid.checks is set; 0 is the
	// default of package rapid. A dozen is enough for every important situation to occur.
	Stories int
}

// Case tests one clause of the contract with a short story.
type Case struct {
	Name    string   // "Group/Story"
	Clause  string   // the rule of the contract
	Reopens bool     // it needs Backend.Reopen
	Covers  []string // requirements that the case tests

	run func(e *env)
}

// Cases lists every case in the order in which they run.
func Cases() []Case {
	return slices.Concat(
		insertCases, faultCases, keyCases, uniqueCases, replaceCases, graphCases, payloadCases, memoryCases,
		claimCases, filterCases, leaseCases, limitCases, keyLimitCases, poolCases, rateCases, keyRateCases, keyCrowdCases, waitingCases, fairCases,
		updateCases, rescheduleCases, settleCases, fenceCases, blobCases, spawnCases,
		dueCases, dependCases, strictOrderCases, gateCases, listCases, countCases, eventCases, skimCases, traceCases,
		agingCases, collectCases, collectOwnCases, purgeCases, notifyCases, queueCases, docCases, changeCases, moveCases, reopenCases, closeCases, concurrentCases,
	)
}

// Run runs every case that the backend supports as a subtest of t.
func Run(t *testing.T, b Backend) {
	t.Helper()
	var left []string
	for _, c := range Cases() {
		if b.Only != nil && !b.Only(c) {
			continue
		}
		if c.Reopens && b.Reopen == nil {
			left = append(left, c.Name)
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if b.Parallel {
				t.Parallel()
			}
			if len(c.Covers) > 0 && !b.Again {
				spec.Covers(t, c.Covers...)
			}
			c.on(t, b)
		})
	}
	if len(left) > 0 {
		t.Logf("%d cases were not run, because the store cannot be opened again:\n\t%s", len(left), strings.Join(left, "\n\t"))
	}
}

// on runs the case. A panic counts as a violation.
func (c Case) on(t testing.TB, b Backend) {
	t.Helper()
	e := newEnv(t, b, c)
	defer func() {
		if p := recover(); p != nil {
			e.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	c.run(e)
}

// Failure is a case that a store did not pass.
type Failure struct {
	Case   string
	Output string
}

// Failures runs every case that the backend supports and returns those that failed, without
// failing t. It is for tests of the suite itself: a store with a planted bug must fail.
// With names, it runs only the cases whose name begins with one of them.
func Failures(t testing.TB, b Backend, names ...string) (failures []Failure) {
	t.Helper()
	for _, c := range Cases() {
		wanted := len(names) == 0 || slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(c.Name, n) })
		if !wanted || c.Reopens && b.Reopen == nil {
			continue
		}
		if output, failed := record(t, c, b); failed {
			failures = append(failures, Failure{c.Name, output})
		}
	}
	return failures
}

// record runs a case on a [recorder] and returns its output.
func record(t testing.TB, c Case, b Backend) (output string, failed bool) {
	t.Helper()
	r := &recorder{TB: t, name: t.Name() + "/" + c.Name}
	done := make(chan struct{})
	go func() { // FailNow ends its goroutine
		defer close(done)
		defer r.cleanup()
		c.on(r, b)
	}()
	<-done
	return r.result()
}
