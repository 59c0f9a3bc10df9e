package worker_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/worker"
)

// deliverTwice runs a handler twice concurrently for one job: its worker is cut off for
// longer than the lease, so another one gets the job too.
func deliverTwice(t *testing.T, s gq.Spec, h worker.Handler) {
	t.Helper()
	bubble(t, func(f *fixture) {
		var mu sync.Mutex // of the system that the handler writes to
		deliveries := 0
		f.mux.HandleFunc(s.Type, func(ctx context.Context, run *worker.Run) error {
			if run.LeaseVersion() == 1 {
				time.Sleep(20 * time.Second) // regardless of the lease
			}
			mu.Lock()
			defer mu.Unlock()
			deliveries++
			return h(ctx, run)
		})
		other, err := worker.NewWith(f.memory, f.mux, worker.Config{Name: "other", Logger: discard()})
		if err != nil {
			t.Fatal(err)
		}
		f.run()
		s.Policy = gq.PresetSemantics.Policy()
		id := f.submit(s)
		after(time.Second)
		f.link.setCut("", gq.ErrStoreFailed)
		ctx, cancel := context.WithTimeout(f.Context(), 25*time.Second)
		defer cancel()
		if err := other.Run(ctx); err != nil {
			t.Error(err)
		}
		f.link.setCut("", nil)
		f.wantStatus(id, gq.StatusCompleted)
		mu.Lock()
		defer mu.Unlock()
		if deliveries != 2 {
			t.Errorf("%d deliveries, want 2", deliveries)
		}
	})
}

// The job id is the same in every delivery, so a unique constraint on it makes the second
// insert do nothing.
func TestPatternUniqueConstraint(t *testing.T) {
	spec.Covers(t, "J-96")
	rows, conflicts := make(map[gq.JobID]string), 0
	insertOrIgnore := func(id gq.JobID, row string) {
		if _, taken := rows[id]; taken {
			conflicts++
			return
		}
		rows[id] = row
	}
	deliverTwice(t, gq.Spec{Type: "charge"}, func(_ context.Context, run *worker.Run) error {
		insertOrIgnore(run.ID(), "charged")
		return nil
	})
	if len(rows) != 1 || conflicts != 1 {
		t.Errorf("%d rows, %d conflicts", len(rows), conflicts)
	}
}

// The idempotency key of the submission names a lock; an execution that does not get the
// lock skips the work.
func TestPatternLockOnTheKey(t *testing.T) {
	spec.Covers(t, "J-97")
	locks, done, skipped := make(map[string]gq.LeaseID), 0, 0
	deliverTwice(t, gq.Spec{Type: "charge", Key: gq.IdempotencyKey{Name: "order-7"}}, func(_ context.Context, run *worker.Run) error {
		if _, held := locks[run.Key().Name]; held {
			skipped++
			return nil
		}
		locks[run.Key().Name] = run.LeaseID()
		done++
		return nil
	})
	if done != 1 || skipped != 1 || len(locks["order-7"]) == 0 {
		t.Errorf("done %d times, skipped %d times", done, skipped)
	}
}

// The payload has the version of the entity that the job was created for; an execution
// that finds another version changes nothing.
func TestPatternVersionCheck(t *testing.T) {
	spec.Covers(t, "J-98")
	version, changes := 3, 0
	deliverTwice(t, gq.Spec{Type: "charge", Payload: gq.Payload{Data: []byte("3")}}, func(_ context.Context, run *worker.Run) error {
		if string(run.Payload().Data) != string(rune('0'+version)) {
			return nil
		}
		version++
		changes++
		return nil
	})
	if version != 4 || changes != 1 {
		t.Errorf("version %d after %d changes", version, changes)
	}
}

// A system that stores the largest lease version it has seen rejects a holder that has
// lost the job.
func TestPatternFencing(t *testing.T) {
	var newest gq.LeaseVersion
	var writes, refused []gq.LeaseVersion
	deliverTwice(t, gq.Spec{Type: "charge"}, func(_ context.Context, run *worker.Run) error {
		if v := run.LeaseVersion(); v < newest {
			refused = append(refused, v)
		} else {
			newest, writes = v, append(writes, v)
		}
		return nil
	})
	if len(writes) != 1 || writes[0] != 2 || len(refused) != 1 || refused[0] != 1 {
		t.Errorf("written by %v, refused to %v", writes, refused)
	}
}
