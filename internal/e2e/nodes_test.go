package e2e_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

// Sizes of the tests with several servers on one database. make test-nodes and make
// test-kill do the long runs.
var (
	nodesJobs  = flag.Int("nodes-jobs", 4000, "jobs that servers on one database share")
	nodesKills = flag.Int("nodes-kills", 6, "how often servers and their database are killed")
)

// TestServersShareADatabase runs two and four server processes on jobs that were
// submitted through all of them. No lease expires meanwhile, so each job must run exactly
// once.
func TestServersShareADatabase(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { shareJobs(t, pgtest.Database(t), n, *nodesJobs) })
	}
}

// TestServersBehindAPooler does the same through a PgBouncer in transaction mode: it
// needs no configuration, and jobs are found without notifications.
func TestServersBehindAPooler(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Start(t)
	url, err := cluster.Pooler(t).Behind(cluster.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	shareJobs(t, url, 2, min(*nodesJobs, 2000))
}

func shareJobs(t *testing.T, url string, servers, jobs int) {
	var sites []*crashSite
	for range servers { // all at once: they create the tables together
		sites = append(sites, newCrashSite(t, url))
	}
	var starting sync.WaitGroup
	for _, s := range sites {
		starting.Go(s.start)
	}
	starting.Wait()
	if t.Failed() {
		return
	}

	began := time.Now()
	var runs sync.Map // gq.JobID: *atomic.Int32
	var done atomic.Int64
	byServer := make([]atomic.Int64, servers)
	var serving atomic.Int64   // servers that have handed out a job
	all := make(chan struct{}) // closed when all have; until then jobs block, so that some are left for late servers
	working, stop := context.WithCancel(t.Context())
	defer stop()
	var workers, submitters sync.WaitGroup
	for i, s := range sites {
		w := worker.New(s.client(), worker.Config{
			Slots: 200, QueueSets: []worker.QueueSet{{Queues: []string{crashQueue}}}, Logger: slog.New(slog.DiscardHandler),
		})
		w.HandleFunc("go", func(_ context.Context, run *worker.Run) error {
			n, _ := runs.LoadOrStore(run.ID(), new(atomic.Int32))
			if n.(*atomic.Int32).Add(1) > 1 || run.LeaseVersion() != 1 {
				t.Errorf("job %s runs again while its lease lives, under version %d", run.ID(), run.LeaseVersion())
			}
			if byServer[i].Add(1) == 1 && serving.Add(1) == int64(servers) {
				close(all)
			}
			select {
			case <-all:
			case <-working.Done():
			}
			done.Add(1)
			return nil
		})
		workers.Go(func() {
			if err := w.Run(working); err != nil {
				t.Error(err)
			}
		})
	}
	policy := machine.DefaultPolicy()
	policy.LeaseTTL = 10 * time.Minute
	var submitted sync.Map // gq.JobID: true
	const batch = 500
	for i, s := range sites {
		c := s.client()
		submitters.Go(func() {
			for first := i * batch; first < jobs; first += servers * batch {
				specs := make([]gq.Spec, min(batch, jobs-first))
				for k := range specs {
					specs[k] = gq.Spec{Queue: crashQueue, Type: "go", Policy: policy, Key: gq.IdempotencyKey{Name: fmt.Sprint(first + k)}}
				}
				answers, err := c.SubmitBatch(t.Context(), specs)
				if err != nil {
					t.Error(err)
					return
				}
				for _, a := range answers {
					if a.Err != nil || a.Existing {
						t.Errorf("submit: %+v", a)
					}
					submitted.Store(a.ID(), true)
				}
			}
		})
	}
	submitters.Wait()
	for last, at := int64(-1), time.Now(); done.Load() < int64(jobs) && !t.Failed(); {
		if n := done.Load(); n != last {
			last, at = n, time.Now()
		}
		if time.Since(at) > patience {
			t.Fatalf("%d of %d jobs have run, and none for %v; %d of %d servers gave out jobs", last, jobs, patience, serving.Load(), servers)
		}
		rest(t.Context(), 10*time.Millisecond)
	}
	took := time.Since(began)
	watcher := sites[0].client()
	cmdtest.WaitFor(t, "all outcomes", func() bool { // a stopping worker does not wait for them for long
		counts, err := watcher.Counts(t.Context(), crashQueue)
		return t.Failed() || err == nil && counts[0].Live() == 0
	})
	stop()
	workers.Wait()

	var counted int64
	for _, s := range sites { // every server agrees
		counts, err := s.client().Counts(t.Context(), crashQueue)
		if err != nil || counts[0].By[gq.StatusCompleted] != int64(jobs) || counts[0].Live() != 0 {
			t.Errorf("counts: %v, %+v", err, counts)
		}
	}
	submitted.Range(func(id, _ any) bool {
		counted++
		if _, ran := runs.Load(id); !ran {
			t.Errorf("job %v never ran", id)
		}
		return true
	})
	if counted != int64(jobs) || done.Load() != int64(jobs) {
		t.Errorf("%d jobs were submitted and %d runs counted, want %d of each", counted, done.Load(), jobs)
	}
	shares := ""
	for i := range byServer {
		shares += fmt.Sprintf(" %d", byServer[i].Load())
	}
	t.Logf("%d servers: %d jobs submitted and run in %v (%.0f/s), each once; by server:%s",
		servers, jobs, took.Round(time.Millisecond), float64(jobs)/took.Seconds(), shares)
	for _, s := range sites {
		s.kill()
	}
}

// TestKilledServersAndDatabase kills servers with SIGKILL and stops their database
// immediately, in turn and together, while jobs are submitted, run, and settled under
// expired leases.
func TestKilledServersAndDatabase(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes half a minute; make test runs it")
	}
	t.Parallel()
	began := time.Now()
	cluster := pgtest.Own(t)
	url := cluster.Database(t)
	sites := []*crashSite{newCrashSite(t, url), newCrashSite(t, url)}
	l := newCrashLoad(t, sites...)
	random := rand.New(rand.NewPCG(l.seed, 0))
	for _, s := range sites {
		s.start()
	}
	load := l.begin()
	defer load.stopWorking()
	defer load.stopSubmitting()
	var servers, databases int
	for kill := range *nodesKills {
		if random.IntN(5) > 0 {
			l.acknowledged(t, 20)
		}
		rest(t.Context(), time.Duration(random.Int64N(int64(100*time.Millisecond))))
		if kill%3 != 1 { // the database; every third time together with a server
			databases++
			if kill%3 == 2 {
				servers++
				sites[kill/3%2].kill()
			}
			cluster.Crash(t)
			if kill%3 == 2 {
				sites[kill/3%2].start()
			}
			continue
		}
		servers++
		site := sites[random.IntN(2)]
		site.kill()
		site.start()
	}
	killing := time.Since(began)
	load.end(t)
	t.Logf("%d rounds: %d servers killed, the database stopped %d times, in %v; %v in all",
		*nodesKills, servers, databases, killing.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}
