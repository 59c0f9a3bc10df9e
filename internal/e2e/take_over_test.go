package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/worker"
)

// takeOver is the load of TestServersTakeOver. All of it has the addresses of both servers.
type takeOver struct {
	t       *testing.T
	address string
	next    atomic.Int64 // payloads
	acks    atomic.Int64

	mu    sync.Mutex
	jobs  map[string]gq.JobID // acknowledged, by payload; guarded by mu
	runs  map[string]int      // of Go handlers, by payload; guarded by mu
	seqs  []uint64            // of followed events; guarded by mu
	ended map[gq.JobID]int    // completions followed; guarded by mu
}

// acknowledged records a job and fails if the payload or the job has been seen before.
func (o *takeOver) acknowledged(payload string, id gq.JobID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, twice := o.jobs[payload]; twice {
		o.t.Errorf("payload %s was acknowledged twice", payload)
	}
	o.jobs[payload] = id
	o.acks.Add(1)
}

func (o *takeOver) client() *client.Client {
	c, err := client.New(o.address, client.Options{RetryFor: crashPatience})
	if err != nil {
		panic(err) // only for options that are wrong
	}
	o.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (o *takeOver) payload() string { return fmt.Sprint(o.next.Add(1)) }

// gq runs a command with the addresses of both servers.
func (o *takeOver) gq(args ...string) outcome {
	c := exec.Command(cmdtest.Program(o.t), args...)
	c.Env = append(os.Environ(), "GQ_ADDR="+o.address)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	_ = c.Run()
	return outcome{c.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// submit submits jobs without keys, alone and in batches, until the context ends.
func (o *takeOver) submit(ctx context.Context) {
	c := o.client()
	for ctx.Err() == nil {
		specs := make([]gq.Spec, 1+o.next.Load()%3)
		for i := range specs {
			payload := o.payload()
			specs[i] = gq.Spec{
				Queue: crashQueue, Type: []string{"go", "go", "sh"}[i],
				Payload: gq.Payload{Data: []byte(payload)}, Metadata: gq.Metadata{CorrelationID: payload},
			}
		}
		if len(specs) == 1 {
			out, err := c.Submit(o.t.Context(), specs[0])
			if err != nil || out.Existing {
				o.t.Errorf("submit: %v, existing: %v", err, out.Existing)
				return
			}
			o.acknowledged(string(specs[0].Payload.Data), out.ID())
			continue
		}
		out, err := c.SubmitBatch(o.t.Context(), specs)
		if err != nil {
			o.t.Errorf("submit a batch: %v", err)
			return
		}
		for i := range out {
			if out[i].Err != nil || out[i].Existing {
				o.t.Errorf("submit in a batch: %v, existing: %v", out[i].Err, out[i].Existing)
			}
			o.acknowledged(string(specs[i].Payload.Data), out[i].ID())
		}
	}
}

// commands runs commands until the context ends.
func (o *takeOver) commands(ctx context.Context) {
	for ctx.Err() == nil {
		payload := o.payload()
		out := o.gq("submit", "sh", "--queue", crashQueue, "--payload", payload, "--correlation-id", payload, "--json")
		var job struct {
			ID gq.JobID `json:"id"`
		}
		if err := json.Unmarshal([]byte(out.stdout), &job); out.status != 0 || err != nil || job.ID.IsZero() {
			o.t.Errorf("gq submit: %d, %v\n%s%s", out.status, err, out.stdout, out.stderr)
			return
		}
		o.acknowledged(payload, job.ID)
		for _, args := range [][]string{{"stats"}, {"job", "wait", job.ID.String()}, {"worker", "list"}, {"job", "list", "--limit", "1"}} {
			if out := o.gq(args...); out.status != 0 {
				o.t.Errorf("gq %s: %d\n%s", strings.Join(args, " "), out.status, out.stderr)
				return
			}
		}
	}
}

// follow records all events until the context ends.
func (o *takeOver) follow(ctx context.Context) {
	err := o.client().Follow(ctx, 0, func(events []gq.Event) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		for _, e := range events {
			o.seqs = append(o.seqs, e.Seq)
			if e.Type == gq.EventCompleted {
				o.ended[e.Job]++
			}
		}
		return nil
	})
	if err != nil {
		o.t.Errorf("follow: %v", err)
	}
}

// TestServersTakeOver kills one of two servers at a time while clients, workers and commands have
// the addresses of both: all of it goes on, no acknowledged job is lost and none is there twice.
func TestServersTakeOver(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes half a minute; make test runs it")
	}
	t.Parallel()
	url := pgtest.Database(t)
	sites := []*crashSite{newCrashSite(t, url), newCrashSite(t, url)}
	for _, s := range sites {
		s.start()
	}
	o := &takeOver{
		t: t, address: sites[0].grpc + "," + sites[1].grpc,
		jobs: map[string]gq.JobID{}, runs: map[string]int{}, ended: map[gq.JobID]int{},
	}

	working, stopWorking := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stopWorking()
	w := worker.New(o.client(), worker.Config{
		Name: "go", Slots: 20, QueueSets: []worker.QueueSet{{Queues: []string{crashQueue}}}, Logger: slog.New(slog.DiscardHandler),
	})
	w.HandleFunc("go", func(_ context.Context, run *worker.Run) error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.runs[string(run.Payload().Data)]++
		return nil
	})
	workers.Go(func() {
		if err := w.Run(working); err != nil {
			t.Error(err)
		}
	})
	workers.Go(func() { o.follow(working) })
	program := exec.Command(cmdtest.Program(t), "work", "--name", "sh", "--queue", crashQueue, "--type", "sh", "--slots", "4", "--exec", "exec cat")
	program.Env = append(os.Environ(), "GQ_ADDR="+o.address)
	var said bytes.Buffer
	program.Stderr = &said
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = program.Process.Kill()
		_ = program.Wait()
		if t.Failed() {
			t.Logf("gq work:\n%s", said.String())
		}
	}()

	submitting, stopSubmitting := context.WithCancel(t.Context())
	var submitters sync.WaitGroup
	defer submitters.Wait()
	defer stopSubmitting()
	for range 3 {
		submitters.Go(func() { o.submit(submitting) })
	}
	submitters.Go(func() { o.commands(submitting) })

	more := func(n int64) {
		before := o.acks.Load()
		until(t, "more acknowledged jobs", func() bool { return t.Failed() || o.acks.Load() >= before+n })
	}
	kills := 0
	for range 4 {
		for _, s := range sites {
			more(50)
			s.kill()
			kills++
			more(50)
			s.start()
		}
	}
	more(50)
	stopSubmitting()
	submitters.Wait()

	watcher := o.client()
	cmdtest.WaitFor(t, "all jobs to end", func() bool {
		counts, err := watcher.Counts(t.Context(), crashQueue)
		return t.Failed() || err == nil && counts[0].Live() == 0
	})
	last, err := watcher.LastEvent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cmdtest.WaitFor(t, "the last event", func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return t.Failed() || len(o.seqs) > 0 && o.seqs[len(o.seqs)-1] >= last
	})
	stopWorking()
	workers.Wait()
	o.check(watcher, kills)
}

// check compares what was acknowledged with what there is.
func (o *takeOver) check(c *client.Client, kills int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	there, losses := map[string]gq.JobID{}, 0
	for q := (gq.Query{Queue: crashQueue, Limit: 1000}); ; {
		page, err := c.List(o.t.Context(), q)
		if err != nil {
			o.t.Fatal(err)
		}
		for i := range page.Jobs {
			j := &page.Jobs[i]
			payload := j.Metadata.CorrelationID
			if _, twice := there[payload]; twice {
				o.t.Errorf("payload %s has two jobs", payload)
			}
			there[payload] = j.State.ID
			losses += j.State.Losses
			if j.State.Status != gq.StatusCompleted || o.ended[j.State.ID] != 1 {
				o.t.Errorf("job %s is %v; %d completions were followed", j.State.ID, j.State.Status, o.ended[j.State.ID])
			}
			if n := o.runs[payload]; j.Spec.Type == "go" && (n < 1 || n > 1+j.State.Losses) {
				o.t.Errorf("job %s ran %d times after %d lost leases", j.State.ID, n, j.State.Losses)
			}
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	for payload, id := range o.jobs {
		if there[payload] != id {
			o.t.Errorf("payload %s was acknowledged as %s; the job is %s", payload, id, there[payload])
		}
	}
	for i, seq := range o.seqs {
		if seq != o.seqs[0]+uint64(i) {
			o.t.Errorf("event %d follows event %d", seq, o.seqs[i-1])
			break
		}
	}
	o.t.Logf("%d kills, %d acknowledged jobs, %d jobs, %d events followed, %d leases lost", kills, len(o.jobs), len(there), len(o.seqs), losses)
}

// TestFollowOutlastsServers follows events through a quiet time that is longer than RetryFor, and
// then through the death of the server.
func TestFollowOutlastsServers(t *testing.T) {
	t.Parallel()
	site := newCrashSite(t, "file:"+t.TempDir())
	site.start()
	const retryFor = 15 * time.Second // longer than a busy machine takes to start a server
	c, err := client.New(site.grpc, client.Options{RetryFor: retryFor})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen, ended := make(chan gq.JobID, 100), make(chan error, 1)
	go func() {
		ended <- c.Follow(ctx, 0, func(events []gq.Event) error {
			for _, e := range events {
				if e.Type == gq.EventSubmitted {
					seen <- e.Job
				}
			}
			return nil
		})
	}()
	next := func() gq.JobID {
		out, err := site.client().Submit(t.Context(), gq.Spec{Type: "x"})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case id := <-seen:
			if id != out.ID() {
				t.Errorf("followed the submission of %s, want %s", id, out.ID())
			}
		case err := <-ended:
			t.Fatalf("Follow ended: %v", err)
		case <-time.After(patience):
			t.Fatal("the submission was not followed")
		}
		return out.ID()
	}
	next()
	site.kill()
	site.start()
	rest(t.Context(), retryFor+time.Second) // the new stream has no events
	site.kill()
	site.start()
	next()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
