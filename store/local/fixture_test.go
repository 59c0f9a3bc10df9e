package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// fixture is a closed store with a record of every kind, as files.
type fixture struct {
	files  map[string][]byte // in directory db
	stages []portrait        // what readers saw after each commit that is only in the log; the last is the truth
	asks   asks
	config store.Config
}

// asks is what to read from a fixture.
type asks struct {
	jobs   []store.Ref
	leases []store.Ref
	keyed  []gq.Spec
	after  uint64 // events up to here are dropped
}

// portrait is what readers see: an answer or an error for each question.
type portrait map[string]any

// disk returns a new file system with the files.
func (f *fixture) disk(t *testing.T) *vfs.MemFS {
	t.Helper()
	fs := vfs.NewMem()
	if err := fs.MkdirAll("db", 0o750); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(f.files)) {
		put(t, fs, name, f.files[name])
	}
	return fs
}

// put writes a file of a fixture.
func put(t *testing.T, fs vfs.FS, name string, content []byte) {
	t.Helper()
	file, err := fs.Create(fs.PathJoin("db", name), vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = file.Write(slices.Clone(content))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) open(fs vfs.FS) (*Store, error) {
	return open("db", Options{fs: fs, Config: f.config})
}

// look reads everything.
func (a *asks) look(s *Store) portrait {
	ctx, p := context.Background(), portrait{}
	note := func(question string, answer any, err error) {
		if err != nil {
			answer = err
		}
		p[question] = answer
	}
	each := func(question string, found []store.Found, err error) {
		note(question, nil, err)
		for i := range found {
			note(fmt.Sprintf("%s %d", question, i), found[i].Job, found[i].Err)
		}
	}
	everything := gq.WithPayload | gq.WithResult | gq.WithCheckpoint
	found, err := s.Get(ctx, a.jobs, everything)
	each("get", found, err)
	found, err = s.Get(ctx, a.leases, everything)
	each("get by lease", found, err)
	found, err = s.Peek(ctx, store.Filter{Queues: []string{"other", "limited", gq.DefaultQueue}, Offers: []string{"gpu"}}, 10)
	each("peek", found, err)
	for i, r := range a.jobs {
		history, err := s.History(ctx, r.Job)
		note(fmt.Sprintf("history %d", i), history, err)
	}
	for i, q := range []gq.Query{
		{}, {OldestFirst: true}, {CreatedAfter: fixtureStart.Add(time.Minute)}, {CreatedBefore: fixtureStart.Add(time.Minute)},
	} {
		page, err := s.List(ctx, q)
		note(fmt.Sprintf("list %d", i), page, err)
	}
	events, err := s.Events(ctx, a.after, 1000)
	note("events", events, err)
	counts, err := s.Counts(ctx)
	note("counts", counts, err)
	queues, err := s.Queues(ctx, store.QueueQuery{})
	note("queues", queues, err)
	pools, err := s.Pools(ctx)
	note("pools", pools, err)
	docs, err := s.Docs(ctx, "schedule", "", 10)
	note("documents", docs, err)
	due, err := s.Due(ctx, 100)
	due.Now = time.Time{} // the time of the call, not of the store
	note("due", due, err)
	for i := range a.keyed {
		question := fmt.Sprintf("key %d", i)
		placed, err := s.Insert(ctx, []store.Group{store.One(a.keyed[i])})
		note(question, placed, err)
		if err == nil && placed[0].Err != nil {
			p[question] = placed[0].Err
		}
	}
	return p
}

// answer returns the answer to a question. A call that failed answers none of its questions.
func (p portrait) answer(question string) any {
	if answer, given := p[question]; given {
		return answer
	}
	return p[question[:max(0, strings.LastIndexByte(question, ' '))]]
}

// differs says where a portrait differs from the truth, other than by reporting damage.
func (p portrait) differs(truth portrait) string {
	for _, question := range slices.Sorted(maps.Keys(truth)) {
		if err, failed := p.answer(question).(error); failed {
			if want, wanted := truth[question].(error); wanted && errors.Is(err, gq.ErrNotFound) && errors.Is(want, gq.ErrNotFound) {
				continue
			}
			if !errors.Is(err, gq.ErrCorrupt) && !errors.Is(err, gq.ErrFormat) {
				return fmt.Sprintf("%s: %v", question, err)
			}
			continue
		}
		if diff := cmp.Diff(truth[question], p.answer(question)); diff != "" {
			return fmt.Sprintf("%s (-truth +seen):\n%s", question, diff)
		}
	}
	return ""
}

var fixtureStart = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// stillClock stands still until it is moved.
type stillClock struct{ now time.Time }

func (c *stillClock) Now() time.Time { return c.now }

// builder makes a fixture.
type builder struct {
	t     *testing.T
	fs    *vfs.MemFS
	s     *Store
	clock *stillClock
	ids   byte
	f     *fixture
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	fs := vfs.NewMem()
	clock := &stillClock{fixtureStart}
	b := &builder{t: t, fs: fs, clock: clock, f: &fixture{config: store.Config{
		Clock:     clock,
		Retention: store.Retention{Completed: 24 * time.Hour, Cancelled: 24 * time.Hour, Failed: 24 * time.Hour, DeadLetter: 24 * time.Hour},
	}}}
	var err error
	if b.s, err = b.f.open(fs); err != nil {
		t.Fatal(err)
	}
	b.old()
	b.flush()
	b.live()
	b.packed()
	b.limited()
	b.flush()
	for range 3 {
		b.insert(func(s *gq.Spec) {})
		b.flush()
	}
	b.recent()
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	b.f.files = contents(t, fs)
	b.f.files["LOCK"] = nil
	return b.f
}

// crashed returns the fixture without the files that only a closed store has.
func (f *fixture) crashed() *fixture {
	c := *f
	c.files = maps.Clone(f.files)
	delete(c.files, inventoryFile)
	return &c
}

// get reads a file of a fixture.
func get(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	file, err := fs.Open(fs.PathJoin("db", name))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return content
}

func (b *builder) flush() {
	b.t.Helper()
	if err := b.s.db.Flush(); err != nil {
		b.t.Fatal(err)
	}
}

// insert adds a job and returns its id.
func (b *builder) insert(change func(*gq.Spec)) gq.JobID {
	b.t.Helper()
	b.ids++
	spec := gq.Spec{ID: machine.NewJobID([16]byte{b.ids, 7}), Type: "send", Payload: gq.Payload{Data: []byte(`{"to":"you"}`)}}
	change(&spec)
	spec = spec.WithDefaults()
	out, err := b.s.Insert(context.Background(), []store.Group{store.One(spec)})
	if err != nil || out[0].Err != nil {
		b.t.Fatalf("insert: %v %+v", err, out)
	}
	b.f.asks.jobs = append(b.f.asks.jobs, store.Ref{Job: spec.ID})
	if spec.Key.Name != "" {
		b.f.asks.keyed = append(b.f.asks.keyed, spec)
	}
	return spec.ID
}

func (b *builder) update(id gq.JobID, u store.Update) gq.State {
	b.t.Helper()
	u.Ref = store.Ref{Job: id}
	out, err := b.s.Update(context.Background(), []store.Update{u})
	if err != nil || out[0].Err != nil {
		b.t.Fatalf("update: %v %+v", err, out)
	}
	return out[0].State
}

// claim gives a job to a worker under a given lease id.
func (b *builder) claim(id gq.JobID, lease gq.LeaseID) gq.LeaseRef {
	b.t.Helper()
	b.update(id, store.Update{Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Claim(s, machine.Grant{Lease: lease, Worker: "w", Start: true, TTL: 1000 * time.Hour}, now)
	}})
	b.f.asks.leases = append(b.f.asks.leases, store.Ref{Lease: lease})
	return gq.LeaseRef{ID: lease}
}

func (b *builder) complete(id gq.JobID, ref gq.LeaseRef) {
	b.t.Helper()
	b.update(id, store.Update{Result: []byte("sent"), Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Complete(s, ref, []byte("sent"), now)
	}})
}

// old makes jobs of which retention has removed some, and has removed the log events of
// the others.
func (b *builder) old() {
	b.t.Helper()
	forever := machine.DefaultPolicy()
	forever.Lifetime = 0
	kept := b.insert(func(s *gq.Spec) { s.Policy = forever })
	b.claim(kept, "lease-of-old")
	gone := b.insert(func(s *gq.Spec) {})
	b.complete(gone, b.claim(gone, "lease-of-gone"))
	b.f.asks.jobs, b.f.asks.leases = b.f.asks.jobs[:1], b.f.asks.leases[:1]
	b.clock.now = b.clock.now.Add(48 * time.Hour)
	b.insert(func(s *gq.Spec) { s.Type = "later" })
	if n, _, err := b.s.Collect(context.Background(), 100); err != nil || n != 1 {
		b.t.Fatalf("collect: %d %v", n, err)
	}
	for _, err := b.s.Events(context.Background(), b.f.asks.after, 1); errors.Is(err, gq.ErrGone); _, err = b.s.Events(context.Background(), b.f.asks.after, 1) {
		b.f.asks.after++
	}
	if b.f.asks.after == 0 {
		b.t.Fatal("no event was dropped")
	}
}

// live makes jobs in every state.
func (b *builder) live() {
	b.t.Helper()
	b.insert(func(s *gq.Spec) { s.Delay = time.Hour })
	parent := b.insert(func(s *gq.Spec) {
		s.Queue, s.Requires, s.CostUnits = "other", []string{"gpu"}, 7
		s.Metadata = gq.Metadata{Priority: gq.PriorityHigh, Tags: map[string]string{"team": "red"}, CorrelationID: "c"}
	})
	b.insert(func(s *gq.Spec) { s.DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: parent}} })
	keyed := b.insert(func(s *gq.Spec) { s.Key = gq.IdempotencyKey{Scope: "send", Name: "once", Fingerprint: 9} })
	b.insert(func(s *gq.Spec) {
		s.Key = gq.IdempotencyKey{Scope: machine.RetryScope, Name: machine.RetryName(b.clock.now, [10]byte{1}, 0), Fingerprint: 1}
	})
	changed := gq.Metadata{Priority: gq.PriorityLow, Tags: map[string]string{"team": "blue"}}
	b.update(keyed, store.Update{Metadata: &changed, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Update(s, gq.PriorityLow, now)
	}})
	running := b.insert(func(s *gq.Spec) {})
	ref := b.claim(running, "lease-of-running")
	b.update(running, store.Update{Checkpoint: []byte("half way"), Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Heartbeat(s, ref, machine.Report{Progress: 0.5, Note: "half", CheckpointBytes: 8}, now)
	}})
	retrying := b.insert(func(s *gq.Spec) {})
	ref = b.claim(retrying, "lease-of-retrying")
	b.update(retrying, store.Update{Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Fail(s, ref, gq.Failure{Category: gq.CategoryTemporary, Message: "again", RetryAfter: time.Hour}, machine.Draw{}, now)
	}})
	done := b.insert(func(s *gq.Spec) {})
	b.complete(done, b.claim(done, "lease-of-done"))
	b.update(b.insert(func(s *gq.Spec) {}), store.Update{Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Cancel(s, "not wanted", now)
	}})
}

// packed submits jobs that share a record. One of them is running and one has ended.
func (b *builder) packed() {
	b.t.Helper()
	var groups []store.Group
	for range packLeast + 2 {
		b.ids++
		spec := gq.Spec{ID: machine.NewJobID([16]byte{b.ids, 7}), Type: "send", Queue: "packed", Payload: gq.Payload{Data: []byte("1")}}.WithDefaults()
		groups = append(groups, store.Group{Jobs: []gq.Spec{spec}, Mint: true})
	}
	out, err := b.s.Insert(context.Background(), groups)
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range out {
		b.f.asks.jobs = append(b.f.asks.jobs, store.Ref{Job: out[i].Jobs[0].State.ID})
	}
	b.claim(out[1].Jobs[0].State.ID, "lease-of-packed")
	ended := out[2].Jobs[0].State.ID
	b.complete(ended, b.claim(ended, "lease-of-ended"))
}

// limited makes a queue with every limit partly used, and a document.
func (b *builder) limited() {
	b.t.Helper()
	ctx := context.Background()
	q := machine.NewQueue("limited")
	q.KeyLimit, q.Fair, q.Pool, q.Rate = 1, true, "p", gq.Rate{Count: 1, Per: time.Hour, Burst: 3}
	_, docErr := b.s.PutDocs(ctx, []store.Doc{{Kind: "schedule", Name: "nightly", Data: []byte("{}")}})
	if err := errors.Join(b.s.PutPool(ctx, gq.Pool{Name: "p", Capacity: 10}), b.s.PutQueue(ctx, q), docErr); err != nil {
		b.t.Fatal(err)
	}
	for i := range 6 {
		b.insert(func(s *gq.Spec) {
			s.Queue, s.CostUnits = "limited", 2
			s.LimitKey, s.FairKey = []string{"a", "a", "b"}[i%3], []string{"x", "y"}[i/3]
		})
	}
	out, err := b.s.Claim(ctx, []store.Claim{{Filter: store.Filter{Queues: []string{"limited"}}, N: 1, Worker: "w", TTL: 1000 * time.Hour}})
	if err != nil || len(out[0].Jobs) != 1 {
		b.t.Fatalf("claim: %v %+v", err, out)
	}
}

// recent makes commits that are only in the log.
func (b *builder) recent() {
	b.t.Helper()
	stage := func() { b.f.stages = append(b.f.stages, b.f.asks.look(b.s)) }
	b.clock.now = b.clock.now.Add(time.Minute) // past every backoff, so that reading the first stage later shows the same
	stage()
	for range 3 {
		b.clock.now = b.clock.now.Add(time.Second)
		id := b.insert(func(s *gq.Spec) {})
		stage()
		ref := b.claim(id, gq.LeaseID(fmt.Sprintf("lease-of-recent-%d", b.ids)))
		stage()
		b.complete(id, ref)
		stage()
	}
}
