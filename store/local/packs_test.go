package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// packed is a store whose jobs are submitted together, and what has become of them.
type packed struct {
	*rapid.T
	fs    *vfs.MemFS
	clock *stillClock
	s     *Store
	kept  int // Options.keptIDs
	jobs  []gq.JobID
	held  map[gq.JobID]gq.LeaseRef
}

// TestPacks submits, claims and ends jobs in many orders, in commits of their own and together
// in one, and opens the store again in between,
// closed or copied while it is open. Every job must be as it was, and packs must not outlive
// their jobs.
func TestPacks(t *testing.T) {
	race.Spare(t)
	rapid.Check(t, func(r *rapid.T) {
		p := &packed{T: r, fs: vfs.NewCrashableMem(), clock: &stillClock{fixtureStart}, held: map[gq.JobID]gq.LeaseRef{}}
		p.kept = rapid.SampledFrom([]int{0, -1, 10}).Draw(r, "kept ids")
		p.open()
		steps := map[string]func(){"submit": p.submit, "claim": p.claim, "end": p.end, "end all": p.endAll, "cancel": p.cancel, "burst": p.burst, "wait": p.wait, "reopen": p.reopen, "crash": p.crash}
		for range rapid.IntRange(1, 25).Draw(r, "steps") {
			steps[rapid.SampledFrom([]string{"submit", "submit", "claim", "claim", "end", "end", "end all", "cancel", "burst", "burst", "wait", "reopen", "crash"}).Draw(r, "step")]()
		}
		p.reopen()
		if err := p.s.Close(); err != nil {
			r.Fatal(err)
		}
	})
}

func (p *packed) open() {
	p.Helper()
	var err error
	if p.s, err = open("db", Options{Config: store.Config{Clock: p.clock}, fs: p.fs, keptIDs: p.kept}); err != nil {
		p.Fatal(err)
	}
}

func (p *packed) submit() {
	out, err := p.s.Insert(context.Background(), p.groups())
	if err != nil {
		p.Fatal(err)
	}
	p.note(out)
}

// groups returns jobs that are alike, but for one at most.
func (p *packed) groups() []store.Group {
	groups := make([]store.Group, rapid.IntRange(1, 24).Draw(p.T, "n"))
	odd := rapid.IntRange(0, 4*len(groups)).Draw(p.T, "odd")
	for i := range groups {
		spec := gq.Spec{ID: machine.NewJobID([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(p.T, "id"))), Type: "t", Payload: gq.Payload{Data: []byte("1")}}
		kind := 4
		if i == odd {
			kind = rapid.IntRange(0, 3).Draw(p.T, "kind")
		}
		switch kind {
		case 0:
			spec.Delay = time.Minute
		case 1:
			spec.Type = "u"
		case 2:
			spec.LimitKey = "k"
		}
		groups[i] = store.Group{Jobs: []gq.Spec{spec.WithDefaults()}, Mint: kind != 3}
	}
	return groups
}

func (p *packed) note(out []store.Inserted) {
	p.Helper()
	for i := range out {
		if out[i].Err != nil {
			p.Fatal(out[i].Err)
		}
		p.jobs = append(p.jobs, out[i].Jobs[0].State.ID)
	}
}

// burst submits jobs, claims some and ends some, all in one commit.
func (p *packed) burst() {
	p.Helper()
	submit := newInsertion(p.s, p.groups())
	claim := newClaiming(p.s, []store.Claim{{Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: rapid.IntRange(1, 40).Draw(p.T, "claims"), Worker: "w", TTL: time.Hour}})
	for i := range submit.groups {
		submit.weigh(i)
	}
	claim.weigh(0)
	cancelFirst := rapid.Bool().Draw(p.T, "cancel first")
	ends := rapid.SliceOfN(rapid.IntRange(0, 3), 24, 24).Draw(p.T, "ends")
	var ended *updating
	if err := p.s.do(context.Background(), 1, func(tx *txn) {
		for i := range submit.groups {
			submit.apply(tx, i)
		}
		end := func() {
			ended = newUpdating(p.s, p.endings(submit.out, claim.out[0].Jobs, ends))
			for i := range ended.updates {
				ended.weigh(i)
				ended.apply(tx, i)
			}
		}
		if cancelFirst {
			end()
		}
		claim.apply(tx, 0)
		if !cancelFirst {
			end()
		}
	}); err != nil {
		p.Fatal(err)
	}
	p.note(submit.out)
	for _, j := range claim.out[0].Jobs {
		p.held[j.State.ID] = j.State.Lease.Ref()
	}
	for i := range ended.out {
		if ended.out[i].Err != nil {
			p.Fatal(ended.out[i].Err)
		}
		delete(p.held, ended.out[i].State.ID)
	}
}

// endings completes or cancels most of the jobs just submitted.
func (p *packed) endings(submitted []store.Inserted, claimed []gq.Job, ends []int) (updates []store.Update) {
	held := map[gq.JobID]gq.LeaseRef{}
	for _, j := range claimed {
		held[j.State.ID] = j.State.Lease.Ref()
	}
	for i := range submitted {
		if submitted[i].Err != nil || ends[i] == 0 {
			continue
		}
		id := submitted[i].Jobs[0].State.ID
		ref, running := held[id]
		updates = append(updates, store.Update{Ref: store.Ref{Job: id}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			if running {
				return machine.Complete(s, ref, nil, now)
			}
			return machine.Cancel(s, "", now)
		}})
	}
	return updates
}

func (p *packed) claim() {
	n := rapid.IntRange(1, 30).Draw(p.T, "n")
	out, err := p.s.Claim(context.Background(), []store.Claim{{Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: n, Worker: "w", TTL: time.Hour}})
	if err != nil || out[0].Err != nil {
		p.Fatal(err, out)
	}
	for _, j := range out[0].Jobs {
		p.held[j.State.ID] = j.State.Lease.Ref()
	}
}

func (p *packed) end()    { p.settle(rapid.IntRange(1, 8).Draw(p.T, "n")) }
func (p *packed) endAll() { p.settle(len(p.held)) }

// settle reports on some running jobs: most complete, others are retried at once or later.
func (p *packed) settle(n int) {
	var updates []store.Update
	for _, id := range p.jobs { // in an order that can be repeated
		ref, running := p.held[id]
		if !running || len(updates) == n {
			continue
		}
		how := rapid.IntRange(0, 9).Draw(p.T, "how")
		updates = append(updates, store.Update{Ref: store.Ref{Job: id}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			if how > 1 {
				return machine.Complete(s, ref, nil, now)
			}
			return machine.Fail(s, ref, gq.Failure{Category: gq.CategoryTemporary, RetryAfter: time.Duration(how) * time.Minute}, machine.Draw{}, now)
		}})
		delete(p.held, id)
	}
	p.update(updates)
}

func (p *packed) update(updates []store.Update) {
	out, err := p.s.Update(context.Background(), updates)
	if err != nil {
		p.Fatal(err)
	}
	for i := range out {
		if out[i].Err != nil {
			p.Fatal(out[i].Err)
		}
	}
}

func (p *packed) cancel() {
	if len(p.jobs) == 0 {
		return
	}
	from := rapid.IntRange(0, len(p.jobs)-1).Draw(p.T, "from")
	var updates []store.Update
	for _, id := range p.jobs[from:min(from+rapid.IntRange(1, 20).Draw(p.T, "n"), len(p.jobs))] {
		if _, running := p.held[id]; running {
			continue
		}
		updates = append(updates, store.Update{Ref: store.Ref{Job: id}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			if !s.Live() {
				return s, nil, nil
			}
			return machine.Cancel(s, "", now)
		}})
	}
	p.update(updates)
}

func (p *packed) wait() { p.clock.now = p.clock.now.Add(45 * time.Second) }

// reopen closes the store, checks its records and opens it again.
func (p *packed) reopen() {
	p.Helper()
	before := p.states()
	if err := p.s.Close(); err != nil {
		p.Fatal(err)
	}
	p.check()
	p.open()
	if diff := cmp.Diff(before, p.states()); diff != "" {
		p.Fatalf("opened again, jobs differ (-before +after):\n%s", diff)
	}
}

// crash goes on with a copy of what has been synced.
func (p *packed) crash() {
	p.Helper()
	before := p.states()
	fs := p.fs.CrashClone(vfs.CrashCloneCfg{})
	if err := p.s.Close(); err != nil {
		p.Fatal(err)
	}
	p.fs = fs
	p.open()
	if diff := cmp.Diff(before, p.states()); diff != "" {
		p.Fatalf("after a crash, jobs differ (-before +after):\n%s", diff)
	}
}

func (p *packed) states() []gq.State {
	p.Helper()
	refs := make([]store.Ref, len(p.jobs))
	for i, id := range p.jobs {
		refs[i].Job = id
	}
	found, err := p.s.Get(context.Background(), refs, 0)
	if err != nil {
		p.Fatal(err)
	}
	states := make([]gq.State, len(found))
	for i := range found {
		if found[i].Err != nil {
			p.Fatalf("job %d: %v", i, found[i].Err)
		}
		states[i] = found[i].State
	}
	return states
}

// check reads the records of packs and of live jobs from disk.
func (p *packed) check() {
	p.Helper()
	options := databaseOptions(p.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), nil)
	options.Logger = silent{}
	db, err := pebble.Open("db", options)
	if err != nil {
		p.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // a copy
	live := map[uint64][]byte{}
	visit := func(prefix byte, f func(key, value []byte)) {
		it, err := db.NewIter(iterOptions(prefix))
		if err != nil {
			p.Fatal(err)
		}
		defer it.Close() //nolint:errcheck // reported below
		for ok := it.First(); ok; ok = it.Next() {
			f(it.Key(), it.Value())
		}
		if err := it.Error(); err != nil {
			p.Fatal(err)
		}
	}
	visit(prefixLive, func(key, value []byte) { live[binary.BigEndian.Uint64(key[1:])] = bytes.Clone(value) })
	visit(prefixPack, func(key, value []byte) {
		pack, err := decodePack(key, value)
		if err != nil {
			p.Fatal(err)
		}
		left := 0
		for seq := pack.first; pack.has(seq); seq++ {
			if !bytes.Equal(live[seq], packEnded) {
				left++
			}
			delete(live, seq)
		}
		if left*8 <= int(pack.jobs()) {
			p.Errorf("of a pack of %d jobs %d are left", pack.jobs(), left)
		}
	})
	for seq, record := range live {
		if bytes.Equal(record, packEnded) {
			p.Errorf("job %d has ended and belongs to no pack", seq)
		}
	}
}

// TestPackOfOneCommit looks at the records of jobs that begin and end in packs.
func TestPackOfOneCommit(t *testing.T) {
	s, err := open("db", Options{fs: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	submit := func(n int) (ids []gq.JobID) {
		t.Helper()
		var groups []store.Group
		for i := range n {
			groups = append(groups, store.Group{Jobs: []gq.Spec{gq.Spec{ID: machine.NewJobID([16]byte{1, byte(i)}), Type: "t"}.WithDefaults()}, Mint: true})
		}
		out, err := s.Insert(t.Context(), groups)
		if err != nil {
			t.Fatal(err)
		}
		for i := range out {
			ids = append(ids, out[i].Jobs[0].State.ID)
		}
		return ids
	}
	cancel := func(ids []gq.JobID) {
		t.Helper()
		var updates []store.Update
		for _, id := range ids {
			updates = append(updates, store.Update{Ref: store.Ref{Job: id}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Cancel(s, "", now)
			}})
		}
		if _, err := s.Update(t.Context(), updates); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what, records string) {
		t.Helper()
		var got string
		for _, prefix := range []byte{prefixID, prefixLive, prefixPack} {
			if err := s.each(prefix, func(key, value []byte) error {
				switch {
				case bytes.Equal(value, packEnded):
					got += fmt.Sprintf("-%d ", key[8])
				case key[0] == prefixPack:
					p, err := decodePack(key, value)
					got += fmt.Sprintf("%d-%d ", p.first, p.first+p.jobs()-1)
					return err
				default:
					got += fmt.Sprintf("%d ", key[len(key)-1])
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if got != records {
			t.Errorf("%s: records %q, want %q", what, got, records)
		}
	}
	few := submit(packLeast - 1)
	want("few jobs", "1 2 3 ")
	cancel(few)
	want("no job", "")
	many := submit(16)
	want("16 jobs", "4-19 ")
	cancel(many[:13])
	want("3 of 16 jobs", "-4 -5 -6 -7 -8 -9 -10 -11 -12 -13 -14 -15 -16 4-19 ")
	cancel(many[13:14])
	want("2 of 16 jobs", "18 19 ")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Of the jobs of a pack that is dissolved, one is held: since a commit before, or since the same commit.
func TestPackDissolvedBesideClaims(t *testing.T) {
	for _, same := range []bool{false, true} {
		fs := vfs.NewCrashableMem()
		s, err := open("db", Options{fs: fs})
		if err != nil {
			t.Fatal(err)
		}
		groups := make([]store.Group, 16)
		for i := range groups {
			groups[i] = store.Group{Jobs: []gq.Spec{gq.Spec{ID: machine.NewJobID([16]byte{1, byte(i)}), Type: "t"}.WithDefaults()}, Mint: true}
		}
		out, err := s.Insert(t.Context(), groups)
		if err != nil {
			t.Fatal(err)
		}
		claim := newClaiming(s, []store.Claim{{Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: 1, Worker: "w", TTL: time.Hour}})
		claim.weigh(0)
		var updates []store.Update
		for i := range out[1:] { // the first one is claimed
			updates = append(updates, store.Update{Ref: store.Ref{Job: out[i+1].Jobs[0].State.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Cancel(s, "", now)
			}})
		}
		ends := newUpdating(s, updates)
		for i := range updates {
			ends.weigh(i)
		}
		cancel := func(tx *txn) {
			for i := range updates {
				ends.apply(tx, i)
			}
		}
		commits := []func(*txn){func(tx *txn) { claim.apply(tx, 0) }, cancel}
		if same {
			commits = []func(*txn){func(tx *txn) { claim.apply(tx, 0); cancel(tx) }}
		}
		for _, f := range commits {
			if err := s.do(t.Context(), 1, f); err != nil {
				t.Fatal(err)
			}
		}
		held := claim.out[0].Jobs[0].State
		crashed := fs.CrashClone(vfs.CrashCloneCfg{})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if s, err = open("db", Options{fs: crashed}); err != nil {
			t.Fatal(err)
		}
		found, err := s.Get(t.Context(), []store.Ref{{Job: held.ID}}, 0)
		if err != nil || found[0].Err != nil || found[0].State.Lease == nil || found[0].State.Lease.ID != held.Lease.ID {
			t.Errorf("in one commit %v: the claimed job is %v with the lease %+v, %v", same, found[0].State.Status, found[0].State.Lease, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
