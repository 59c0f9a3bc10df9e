package e2e_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

const (
	crashKills    = 50
	crashQueue    = "crash"
	crashTTL      = 2 * time.Second // the cost of a lost response to a claim
	crashPatience = 30 * time.Second
	crashSettling = 3 * time.Minute // for a loaded machine
	hauntTTL      = 200 * time.Millisecond
)

// TestKilledServer repeatedly kills the server with SIGKILL while clients submit jobs,
// remote workers and a program run them, and someone tries to settle under expired
// leases. Each time it restarts on the same directory and addresses. In the end every
// acknowledged job must have been completed, once, under its newest lease.
func TestKilledServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes half a minute; make test runs it")
	}
	t.Parallel()
	began := time.Now()
	site := newCrashSite(t, "file:"+filepath.Join(t.TempDir(), "data"))
	l := newCrashLoad(t, site)
	random := rand.New(rand.NewPCG(l.seed, 0))
	site.start()

	load := l.begin()
	defer load.stopWorking()
	defer load.stopSubmitting()
	for range crashKills {
		if random.IntN(5) > 0 { // otherwise it barely gets to start
			l.acknowledged(t, 1)
		}
		rest(t.Context(), time.Duration(random.Int64N(int64(100*time.Millisecond))))
		site.kill()
		site.start()
	}
	killing := time.Since(began)
	load.end(t)
	t.Logf("%d kills in %v; %v in all", crashKills, killing.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

// A store that keeps nothing must fail the same check.
func TestKilledServerWithoutADiskLosesJobs(t *testing.T) {
	site := newCrashSite(t, "memory:")
	l := newCrashLoad(t, site)
	site.start()
	c := site.client()
	for n := range uint64(5) {
		l.send(c, []gq.Spec{l.job(rand.New(rand.NewPCG(l.seed, n)), fmt.Sprint("key-", n))})
	}
	site.kill()
	site.start()
	stories := l.stories(c)
	if len(stories) != 5 {
		t.Errorf("%d jobs were acknowledged, want 5", len(stories))
	}
	for _, j := range stories {
		if faults := j.faults(); len(faults) != 1 || !strings.Contains(faults[0], "lost") {
			t.Errorf("a job that is gone has the faults %q", faults)
		}
	}
	site.kill()
}

// crashSeed reads GQ_SEED, so that a run can be repeated as far as its load and the
// pauses between kills are concerned.
func crashSeed(t testing.TB) uint64 {
	t.Helper()
	text := cmp.Or(os.Getenv("GQ_SEED"), strconv.FormatUint(rand.Uint64(), 10))
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("GQ_SEED: %v", err)
	}
	t.Logf("repeat with GQ_SEED=%d", seed)
	return seed
}

// rest sleeps for d or until the context ends.
func rest(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// crashSite is a server that restarts at the same place.
type crashSite struct {
	t          testing.TB
	store      string
	http, grpc string
	server     *served
	errors     []string // from the logs of ended servers
}

// note collects the errors in the log of an ended server.
func (s *crashSite) note() {
	for line := range strings.Lines(s.server.Stderr.String()) {
		if strings.Contains(line, "level=ERROR") {
			s.errors = append(s.errors, line)
		}
	}
}

// newCrashSite reserves two addresses.
func newCrashSite(t testing.TB, store string) *crashSite {
	t.Helper()
	return &crashSite{t: t, store: store, http: freeAddress(t), grpc: freeAddress(t)}
}

var givenAddresses sync.Map // by freeAddress

// freeAddress returns an address that is not in use and that no other caller gets. Its
// port is below the ephemeral range: a client that connects must not take the server's
// port.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		_ = l.Close()
		if _, taken := givenAddresses.LoadOrStore(addr, true); !taken {
			return addr
		}
	}
	t.Fatal("no free ports")
	return ""
}

func (s *crashSite) start() {
	s.t.Helper()
	s.server = startServer(s.t, nil, "--store", s.store, "--http", s.http, "--grpc", s.grpc)
}

func (s *crashSite) kill() {
	s.t.Helper()
	_ = s.server.Command.Process.Kill() // whether it has ended by itself is asked next
	if status := s.server.Ended(); status != -1 {
		s.t.Fatalf("the server had ended by itself with %d\n%s", status, s.server.Stderr.String())
	}
	s.note()
}

func (s *crashSite) client() *client.Client {
	c, err := client.New(s.grpc, client.Options{RetryFor: crashPatience})
	if err != nil {
		panic(err) // only for options that are wrong
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

// crashLoad is the load while servers are killed.
type crashLoad struct {
	sites []*crashSite // on one queue
	seed  uint64
	next  atomic.Int64 // next client

	acks, repeated, refused atomic.Int64
	shell                   atomic.Int64 // jobs drawn for the program

	mu     sync.Mutex
	acked  map[gq.JobID]string // with its key; guarded by mu
	keys   map[string]gq.JobID // the inverse of acked; guarded by mu
	faults []string            // guarded by mu
}

func newCrashLoad(t testing.TB, sites ...*crashSite) *crashLoad {
	t.Helper()
	return &crashLoad{sites: sites, seed: crashSeed(t), acked: make(map[gq.JobID]string), keys: make(map[string]gq.JobID)}
}

// client returns a client of the next server.
func (l *crashLoad) client() *client.Client {
	return l.sites[int(l.next.Add(1))%len(l.sites)].client()
}

// crashed is a running load.
type crashed struct {
	load                        *crashLoad
	stopSubmitting, stopWorking func()
	submitters, workers         sync.WaitGroup
	program                     *exec.Cmd
}

// begin starts the load on running servers.
func (l *crashLoad) begin() *crashed {
	t := l.sites[0].t
	t.Helper()
	c := &crashed{load: l}
	var submitting, working context.Context
	submitting, c.stopSubmitting = context.WithCancel(t.Context())
	working, c.stopWorking = context.WithCancel(t.Context())
	for i := range 3 {
		client := l.client()
		c.submitters.Go(func() { l.submit(submitting, client, uint64(i+1)) })
	}
	haunted := l.client()
	c.submitters.Go(func() { l.haunt(submitting, haunted) })
	for range max(2, len(l.sites)) {
		client := l.client()
		c.workers.Go(func() { l.work(working, client) })
	}
	c.program = l.startProgram()
	return c
}

// end waits until all jobs are done, and compares the results with what was acknowledged.
func (c *crashed) end(t testing.TB) {
	t.Helper()
	l := c.load
	until(t, "a refused settlement, a repeated key and a job for the program", func() bool {
		return l.refused.Load() > 0 && l.repeated.Load() > 0 && l.shell.Load() > 0
	})
	c.stopSubmitting()
	c.submitters.Wait()
	client := l.client()
	l.settled(client)
	c.stopWorking()
	c.workers.Wait()
	l.stopProgram(c.program)

	stories := l.stories(client)
	var starts, most, shell int
	for _, j := range stories {
		starts += j.job.State.Attempt
		most = max(most, j.job.State.Attempt)
		if j.job.Spec.Type == "shell" {
			shell++
		}
		l.fault(j.faults()...)
	}
	l.report(t)
	t.Logf("seed %d: %d jobs acknowledged, %d of them run by a program; %d executions, at most %d of one job; %d keys used again; %d settlements under leases that were over refused",
		l.seed, len(stories), shell, starts, most, l.repeated.Load(), l.refused.Load())
	if shell == 0 || l.refused.Load() == 0 || l.repeated.Load() == 0 || starts == len(stories) {
		t.Error("nothing was interrupted, refused, repeated or given to the program: the test has not tested that")
	}
	for _, site := range l.sites {
		site.server.Signal(syscall.SIGTERM)
		if status := site.server.Ended(); status != 0 {
			t.Errorf("it ended with %d\n%s", status, site.server.Stderr.String())
		}
		site.note()
		if t.Failed() {
			t.Logf("errors in the logs of %s:\n%s", site.grpc, strings.Join(site.errors[:min(len(site.errors), 20)], ""))
		}
	}
}

// acknowledged waits for n more acknowledged submissions.
func (l *crashLoad) acknowledged(t testing.TB, n int64) {
	t.Helper()
	before := l.acks.Load()
	until(t, fmt.Sprintf("%d acknowledged submissions", n), func() bool { return l.acks.Load() >= before+n })
}

// until waits as long as a client would.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*crashPatience)
	defer cancel()
	for !ok() {
		if rest(ctx, 5*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (l *crashLoad) fault(faults ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, faults...)
}

// report fails the test with the first faults and their number.
func (l *crashLoad) report(t testing.TB) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, fault := range l.faults[:min(len(l.faults), 20)] {
		t.Error(fault)
	}
	if n := len(l.faults); n > 20 {
		t.Errorf("and %d more", n-20)
	}
}

// job draws a job. One in twenty is for the program.
func (l *crashLoad) job(random *rand.Rand, key string) gq.Spec {
	policy := machine.DefaultPolicy()
	policy.MaxAttempts, policy.LeaseTTL = 60, crashTTL
	policy.Backoff.Initial, policy.Backoff.Max = 10*time.Millisecond, 50*time.Millisecond
	s := gq.Spec{Queue: crashQueue, Type: "go", Key: gq.IdempotencyKey{Name: key}, Policy: policy}
	if random.IntN(20) == 0 {
		s.Type = "shell"
		l.shell.Add(1)
	}
	s.Payload.Data = strconv.AppendUint(nil, random.Uint64(), 10)
	return s
}

// submit submits until the context ends. It finishes what it has started: in the end
// every submission is acknowledged.
func (l *crashLoad) submit(ctx context.Context, c *client.Client, who uint64) {
	random := rand.New(rand.NewPCG(l.seed, who))
	var old gq.Spec
	for n := 0; ctx.Err() == nil; n++ {
		specs := make([]gq.Spec, 1+random.IntN(4))
		for i := range specs {
			specs[i] = l.job(random, fmt.Sprintf("%d-%d-%d", who, n, i))
		}
		l.send(c, specs)
		if old.Type != "" && random.IntN(8) == 0 {
			l.send(c, []gq.Spec{old})
			l.repeated.Add(1)
		}
		old = specs[0]
		rest(ctx, time.Duration(random.Int64N(int64(20*time.Millisecond))))
	}
}

// send submits until there is an answer, and records it.
func (l *crashLoad) send(c *client.Client, specs []gq.Spec) {
	var answers []gq.SubmitResult
	for until := time.Now().Add(10 * crashPatience); ; {
		var err error
		if len(specs) == 1 {
			answers = make([]gq.SubmitResult, 1)
			answers[0], err = c.Submit(context.Background(), specs[0])
		} else {
			answers, err = c.SubmitBatch(context.Background(), specs)
		}
		if err == nil {
			break
		}
		// After a timeout the outcome is unknown too; the key resolves it.
		if kind := errs.KindOf(err); kind != gq.KindUnavailable && kind != gq.KindTimeout || time.Now().After(until) {
			l.fault(fmt.Sprintf("submit %s: %v", specs[0].Key.Name, err))
			return
		}
	}
	l.acks.Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range answers {
		id, key := answers[i].ID(), specs[i].Key.Name
		if answers[i].Err != nil {
			l.faults = append(l.faults, fmt.Sprintf("submit %s: %v", key, answers[i].Err))
			continue
		}
		if other, found := l.acked[id]; found && other != key {
			l.faults = append(l.faults, fmt.Sprintf("job %s has the keys %s and %s", id, other, key))
		}
		if other, found := l.keys[key]; found && other != id {
			l.faults = append(l.faults, fmt.Sprintf("key %s has led to the jobs %s and %s", key, other, id))
		}
		l.acked[id], l.keys[key] = key, id
	}
}

// work runs a worker in a process other than the server's, like any user.
func (l *crashLoad) work(ctx context.Context, c *client.Client) {
	w := worker.New(c, worker.Config{
		Slots: 20, QueueSets: []worker.QueueSet{{Queues: []string{crashQueue}}}, Logger: slog.New(slog.DiscardHandler),
	})
	w.HandleFunc("go", func(ctx context.Context, run *worker.Run) error {
		number, err := strconv.ParseUint(string(run.Payload().Data), 10, 64)
		if err != nil {
			l.fault(fmt.Sprintf("job %s: the payload is not what was submitted: %v", run.ID(), err))
		}
		random := rand.New(rand.NewPCG(number, uint64(run.Attempt())))
		switch random.IntN(20) {
		case 0:
			return gq.Temporary(errors.New("try again"))
		case 1, 2, 3:
			rest(ctx, time.Duration(random.Int64N(int64(100*time.Millisecond))))
		}
		return run.SetResult(strconv.AppendUint(nil, uint64(run.LeaseVersion()), 10))
	})
	if err := w.Run(ctx); err != nil {
		l.fault(fmt.Sprintf("worker: %v", err))
	}
}

// haunt settles jobs under expired leases, which must be rejected.
func (l *crashLoad) haunt(ctx context.Context, c *client.Client) {
	for ctx.Err() == nil {
		jobs, err := c.Claim(ctx, gq.ClaimRequest{
			Worker: "ghost", Queues: []string{crashQueue}, Types: []string{"go"}, N: 2, TTL: hauntTTL, Wait: time.Second,
		})
		if kind := errs.KindOf(err); err != nil && kind != gq.KindUnavailable && kind != gq.KindTimeout {
			l.fault(fmt.Sprintf("claim: %v", err))
		}
		rest(context.Background(), hauntTTL+50*time.Millisecond)
		for i := range jobs {
			_, err := c.Complete(context.Background(), jobs[i].State.Lease.Ref(), []byte("stale"))
			switch kind := errs.KindOf(err); {
			case err == nil:
				l.fault(fmt.Sprintf("job %s was completed under a lease that was over", jobs[i].State.ID))
			case kind == gq.KindStaleLease || kind == gq.KindConflict:
				l.refused.Add(1)
			case kind != gq.KindUnavailable && kind != gq.KindTimeout: // after these errors the outcome is unknown
				l.fault(fmt.Sprintf("complete under a lease that is over: %v", err))
			}
		}
	}
}

// startProgram runs a program for the jobs of a type.
func (l *crashLoad) startProgram() *exec.Cmd {
	t := l.sites[0].t
	t.Helper()
	c := exec.Command(cmdtest.Program(t), "work", "--addr", l.sites[0].grpc, "--type", "shell", "--queue", crashQueue, "--slots", "2",
		"--exec", `cat >/dev/null; printf %s "$GQ_LEASE_VERSION"`)
	c.Stderr = new(bytes.Buffer)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

func (l *crashLoad) stopProgram(c *exec.Cmd) {
	t := l.sites[0].t
	t.Helper()
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("gq work: %v\n%s", err, c.Stderr)
	}
}

// settled waits until no unfinished job is left. There must be as many jobs as were
// acknowledged: one more would be a duplicated submission.
func (l *crashLoad) settled(c *client.Client) {
	t := l.sites[0].t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), crashSettling)
	defer cancel()
	for {
		counts, err := c.Counts(ctx, crashQueue)
		if err != nil || len(counts) != 1 {
			t.Fatalf("count the jobs: %v, %v", counts, err)
		}
		if counts[0].Live() == 0 {
			l.mu.Lock()
			defer l.mu.Unlock()
			if n := int(counts[0].By[gq.StatusCompleted]); n != len(l.acked) {
				l.faults = append(l.faults, fmt.Sprintf("%d jobs were acknowledged and %d completed", len(l.acked), n))
			}
			return
		}
		rest(ctx, 20*time.Millisecond)
		if ctx.Err() != nil {
			t.Errorf("after %v there are still jobs: %v", crashSettling, counts)
			return
		}
	}
}

// stories queries every acknowledged job.
func (l *crashLoad) stories(c *client.Client) []*told {
	l.mu.Lock()
	defer l.mu.Unlock()
	var stories []*told
	for id := range l.acked {
		stories = append(stories, &told{id: id})
	}
	var next atomic.Int64
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(stories)); i = next.Add(1) - 1 {
				j := stories[i]
				if j.job, j.err = c.Get(context.Background(), j.id, gq.WithResult); j.err == nil {
					j.history, j.err = c.History(context.Background(), j.id)
				}
			}
		})
	}
	readers.Wait()
	return stories
}
