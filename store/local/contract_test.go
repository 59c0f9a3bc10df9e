package local_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/storetest"
)

// onDisk returns the embedded store in a directory.
func onDisk() storetest.Backend { return onDiskWith(local.Options{}) }

func onDiskWith(o local.Options) storetest.Backend {
	dirs := map[store.Store]string{}
	at := func(t testing.TB, dir string, cfg store.Config) store.Store {
		o.Config = cfg
		s, err := local.Open(dir, o)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		dirs[s] = dir
		return s
	}
	return storetest.Backend{
		Open: func(t testing.TB, cfg store.Config) store.Store {
			return at(t, filepath.Join(t.TempDir(), "store"), cfg)
		},
		Reopen: func(t testing.TB, s store.Store, cfg store.Config) store.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			return at(t, dirs[s], cfg)
		},
	}
}

// inMemory returns the same store without a disk.
func inMemory() storetest.Backend {
	return storetest.Backend{Open: func(t testing.TB, cfg store.Config) store.Store {
		s, err := local.OpenMemory(local.Options{Config: cfg})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return s
	}}
}

// A store in memory reports that it is ephemeral, and keeps nothing.
func TestMemoryIsEphemeral(t *testing.T) {
	spec.Covers(t, "Q-06")
	ctx := context.Background()
	open := func() *local.Store {
		s, err := local.OpenMemory(local.Options{})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		if !s.Ephemeral() {
			t.Error("the store in memory does not say that it is ephemeral")
		}
		return s
	}
	s := open()
	job := gq.Spec{ID: machine.NewJobID([16]byte{1}), Type: "t"}
	if out, err := s.Insert(ctx, []store.Group{store.One(job.WithDefaults())}); err != nil || out[0].Err != nil {
		t.Fatalf("insert: %v, %v", err, out)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	s = open()
	defer s.Close()
	found, err := s.Get(ctx, []store.Ref{{Job: job.ID}}, 0)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	if !errors.Is(found[0].Err, gq.ErrNotFound) {
		t.Errorf("the job outlived its process: %v", found[0].Err)
	}
	if disk, err := local.Open(filepath.Join(t.TempDir(), "d"), local.Options{}); err != nil {
		t.Fatalf("open: %v", err)
	} else if disk.Ephemeral() {
		t.Error("the store on disk says that it is ephemeral")
	} else if err := disk.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// late delays the visibility of new jobs: the first claim of a queue after a submission
// to it finds nothing, the next finds all.
type late struct {
	store.Store
	missed atomic.Bool

	mu    sync.Mutex
	fresh map[string]bool // queues with jobs that no claim has missed yet; guarded by mu
}

func (l *late) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, g := range groups {
			for _, spec := range g.Jobs {
				l.fresh[spec.Queue] = true
			}
		}
	}()
	return l.Store.Insert(ctx, groups)
}

func (l *late) Claim(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	if len(claims) == 0 || ctx.Err() != nil || !l.misses(claims) {
		return l.Store.Claim(ctx, claims)
	}
	l.missed.Store(true)
	answers := make([]store.Claimed, len(claims))
	for i, c := range claims {
		answers[i].Err = store.CheckClaim(c)
	}
	return answers, nil
}

// misses reports whether a claim names a queue with fresh jobs. The next claim finds
// them.
func (l *late) misses(claims []store.Claim) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.fresh)
	for _, c := range claims {
		for _, queue := range c.Filter.Queues {
			delete(l.fresh, queue)
		}
	}
	return len(l.fresh) < before
}

func (l *late) Close() error {
	l.mu.Lock()
	clear(l.fresh)
	l.mu.Unlock()
	return l.Store.Close()
}

// A store may delay the visibility of new jobs: the contract still holds.
func TestContractLateVisibility(t *testing.T) {
	spec.Covers(t, "Q-20")
	b := inMemory()
	b.Late = true
	open := b.Open
	var missed atomic.Int32 // cases in which a claim found too few jobs
	b.Open = func(t testing.TB, cfg store.Config) store.Store {
		l := &late{Store: open(t, cfg), fresh: make(map[string]bool)}
		t.Cleanup(func() {
			if l.missed.Load() {
				missed.Add(1)
			}
		})
		return l
	}
	b.Only = variantCases
	least := int32(50)
	if race.Share() {
		least = 20
	}
	t.Run("cases", func(t *testing.T) { storetest.Run(t, b) })
	if n := missed.Load(); n < least {
		t.Errorf("a job was shown late in %d cases, want at least %d", n, least)
	}
}

// variantCases selects the cases that every variant of the store runs under the race
// detector: those that pin requirements or reopen the store. The store in memory runs
// all it can.
func variantCases(c storetest.Case) bool {
	return !race.Share() || len(c.Covers) > 0 || c.Reopens
}

func TestContractOnDisk(t *testing.T) {
	b := onDisk()
	b.Only = variantCases
	storetest.Run(t, b)
}

func TestContractInMemory(t *testing.T) { storetest.Run(t, inMemory()) }

func TestModelInMemory(t *testing.T) {
	b := inMemory()
	if race.Share() {
		b.Stories = 30 // enough to cover everything
	}
	storetest.RunModel(t, b)
}

// On disk each step of a story waits for a sync. The ids of folded jobs are only there.
func TestModelOnDisk(t *testing.T) {
	t.Parallel()
	b := onDiskWith(local.ForgetIDs(local.Options{}))
	b.Stories = 30
	if race.Share() {
		b.Stories = 12
	}
	storetest.RunModel(t, b)
}
