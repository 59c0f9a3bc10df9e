package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/store"
)

var graphCases = []Case{
	{
		Name:   "Graph/Unknown",
		Clause: "a dependency that does not exist makes its group ErrInvalid, names the dependency, and nothing is stored",
		Covers: []string{"J-83"},
		run:    graphUnknown,
	},
	{
		Name:   "Graph/Cycle",
		Clause: "jobs that depend on each other in a circle, or on themselves, are ErrInvalid, and nothing is stored",
		Covers: []string{"J-80"},
		run:    graphCycle,
	},
	{
		Name:   "Graph/AnyOrder",
		Clause: "within a group the dependencies may name members in any order",
		run:    graphAnyOrder,
	},
	{
		Name:   "Graph/Depth",
		Clause: "a chain of dependencies has at most 100 jobs, however many submissions it was made in",
		Covers: []string{"J-81"},
		run:    graphDepth,
	},
	{
		Name:   "Graph/Breadth",
		Clause: "a job has at most 1000 dependencies",
		Covers: []string{"J-82"},
		run:    graphBreadth,
	},
	{
		Name:   "Graph/Priority",
		Clause: "a dependent takes the most urgent of its own priority and those of all it depends on; its own is kept",
		Covers: []string{"J-50", "J-84"},
		run:    graphPriority,
	},
	{
		Name:   "Graph/PriorityOrder",
		Clause: "a dependent is served by the priority it inherited",
		Covers: []string{"J-50"},
		run:    graphPriorityOrder,
	},
	{
		Name:   "Graph/Twice",
		Clause: "naming a job twice is ErrInvalid, unless one of the two is FAN_OUT",
		run:    graphTwice,
	},
}

func graphUnknown(e *env) {
	known := e.add()
	spec := e.spec(depends(gq.DependencyAfter, known.ID, e.id()))
	if got := e.refused(gq.ErrInvalid, spec).fields(); !slices.Contains(got, "depends_on[1].job") {
		e.Errorf("the error names %q, want depends_on[1].job", got)
	}
	e.absent("a job with an unknown dependency", spec.ID)

	group := []gq.Spec{e.spec(), e.spec(depends(gq.DependencyFanIn, e.id())), e.spec(depends(gq.DependencyFanOut, e.id()))}
	got := e.refused(gq.ErrInvalid, group...).fields()
	for _, field := range []string{"jobs[1].depends_on[0].job", "jobs[2].depends_on[0].job"} {
		if !slices.Contains(got, field) {
			e.Errorf("the error names %q, want also %q", got, field)
		}
	}
	for _, s := range group {
		e.absent("a member of a group with an unknown dependency", s.ID)
	}

	// A job of another group in the same call is known only if it comes earlier.
	parent := e.spec()
	child := e.spec(depends(gq.DependencyAfter, parent.ID))
	answers := e.tryInsert(store.One(parent), store.One(child))
	e.check("a dependency on an earlier group of the call", answers[1].Err)
}

func graphCycle(e *env) {
	self := e.spec()
	self.DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: self.ID}}
	e.refused(gq.ErrInvalid, self)
	e.absent("a job that depends on itself", self.ID)

	for _, kind := range enum.All[gq.DependencyKind]() {
		ring := e.specs(4)
		for i := range 3 {
			depends(kind, ring[(i+1)%3].ID)(&ring[i])
		}
		if why := e.refused(gq.ErrInvalid, ring...); !strings.Contains(fmt.Sprint(why.err), "cycle") {
			e.Errorf("a cycle of %s is refused with %q, want it called a cycle", kind, why.err)
		}
		for _, s := range ring {
			e.absent("a member of a group with a cycle", s.ID)
		}
	}
	if got := e.counts(); len(got) != 0 {
		e.Errorf("refused groups are counted: %v", got)
	}
}

func graphAnyOrder(e *env) {
	a, b, c := e.spec(), e.spec(), e.spec()
	depends(gq.DependencyAfter, b.ID)(&c)
	depends(gq.DependencyAfter, a.ID)(&b)
	e.insert(c, a, b)
	for _, want := range []gq.JobID{a.ID, b.ID, c.ID} {
		j := e.one()
		if j.State.ID != want {
			e.Fatalf("claimed %s, want %s", j.State.ID, want)
		}
		e.none("while its dependency runs")
		e.complete(j)
		e.release()
	}

	first, second, both := e.spec(), e.spec(), e.spec()
	depends(gq.DependencyAfter, first.ID, second.ID)(&both)
	last := e.minted(both, first, second)[0].ID // renamed, like what it names
	for range 2 {
		j := e.one()
		if j.State.ID == last {
			e.Fatalf("claimed a job before both of its dependencies")
		}
		e.complete(j)
		e.release()
	}
	e.claimed("after both of its dependencies", 2, []gq.JobID{last})
}

// chainOf returns a group in which each job runs after the previous one.
func (e *env) chainOf(n int, kind gq.DependencyKind, settings ...setting) []gq.Spec {
	specs := e.specs(n, settings...)
	for i := 1; i < n; i++ {
		depends(kind, specs[i-1].ID)(&specs[i])
	}
	return specs
}

func graphDepth(e *env) {
	chain := e.chainOf(gq.MaxDepth, gq.DependencyAfter)
	e.insert(chain...)
	for _, i := range []int{0, 1, gq.MaxDepth - 1} {
		if got := e.state(chain[i].ID).Depth; got != i+1 {
			e.Errorf("job %d of a chain has depth %d, want %d", i+1, got, i+1)
		}
	}
	last := e.spec(depends(gq.DependencyAfter, chain[gq.MaxDepth-1].ID))
	e.refused(gq.ErrInvalid, last)
	e.absent("one job more than a chain may have", last.ID)

	long := e.chainOf(gq.MaxDepth+1, gq.DependencyAfter)
	slices.Reverse(long)
	e.refused(gq.ErrInvalid, long...)
	e.absent("the first job of a chain that is too long", long[gq.MaxDepth].ID)

	e.insert(e.spec(depends(gq.DependencyAfter, chain[gq.MaxDepth-2].ID)))
}

func graphBreadth(e *env) {
	parents := e.specs(gq.MaxDependencies + 1)
	e.insert(parents...)
	ids := make([]gq.JobID, len(parents))
	for i, p := range parents {
		ids[i] = p.ID
	}
	most := e.spec(depends(gq.DependencyFanIn, ids[1:]...))
	e.insert(most)
	if got := e.state(most.ID).Waits; got != gq.MaxDependencies {
		e.Errorf("a job with %d dependencies waits for %d", gq.MaxDependencies, got)
	}
	e.equal("the dependencies as read", e.get(most.ID).Spec.DependsOn, most.DependsOn)
	more := e.spec(depends(gq.DependencyFanIn, ids...))
	if got := e.refused(gq.ErrInvalid, more).fields(); !slices.Contains(got, "depends_on") {
		e.Errorf("the error names %q, want depends_on", got)
	}
	e.absent("a job with one dependency too many", more.ID)
}

func graphPriority(e *env) {
	high := e.add(at(gq.PriorityHigh))
	child := e.add(at(gq.PriorityLow), depends(gq.DependencyAfter, high.ID))
	grandchild := e.add(at(gq.PriorityBulk), depends(gq.DependencyChain, child.ID))
	spawned := e.add(at(gq.PriorityLow), depends(gq.DependencyFanOut, high.ID))
	urgent := e.add(at(gq.PriorityCritical), depends(gq.DependencyAfter, high.ID))
	two := e.add(at(gq.PriorityLow), depends(gq.DependencyAfter, spawned.ID), depends(gq.DependencyFanIn, e.add(at(gq.PriorityCritical)).ID))

	group := e.chainOf(3, gq.DependencyAfter, at(gq.PriorityBulk))
	group[0].Metadata.Priority = gq.PriorityCritical
	slices.Reverse(group)
	last := e.insert(group...)[0]

	for _, test := range []struct {
		name           string
		id             gq.JobID
		own, effective gq.Priority
	}{
		{"LOW after HIGH", child.ID, gq.PriorityLow, gq.PriorityHigh},
		{"BULK after LOW after HIGH", grandchild.ID, gq.PriorityBulk, gq.PriorityHigh},
		{"LOW spawned by HIGH", spawned.ID, gq.PriorityLow, gq.PriorityHigh},
		{"CRITICAL after HIGH", urgent.ID, gq.PriorityCritical, gq.PriorityCritical},
		{"LOW after HIGH and CRITICAL", two.ID, gq.PriorityLow, gq.PriorityCritical},
		{"BULK after BULK after CRITICAL in one group", last.ID, gq.PriorityBulk, gq.PriorityCritical},
	} {
		s := e.state(test.id)
		if s.Own != test.own || s.Priority() != test.effective {
			e.Errorf("%s: own %s, effective %s; want %s, %s", test.name, s.Own, s.Priority(), test.own, test.effective)
		}
	}

	// The inherited priority excludes the job's own, which may change.
	s := e.updated(store.Update{Ref: byID(urgent.ID), Apply: updating(gq.PriorityBulk), Metadata: &gq.Metadata{Priority: gq.PriorityBulk}})
	if s.Priority() != gq.PriorityHigh {
		e.Errorf("a dependent of a HIGH job that went from CRITICAL to BULK has priority %s, want HIGH", s.Priority())
	}
}

func graphPriorityOrder(e *env) {
	parent := e.add(at(gq.PriorityHigh), inQueue("parents"))
	normal := e.add()
	child := e.add(at(gq.PriorityBulk), depends(gq.DependencyAfter, parent.ID))
	e.complete(e.one(from("parents")))
	e.release()
	e.claimed("a BULK job after a HIGH one, beside an earlier NORMAL one", 10, []gq.JobID{child.ID, normal.ID})
}

func graphTwice(e *env) {
	parent := e.add()
	twice := e.spec(depends(gq.DependencyAfter, parent.ID), depends(gq.DependencyFanIn, parent.ID))
	e.refused(gq.ErrInvalid, twice)
	e.absent("a job that waits for another twice", twice.ID)
	both := e.add(depends(gq.DependencyFanOut, parent.ID), depends(gq.DependencyAfter, parent.ID))
	if both.Status != gq.StatusPending || both.Waits != 1 {
		e.Errorf("a job that waits for the one that spawned it is %s and waits for %d, want PENDING and 1", both.Status, both.Waits)
	}
}
