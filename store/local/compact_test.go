package local

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestDiskFullOfWhatIsKept removes every second job from a full disk. Rewriting the
// rest takes more than twice the free space, so the tables must be merged in parts.
func TestDiskFullOfWhatIsKept(t *testing.T) {
	race.Spare(t)
	defer goleak.VerifyNone(t)
	const jobs, payload = 200, 256 << 10
	disk := &quotaFS{FS: vfs.NewMem(), dir: "db", size: 1 << 30, freed: make(chan struct{}, 1)}
	f := &filler{t: t, options: Options{fs: disk, Reserve: 24 * mib}, dir: "db", sent: map[gq.JobID][]byte{}}
	f.open()
	defer func() {
		if err := f.store.Close(); err != nil {
			t.Error(err)
		}
	}()
	rng := randomness()
	for range jobs / 50 {
		f.finished(rng, 50, payload)
	}
	if err := f.store.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
		t.Fatal(err)
	}
	if err := f.store.Close(); err != nil { // frees the input of the compaction and all logs
		t.Fatal(err)
	}
	f.open()
	// Files that are no longer needed are removed in the background. They must not make
	// room later.
	within(t, "the removal of old files", func() {
		for {
			m := f.store.db.Metrics()
			if m.Table.ObsoleteCount == 0 && m.WAL.ObsoleteFiles == 0 {
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	before := disk.used()
	disk.resize(before + 16*mib)
	var odd []gq.JobID
	for i := 0; i < len(f.done); i += 2 {
		odd = append(odd, f.done[i])
	}
	if _, err := f.store.Purge(t.Context(), odd); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.store.Collect(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	within(t, "new room", func() {
		for disk.used() > before-jobs*payload/4 {
			<-disk.freed
		}
	})
	if err := f.insert(rng); err != nil {
		t.Errorf("insert after a purge: %v", err)
	}
}

// finished submits jobs and completes them.
func (f *filler) finished(rng io.Reader, n, payload int) {
	f.t.Helper()
	groups := make([]store.Group, n)
	noise := make([]byte, payload) // incompressible
	_, _ = rng.Read(noise)         // never fails
	for i := range groups {
		data := bytes.Clone(noise)
		_, _ = rng.Read(data[:16])
		groups[i] = store.One(gq.Spec{
			ID: machine.NewJobID([16]byte(data)), Type: "fill",
			Payload: gq.Payload{Data: data, ContentType: "application/octet-stream"},
		}.WithDefaults())
	}
	if _, err := f.store.Insert(f.t.Context(), groups); err != nil {
		f.t.Fatal(err)
	}
	claimed, err := f.store.Claim(f.t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: n, Worker: "w"}})
	if err != nil || len(claimed[0].Jobs) != n {
		f.t.Fatalf("claim: %v %v", err, claimed[0].Err)
	}
	for _, job := range claimed[0].Jobs {
		ref := job.State.Lease.Ref()
		f.update(ref, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Complete(s, ref, nil, now)
		})
		f.done = append(f.done, job.State.ID)
	}
}
