package client_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	_ "github.com/gopherqueue/gq/driver/remote"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

// A program moves from an embedded queue to a server by changing one line: both have
// every call of gq.Driver, and their other methods are not for programs.
func TestSameCallsAsEngine(t *testing.T) {
	driver := reflect.TypeFor[gq.Driver]()
	for _, side := range []struct {
		typ reflect.Type
		own []string
	}{
		{reflect.TypeFor[*engine.Engine](), []string{
			"Enqueue", "In", "Run", "Sweep", "Now", "Delegate", "Store", "UseCallbacks", "Connected", "Activity", "CountWorkflows", "CancelRequests", // of the process
			"Jobs", "ByLease", "Advance", "CatchUp", "BeforeFirstEvent", "Prepare", "Report", "Admit", "ConfigurePool", "Sample", "Samples", "Delegated", // of the documents' APIs
		}},
		{reflect.TypeFor[*client.Client](), []string{"Enqueue", "Close", "Admin", "DeclareQueueSettings", "CancelRequests"}},
	} {
		if !side.typ.Implements(driver) {
			t.Errorf("%v is no gq.Driver", side.typ)
		}
		for m := range side.typ.Methods() {
			if _, ok := driver.MethodByName(m.Name); ok == slices.Contains(side.own, m.Name) {
				t.Errorf("%v.%s: should programs have it? Then add it to gq.Driver", side.typ, m.Name)
			}
		}
	}
}

// What a program does through gq.Open works the same on a server: kinds, partial options,
// keys.
func TestOpenRemote(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		if err := f.server.Serve(listener); err != nil {
			t.Errorf("serve: %v", err)
		}
	}()
	t.Cleanup(func() {
		f.kill()
		<-serving
		f.start()
	})
	remote, err := gq.Open(ctx, "gq://"+listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	policy := gq.PresetSemantics.Policy()
	policy.Lifetime = time.Hour
	if _, err := remote.PutQueue(ctx, gq.Queue{Name: "sums", Policy: policy}); err != nil {
		t.Fatal(err)
	}
	sum := gq.NewKind[[]int, int]("sum", gq.InQueue("sums"), gq.MaxAttempts(9))
	options := []gq.Option{gq.Lifetime(gq.Unlimited), gq.Timeout(time.Minute), gq.LeaseTime(time.Hour), gq.RetryDelay(gq.Backoff{
		Strategy: gq.StrategyConstant, Initial: time.Second, Max: time.Second, Jitter: gq.JitterNone,
	})}
	id, err := sum.Submit(ctx, remote, []int{1, 2}, append(options, gq.Key("k"))...)
	if err != nil {
		t.Fatal(err)
	}
	want := policy
	want.MaxAttempts, want.Lifetime, want.ExecutionTimeout, want.LeaseTTL = 9, 0, time.Minute, time.Hour
	want.Backoff = gq.Backoff{Strategy: gq.StrategyConstant, Initial: time.Second, Max: time.Second, Jitter: gq.JitterNone}
	if job := must(f.engine.Get(ctx, id, 0))(t); *job.State.Policy != want {
		t.Errorf("the policy is %+v\nwant %+v", *job.State.Policy, want)
	}
	if other, err := sum.Submit(ctx, remote, []int{3}, append(options, gq.Key("k"))...); other != id || !errors.Is(err, gq.ErrKeyReused) {
		t.Errorf("another content under the key: %v, %v", other, err)
	}
	work := newWorker(remote, worker.Config{})
	worker.HandleResult(work, sum, func(_ context.Context, job *worker.Job[[]int]) (int, error) {
		return job.Args[0] + job.Args[1], nil
	})
	defer run(t, work)()
	if got, err := sum.Wait(ctx, remote, id); got != 3 || err != nil {
		t.Errorf("the sum is %d, %v", got, err)
	}
	if _, err := sum.Submit(ctx, remote.In(nil), nil); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a transaction on a server: %v", err)
	}
}

// Declaring a queue again does not undo an operator's changes.
func TestDeclareQueueRemotely(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	first := must(f.DeclareQueue(ctx, gq.Queue{Name: "q", MaxRunning: 5, KeyLimit: 2}))(t)
	if first.MaxRunning != 5 || first.KeyLimit != 2 || first.Policy != machine.DefaultPolicy() {
		t.Errorf("declared as %+v", first)
	}
	must(f.engine.ChangeQueue(ctx, "q", func(q *gq.Queue) { q.MaxRunning, q.Paused = 1, true }))(t)
	again := must(f.DeclareQueue(ctx, gq.Queue{Name: "q", MaxRunning: 7, KeyLimit: 3}))(t)
	if again.MaxRunning != 1 || !again.Paused || again.KeyLimit != 3 {
		t.Errorf("declared again it is %+v, want the operator's limit and pause, and the new key limit", again)
	}
}

// So does declaring a schedule.
func TestDeclareScheduleRemotely(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	s := gq.Schedule{Name: "s", Every: time.Hour, Template: gq.Spec{Type: "t"}}
	must(f.DeclareSchedule(ctx, s))(t)
	must(f.engine.PauseSchedule(ctx, "s"))(t)
	s.Every, s.Overlap = time.Minute, gq.OverlapSkip
	if again := must(f.DeclareSchedule(ctx, s))(t); !again.Paused || again.Every != time.Minute || again.Overlap != gq.OverlapSkip {
		t.Errorf("declared again it is %+v, want the operator's pause and the rest as declared", again)
	}
}

func TestEventsRemotely(t *testing.T) {
	f := serve(t, func(f *fixture) { f.events = true })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	must(f.Submit(ctx, gq.Spec{Type: "a"}))(t)
	same(t, "events", must(f.engine.Events(ctx, 0, 100))(t), must(f.Events(ctx, 0, 100))(t))
	same(t, "one event", must(f.engine.Events(ctx, 1, 1))(t), must(f.Events(ctx, 1, 1))(t))
	same(t, "last event", must(f.engine.LastEvent(ctx))(t), must(f.LastEvent(ctx))(t))
	if _, err := f.Events(ctx, 0, 5000); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("5000 events at once: %v", err)
	}

	enough := errors.New("enough")
	if err := f.Follow(ctx, 0, func([]gq.Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("a follower that has enough: %v", err)
	}
	// Across a restart of the server, no event is lost or duplicated.
	const jobs = 50
	var seen []gq.Event
	followed := make(chan error, 1)
	go func() {
		followed <- f.Follow(ctx, 0, func(events []gq.Event) error {
			if seen = append(seen, events...); len(seen) == 2*jobs {
				stop()
			}
			return nil
		})
	}()
	for i := 1; i < jobs; i++ {
		must(f.Submit(t.Context(), gq.Spec{Type: "a"}))(t)
		if i == jobs/2 {
			f.stop()
			f.start()
		}
	}
	if err := <-followed; err != nil {
		t.Fatal(err)
	}
	same(t, "followed", must(f.engine.Events(t.Context(), 0, 1000))(t), seen)
}
