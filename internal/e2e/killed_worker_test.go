package e2e_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/promptly"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

const (
	goneWithin  = 10 * time.Second // another worker has the job of a killed one by then
	goneTries   = 3                // a busy machine may be late, but not every time
	goneQueue   = "gone"
	workerAtEnv = "GQ_TEST_WORKER_AT" // makes the test program a worker
	begunEnv    = "GQ_TEST_BEGUN"     // file that a doomed worker creates when its job has begun
)

// TestWorkerProcess is no test: other tests start it in a process of its own, to kill it.
func TestWorkerProcess(t *testing.T) {
	address := os.Getenv(workerAtEnv)
	if address == "" {
		t.Skip("only for processes that other tests start")
	}
	c, err := client.New(address, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := worker.New(c, worker.Config{Name: "doomed", QueueSets: []worker.QueueSet{{Queues: []string{goneQueue}}}})
	w.HandleFunc("work", func(ctx context.Context, _ *worker.Run) error {
		if err := os.WriteFile(os.Getenv(begunEnv), nil, 0o600); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	_ = w.Run(t.Context()) // until it is killed
}

// TestKilledWorker kills the process of a worker while it runs a job. Another worker gets the job
// within ten seconds, although the lease lasts longer, and the loss is counted.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	programs := map[string]func(t *testing.T, address string) *exec.Cmd{
		"a program": func(t *testing.T, address string) *exec.Cmd {
			// The shell notices that its parent is gone, so that nothing is left over.
			c := exec.Command(cmdtest.Program(t), "work", "--name", "doomed", "--queue", goneQueue, "--type", "work",
				"--exec", `: > "$`+begunEnv+`"; while kill -0 $PPID; do sleep 0.2; done`)
			c.Env = append(os.Environ(), "GQ_ADDR="+address)
			return c
		},
		"a Go worker": func(t *testing.T, address string) *exec.Cmd {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			c := exec.Command(self, "-test.run=^TestWorkerProcess$", "-test.timeout=5m")
			c.Env = append(os.Environ(), workerAtEnv+"="+address)
			return c
		},
	}
	for what, program := range programs {
		for where, servers := range map[string]func(t *testing.T) []*served{
			"embedded": func(t *testing.T) []*served {
				return []*served{startServer(t, nil, "--store", "file:"+filepath.Join(t.TempDir(), "data"))}
			},
			"PostgreSQL":  func(t *testing.T) []*served { return serversOn(t, pgtest.Database(t), 1) },
			"two servers": func(t *testing.T) []*served { return serversOn(t, pgtest.Database(t), 2) },
		} {
			t.Run(what+", "+where, func(t *testing.T) {
				t.Parallel()
				all := servers(t)
				// The worker is connected to the first server, and the last one hands the job out.
				first, last := all[0].grpc, all[len(all)-1].client()
				var late string
				for range goneTries {
					if late = killWorker(t, program(t, first), last); late == "" {
						return
					}
					t.Log(late)
				}
				t.Error(late)
			})
		}
	}
}

// serversOn starts servers on one database.
func serversOn(t testing.TB, url string, n int) (all []*served) {
	t.Helper()
	for range n {
		all = append(all, startServer(t, nil, "--store", url))
	}
	return all
}

func (s *served) client() *client.Client { return clientOf(s.t, s.grpc) }

func clientOf(t testing.TB, address string) *client.Client {
	t.Helper()
	c, err := client.New(address, client.Options{RetryFor: crashPatience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// killWorker starts a worker, kills it while it runs a job, and lets another one finish the job. It
// returns a text if that came too late.
func killWorker(t *testing.T, doomed *exec.Cmd, c *client.Client) (late string) {
	t.Helper()
	out, err := c.Submit(t.Context(), gq.Spec{Queue: goneQueue, Type: "work", Policy: gq.PresetResilient.Policy()})
	if err != nil {
		t.Fatal(err)
	}
	output, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer output.Close()
	begun := filepath.Join(t.TempDir(), "begun")
	doomed.Env = append(doomed.Env, begunEnv+"="+begun)
	doomed.Stdout, doomed.Stderr = output, output
	if err := doomed.Start(); err != nil {
		t.Fatal(err)
	}
	kill := func() {
		_ = doomed.Process.Kill()
		_ = doomed.Wait()
	}
	defer kill()
	// A job is RUNNING before it has reached its worker, and one that never does is no loss.
	cmdtest.WaitFor(t, "the worker to start its job", func() bool {
		_, err := os.Stat(begun)
		return err == nil
	})
	if j, err := c.Get(t.Context(), out.ID(), 0); err != nil || j.State.Lease.TTL != 30*time.Second || j.State.Lease.Worker != "doomed" {
		t.Fatalf("%v: the lease is %+v, want one of 30 s", err, j.State.Lease)
	}
	killed := time.Now()
	kill()

	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	defer working.Wait()
	defer stop()
	heir := worker.New(c, worker.Config{Name: "heir", QueueSets: []worker.QueueSet{{Queues: []string{goneQueue}}}, Logger: slog.New(slog.DiscardHandler)})
	heir.HandleFunc("work", func(context.Context, *worker.Run) error { return nil })
	working.Go(func() {
		if err := heir.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	waiting, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	j, err := c.Wait(waiting, out.ID())
	if err != nil || j.State.Status != gq.StatusCompleted || j.State.Version != 2 || j.State.Losses != 1 {
		t.Fatalf("%v: %v under version %d after %d losses", err, j.State.Status, j.State.Version, j.State.Losses)
	}
	events, err := c.History(t.Context(), out.ID())
	if err != nil {
		t.Fatal(err)
	}
	var lost, again time.Time // by the clock of the server, which is that of this machine
	for _, e := range events {
		switch {
		case e.Failure != nil && e.Failure.Code == machine.CodeWorkerGone && e.Worker == "doomed" && e.LeaseState == gq.LeaseExpired:
			lost = e.Time
		case e.Type == gq.EventStarted && e.Worker == "heir":
			again = e.Time
		}
	}
	switch {
	case lost.IsZero():
		return fmt.Sprintf("the lease expired by itself; the last event is %+v", events[len(events)-1])
	case again.IsZero():
		t.Fatalf("the other worker has not started it: %+v", events)
	case again.Sub(killed) > goneWithin:
		return fmt.Sprintf("the lease ended after %v and the other worker had the job after %v", lost.Sub(killed), again.Sub(killed))
	}
	t.Logf("the lease ended after %v; the other worker had the job after %v", lost.Sub(killed), again.Sub(killed))
	return ""
}

// cable carries connections to a server and can be cut.
type cable struct {
	listener net.Listener
	passed   atomic.Int64 // connections so far
	mute     atomic.Bool  // what the server sends is lost
	running  sync.WaitGroup

	mu   sync.Mutex
	ends []net.Conn // guarded by mu
}

func newCable(t testing.TB, to string) *cable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{listener: l}
	c.running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			c.passed.Add(1)
			c.mu.Lock()
			c.ends = append(c.ends, near, far)
			c.mu.Unlock()
			c.running.Go(func() {
				_, _ = io.Copy(far, near)
				_ = far.Close()
			})
			c.running.Go(func() {
				_, _ = io.Copy(answers{near, c}, far)
				_ = near.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		c.cut()
		c.running.Wait()
	})
	return c
}

// answers is the client's end of a cable.
type answers struct {
	net.Conn
	*cable
}

func (a answers) Write(p []byte) (int, error) {
	if a.mute.Load() {
		return len(p), nil
	}
	return a.Conn.Write(p)
}

func (c *cable) address() string { return c.listener.Addr().String() }

// cut breaks the connections; new ones are possible.
func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, end := range c.ends {
		_ = end.Close()
	}
	c.ends = nil
}

// TestBrokenConnection breaks the connection of a worker that lives on. It comes back to the same
// server or goes to the other one, and keeps its lease.
func TestBrokenConnection(t *testing.T) {
	t.Parallel()
	all := serversOn(t, pgtest.Database(t), 2)
	for name, cut := range map[string]func(*cable){
		"back":     (*cable).cut,
		"to other": func(c *cable) { _ = c.listener.Close(); c.cut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queue := "broken " + name
			queue = strings.ReplaceAll(queue, " ", "-")
			line := newCable(t, all[0].grpc)
			c := clientOf(t, line.address()+","+all[1].grpc)
			out, err := c.Submit(t.Context(), gq.Spec{Queue: queue, Type: "work", Policy: gq.PresetResilient.Policy()})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var working sync.WaitGroup
			defer working.Wait()
			defer stop()
			w := worker.New(c, worker.Config{Name: queue, QueueSets: []worker.QueueSet{{Queues: []string{queue}}}, Logger: slog.New(slog.DiscardHandler)})
			began, finish := make(chan struct{}), make(chan struct{})
			w.HandleFunc("work", func(ctx context.Context, _ *worker.Run) error {
				close(began) // which panics if the job runs twice
				select {
				case <-finish:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			working.Go(func() {
				if err := w.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			select {
			case <-began:
			case <-time.After(patience):
				t.Fatal("the job did not start")
			}
			cut(line)
			// Its heartbeats are ten seconds apart: only the new stream tells that it lives.
			rest(t.Context(), goneWithin+2*time.Second)
			for i, s := range all { // all of them agree
				j, err := s.client().Get(t.Context(), out.ID(), 0)
				if err != nil || j.State.Status != gq.StatusRunning || j.State.Version != 1 || j.State.Losses != 0 {
					t.Errorf("server %d: %v: %v under version %d after %d losses: %+v", i, err, j.State.Status, j.State.Version, j.State.Losses, j.State.Failure)
				}
			}
			close(finish)
			j, err := c.Wait(t.Context(), out.ID())
			if err != nil || j.State.Status != gq.StatusCompleted || j.State.Version != 1 {
				t.Errorf("%v: %v under version %d", err, j.State.Status, j.State.Version)
			}
			if n := line.passed.Load(); n < 1 || name == "back" && n < 2 {
				t.Errorf("%d connections went through the cable", n)
			}
		})
	}
}

// The program of gq work learns of a cancel at once, also through another server.
func TestCancelReachesAProgramAtOnce(t *testing.T) {
	t.Parallel()
	servers := serversOn(t, pgtest.Database(t), 2)
	trapped := filepath.Join(t.TempDir(), "trapped")
	work := exec.Command(cmdtest.Program(t), "work", "--queue", "q", "--type", "endless", "--exec", `trap 'exit 7' TERM; : > "$TRAPPED"; sleep 60 & wait`)
	work.Env = append(os.Environ(), "GQ_ADDR="+servers[0].grpc, "TRAPPED="+trapped)
	if err := work.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = work.Process.Signal(syscall.SIGTERM)
		_ = work.Wait()
	}()
	c := servers[1].client()
	promptly.Median(t, 100*time.Millisecond, 5, func() time.Duration { // a heartbeat tells it after more than three seconds
		submitted, err := c.Submit(t.Context(), gq.Spec{Type: "endless", Queue: "q"})
		if err != nil {
			t.Fatal(err)
		}
		cmdtest.WaitFor(t, "the program to set its trap", func() bool { return os.Remove(trapped) == nil })
		asked := time.Now()
		if _, err := c.Cancel(t.Context(), submitted.ID(), "enough"); err != nil {
			t.Fatal(err)
		}
		j, err := c.Wait(t.Context(), submitted.ID())
		if err != nil || j.State.Status != gq.StatusCancelled {
			t.Errorf("the job is %s, %v", j.State.Status, err)
		}
		return time.Since(asked)
	})
}
