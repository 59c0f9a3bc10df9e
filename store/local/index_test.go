package local

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// naiveIndex is a model of index, as simple as possible.
type naiveIndex struct{ jobs []*job }

func compareJobs(a, b *job) int {
	ka, kb := sortKey{a.key, a.id}, sortKey{b.key, b.id}
	switch {
	case ka.less(kb):
		return -1
	case kb.less(ka):
		return 1
	}
	return 0
}

func (n *naiveIndex) add(j *job) {
	i, _ := slices.BinarySearchFunc(n.jobs, j, compareJobs)
	n.jobs = slices.Insert(n.jobs, i, j)
}

func (n *naiveIndex) remove(j *job) {
	n.jobs = slices.DeleteFunc(n.jobs, func(other *job) bool { return other == j })
}

func (n *naiveIndex) cheap(limit int64) *job {
	for _, j := range n.jobs {
		if j.cost <= limit {
			return j
		}
	}
	return nil
}

// indexPair is an index and its model.
type indexPair struct {
	t     rapid.TB
	real  index
	naive naiveIndex
}

func newIndexPair(t rapid.TB) *indexPair { return &indexPair{t: t, real: index{}} }

func (p *indexPair) add(j *job) {
	p.real.add(j)
	p.naive.add(j)
}

func (p *indexPair) remove(j *job) {
	p.real.remove(j)
	p.naive.remove(j)
}

// all returns every job of the index in order.
func (x *index) all() (jobs []*job) {
	var walk func(*node)
	walk = func(n *node) {
		jobs = append(jobs, n.jobs...)
		for _, kid := range n.kids {
			walk(kid)
		}
	}
	if x.root != nil {
		walk(x.root)
	}
	return jobs
}

// check compares all queries of the two.
func (p *indexPair) check() {
	p.t.Helper()
	var first *job
	if len(p.naive.jobs) > 0 {
		first = p.naive.jobs[0]
	}
	if p.real.size != len(p.naive.jobs) || p.real.first() != first {
		p.t.Fatalf("%d jobs, the first is %v; want %d, %v", p.real.size, p.real.first(), len(p.naive.jobs), first)
	}
	for limit := int64(-1); limit <= highestCost+1; limit++ {
		if got, want := p.real.cheap(limit), p.naive.cheap(limit); got != want {
			p.t.Fatalf("the first that costs at most %d is %v, want %v", limit, got, want)
		}
	}
	if got := p.real.all(); !slices.Equal(got, p.naive.jobs) {
		p.t.Fatalf("%d jobs, want %d: %v, want %v", len(got), len(p.naive.jobs), got, p.naive.jobs)
	}
	if root := p.real.root; root != nil {
		if root.stale {
			p.t.Fatal("a search by cost did not bring the cost up to date")
		}
		if len(root.kids) == 1 {
			p.t.Fatal("the root has one child")
		}
		p.sound(root, true)
	}
}

// sound checks the invariants of each node.
func (p *indexPair) sound(n *node, root bool) (lowest int64) {
	p.t.Helper()
	if !root && len(n.jobs) == 0 && len(n.kids) == 0 || len(n.jobs) > fanout || len(n.kids) > fanout || len(n.jobs) > 0 && len(n.kids) > 0 {
		p.t.Fatalf("a node with %d jobs and %d children", len(n.jobs), len(n.kids))
	}
	lowest = math.MaxInt64
	for i, j := range n.jobs {
		lowest = min(lowest, j.cost)
		if (sortKey{j.key, j.id}).less(n.first) || i > 0 && compareJobs(n.jobs[i-1], j) >= 0 {
			p.t.Fatalf("a leaf that begins with %v is not in order at %d", n.first, i)
		}
	}
	for i, kid := range n.kids {
		lowest = min(lowest, p.sound(kid, false))
		if kid.first.less(n.first) || i > 0 && !n.kids[i-1].first.less(kid.first) {
			p.t.Fatalf("a node that begins with %v is not in order at %d", n.first, i)
		}
	}
	if n.cost > lowest || !n.stale && n.cost != lowest {
		p.t.Fatalf("a node says that its cheapest job costs %d, it costs %d (stale: %v)", n.cost, lowest, n.stale)
	}
	return lowest
}

// highestCost is the highest cost of a job.
const highestCost = 20

// TestIndex drives an index and its model. Keys and costs are few, so that equal ones
// are common; every third run has so many jobs that the tree is three levels deep.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		p := newIndexPair(r)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
		keys := rapid.SampledFrom([]uint64{1, 10, 1 << 40}).Draw(r, "keys")
		newJob := func(n uint64) *job {
			return &job{id: machine.NewJobID([16]byte{byte(n >> 16), byte(n >> 8), byte(n)}), seq: n, cost: rng.Int64N(highestCost + 1), key: machine.OrderKey{Hi: rng.Uint64N(3), Lo: rng.Uint64N(keys)}}
		}
		count := uint64(0)
		for range rapid.SampledFrom([]int{0, 0, 5000}).Draw(r, "before") {
			count++
			p.add(newJob(count))
		}
		for range rapid.IntRange(1, 30).Draw(r, "steps") {
			n := rapid.IntRange(0, 600).Draw(r, "n")
			switch rapid.SampledFrom([]string{"add", "add", "in a row", "in a row", "remove", "remove first", "remove last", "not there"}).Draw(r, "step") {
			case "add":
				for range n {
					count++
					p.add(newJob(count))
				}
			case "in a row":
				down := rapid.Bool().Draw(r, "down")
				for i := range uint64(n) {
					count++
					j := newJob(count)
					j.key = machine.OrderKey{Hi: 1, Lo: 1<<50 + count}
					if down {
						j.key.Lo = 1<<50 - i - count
					}
					p.add(j)
				}
			case "remove":
				for range min(n, len(p.naive.jobs)) {
					p.remove(p.naive.jobs[rng.IntN(len(p.naive.jobs))])
				}
			case "remove first":
				for range min(n, len(p.naive.jobs)) {
					p.remove(p.real.first())
				}
			case "remove last":
				for range min(n, len(p.naive.jobs)) {
					p.remove(p.naive.jobs[len(p.naive.jobs)-1])
				}
			case "not there":
				p.remove(newJob(1 << 23))
			}
			p.check()
		}
	})
}

// TestIndexFill: jobs that arrive in order, as they mostly do, leave no gaps.
func TestIndexFill(t *testing.T) {
	const count = 100_000
	for name, key := range map[string]func(i uint64) uint64{
		"ascending":  func(i uint64) uint64 { return i },
		"descending": func(i uint64) uint64 { return count - i },
		"random":     func(i uint64) uint64 { return mix(i) },
	} {
		x := index{}
		for i := range uint64(count) {
			x.add(&job{key: machine.OrderKey{Lo: key(i)}})
		}
		leaves, inner := 0, 0
		var visit func(n *node)
		visit = func(n *node) {
			if n.kids == nil {
				leaves++
			} else {
				inner++
			}
			for _, kid := range n.kids {
				visit(kid)
			}
		}
		visit(x.root)
		fill := float64(count) / float64(leaves*fanout)
		if least := map[string]float64{"ascending": 0.95, "descending": 0.45, "random": 0.6}[name]; fill < least {
			t.Errorf("%s: leaves are filled to %.0f %%, want at least %.0f", name, 100*fill, 100*least)
		}
		if most := 3 + 5*leaves/(2*fanout); inner > most {
			t.Errorf("%s: %d inner nodes for %d leaves, want at most %d", name, inner, leaves, most)
		}
	}
}

// TestIndexEqualKeys: jobs with the same key are ordered by id.
func TestIndexEqualKeys(t *testing.T) {
	p := newIndexPair(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		var raw [16]byte
		for i := range raw {
			raw[i] = byte(rng.Uint32())
		}
		p.add(&job{id: machine.NewJobID(raw)})
	}
	p.check()
	var last gq.JobID
	for _, j := range p.real.all() {
		if string(j.id[:]) <= string(last[:]) {
			t.Errorf("%s comes after %s", j.id, last)
		}
		last = j.id
	}
}

// TestPick compares the pick of a claim with a search through all jobs.
func TestPick(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tbl := newTable()
		q := tbl.addQueue(1, machine.NewQueue("q"))
		abilities := []string{"a", "b", "c"}
		types := []string{"t", "u", "v", "w"}
		subset := func(label string) []string {
			var out []string
			for _, a := range abilities {
				if rapid.Bool().Draw(r, label) {
					out = append(out, a)
				}
			}
			return out
		}
		var ready []*job
		buckets, jobs := uint32(0), byte(0)
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			switch rapid.SampledFrom([]string{"enter", "enter", "enter", "leave", "claim", "claim"}).Draw(r, "step") {
			case "enter":
				typ, requires := rapid.SampledFrom(types).Draw(r, "type"), subset("requires")
				l := q.findBucket(typ, requires)
				if l == nil {
					buckets++
					l = tbl.addBucket(buckets, q, typ, requires)
				}
				jobs++
				j := &job{
					id: machine.NewJobID([16]byte{rapid.Byte().Draw(r, "id"), jobs}), bucket: l, toRun: noTimer, toDue: noTimer,
					cost: rapid.Int64Range(0, 4).Draw(r, "cost"),
				}
				tbl.enter(j, machine.OrderKey{Hi: rapid.Uint64Range(1, 3).Draw(r, "level"), Lo: rapid.Uint64Range(1, 5).Draw(r, "seq")})
				ready = append(ready, j)
			case "leave":
				if len(ready) > 0 {
					i := rapid.IntRange(0, len(ready)-1).Draw(r, "which")
					tbl.leave(ready[i])
					tbl.leave(ready[i]) // a second call changes nothing
					ready = slices.Delete(ready, i, i+1)
				}
			case "claim":
				f := store.Filter{Queues: []string{"q"}, Offers: subset("offers"), MaxCost: rapid.Int64Range(0, 5).Draw(r, "most")}
				if rapid.Bool().Draw(r, "by type") {
					f.Types = rapid.SliceOfN(rapid.SampledFrom(append(types, "none")), 1, 3).Draw(r, "types")
				}
				want := searchAll(ready, &f)
				if got := q.pick(&f, gq.StatusRunning); got != want {
					r.Fatalf("%+v picks %s, want %s", f, describeJob(got), describeJob(want))
				}
				if want != nil && rapid.Bool().Draw(r, "take") {
					tbl.leave(want)
					ready = slices.DeleteFunc(ready, func(j *job) bool { return j == want })
				}
			}
		}
	})
}

func searchAll(ready []*job, f *store.Filter) (best *job) {
	for _, j := range ready {
		fits := len(f.Types) == 0 || slices.Contains(f.Types, j.bucket.typ)
		for _, need := range j.bucket.class.requires {
			fits = fits && slices.Contains(f.Offers, need)
		}
		if fits && (f.MaxCost == 0 || j.cost <= f.MaxCost) && (best == nil || compareJobs(j, best) < 0) {
			best = j
		}
	}
	return best
}

func describeJob(j *job) string {
	if j == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s (%s %v, %v, cost %d)", j.id, j.bucket.typ, j.bucket.class.requires, j.key, j.cost)
}
