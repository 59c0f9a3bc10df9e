package storetest

import (
	"fmt"

	"github.com/gopherqueue/gq"
)

var filterCases = []Case{
	{
		Name:   "Filter/Types",
		Clause: "a claim that names types gets jobs of those types only, and without any it gets all",
		run:    filterTypes,
	},
	{
		Name:   "Filter/Capabilities",
		Clause: "a job goes only to a worker that offers everything the job requires",
		run:    filterCapabilities,
	},
	{
		Name:   "Filter/Cost",
		Clause: "a job goes only to a claim whose largest cost is not below the job's; 0 is any",
		run:    filterCost,
	},
	{
		Name:   "Filter/Order",
		Clause: "the order holds among the jobs that match",
		run:    filterOrder,
	},
	{
		Name:   "Filter/Behind",
		Clause: "a claim finds what matches behind any number of jobs that do not",
		run:    filterBehind,
	},
	{
		Name:   "Filter/Retried",
		Clause: "filters hold as well for jobs whose backoff is over or whose lease ran out",
		run:    filterRetried,
	},
}

func filterTypes(e *env) {
	a, b := e.add(ofType("a")), e.add(ofType("b"))
	ab, c := e.add(ofType("ab")), e.add(ofType("c"))
	e.none("for a type that nobody submitted", types("d", ""))
	e.claimed("types b and a", 10, []gq.JobID{a.ID, b.ID}, types("b", "a"))
	e.claimed("any type", 10, []gq.JobID{ab.ID, c.ID})
}

func filterCapabilities(e *env) {
	both := e.add(requiring("gpu", "big"))
	gpu := e.add(requiring("gpu"))
	plain := e.add()
	e.claimed("offering nothing", 10, []gq.JobID{plain.ID})
	e.none("offering something else", offering("gpu2", "bi", "big"))
	e.claimed("offering one of two", 10, []gq.JobID{gpu.ID}, offering("gpu"))
	e.claimed("offering both and more, in any order", 10, []gq.JobID{both.ID}, offering("zzz", "gpu", "big", "aaa"))
}

func filterCost(e *env) {
	free, five, six := e.add(), e.add(costing(5)), e.add(costing(6))
	huge := e.add(costing(gq.MaxCostUnits))
	e.claimed("at most 1", 10, []gq.JobID{free.ID}, upTo(1))
	e.none("at most 4", upTo(4))
	e.claimed("at most 5", 10, []gq.JobID{five.ID}, upTo(5))
	e.none("at most 5, again", upTo(5))
	e.claimed("any cost", 10, []gq.JobID{six.ID, huge.ID})
}

func filterOrder(e *env) {
	specs := e.specs(60)
	var want []gq.JobID
	for _, level := range []gq.Priority{gq.PriorityHigh, gq.PriorityLow} {
		for i := range specs {
			s := &specs[i]
			s.Metadata.Priority = []gq.Priority{gq.PriorityLow, gq.PriorityHigh}[i/3%2]
			s.Type = fmt.Sprintf("type-%d", i%4)
			s.CostUnits = int64(i % 5)
			s.Requires = [][]string{nil, {"a"}, {"b"}, {"a", "b"}, {"c"}}[i%5*3%5]
			matches := s.Metadata.Priority == level && i%4 != 3 && s.CostUnits <= 3 && (len(s.Requires) == 0 || s.Requires[0] != "c")
			if matches {
				want = append(want, s.ID)
			}
		}
	}
	e.each(specs...)
	ask := []asking{types("type-2", "type-1", "type-0"), upTo(3), offering("b", "a")}
	e.claimed("a few under filters", 3, want[:3], ask...)
	e.claimed("the rest under filters", 100, want[3:], ask...)
	e.none("under exhausted filters", ask...)
}

func filterBehind(e *env) {
	var ahead []gq.Spec
	ahead = append(ahead, e.specs(300, ofType("other"), at(gq.PriorityCritical))...)
	ahead = append(ahead, e.specs(300, requiring("gpu"))...)
	ahead = append(ahead, e.specs(300, costing(100))...)
	e.insert(ahead...)
	last := e.add(at(gq.PriorityBulk), costing(99))
	e.claimed("behind 900 jobs that do not match", 5, []gq.JobID{last.ID}, types("work"), upTo(99), offering("ram"))
}

func filterRetried(e *env) {
	failed := e.add(ofType("a"), costing(9))
	lost := e.add(ofType("b"), requiring("gpu"))
	j := e.one(types("a"))
	s := e.fail(j, temporary)
	held := e.one(types("b"), offering("gpu"))
	e.clock.Set(held.State.Lease.ExpiresAt)
	if e.now().Before(s.RunAt) {
		e.clock.Set(s.RunAt)
	}
	e.none("for another type", types("c"), offering("gpu"))
	e.none("for the type of the retried job at too small a cost", types("a"), upTo(8))
	e.none("for the type of the lost job without its capability", types("b"))
	e.claimed("the retried job", 5, []gq.JobID{failed.ID}, types("a"), upTo(9))
	e.claimed("the lost job", 5, []gq.JobID{lost.ID}, types("b"), offering("gpu"))
}
