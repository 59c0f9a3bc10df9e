package storetest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/store"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// A store can pass the suite with any of the choices that the contract allows. A case that needs
// more than it declares would fail on an unfinished store; one that declares more than it needs
// would be skipped.
func TestRun(t *testing.T) {
	needs := make(map[string]*recordedCalls) // by case
	for _, c := range Cases() {
		needs[c.Name] = new(recordedCalls)
	}
	t.Run("Plain", func(t *testing.T) {
		naive, prefix := naiveBackend("", 0), t.Name()+"/"
		Run(t, Backend{
			Parallel: true,
			Open: func(t testing.TB, cfg store.Config) store.Store {
				t.Helper()
				return recordingStore{naive.Open(t, cfg), needs[strings.TrimPrefix(t.Name(), prefix)]}
			},
			Reopen: func(t testing.TB, s store.Store, cfg store.Config) store.Store {
				t.Helper()
				r := s.(recordingStore)
				r.calls.add(reopening)
				return recordingStore{naive.Reopen(t, r.Store, cfg), r.calls}
			},
		})
	})
	for _, c := range Cases() {
		if strings.HasPrefix(c.Name, "Move/") || strings.HasSuffix(c.Name, "/Moved") { // a capability that the naive store lacks
			continue
		}
		got, want := needs[c.Name].sorted(), slices.Sorted(slices.Values(c.Needs))
		if len(got) > 0 && !slices.Equal(got, want) { // none where -run selects other cases
			t.Errorf("%s needs %q and says %q", c.Name, got, want)
		}
	}
	t.Run("Otherwise", func(t *testing.T) {
		b := naiveBackend("", tellsInTheSameCommit|readsNow|sweepsFirst)
		b.Parallel = true
		if race.Share() { // make check and make test-planted run all cases
			b.Only = func(c Case) bool { return len(c.Covers) > 0 }
		}
		Run(t, b)
	})
}

func TestCases(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range Cases() {
		group, story, ok := strings.Cut(c.Name, "/")
		if !ok || group == "" || story == "" || strings.ContainsAny(c.Name, " _") {
			t.Errorf("%q is not named Group/Story", c.Name)
		}
		if names[c.Name] {
			t.Errorf("two cases are named %s", c.Name)
		}
		names[c.Name] = true
		if c.Clause == "" || strings.HasSuffix(c.Clause, ".") {
			t.Errorf("%s: the clause %q is not a clause", c.Name, c.Clause)
		}
	}
}

type recordedCalls struct {
	mu    sync.Mutex
	names []string // guarded by mu
}

func (r *recordedCalls) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.names, name) {
		r.names = append(r.names, name)
	}
}

func (r *recordedCalls) sorted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.names))
}

// recordingStore records which methods are called.
type recordingStore struct {
	store.Store
	calls *recordedCalls
}

func (r recordingStore) Insert(ctx context.Context, g []store.Group) ([]store.Inserted, error) {
	r.calls.add("Insert")
	return r.Store.Insert(ctx, g)
}

func (r recordingStore) Get(ctx context.Context, refs []store.Ref, p gq.Parts) ([]store.Found, error) {
	r.calls.add("Get")
	return r.Store.Get(ctx, refs, p)
}

func (r recordingStore) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	r.calls.add("List")
	return r.Store.List(ctx, q)
}

func (r recordingStore) Claim(ctx context.Context, c []store.Claim) ([]store.Claimed, error) {
	r.calls.add("Claim")
	return r.Store.Claim(ctx, c)
}

func (r recordingStore) Peek(ctx context.Context, f store.Filter, n int) ([]store.Found, error) {
	r.calls.add("Peek")
	return r.Store.Peek(ctx, f, n)
}

func (r recordingStore) Update(ctx context.Context, u []store.Update) ([]store.Updated, error) {
	r.calls.add("Update")
	return r.Store.Update(ctx, u)
}

func (r recordingStore) Now(ctx context.Context) (time.Time, error) {
	r.calls.add("Now")
	return r.Store.Now(ctx)
}

func (r recordingStore) Due(ctx context.Context, limit int) (store.Due, error) {
	r.calls.add("Due")
	return r.Store.Due(ctx, limit)
}

func (r recordingStore) ReleaseDependents(ctx context.Context, limit int) (int, error) {
	r.calls.add("ReleaseDependents")
	return r.Store.ReleaseDependents(ctx, limit)
}

func (r recordingStore) Collect(ctx context.Context, limit int) (int, time.Time, error) {
	r.calls.add("Collect")
	return r.Store.Collect(ctx, limit)
}

func (r recordingStore) Counts(ctx context.Context, queues ...string) ([]gq.Count, error) {
	r.calls.add("Counts")
	return r.Store.Counts(ctx, queues...)
}

func (r recordingStore) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	r.calls.add("Events")
	return r.Store.Events(ctx, after, limit)
}

func (r recordingStore) LastEvent(ctx context.Context) (uint64, error) {
	r.calls.add("LastEvent")
	return r.Store.LastEvent(ctx)
}

func (r recordingStore) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	r.calls.add("History")
	return r.Store.History(ctx, id)
}

func (r recordingStore) DeleteQueue(ctx context.Context, name string) error {
	r.calls.add("DeleteQueue")
	return r.Store.DeleteQueue(ctx, name)
}

func (r recordingStore) PutQueue(ctx context.Context, q gq.Queue) error {
	r.calls.add("PutQueue")
	return r.Store.PutQueue(ctx, q)
}

func (r recordingStore) Queues(ctx context.Context, q store.QueueQuery) ([]gq.Queue, error) {
	r.calls.add("Queues")
	return r.Store.Queues(ctx, q)
}

func (r recordingStore) Waiting(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	r.calls.add("Waiting")
	return r.Store.Waiting(ctx, prefix, after, limit)
}

func (r recordingStore) PutKey(ctx context.Context, k gq.QueueKey) error {
	r.calls.add("PutKey")
	return r.Store.PutKey(ctx, k)
}

func (r recordingStore) Keys(ctx context.Context, q store.KeyQuery) ([]gq.QueueKey, error) {
	r.calls.add("Keys")
	return r.Store.Keys(ctx, q)
}

func (r recordingStore) PutPool(ctx context.Context, p gq.Pool) error {
	r.calls.add("PutPool")
	return r.Store.PutPool(ctx, p)
}

func (r recordingStore) Pools(ctx context.Context) ([]gq.Pool, error) {
	r.calls.add("Pools")
	return r.Store.Pools(ctx)
}

func (r recordingStore) PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error) {
	r.calls.add("PutDocs")
	return r.Store.PutDocs(ctx, docs)
}

func (r recordingStore) Doc(ctx context.Context, kind, name string) (store.Doc, error) {
	r.calls.add("Doc")
	return r.Store.Doc(ctx, kind, name)
}

func (r recordingStore) FindDocs(ctx context.Context, names []store.DocName) ([]store.Doc, error) {
	r.calls.add("FindDocs")
	return r.Store.FindDocs(ctx, names)
}

func (r recordingStore) Keyed(ctx context.Context, scopes, names []string) ([]gq.JobID, error) {
	r.calls.add("Keyed")
	return r.Store.Keyed(ctx, scopes, names)
}

func (r recordingStore) Docs(ctx context.Context, kind, after string, limit int) ([]store.Doc, error) {
	r.calls.add("Docs")
	return r.Store.Docs(ctx, kind, after, limit)
}

func (r recordingStore) Close() error {
	r.calls.add("Close")
	return r.Store.Close()
}

func TestLacks(t *testing.T) {
	b := naiveBackend("", 0)
	b.Lacks, b.Reopen = []string{"List"}, nil
	for _, c := range Cases() {
		lacking := len(b.missing(c)) > 0
		needing := slices.Contains(c.Needs, "List") || slices.Contains(c.Needs, reopening)
		if lacking != needing {
			t.Errorf("%s needs %q: left out %t", c.Name, c.Needs, lacking)
		}
	}
}

func TestFailuresOfGoodStore(t *testing.T) {
	if failures := Failures(t, naiveBackend("", 0), "Insert/", "Lease/"); len(failures) != 0 {
		t.Errorf("a good store fails %+v", failures)
	}
}

func TestClock(t *testing.T) {
	c := NewClock(start)
	if got := c.Advance(time.Second); !got.Equal(start.Add(time.Second)) || !c.Now().Equal(got) {
		t.Errorf("the clock shows %v and %v", got, c.Now())
	}
	c.Set(start)
	if !c.Now().Equal(start) {
		t.Errorf("the clock shows %v, want %v", c.Now(), start)
	}
	var wait sync.WaitGroup
	for range 100 {
		wait.Go(func() { c.Advance(time.Nanosecond) })
	}
	wait.Wait()
	if got := c.Now().Sub(start); got != 100 {
		t.Errorf("the clock moved by %v, want 100ns", got)
	}
}

func TestRunModel(t *testing.T) {
	race.Spare(t)
	for name, h := range map[string]habit{"Plain": 0, "Otherwise": tellsInTheSameCommit | readsNow | sweepsFirst} {
		t.Run(name, func(t *testing.T) {
			RunModel(t, naiveBackend("", h))
		})
	}
}
