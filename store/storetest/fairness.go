package storetest

import (
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var fairCases = []Case{
	{
		Name:   "Fair/Turns",
		Clause: "within a level the keys of a fair queue are served in turn, each in the order of submission",
		run:    fairTurns,
	},
	{
		Name:   "Fair/Late",
		Clause: "a key that comes late joins at the turn being served, however much others have waiting",
		run:    fairLate,
	},
	{
		Name:   "Fair/Returns",
		Clause: "a key that submits its next job when the last was taken gets its share and no more",
		run:    fairReturns,
	},
	{
		Name:   "Fair/Levels",
		Clause: "the more urgent level is served first, whoever's turn it is, and a job whose level changes takes a turn there",
		run:    fairLevels,
	},
	{
		Name:   "Fair/Retried",
		Clause: "a job that is tried again keeps its turn",
		run:    fairRetried,
	},
	{
		Name:   "Fair/Filter",
		Clause: "turns hold among the jobs that match, and those without a key share one",
		run:    fairFilter,
	},
	{
		Name:   "Fair/Changed",
		Clause: "a queue that is made fair serves the jobs it has in turn, and one that no longer is in the order of submission",
		run:    fairChanged,
	},
	{
		Name:    "Fair/Reopen",
		Clause:  "turns go on after a restart",
		Reopens: true,
		run:     fairReopen,
	},
}

func fairly(key string) setting { return func(s *gq.Spec) { s.FairKey = key } }

// fair makes queue "q" fair.
func (e *env) fair() {
	e.Helper()
	e.put("q", func(q *gq.Queue) { q.Fair = true })
}

// adds submits n jobs of a key.
func (e *env) adds(n int, key string, settings ...setting) []gq.JobID {
	e.Helper()
	return stateIDs(e.each(e.specs(n, append(slices.Clone(settings), fairly(key))...)...))
}

func fairTurns(e *env) {
	e.fair()
	a := e.adds(5, "a")
	b := e.adds(2, "b")
	c := e.adds(1, "c")
	want := []gq.JobID{a[0], b[0], c[0], a[1], b[1], a[2], a[3], a[4]}
	e.claimed("the first four", 4, want[:4])
	e.claimed("the rest", 20, want[4:])
	group := e.specs(6)
	for i := range group {
		group[i].FairKey = []string{"x", "x", "x", "y", "y", "z"}[i]
	}
	e.insert(group...)
	g := idsOfSpecs(group)
	e.claimed("of one group", 20, []gq.JobID{g[0], g[3], g[5], g[1], g[4], g[2]})
}

func idsOfSpecs(specs []gq.Spec) []gq.JobID {
	ids := make([]gq.JobID, len(specs))
	for i := range specs {
		ids[i] = specs[i].ID
	}
	return ids
}

func fairLate(e *env) {
	e.fair()
	a := e.adds(300, "a")
	e.claimed("before anyone else came", 100, a[:100])
	b := e.adds(3, "b")
	e.claimed("after a second key came", 8, []gq.JobID{b[0], a[100], b[1], a[101], b[2], a[102], a[103], a[104]})
	c, d := e.adds(2, "c"), e.adds(1, "d")
	e.claimed("after two more came", 5, []gq.JobID{c[0], d[0], a[105], c[1], a[106]})
}

func fairReturns(e *env) {
	e.fair()
	e.adds(200, "a")
	e.one()
	next := e.adds(1, "b")[0]
	served := make(map[string]int)
	for range 40 {
		j := e.one()
		served[j.Spec.FairKey]++
		if j.State.ID == next {
			next = e.adds(1, "b")[0]
		}
	}
	if served["b"] < 19 || served["b"] > 21 {
		e.Errorf("of 40 jobs %v were served, want the keys in turn", served)
	}
}

func fairLevels(e *env) {
	e.fair()
	a := e.adds(50, "a")
	e.claim(30) // far into the turns of this level
	high := e.adds(3, "a", at(gq.PriorityHigh))
	b := e.adds(2, "b", at(gq.PriorityHigh))
	other := e.adds(1, "b")
	e.claimed("the urgent ones", 5, []gq.JobID{high[0], b[0], high[1], b[1], high[2]})
	raised := e.updated(storeUpdate(a[45], gq.PriorityHigh))
	if raised.Own != gq.PriorityHigh {
		e.Fatalf("the priority of the job is %s", raised.Own)
	}
	c := e.adds(2, "c", at(gq.PriorityHigh))
	e.claimed("a job that was made urgent, in its turn", 4, []gq.JobID{c[0], a[45], c[1], other[0]})
	lowered := e.updated(storeUpdate(a[46], gq.PriorityBulk))
	d := e.adds(1, "d", at(gq.PriorityBulk))
	e.claimed("what is left", 100, slices.Concat(a[30:45], a[47:], []gq.JobID{lowered.ID}, d))
}

func storeUpdate(id gq.JobID, level gq.Priority) store.Update {
	return store.Update{Ref: byID(id), Apply: updating(level), Metadata: &gq.Metadata{Priority: level}}
}

func fairRetried(e *env) {
	e.fair()
	a, b := e.adds(6, "a"), e.adds(4, "b")
	first := e.claim(1)[0]
	s := e.fail(first, temporary)
	e.claimed("during the backoff", 3, []gq.JobID{b[0], a[1], b[1]})
	e.clock.Set(s.RunAt)
	e.claimed("after it", 4, []gq.JobID{a[0], a[2], b[2], a[3]})
}

func fairFilter(e *env) {
	e.fair()
	x := e.adds(4, "a", ofType("x"), costing(5))
	y := e.adds(2, "a", ofType("y"))
	b := e.adds(3, "b", ofType("y"))
	none := e.adds(2, "", ofType("y"))
	// Key a has turns 1 to 6, of which y has 5 and 6; b has 1 to 3, jobs without a key 1
	// and 2.
	e.claimed("of one type", 4, []gq.JobID{b[0], none[0], b[1], none[1]}, types("y"))
	e.claimed("of any, at most 4", 1, []gq.JobID{b[2]}, upTo(4))
	e.claimed("the rest", 10, slices.Concat(x, y))
}

func fairChanged(e *env) {
	a, b := e.adds(6, "a"), e.adds(3, "b")
	e.claimed("before", 1, a[:1])
	later := e.adds(1, "c", delayed(time.Minute))[0]
	e.fair()
	c := e.adds(1, "c")
	// The running job has the first turn of its key.
	e.claimed("in turn", 4, []gq.JobID{b[0], a[1], b[1], c[0]})
	e.clock.Advance(time.Minute)
	e.claimed("what was delayed has its turn", 2, []gq.JobID{later, a[2]})
	e.put("q", func(*gq.Queue) {})
	d := e.adds(2, "d")
	e.claimed("by submission again", 10, slices.Concat(a[3:], b[2:], d))
}

func fairReopen(e *env) {
	e.fair()
	a := e.adds(20, "a")
	e.claimed("before the restart", 5, a[:5])
	b := e.adds(2, "b")
	e.reopen()
	c := e.adds(2, "c")
	e.claimed("after it", 6, []gq.JobID{b[0], c[0], a[5], b[1], c[1], a[6]})
}
