package local

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/storetest"
)

// stalled is a store whose log is not synced until the test says so. One commit is
// open, and new calls join it.
type stalled struct {
	*Store
	t       *testing.T
	clock   *storetest.Clock
	proceed func() // resumes the disk
	calls   sync.WaitGroup
	ids     byte
}

// stall opens a store, lets prepare use it while the disk is fast, and then stalls the
// disk. Nothing may read the table then: the writer adds nothing to a commit while a reader
// has the lock.
func stall(t *testing.T, prepare func(*stalled)) *stalled {
	t.Helper()
	fs := &faultyFS{FS: vfs.NewMem()}
	clock := storetest.NewClock(fixtureStart)
	s, err := open("db", Options{fs: fs, Config: store.Config{Clock: clock}})
	if err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	d := &stalled{Store: s, t: t, clock: clock, proceed: sync.OnceFunc(func() { close(gate) })}
	t.Cleanup(func() {
		d.proceed()
		d.calls.Wait()
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	prepare(d)
	var others []gq.JobID
	for range 4 {
		others = append(others, d.insert(d.spec("other")).ID)
	}
	fs.arm(func(op, name string) error {
		if op == "sync" && strings.HasSuffix(name, ".log") {
			<-gate
		}
		return nil
	})
	// One commit is being synced, one waits for that, and the next stays open.
	for _, id := range others {
		joined := make(chan struct{})
		d.calls.Go(func() {
			out, err := d.Update(context.Background(), []store.Update{{
				Ref: store.Ref{Job: id},
				Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
					close(joined)
					return machine.Cancel(s, "", now)
				},
			}})
			if err != nil || out[0].Err != nil {
				d.t.Errorf("cancel: %v %+v", err, out)
			}
		})
		select {
		case <-joined:
		case <-time.After(time.Minute):
			t.Fatal("timed out waiting until a call has joined a commit")
		}
	}
	return d
}

func (d *stalled) spec(queue string) gq.Spec {
	d.ids++
	return gq.Spec{ID: machine.NewJobID([16]byte{d.ids, 3}), Type: "send", Queue: queue}.WithDefaults()
}

func (d *stalled) insert(spec gq.Spec) gq.State {
	out, err := d.Insert(context.Background(), []store.Group{store.One(spec)})
	if err != nil || out[0].Err != nil {
		d.t.Errorf("insert: %v %+v", err, out)
		return gq.State{}
	}
	return out[0].Jobs[0].State
}

// until waits for a condition.
func (d *stalled) until(what string, reached func() bool) {
	d.t.Helper()
	for end := time.Now().Add(time.Minute); !reached(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			d.t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// TestExpiryOnSlowDisk makes calls under an expired lease while the disk delays a
// commit that began before the expiry. They join that commit and must be refused.
func TestExpiryOnSlowDisk(t *testing.T) {
	spec.Covers(t, "Q-85", "Q-99")
	const workers = 40
	const ttl = time.Minute
	verbs := []struct {
		name  string
		apply func(gq.LeaseRef) store.Apply
	}{
		{"complete", func(l gq.LeaseRef) store.Apply {
			return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Complete(s, l, nil, now) }
		}},
		{"heartbeat", func(l gq.LeaseRef) store.Apply {
			return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Heartbeat(s, l, machine.Report{}, now)
			}
		}},
		{"fail", func(l gq.LeaseRef) store.Apply {
			return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Fail(s, l, gq.Failure{Category: gq.CategoryTemporary, Message: "again"}, machine.Draw{}, now)
			}
		}},
		{"start", func(l gq.LeaseRef) store.Apply {
			return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Start(s, l, ttl, now) }
		}},
	}
	for _, verb := range verbs {
		t.Run(verb.name, func(t *testing.T) {
			var jobs []gq.Job
			d := stall(t, func(d *stalled) {
				for range workers {
					d.insert(d.spec("q"))
				}
				out, err := d.Claim(context.Background(), []store.Claim{{
					Filter: store.Filter{Queues: []string{"q"}}, N: workers, Worker: "w", TTL: ttl, Hold: verb.name == "start",
				}})
				if err != nil || len(out[0].Jobs) != workers {
					t.Fatalf("claim: %v %+v", err, out)
				}
				jobs = out[0].Jobs
			})
			d.clock.Advance(ttl)
			var joined atomic.Int64
			answers := make(chan error, workers)
			for _, j := range jobs {
				apply := verb.apply(j.State.Lease.Ref())
				d.calls.Go(func() {
					out, err := d.Update(context.Background(), []store.Update{{
						Ref: store.Ref{Job: j.State.ID},
						Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
							joined.Add(1)
							return apply(s, now)
						},
					}})
					if err == nil {
						err = out[0].Err
					}
					answers <- err
				})
			}
			d.until("every call has joined the commit", func() bool { return joined.Load() == workers })
			d.proceed()
			for range workers {
				if err := <-answers; !errors.Is(err, gq.ErrStaleLease) {
					t.Errorf("%s at the lease's expiry: %v, want %v", verb.name, err, gq.ErrStaleLease)
				}
			}
		})
	}
}
