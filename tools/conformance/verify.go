package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

// verify compares the sources with the run in both directions: every named requirement
// must have run and passed, and every recorded one must be named by a literal, because
// a name that the scan cannot see could stop running unnoticed. It reports every fault.
func verify(mentions []mention, records []spec.Record) error {
	if len(records) == 0 {
		return errors.New("no records: run the tests with " + spec.DirVariable + " set and -count=1")
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
				passed = passed || r.Outcome == spec.Pass
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

// sorted returns the distinct records in a fixed order.
func sorted(records []spec.Record) []spec.Record {
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b spec.Record) int {
		return cmp.Or(
			spec.Compare(a.ID, b.ID),
			cmp.Compare(a.Package, b.Package),
			cmp.Compare(a.Test, b.Test),
			cmp.Compare(a.Outcome, b.Outcome),
		)
	})
	return slices.Compact(records)
}
