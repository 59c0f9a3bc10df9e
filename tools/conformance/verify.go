package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

// verify compares the sources with the run in both directions: every named requirement
// must have run and passed, and every recorded one must be named by a literal, because
// a name that the scan cannot see could stop running unnoticed. Only part of a run may
// leave tests out. It reports every fault.
func verify(mentions []mention, records []spec.Record, part bool) error {
	if len(records) == 0 {
		return errors.New("no records: pipe go test -json into -record first")
	}
	var faults []error
	for _, r := range sorted(records) {
		if r.Outcome == spec.Fail {
			faults = append(faults, fmt.Errorf("%s: %s.%s failed", r.ID, r.Package, r.Test))
		}
		if !slices.ContainsFunc(mentions, func(m mention) bool { return m.matches(r) }) {
			faults = append(faults, fmt.Errorf(
				"%s: recorded by %s.%s, but no call of spec.Covers or field Covers names it as a literal", r.ID, r.Package, r.Test))
		}
	}
	for _, m := range mentions {
		var ran, passed bool
		for _, r := range records {
			if m.matches(r) {
				ran = true
				passed = passed || r.Outcome == spec.Pass || part && r.Outcome == spec.Left
			}
		}
		switch {
		case !ran:
			faults = append(faults, fmt.Errorf("%s: %s is named here but was not recorded in this run", m.position, m.id))
		case !passed:
			faults = append(faults, fmt.Errorf("%s: %s is named here but no test of it passed in this run", m.position, m.id))
		}
	}
	return errors.Join(faults...)
}

// fillIn returns the records of a run that left tests out with those tests as the document
// lists them, so that the rest can be compared.
func fillIn(records, listed []spec.Record) []spec.Record {
	var left []spec.Record
	for _, r := range records {
		if r.Outcome == spec.Left {
			left = append(left, r)
		}
	}
	records = slices.Clone(records)
	for _, l := range listed {
		if slices.ContainsFunc(left, func(r spec.Record) bool {
			return l.Package == r.Package && (stableName(r.Test) == l.Test || strings.HasPrefix(l.Test, stableName(r.Test)+"/"))
		}) {
			records = append(records, l)
		}
	}
	return records
}

// leave returns the tests of a nested module as tests that were left out.
func leave(listed []spec.Record, module string) []spec.Record {
	var left []spec.Record
	for _, r := range listed {
		if r.Package == module || strings.HasPrefix(r.Package, module+"/") {
			r.Outcome, r.Needs = spec.Left, "the module in "+path.Base(module)
			left = append(left, r)
		}
	}
	return left
}

// listLeft lists which requirements were left out, and with how many tests.
func listLeft(out io.Writer, records []spec.Record) {
	tests, ids := map[string]map[testName]bool{}, map[string][]string{}
	for _, r := range sorted(records) {
		if r.Outcome == spec.Left {
			if tests[r.Needs] == nil {
				tests[r.Needs] = map[testName]bool{}
			}
			tests[r.Needs][testName{r.Package, r.Test}] = true
			ids[r.Needs] = append(ids[r.Needs], r.ID)
		}
	}
	for _, needs := range slices.Sorted(maps.Keys(tests)) {
		fmt.Fprintf(out, "left out, needs %s: requirements %s, tests: %d\n", needs, strings.Join(slices.Compact(ids[needs]), " "), len(tests[needs]))
	}
}

// sorted returns the distinct records in a fixed order.
func sorted(records []spec.Record) []spec.Record {
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b spec.Record) int {
		return cmp.Or(
			spec.Compare(a.ID, b.ID),
			cmp.Compare(a.Package, b.Package),
			cmp.Compare(a.Test, b.Test),
			cmp.Compare(a.Outcome, b.Outcome),
			cmp.Compare(a.Needs, b.Needs),
		)
	})
	return slices.Compact(records)
}
