package local

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// inFlight returns the disk of a store that lost power while it synced a commit. The
// commit has reached the log, but was not acknowledged.
func inFlight(t *testing.T, acknowledged, payload int) (fs *vfs.MemFS, log string) {
	t.Helper()
	disk := vfs.NewCrashableMem()
	faulty := &faultyFS{FS: disk}
	s, err := open("db", Options{fs: faulty})
	if err != nil {
		t.Fatal(err)
	}
	insert := func(n, payload int) {
		out, err := s.Insert(context.Background(), []store.Group{store.One(gq.Spec{ID: machine.NewJobID([16]byte{byte(n + 1)}), Type: "send", Payload: gq.Payload{
			Data: make([]byte, payload), ContentType: "application/octet-stream",
		}}.WithDefaults())})
		if err != nil || out[0].Err != nil {
			t.Errorf("insert: %v %+v", err, out)
		}
	}
	for n := range acknowledged {
		insert(n, 1)
	}
	reached, proceed := make(chan struct{}), make(chan struct{})
	faulty.arm(func(op, name string) error {
		if op == "sync" && strings.HasSuffix(name, ".log") {
			select {
			case <-proceed:
			default:
				log = faulty.PathBase(name)
				close(reached)
				<-proceed
			}
		}
		return nil
	})
	var calls sync.WaitGroup
	calls.Go(func() { insert(acknowledged, payload) })
	<-reached
	fs = disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
	close(proceed)
	calls.Wait()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return fs, log
}

// TestTornEnd truncates a commit in flight, as a power cut does. The store must open
// with what was acknowledged, report how much it has cut, and do so again after the
// next power cut.
func TestTornEnd(t *testing.T) {
	for _, acknowledged := range []int{0, 3} {
		fs, log := inFlight(t, acknowledged, 1)
		content := get(t, fs, log)
		put(t, fs, log, content[:len(content)-10])
		for cut := range 3 {
			var told strings.Builder
			s, err := open("db", Options{fs: fs, Log: slog.New(slog.NewTextHandler(&told, nil))})
			if err != nil {
				t.Fatalf("open after cut %d with %d acknowledged jobs: %v", cut, acknowledged, err)
			}
			if said := strings.Contains(told.String(), "was not acknowledged") && strings.Contains(told.String(), "bytes="); said != (cut == 0) {
				t.Errorf("open after cut %d with %d acknowledged jobs says: %s", cut, acknowledged, told.String())
			}
			counts, err := s.Counts(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, c := range counts {
				n += int(c.Live())
			}
			if n != acknowledged {
				t.Errorf("%d jobs are there after cut %d, want %d", n, cut, acknowledged)
			}
			next := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(3, 4))})
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			fs = next
		}
	}
}

// TestSyncedInPart loses the end of a commit in flight whose first blocks had been
// synced together with the commit before. It was not acknowledged, so the store opens.
func TestSyncedInPart(t *testing.T) {
	fs, log := inFlight(t, 2, 100<<10)
	content := get(t, fs, log)
	const first = 2 * blockBytes // bytes that had been synced
	if first+100 > len(content) {
		t.Fatalf("the log has %d bytes", len(content))
	}
	known, err := readSynced(fs, "db")
	if err != nil || known[log] == 0 || known[log] > int64(first) {
		t.Fatalf("%d bytes are known to be synced: %v", known[log], err)
	}
	for _, damage := range []struct {
		name string
		at   int // of the first lost byte
		err  error
	}{
		{"behind what was synced", first + 100, nil},
		{"at its end", first, nil},
		{"in it", first - 1, gq.ErrCorrupt},
	} {
		known[log] = int64(first)
		l := &ledger{warn: func(err error) { t.Error(err) }}
		if err := l.open(fs, "db", known); err != nil {
			t.Fatal(err)
		}
		l.close()
		put(t, fs, log, content[:damage.at])
		disk := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
		s, err := open("db", Options{fs: disk})
		if !errors.Is(err, damage.err) {
			t.Errorf("the log is cut %s: %v, want %v", damage.name, err, damage.err)
		}
		if err == nil {
			_ = s.Close()
		}
	}
}

// TestIdleIsProved waits until an idle store has made durable how far its log was
// synced. Then damage to its last commit is found even after a power cut.
func TestIdleIsProved(t *testing.T) {
	disk := vfs.NewCrashableMem()
	s, err := open("db", Options{fs: disk})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if out, err := s.Insert(context.Background(), []store.Group{store.One(gq.Spec{ID: machine.NewJobID([16]byte{1}), Type: "send"}.WithDefaults())}); err != nil || out[0].Err != nil {
		t.Fatalf("insert: %v %+v", err, out)
	}
	for end := time.Now().Add(time.Minute); s.disk.ledger.pending(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("an idle store did not sync what it knows")
		}
	}
	fs := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 2))})
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, ok := logNumber(name); !ok || len(get(t, fs, name)) == 0 {
			continue
		}
		content := get(t, fs, name)
		content[30] ^= 1
		put(t, fs, name, content)
		if s, err := open("db", Options{fs: fs}); err == nil {
			_ = s.Close()
			t.Errorf("a flipped bit in the last commit went unnoticed")
		}
	}
}
