package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// ledger records which worker holds which job, by the store's times.
type ledger struct {
	mu     sync.Mutex
	held   map[gq.JobID]hold
	faults []string
	lost   int // expired leases
}

type hold struct {
	version gq.LeaseVersion
	until   time.Time // zero after it was released
}

func (l *ledger) grant(j *gq.Job) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := j.State.Lease
	before, known := l.held[j.State.ID]
	if known && lease.Version <= before.version {
		l.faults = append(l.faults, fmt.Sprintf("job %s: version %d after %d", j.State.ID, lease.Version, before.version))
	}
	if known && !before.until.IsZero() {
		if lease.GrantedAt.Before(before.until) {
			l.faults = append(l.faults, fmt.Sprintf("job %s: version %d granted at %v, while %d lasts until %v",
				j.State.ID, lease.Version, lease.GrantedAt, before.version, before.until))
		}
		l.lost++
	}
	l.held[j.State.ID] = hold{lease.Version, lease.ExpiresAt}
}

// change records that a holder's lease lasts until a time, or has ended.
func (l *ledger) change(id gq.JobID, v gq.LeaseVersion, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held[id].version == v {
		l.held[id] = hold{v, until}
	}
}

// TestTwoEngines: workers of two engines compete for the jobs of one store. Some are slow
// and lose their leases, some release jobs, and all keep making calls under lost leases.
func TestTwoEngines(t *testing.T) {
	spec.Covers(t, "Q-22", "Q-82")
	random := seeded(t)
	seed := random.Uint64()
	synctest.Test(t, func(t *testing.T) {
		const workers, jobs = 8, 300
		s := open(t)
		engines := []*engine.Engine{newEngine(t, s, engine.Options{}), newEngine(t, s, engine.Options{})}
		ctx, stop := context.WithCancel(t.Context())
		var running, working sync.WaitGroup
		for _, e := range engines {
			running.Go(func() {
				if err := e.Run(ctx); err != nil {
					t.Errorf("run: %v", err)
				}
			})
		}
		p := gq.PresetSemantics.Policy()
		p.LeaseTTL, p.OnLoss, p.MaxAttempts, p.MaxLeaseLosses = 2*time.Second, gq.LossFree, 1000, 0
		specs := make([]gq.Spec, jobs)
		for i := range specs {
			specs[i] = gq.Spec{Type: "t", Policy: p}
		}
		out := must[[]gq.SubmitResult](t)(engines[0].SubmitBatch(ctx, specs))

		l := &ledger{held: map[gq.JobID]hold{}}
		var stale, left int
		left = jobs
		finished := make(chan struct{})
		for i := range workers {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			e := engines[i%2]
			working.Go(func() {
				for ctx.Err() == nil {
					got, err := e.Claim(ctx, gq.ClaimRequest{Worker: fmt.Sprint("w", i), N: 1 + r.IntN(3), Wait: 10 * time.Second})
					if err != nil {
						t.Errorf("claim: %v", err)
						return
					}
					for k := range got {
						l.grant(&got[k])
					}
					for k := range got {
						j := &got[k]
						ref, id := j.State.Lease.Ref(), j.State.ID
						if r.IntN(3) == 0 { // slow, possibly too slow
							time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
						}
						if r.IntN(3) == 0 {
							// Before the heartbeat: it may succeed while another worker
							// claims.
							a := must[[]gq.LeaseResult](t)(e.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: ref, Progress: -1}}))[0]
							if a.Err == nil {
								l.change(id, ref.Version, a.State.Lease.ExpiresAt)
							} else if !errors.Is(a.Err, gq.ErrStaleLease) {
								t.Errorf("heartbeat: %v", a.Err)
							}
						}
						verdict := gq.Outcome{Lease: ref, Verdict: gq.VerdictComplete}
						if r.IntN(4) == 0 {
							verdict = gq.Outcome{Lease: ref, Verdict: gq.VerdictRelease}
						}
						l.mu.Lock() // no worker may claim the job before the ledger is updated
						a := must[[]gq.LeaseResult](t)(e.Settle(t.Context(), []gq.Outcome{verdict}))[0]
						switch {
						case errors.Is(a.Err, gq.ErrStaleLease):
							stale++
						case a.Err != nil:
							t.Errorf("settle: %v", a.Err)
						default:
							if h := l.held[id]; h.version == ref.Version {
								l.held[id] = hold{version: ref.Version}
							}
							if verdict.Verdict == gq.VerdictComplete {
								if left--; left == 0 {
									close(finished)
								}
							}
						}
						l.mu.Unlock()
					}
				}
			})
		}
		<-finished
		stop()
		working.Wait()
		running.Wait()
		for _, fault := range l.faults {
			t.Error(fault)
		}
		check := newEngine(t, s, engine.Options{})
		for i := range out {
			j := must[gq.Job](t)(check.Get(t.Context(), out[i].ID(), 0))
			if j.State.Status != gq.StatusCompleted {
				t.Errorf("job %d is %s", i, j.State.Status)
			}
		}
		t.Logf("%d leases ran out, %d stale calls were refused", l.lost, stale)
		if l.lost < 10 || stale < 10 {
			t.Errorf("only %d leases ran out and %d calls were stale: nothing was provoked", l.lost, stale)
		}
	})
}

// mortal is a store whose process is killed: from the fatal call on, no call returns an
// answer. The fatal call itself may or may not have happened.
type mortal struct {
	store.Store
	left  int  // calls until the kill
	after bool // the fatal call happens, and its answer is lost
	dead  bool
}

var errKilled = errors.New("killed")

// step reports whether a call reaches the store, and whether its answer returns.
func (m *mortal) step() (reaches, returns bool) {
	if m.dead {
		return false, false
	}
	if m.left--; m.left > 0 {
		return true, true
	}
	m.dead = true
	return m.after, false
}

func kill[T any](m *mortal, call func() (T, error)) (T, error) {
	var none T
	reaches, returns := m.step()
	if !reaches {
		return none, errKilled
	}
	v, err := call()
	if !returns {
		return none, errKilled
	}
	return v, err
}

func (m *mortal) Insert(ctx context.Context, g []store.Group) ([]store.Inserted, error) {
	return kill(m, func() ([]store.Inserted, error) { return m.Store.Insert(ctx, g) })
}

func (m *mortal) Claim(ctx context.Context, c []store.Claim) ([]store.Claimed, error) {
	return kill(m, func() ([]store.Claimed, error) { return m.Store.Claim(ctx, c) })
}

func (m *mortal) Update(ctx context.Context, u []store.Update) ([]store.Updated, error) {
	return kill(m, func() ([]store.Updated, error) { return m.Store.Update(ctx, u) })
}

// TestKillPoints kills the process that works on a job a thousand times, before or after
// any write, and checks that the job survives.
func TestKillPoints(t *testing.T) {
	spec.Covers(t, "Q-01", "Q-64", "J-90")
	random := seeded(t)
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		check := newEngine(t, s, engine.Options{})
		const wanted, most = 1000, 6
		p := machine.DefaultPolicy()
		p.MaxAttempts, p.LeaseTTL, p.Hold = most, 10*time.Second, 5*time.Second
		p.Backoff.Max, p.Backoff.Initial = 2*time.Second, time.Second
		kills, lives, ends := 0, 0, map[gq.Status]int{}
		for ; kills < wanted; lives++ {
			l := life{t: t, random: random, queue: fmt.Sprint("q", lives%10), key: fmt.Sprint("k", lives), policy: p}
			for !l.ended && l.deaths < 100 {
				m := &mortal{Store: s, left: 1 + random.IntN(8), after: random.IntN(2) == 0}
				l.live(newEngine(t, m, engine.Options{}))
				if m.dead {
					l.deaths++
				}
				time.Sleep(time.Duration(random.IntN(15000)) * time.Millisecond)
			}
			kills += l.deaths
			if !l.ended {
				t.Fatalf("life %d has not ended after %d deaths", lives, l.deaths)
			}
			j := must[gq.Job](t)(check.Get(t.Context(), l.id, gq.WithResult|gq.WithCheckpoint))
			ends[j.State.Status]++
			if j.State.Attempt > j.State.Bound || j.State.Faults > most || j.State.Bound > most+l.given {
				t.Errorf("life %d: %d attempts of %d, %d faults, given back %d times", lives, j.State.Attempt, j.State.Bound, j.State.Faults, l.given)
			}
			if j.State.Status == gq.StatusCompleted && string(j.Result) != "done" {
				t.Errorf("life %d: completed with result %q", lives, j.Result)
			}
			legal(t, must[[]gq.Event](t)(check.History(t.Context(), l.id)))
		}
		all := 0
		for q := (gq.Query{Limit: 1000}); ; {
			page := must[gq.Page](t)(check.List(t.Context(), q))
			all += len(page.Jobs)
			if q.Cursor = page.Next; q.Cursor == "" {
				break
			}
		}
		if all != lives {
			t.Errorf("%d jobs for %d lives", all, lives)
		}
		t.Logf("%d kills in %d lives; ends %v", kills, lives, ends)
		if ends[gq.StatusCompleted] == 0 || ends[gq.StatusDeadLetter] == 0 {
			t.Errorf("ends %v: want some of each", ends)
		}
	})
}

// legal fails unless every event is a move in the table.
func legal(t *testing.T, events []gq.Event) {
	t.Helper()
	var at gq.Status
	for _, e := range events {
		if e.Status != at && !machine.CanMove(at, e.Status) {
			t.Errorf("job %s moved from %s to %s", e.Job, at, e.Status)
		}
		at = e.Status
	}
}

// life is the life of a job, across any number of processes that work on it.
type life struct {
	t      *testing.T
	random *rand.Rand
	queue  string
	key    string
	policy gq.Policy
	id     gq.JobID
	ended  bool
	deaths int
	given  int // times it may have been released
}

// live performs the next steps until the job has ended or the process is killed.
func (l *life) live(e *engine.Engine) {
	ctx := l.t.Context()
	out, err := e.Submit(ctx, gq.Spec{Type: "t", Queue: l.queue, Policy: l.policy, Key: gq.IdempotencyKey{Name: l.key}})
	if err != nil {
		l.killed(err)
		return
	}
	if !l.id.IsZero() && l.id != out.ID() {
		l.t.Fatalf("the key led to job %s and then to %s", l.id, out.ID())
	}
	l.id = out.ID()
	for !l.over(out.State.Status) {
		jobs, err := e.Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: []string{l.queue}, Hold: l.random.IntN(2) == 0, N: 1})
		if err != nil {
			l.killed(err)
			return
		}
		if len(jobs) == 0 {
			j, err := e.Get(ctx, l.id, 0)
			if err != nil {
				l.killed(err)
				return
			}
			if l.over(j.State.Status) {
				return
			}
			time.Sleep(time.Second)
			continue
		}
		state, err := l.work(e, jobs[0])
		if err != nil {
			l.killed(err)
			return
		}
		out.State = state
	}
}

func (l *life) over(s gq.Status) bool {
	l.ended = l.ended || s.Terminal()
	return l.ended
}

// work runs one attempt.
func (l *life) work(e *engine.Engine, j gq.Job) (s gq.State, err error) {
	ctx, ref := l.t.Context(), j.State.Lease.Ref()
	if j.State.Status == gq.StatusClaimed {
		if s, err = e.Start(ctx, ref, 0); err != nil {
			return s, err
		}
	}
	for range l.random.IntN(3) {
		time.Sleep(time.Duration(l.random.IntN(4000)) * time.Millisecond)
		answers, err := e.Heartbeat(ctx, []gq.Heartbeat{{Lease: ref, Progress: l.random.Float64(), Checkpoint: []byte("c")}})
		if err == nil {
			err = answers[0].Err
		}
		if err != nil {
			return s, err
		}
	}
	switch l.random.IntN(6) {
	case 0:
		return e.Fail(ctx, ref, gq.Failure{Category: gq.CategoryTemporary, Code: "flaky"})
	case 1:
		l.given++
		return e.Release(ctx, ref, 0, "shutdown")
	default:
		return e.Complete(ctx, ref, []byte("done"))
	}
}

// killed accepts only the end of a process as an error.
func (l *life) killed(err error) {
	l.t.Helper()
	if !errors.Is(err, errKilled) {
		l.t.Fatalf("life %s: %v", l.key, err)
	}
}
