package local

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// limitedTable is a table whose jobs have limit keys, and a model of it as a list.
type limitedTable struct {
	*rapid.T
	t     *table
	q     *queue
	p     *pool
	ready []*job
	held  []*job
	keyOf map[*job]string
	made  byte
}

// TestPickLimited compares the pick of a claim under a key limit and a pool with a
// search through all jobs.
func TestPickLimited(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tbl := newTable()
		config := machine.NewQueue("q")
		config.KeyLimit = rapid.IntRange(1, 3).Draw(r, "limit")
		l := &limitedTable{T: r, t: tbl, q: tbl.addQueue(1, config), keyOf: map[*job]string{}}
		l.p = &pool{config: gq.Pool{Name: "p", Capacity: rapid.Int64Range(0, 12).Draw(r, "capacity")}}
		l.q.join(l.p)
		for i, typ := range []string{"t", "u", "v"} {
			tbl.addBucket(uint32(2*i+1), l.q, typ, nil)
			tbl.addBucket(uint32(2*i+2), l.q, typ, []string{"gpu"})
		}
		steps := map[string]func(){
			"enter": l.enter, "enter more": l.enter, "claim": l.claim, "claim more": l.claim, "free": l.free, "leave": l.leave, "limit": l.limit,
		}
		names := []string{"enter", "enter more", "claim", "claim more", "free", "leave", "limit"}
		for range rapid.IntRange(1, 80).Draw(r, "steps") {
			steps[rapid.SampledFrom(names).Draw(r, "step")]()
			l.check()
		}
	})
}

func (l *limitedTable) enter() {
	l.made++
	bucket := l.t.buckets[rapid.Uint32Range(1, 6).Draw(l.T, "bucket")]
	j := &job{
		id: machine.NewJobID([16]byte{rapid.Byte().Draw(l.T, "id"), l.made}), bucket: bucket, toRun: noTimer, toDue: noTimer,
		cost: rapid.Int64Range(0, 5).Draw(l.T, "cost"),
	}
	l.keyOf[j] = rapid.SampledFrom([]string{"", "a", "b", "c"}).Draw(l.T, "key")
	l.q.attach(j, &jobKeys{limit: l.keyOf[j]})
	l.t.enter(j, machine.OrderKey{Hi: rapid.Uint64Range(1, 2).Draw(l.T, "level"), Lo: rapid.Uint64Range(1, 9).Draw(l.T, "seq")})
	l.ready = append(l.ready, j)
}

func (l *limitedTable) heldOf(key string) (n int) {
	for _, j := range l.held {
		if l.keyOf[j] == key {
			n++
		}
	}
	return n
}

// search returns the first job that may be claimed.
func (l *limitedTable) search(f *store.Filter) (best *job) {
	for _, j := range l.ready {
		full := l.keyOf[j] != "" && l.heldOf(l.keyOf[j]) >= l.q.config.KeyLimit
		if full || j.cost > 0 && j.cost > l.p.config.Capacity-l.p.used {
			continue
		}
		suits := (len(f.Types) == 0 || slices.Contains(f.Types, j.bucket.typ)) && (f.MaxCost == 0 || j.cost <= f.MaxCost) &&
			(len(j.bucket.class.requires) == 0 || len(f.Offers) > 0)
		if suits && (best == nil || j.precedes(best)) {
			best = j
		}
	}
	return best
}

func (l *limitedTable) claim() {
	f := &store.Filter{Queues: []string{"q"}, MaxCost: rapid.Int64Range(0, 5).Draw(l.T, "most")}
	if rapid.Bool().Draw(l.T, "gpu") {
		f.Offers = []string{"gpu"}
	}
	if rapid.Bool().Draw(l.T, "by type") {
		f.Types = []string{rapid.SampledFrom([]string{"t", "u", "v"}).Draw(l.T, "type")}
	}
	want := l.search(f)
	got := l.q.pick(f, gq.StatusRunning)
	if got != want {
		l.Fatalf("%+v picks %s, want %s", f, describeJob(got), describeJob(want))
	}
	if want != nil {
		l.t.leave(want)
		l.t.occupy(want, gq.StatusRunning)
		l.ready = slices.DeleteFunc(l.ready, func(j *job) bool { return j == want })
		l.held = append(l.held, want)
	}
}

// free ends a lease: the job is done, or claimable again.
func (l *limitedTable) free() {
	if len(l.held) == 0 {
		return
	}
	i := rapid.IntRange(0, len(l.held)-1).Draw(l.T, "which")
	j := l.held[i]
	l.held = slices.Delete(l.held, i, i+1)
	l.t.vacate(j, gq.StatusRunning)
	if rapid.Bool().Draw(l.T, "done") {
		l.q.detach(j)
		return
	}
	l.t.enter(j, j.key)
	l.ready = append(l.ready, j)
}

// leave ends a waiting job.
func (l *limitedTable) leave() {
	if len(l.ready) == 0 {
		return
	}
	i := rapid.IntRange(0, len(l.ready)-1).Draw(l.T, "which")
	j := l.ready[i]
	l.ready = slices.Delete(l.ready, i, i+1)
	l.t.leave(j)
	l.t.leave(j) // a second call changes nothing
	l.q.detach(j)
}

// limit changes the limit.
func (l *limitedTable) limit() {
	l.q.config.KeyLimit = rapid.IntRange(1, 4).Draw(l.T, "limit")
	for _, k := range l.q.keys {
		l.t.judge(k)
	}
}

// check requires that the buckets hold no more jobs than they must, and that keys go
// with their last job.
func (l *limitedTable) check() {
	shown := map[string]int{} // by key, bucket and cost
	for _, j := range l.ready {
		key := l.keyOf[j]
		full := key != "" && l.heldOf(key) >= l.q.config.KeyLimit
		if key == "" && !j.shown || full && j.shown {
			l.Fatalf("job %s of key %q is shown: %t; its key is full: %t", describeJob(j), key, j.shown, full)
		}
		if key != "" && j.shown {
			at := fmt.Sprintf("%s/%d/%d", key, j.bucket.number, j.cost)
			if shown[at]++; shown[at] > 1 {
				l.Fatalf("two jobs of %s are shown", at)
			}
		}
	}
	jobs := map[string]int{}
	for _, j := range append(slices.Clone(l.ready), l.held...) {
		jobs[l.keyOf[j]]++
	}
	delete(jobs, "")
	if len(l.q.keys) != len(jobs) {
		l.Fatalf("%d keys are remembered, %d have jobs", len(l.q.keys), len(jobs))
	}
	for key, n := range jobs {
		if k := l.q.keys[key]; k == nil || k.jobs != n || k.held != l.heldOf(key) {
			l.Fatalf("key %s has %d jobs, %d held; remembered is %+v", key, n, l.heldOf(key), k)
		}
	}
}

// Filling and freeing a key with very many waiting jobs touches only a few of them, and
// so does a claim that passes over it.
func TestFullKeyCostsNothing(t *testing.T) {
	tbl := newTable()
	config := machine.NewQueue("q")
	config.KeyLimit = 1
	q := tbl.addQueue(1, config)
	bucket := tbl.addBucket(1, q, "t", nil)
	add := func(n int, key string) *job {
		j := &job{id: machine.NewJobID([16]byte{byte(n), byte(n >> 8), byte(n >> 16)}), bucket: bucket, toRun: noTimer, toDue: noTimer, cost: 1}
		q.attach(j, &jobKeys{limit: key})
		tbl.enter(j, machine.OrderKey{Hi: 1, Lo: uint64(n)})
		return j
	}
	first := add(0, "many")
	for n := range 100_000 {
		add(n+1, "many")
	}
	other := add(200_000, "few")
	if bucket.ready.size != 2 {
		t.Errorf("%d jobs are shown, want one of each key", bucket.ready.size)
	}
	f := &store.Filter{Queues: []string{"q"}}
	tbl.leave(first)
	tbl.occupy(first, gq.StatusRunning)
	if bucket.ready.size != 1 || q.pick(f, gq.StatusRunning) != other {
		t.Errorf("with a full key %d jobs are shown, want that of the other", bucket.ready.size)
	}
	allocations := testing.AllocsPerRun(100, func() {
		tbl.vacate(first, gq.StatusRunning)
		tbl.occupy(first, gq.StatusRunning)
		if q.pick(f, gq.StatusRunning) != other {
			t.Error("the other key is hidden")
		}
	})
	if allocations > 20 {
		t.Errorf("a place that comes and goes costs %.0f allocations", allocations)
	}
}

// A fair queue forgets a key together with its jobs.
func TestTurnsAreForgotten(t *testing.T) {
	tbl := newTable()
	config := machine.NewQueue("q")
	config.Fair = true
	q := tbl.addQueue(1, config)
	tx := &txn{t: tbl}
	for n := range 100_000 { // each key has one job, which is served at once
		s := gq.State{Own: gq.PriorityNormal}
		s.Turn = tx.turn(q, &jobKeys{fair: fmt.Sprint(n)}, gq.PriorityNormal)
		if n%10 == 0 {
			tx.serve(q, &s)
			q.turns.now[gq.PriorityNormal]++ // as are the others of its round
		}
	}
	if n := len(q.turns.last[gq.PriorityNormal]); n > 1000 {
		t.Errorf("%d keys without jobs are remembered", n)
	}
	for n := range 1000 { // these are cancelled one after the other, and none is served
		tx.turn(q, &jobKeys{fair: fmt.Sprint("cancelled ", n)}, gq.PriorityLow)
	}
	if n := len(q.turns.last[gq.PriorityLow]); n > 200 {
		t.Errorf("%d keys of cancelled jobs are remembered", n)
	}
}

// A new rate of a queue applies to each of its keys.
func TestNewRateOfTwoKeys(t *testing.T) {
	clock := &stillClock{fixtureStart}
	s, err := open("db", Options{Config: store.Config{Clock: clock}, fs: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	rated := func(per time.Duration) {
		t.Helper()
		if err := s.PutQueue(t.Context(), gq.Queue{Name: "q", Policy: machine.DefaultPolicy(), KeyRate: gq.Rate{Count: 1, Per: per}}); err != nil {
			t.Fatal(err)
		}
	}
	claim := func(want int) {
		t.Helper()
		out, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{"q"}}, N: 10, Worker: "w", TTL: time.Hour}})
		if err != nil || out[0].Err != nil || len(out[0].Jobs) != want {
			t.Fatalf("claimed %d jobs, want %d: %v, %v", len(out[0].Jobs), want, err, out[0].Err)
		}
	}
	rated(time.Hour)
	for i := range 6 {
		spec := gq.Spec{ID: numberedID(1 + i), Queue: "q", Type: "t", LimitKey: fmt.Sprint("key ", i%3)}.WithDefaults()
		if out, err := s.Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec}, Mint: true}}); err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	claim(3)
	claim(0)
	rated(time.Minute)
	clock.now = clock.now.Add(2 * time.Minute)
	claim(3)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
