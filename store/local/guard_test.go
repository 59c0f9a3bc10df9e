package local

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// patience is the time limit for everything that must not hang. It is long, since a
// busy machine may stop a process for many seconds.
const patience = 3 * time.Minute

// isLog, isManifest, isTable and isDirectory classify the files of a store.
func isLog(name string) bool       { return strings.HasSuffix(name, ".log") }
func isManifest(name string) bool  { return strings.Contains(name, "MANIFEST") }
func isTable(name string) bool     { return strings.HasSuffix(name, ".sst") }
func isDirectory(name string) bool { return name == "db" }

// fatalFaults are disk errors after which no store can continue.
var fatalFaults = []struct {
	name  string
	op    string
	file  func(string) bool
	err   error
	flush bool // the operation occurs only when a table is flushed
}{
	{"sync of the log", "sync", isLog, syscall.EIO, false},
	{"write to the log", "write", isLog, syscall.EIO, false},
	{"log on a full disk", "write", isLog, syscall.ENOSPC, false},
	{"new log", "create", isLog, syscall.EIO, true},
	{"new log on a full disk", "create", isLog, syscall.ENOSPC, true},
	{"write to the manifest", "write", isManifest, syscall.EIO, true},
	{"manifest on a full disk", "write", isManifest, syscall.ENOSPC, true},
	{"sync of the manifest", "sync", isManifest, syscall.EIO, true},
	{"new table", "create", isTable, syscall.EIO, true},
	{"write to a table", "write", isTable, syscall.EIO, true},
	{"sync of a table", "sync", isTable, syscall.EIO, true},
	{"sync of the directory", "sync", isDirectory, syscall.EIO, true},
}

// TestDiskError lets one disk operation fail while callers work. The store must fail
// and stay failed, no call may hang, the process must live, and acknowledged changes
// must survive, even a power cut right after.
func TestDiskError(t *testing.T) {
	for _, fault := range fatalFaults {
		t.Run(fault.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			for _, lasting := range []bool{false, true} {
				d := newDiskErrorRun(t)
				d.fault(func(op, name string) error {
					if op == fault.op && fault.file(name) && (lasting || len(d.disk.struck) == 0) {
						return fault.err
					}
					return nil
				}, fault.flush)
				d.check(fault.err)
			}
		})
	}
}

// diskErrorRun is a store on a faulty disk with its callers.
type diskErrorRun struct {
	*crashHarness
	disk *faultyFS
}

func newDiskErrorRun(t *testing.T) *diskErrorRun {
	d := &diskErrorRun{crashHarness: newCrashHarness(t, rand.Uint64(), false)}
	d.close()
	d.over = func(fs vfs.FS) vfs.FS {
		d.disk = &faultyFS{FS: fs}
		return d.disk
	}
	d.open()
	return d
}

// fault runs callers, arms the disk while they work and waits until the store has
// refused all of them.
func (d *diskErrorRun) fault(strike func(op, name string) error, flush bool) {
	stop := make(chan struct{})
	callers, ready := d.work(context.Background(), stop)
	d.await(ready, 20+d.rng.IntN(100))
	d.disk.arm(strike)
	if flush {
		if _, err := d.store.db.AsyncFlush(); err != nil {
			d.t.Fatalf("flush: %v", err)
		}
	}
	within(d.t, "the callers", callers.Wait)
}

// await waits for answers to callers.
func (d *diskErrorRun) await(ready chan struct{}, answers int) {
	d.t.Helper()
	within(d.t, "the callers' answers", func() {
		for range answers {
			select {
			case <-ready:
			case <-time.After(patience):
				return
			}
		}
	})
}

// check checks the failed store, closes it, and checks what is left.
func (d *diskErrorRun) check(cause error) {
	t, ctx := d.t, context.Background()
	hits := d.disk.hits()
	if len(hits) == 0 {
		t.Fatal("no operation of the disk failed: the run proves nothing")
	}
	for name, call := range everyMethod(d.store) {
		within(t, name, func() {
			err := call(ctx)
			if !errors.Is(err, gq.ErrStoreFailed) || errs.KindOf(err) != gq.KindUnavailable {
				t.Errorf("%s of a failed store: %v", name, err)
			} else if !errors.Is(err, cause) || !strings.Contains(err.Error(), hits[0]) {
				t.Errorf("%s does not tell that %s failed with %q: %v", name, hits[0], cause, err)
			}
		})
	}
	known, seen := d.snapshot()
	powerCut := d.fs.CrashClone(vfs.CrashCloneCfg{})
	within(t, "Close", func() { _ = d.store.Close() }) // its error after a disk failure is not specified
	if err := d.store.PutQueue(ctx, machine.NewQueue("late")); !errors.Is(err, gq.ErrStoreFailed) {
		t.Errorf("call after Close of a failed store: %v", err)
	}

	d.over = nil
	for _, left := range []*vfs.MemFS{powerCut, d.fs} {
		d.fs = left
		d.open()
		d.crashHarness.check(ctx, known, seen)
		d.close()
	}
}

// everyMethod calls each method of a store with valid arguments.
func everyMethod(s *Store) map[string]func(context.Context) error {
	job := machine.NewJobID([16]byte{1})
	spec := gq.Spec{ID: job, Type: "late"}.WithDefaults()
	filter := store.Filter{Queues: []string{gq.DefaultQueue}}
	apply := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Cancel(s, "", now) }
	return map[string]func(context.Context) error{
		"Insert": func(ctx context.Context) error {
			_, err := s.Insert(ctx, []store.Group{store.One(spec)})
			return err
		},
		"Get": func(ctx context.Context) error {
			_, err := s.Get(ctx, []store.Ref{{Job: job}}, 0)
			return err
		},
		"List": func(ctx context.Context) error { _, err := s.List(ctx, gq.Query{}); return err },
		"Keyed": func(ctx context.Context) error {
			_, err := s.Keyed(ctx, nil, []string{"k"})
			return err
		},
		"Claim": func(ctx context.Context) error {
			_, err := s.Claim(ctx, []store.Claim{{Filter: filter, N: 1, Worker: "w"}})
			return err
		},
		"Peek": func(ctx context.Context) error { _, err := s.Peek(ctx, filter, 1); return err },
		"Update": func(ctx context.Context) error {
			_, err := s.Update(ctx, []store.Update{{Ref: store.Ref{Job: job}, Apply: apply}})
			return err
		},
		"Now":               func(ctx context.Context) error { _, err := s.Now(ctx); return err },
		"Due":               func(ctx context.Context) error { _, err := s.Due(ctx, 1); return err },
		"ReleaseDependents": func(ctx context.Context) error { _, err := s.ReleaseDependents(ctx, 1); return err },
		"Collect":           func(ctx context.Context) error { _, _, err := s.Collect(ctx, 1); return err },
		"Counts":            func(ctx context.Context) error { _, err := s.Counts(ctx); return err },
		"Events":            func(ctx context.Context) error { _, err := s.Events(ctx, 0, 1); return err },
		"LastEvent": func(ctx context.Context) error {
			_, err := s.LastEvent(ctx)
			return err
		},
		"History":     func(ctx context.Context) error { _, err := s.History(ctx, job); return err },
		"DeleteQueue": func(ctx context.Context) error { return s.DeleteQueue(ctx, "late") },
		"PutQueue":    func(ctx context.Context) error { return s.PutQueue(ctx, machine.NewQueue("late")) },
		"Queues":      func(ctx context.Context) error { _, err := s.Queues(ctx, store.QueueQuery{}); return err },
		"Waiting":     func(ctx context.Context) error { _, err := s.Waiting(ctx, "", "", 1); return err },
		"PutKey":      func(ctx context.Context) error { return s.PutKey(ctx, gq.QueueKey{Queue: "late", Key: "k", Limit: 1}) },
		"Keys":        func(ctx context.Context) error { _, err := s.Keys(ctx, store.KeyQuery{Queue: "late"}); return err },
		"PutPool":     func(ctx context.Context) error { return s.PutPool(ctx, gq.Pool{Name: "late", Capacity: 1}) },
		"Pools":       func(ctx context.Context) error { _, err := s.Pools(ctx); return err },
		"PutDocs": func(ctx context.Context) error {
			_, err := s.PutDocs(ctx, []store.Doc{{Kind: "k", Name: "late", Data: []byte("x")}})
			return err
		},
		"Doc": func(ctx context.Context) error { _, err := s.Doc(ctx, "k", "late"); return err },
		"FindDocs": func(ctx context.Context) error {
			_, err := s.FindDocs(ctx, []store.DocName{{Kind: "k", Name: "late"}})
			return err
		},
		"Docs": func(ctx context.Context) error { _, err := s.Docs(ctx, "k", "", 1); return err },
	}
}

func TestEveryMethodIsCalled(t *testing.T) {
	port, calls := reflect.TypeFor[store.Store](), everyMethod(nil)
	for method := range port.Methods() {
		if calls[method.Name] == nil && method.Name != "Close" && method.Name != "Config" { // they cannot fail
			t.Errorf("everyMethod does not call %s", method.Name)
		}
	}
}

// within fails the test if something takes so long that it must hang.
func within(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s did not return within %v", what, patience)
	}
}

// TestFullDiskUnderTable: data that cannot be written to a table is still in the log,
// so a full disk only causes a retry.
func TestFullDiskUnderTable(t *testing.T) {
	for _, op := range []string{"create", "write"} {
		t.Run(op, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			d := newDiskErrorRun(t)
			stop := make(chan struct{})
			callers, ready := d.work(context.Background(), stop)
			var left atomic.Int64
			left.Store(3)
			d.disk.arm(func(did, name string) error {
				if did == op && isTable(name) && left.Add(-1) >= 0 {
					return syscall.ENOSPC
				}
				return nil
			})
			d.await(ready, 50)
			flushed, err := d.store.db.AsyncFlush()
			if err != nil {
				t.Fatal(err)
			}
			within(t, "the flush", func() { <-flushed })
			d.await(ready, 50)
			close(stop)
			within(t, "the callers", callers.Wait)
			if hits := d.disk.hits(); len(hits) != 3 {
				t.Errorf("%d operations of the disk failed, want 3", len(hits))
			}
			if err := d.store.failure(); err != nil {
				t.Fatalf("the store failed for good: %v", err)
			}
			known, seen := d.snapshot()
			d.close()
			d.open()
			d.crashHarness.check(context.Background(), known, seen)
			d.close()
		})
	}
}

// TestGuardTellsBeforeItFreezes: when the guard swallows a write, the store must
// already have failed, or the write could be acknowledged.
func TestGuardTellsBeforeItFreezes(t *testing.T) {
	told := 0
	var g *guard
	g = newGuard(vfs.NewMem(), "", 0, func(error) {
		told++
		if g.frozen.Load() {
			t.Error("writes are swallowed before the store is told")
		}
	})
	g.freeze("sync", "000001.log", syscall.EIO)
	if told == 0 || !g.frozen.Load() {
		t.Errorf("told %d times, frozen %v", told, g.frozen.Load())
	}
}
