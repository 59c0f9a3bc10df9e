package local

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

const mib = 1 << 20

// TestDiskFull fills a small disk with jobs. The store must refuse jobs before the disk
// is full, let accepted ones be completed, and accept jobs again when there is space.
func TestDiskFull(t *testing.T) {
	for _, c := range []struct {
		name    string
		disk    int64
		reserve int64 // as configured
		kept    string
	}{
		{"default reserve", 12 * mib, 0, "1.2 MiB"}, // a tenth of the disk
		{"own reserve", 12 * mib, 4 * mib, "4.0 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			disk := &quotaFS{FS: vfs.NewMem(), dir: "db", size: c.disk}
			f := &filler{t: t, options: Options{fs: disk, Reserve: c.reserve}, dir: "db", sent: map[gq.JobID][]byte{}}
			f.open()
			refusal := f.fill(c.disk)
			for _, part := range []string{"db", c.kept, "free some space"} {
				if !strings.Contains(refusal.Error(), part) {
					t.Errorf("the refusal does not say %q: %v", part, refusal)
				}
			}
			if n := disk.full(); n > 0 {
				t.Errorf("%d writes found the disk full before jobs were refused", n)
			}
			f.workOff(40)
			if n := disk.full(); n > 0 {
				t.Errorf("%d writes found the disk full while jobs were refused", n)
			}
			disk.resize(2 * c.disk)
			f.submit(10)
			f.reopen()
			if n := disk.full(); n > 0 {
				t.Errorf("%d writes found the disk full in the end", n)
			}
		})
	}
}

// TestDiskFullRecoversByRetention fills a disk and completes all jobs. Retention alone
// must make room for new ones.
func TestDiskFullRecoversByRetention(t *testing.T) {
	defer goleak.VerifyNone(t)
	disk := &quotaFS{FS: vfs.NewMem(), dir: "db", size: 12 * mib, freed: make(chan struct{}, 1)}
	clock := &stepClock{now: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	f := &filler{
		t: t, options: Options{fs: disk, Config: store.Config{Clock: clock}}, dir: "db", sent: map[gq.JobID][]byte{},
	}
	f.open()
	_ = f.fill(disk.size) // it checks the refusals itself
	for len(f.done) < len(f.sent) {
		f.complete()
	}
	// After this, memory holds only what retention removes, and only that can free
	// space. The disk is full, and where little has been compacted so far there is no room
	// for what memory holds, so it has some until then.
	disk.resize(4 * disk.size)
	if err := f.store.db.Flush(); err != nil {
		t.Fatal(err)
	}
	usage, err := disk.GetDiskUsage("db")
	if err != nil {
		t.Fatal(err)
	}
	disk.resize(int64(usage.UsedBytes + f.store.disk.reserve*3/4))
	clock.mu.Lock()
	clock.now = clock.now.Add(2 * store.DefaultRetention().Completed)
	clock.mu.Unlock()
	collected := 0
	for n := 1; n > 0; collected += n {
		var err error
		if n, _, err = f.store.Collect(t.Context(), 100); err != nil {
			t.Fatalf("collect on a full disk: %v", err)
		}
	}
	if collected != len(f.sent) {
		t.Errorf("%d of %d finished jobs were collected", collected, len(f.sent))
	}
	f.sent, f.done = map[gq.JobID][]byte{}, nil
	refused, rng := 0, randomness()
	within(t, "new room", func() {
		for err := f.insert(rng); err != nil; err = f.insert(rng) {
			if refused++; !errors.Is(err, gq.ErrDiskFull) {
				t.Errorf("insert after retention: %v", err)
				return
			}
			<-disk.freed // Pebble compacts when it likes
		}
	})
	t.Logf("%d jobs collected; after %d more refusals there was room", collected, refused)
	f.reopen()
}

// TestDiskFilledByOthers takes the last free byte of the disk. Writes must be refused,
// reads must work, and the store must recover.
func TestDiskFilledByOthers(t *testing.T) {
	defer goleak.VerifyNone(t)
	disk := &quotaFS{FS: vfs.NewMem(), dir: "db", size: 64 * mib}
	f := &filler{t: t, options: Options{fs: disk}, dir: "db", sent: map[gq.JobID][]byte{}}
	f.open()
	f.submit(20)
	disk.resize(0)
	for range 3 {
		for name, call := range everyMethod(f.store) {
			within(t, name, func() {
				if err := call(t.Context()); err != nil && !errors.Is(err, gq.ErrDiskFull) && !errors.Is(err, gq.ErrNotFound) {
					t.Errorf("%s on a full disk: %v", name, err)
				}
			})
		}
		if err := f.insert(randomness()); !errors.Is(err, gq.ErrDiskFull) {
			t.Errorf("insert on a full disk: %v", err)
		}
		out, err := f.store.Claim(t.Context(), []store.Claim{{
			Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: 1, Worker: "w",
		}})
		if err != nil || !errors.Is(out[0].Err, gq.ErrDiskFull) {
			t.Errorf("claim on a full disk: %v %+v", err, out)
		}
	}
	if n := disk.full(); n > 0 {
		t.Errorf("%d writes found the disk full", n)
	}
	disk.resize(64 * mib)
	f.submit(20)
	f.reopen()
}

// filler fills a disk with jobs and remembers them.
type filler struct {
	t       *testing.T
	options Options
	dir     string
	store   *Store

	mu   sync.Mutex
	sent map[gq.JobID][]byte // acknowledged jobs with their payloads
	done []gq.JobID          // completed ones
}

func (f *filler) open() {
	f.t.Helper()
	var err error
	if f.store, err = open(f.dir, f.options); err != nil {
		f.t.Fatalf("open: %v", err)
	}
}

func randomness() *rand.ChaCha8 {
	var seed [32]byte
	binary.NativeEndian.PutUint64(seed[:], rand.Uint64())
	return rand.NewChaCha8(seed)
}

// insert submits a job whose payload cannot be compressed.
func (f *filler) insert(rng *rand.ChaCha8) error {
	payload := make([]byte, 16<<10)
	_, _ = rng.Read(payload) // never fails
	spec := gq.Spec{
		ID: machine.NewJobID([16]byte(payload)), Type: "fill",
		Payload: gq.Payload{Data: payload, ContentType: "application/octet-stream"},
	}.WithDefaults()
	out, err := f.store.Insert(context.Background(), []store.Group{store.One(spec)})
	if err == nil {
		err = out[0].Err
	}
	if err == nil {
		f.mu.Lock()
		f.sent[spec.ID] = payload
		f.mu.Unlock()
	}
	return err
}

// fill lets several callers submit until they are refused.
func (f *filler) fill(disk int64) (refusal error) {
	f.t.Helper()
	var callers sync.WaitGroup
	refusals := make(chan error, 4)
	for range cap(refusals) {
		rng := randomness()
		callers.Go(func() {
			for range 2 * disk >> 14 {
				if err := f.insert(rng); err != nil {
					refusals <- err
					return
				}
			}
			refusals <- errors.New("more was accepted than the disk can hold")
		})
	}
	within(f.t, "the callers", callers.Wait)
	for range cap(refusals) {
		if refusal = <-refusals; !errors.Is(refusal, gq.ErrDiskFull) || errs.KindOf(refusal) != gq.KindUnavailable {
			f.t.Fatalf("jobs are refused, but not for the disk: %v", refusal)
		}
	}
	return refusal
}

// submit inserts jobs, which must succeed.
func (f *filler) submit(n int) {
	f.t.Helper()
	rng := randomness()
	for range n {
		if err := f.insert(rng); err != nil {
			f.t.Fatalf("insert with room on the disk: %v", err)
		}
	}
}

// workOff claims, renews and completes jobs one by one while the disk is too full for
// new ones. If a compaction frees some space, workOff fills it first.
func (f *filler) workOff(n int) {
	f.t.Helper()
	rng := randomness()
	for range n {
		f.complete()
		err := f.insert(rng)
		for err == nil {
			err = f.insert(rng)
		}
		if !errors.Is(err, gq.ErrDiskFull) {
			f.t.Fatalf("insert on a full disk: %v", err)
		}
	}
}

// complete claims, renews and completes a job.
func (f *filler) complete() {
	f.t.Helper()
	claimed, err := f.store.Claim(context.Background(), []store.Claim{{
		Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: 1, Worker: "w", Parts: gq.WithPayload,
	}})
	if err != nil || claimed[0].Err != nil || len(claimed[0].Jobs) != 1 {
		f.t.Fatalf("claim on a full disk: %v %+v", err, claimed)
	}
	job := claimed[0].Jobs[0]
	if !bytes.Equal(job.Spec.Payload.Data, f.sent[job.State.ID]) {
		f.t.Fatalf("job %s came with another payload", job.State.ID)
	}
	ref := job.State.Lease.Ref()
	f.update(ref, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Heartbeat(s, ref, machine.Report{Progress: 0.5}, now)
	})
	f.update(ref, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Complete(s, ref, nil, now)
	})
	f.done = append(f.done, job.State.ID)
}

func (f *filler) update(ref gq.LeaseRef, apply store.Apply) {
	f.t.Helper()
	out, err := f.store.Update(context.Background(), []store.Update{{Ref: store.Ref{Lease: ref.ID}, Apply: apply}})
	if err != nil || out[0].Err != nil {
		f.t.Fatalf("update on a full disk: %v %+v", err, out)
	}
}

// reopen reopens the store and compares it with what was acknowledged.
func (f *filler) reopen() {
	f.t.Helper()
	if err := f.store.Close(); err != nil {
		f.t.Fatalf("close: %v", err)
	}
	f.open()
	ended := map[gq.JobID]bool{}
	for _, id := range f.done {
		ended[id] = true
	}
	for id, payload := range f.sent {
		found, err := f.store.Get(context.Background(), []store.Ref{{Job: id}}, gq.WithPayload)
		switch {
		case err != nil || found[0].Err != nil:
			f.t.Fatalf("acknowledged job %s: %v %v", id, err, found)
		case !bytes.Equal(found[0].Spec.Payload.Data, payload):
			f.t.Errorf("job %s has another payload", id)
		case ended[id] != (found[0].State.Status == gq.StatusCompleted):
			f.t.Errorf("job %s is %s; completed: %v", id, found[0].State.Status, ended[id])
		}
	}
	if err := f.store.Close(); err != nil {
		f.t.Fatalf("close: %v", err)
	}
}
