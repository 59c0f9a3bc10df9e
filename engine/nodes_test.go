package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
)

// shared is a store that several processes could have open. It counts writes of announcements.
type shared struct {
	store.Store
	puts *atomic.Int64
}

func (shared) Shared() {}

func (s shared) Notify(events bool, f func(store.News)) (stop func()) {
	return s.Store.(store.Notifier).Notify(events, f)
}

func (s shared) PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error) {
	if slices.ContainsFunc(docs, func(d store.Doc) bool { return d.Kind == "node" }) {
		s.puts.Add(1)
	}
	return s.Store.PutDocs(ctx, docs)
}

// nodesOf opens engines on one store that they take for shared.
func nodesOf(t *testing.T, n int) (all []*fixture, puts *atomic.Int64) {
	t.Helper()
	s := shared{open(t), new(atomic.Int64)}
	for i := range n {
		all = append(all, &fixture{T: t, Engine: newEngine(t, s, engine.Options{Version: fmt.Sprint("v1.", i)}), store: s})
	}
	return all, s.puts
}

// runUntil runs the engine until the returned function is called.
func (f *fixture) runUntil() (stop func()) {
	f.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Engine.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			f.Errorf("run: %v", err)
		}
	})
	f.Cleanup(stop)
	return stop
}

func (f *fixture) workers() []gq.LiveWorker {
	f.Helper()
	return must[[]gq.LiveWorker](f.T)(f.Workers(f.Context()))
}

func (f *fixture) nodes() []gq.Node {
	f.Helper()
	return must[gq.Stats](f.T)(f.Stats(f.Context())).Nodes
}

// TestNodesListTheSameWorkers asks every node of a store about the workers of both.
func TestNodesListTheSameWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := nodesOf(t, 2)
		a, b := nodes[0], nodes[1]
		a.run()
		stop := b.runUntil()
		for range 3 {
			a.submit(gq.Spec{Queue: "q"})
		}
		time.Sleep(time.Second)
		_, lease := a.take(as("at a"), on("q"))
		b.take(as("at b"), on("q"), func(r *gq.ClaimRequest) { r.Types, r.Offers, r.MaxCost = []string{"t"}, []string{"gpu"}, 7 })
		time.Sleep(500 * time.Millisecond) // a new worker is announced within this time
		got := a.workers()
		if diff := cmp.Diff(got, b.workers()); diff != "" {
			t.Errorf("the nodes disagree:\n%s", diff)
		}
		if len(got) != 2 || got[0].Name != "at a" || got[1].Name != "at b" || got[0].Node == got[1].Node ||
			!slices.Equal(got[0].Leases, []gq.LeaseID{lease.ID}) || got[1].Running != 1 || got[1].MaxCost != 7 || got[1].Offers[0] != "gpu" {
			t.Fatalf("workers %+v", got)
		}
		for _, f := range nodes {
			stats := must[gq.Stats](t)(f.Stats(t.Context()))
			if stats.Workers != 2 || len(stats.Nodes) != 2 {
				t.Errorf("stats %+v", stats)
			}
			for _, n := range stats.Nodes {
				if n.Host == "" || n.PID == 0 || n.Workers != 1 || n.Version != "v1.0" && n.Version != "v1.1" || time.Since(n.LastSeen) > 5*time.Second {
					t.Errorf("node %+v", n)
				}
			}
		}
		// The job that nobody has taken could run on the other node's worker.
		left := must[gq.Page](t)(a.List(t.Context(), gq.Query{Statuses: []gq.Status{gq.StatusScheduled}})).Jobs[0]
		for _, f := range nodes {
			if why := must[gq.Explanation](t)(f.Explain(t.Context(), left.Spec.ID)); why.Reason.Cause == gq.CauseNoWorker {
				t.Errorf("explained by %+v", why.Reason)
			}
		}

		stop() // cleanly: b and its worker are no longer listed
		if got := a.workers(); len(got) != 1 || got[0].Name != "at a" {
			t.Errorf("after the other node has stopped: %+v", got)
		}
		if got := a.nodes(); len(got) != 1 {
			t.Errorf("after the other node has stopped: %+v", got)
		}
	})
}

// TestWorkerChangesNode lists a worker once, as the node that it calls now tells.
func TestWorkerChangesNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := nodesOf(t, 2)
		a, b := nodes[0], nodes[1]
		a.run()
		b.run()
		for range 2 {
			a.submit(gq.Spec{})
		}
		jobs := a.claim(2)
		time.Sleep(20 * time.Second)
		must[[]gq.LeaseResult](t)(b.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: jobs[0].State.Lease.Ref()}}))
		must[gq.State](t)(b.Complete(t.Context(), jobs[1].State.Lease.Ref(), nil))
		time.Sleep(time.Second)
		for _, f := range nodes {
			got := f.workers()
			if len(got) != 1 || got[0].Running != 1 || !slices.Equal(got[0].Leases, []gq.LeaseID{jobs[0].State.Lease.ID}) {
				t.Errorf("workers %+v", got)
			}
		}
	})
}

// TestNodeDies keeps a node that stopped without a word in the list for a while, its workers for a
// short one, and then deletes it.
func TestNodeDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := nodesOf(t, 2)
		a, b := nodes[0], nodes[1]
		a.run()
		b.submit(gq.Spec{})
		stop := b.runUntil()
		b.take()
		time.Sleep(time.Second)
		before := must[[]store.Doc](t)(b.store.Docs(t.Context(), "node", "", 0))
		stop()
		left := must[[]store.Doc](t)(b.store.Docs(t.Context(), "node", "", 0))
		for _, d := range before { // as if b had been killed
			if slices.ContainsFunc(left, func(l store.Doc) bool { return l.Name == d.Name }) {
				continue
			}
			d.Version = 0
			must[[]uint64](t)(b.store.PutDocs(t.Context(), []store.Doc{d}))
		}
		if got := a.nodes(); len(got) != 2 {
			t.Fatalf("nodes %+v", got)
		}
		if got := a.workers(); len(got) != 1 {
			t.Errorf("workers %+v", got)
		}
		time.Sleep(15 * time.Second)
		if got := a.workers(); len(got) != 0 {
			t.Errorf("workers of a silent node: %+v", got)
		}
		time.Sleep(7 * time.Minute)
		if docs := must[[]store.Doc](t)(a.store.Docs(t.Context(), "node", "", 0)); len(docs) != 1 {
			t.Errorf("%d documents, want that of the living node", len(docs))
		}
	})
}

// TestAnnouncementsAreFew counts what a node writes: nothing where no other process can read it,
// once a minute without workers, and every five seconds with some.
func TestAnnouncementsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, puts := nodesOf(t, 1)
		f := nodes[0]
		f.run()
		time.Sleep(10*time.Minute + time.Second)
		if n := puts.Load(); n != 11 {
			t.Errorf("an idle node wrote %d times in ten minutes, want 11", n)
		}
		puts.Store(0)
		f.claim(0, waiting(time.Minute))
		if n := puts.Load(); n < 11 || n > 14 {
			t.Errorf("a node with a waiting worker wrote %d times in a minute, want about 12", n)
		}
	})
	bubble(t, func(t *testing.T, f *fixture) {
		f.run()
		f.claim(0, waiting(10*time.Minute))
		if docs := must[[]store.Doc](t)(f.store.Docs(t.Context(), "node", "", 0)); len(docs) != 0 {
			t.Errorf("a store that one process has got %d announcements", len(docs))
		}
		if got := f.nodes(); len(got) != 1 || got[0].Workers != 1 {
			t.Errorf("nodes %+v", got)
		}
	})
}

// TestManyWorkers announces more workers than one document holds.
func TestManyWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := nodesOf(t, 2)
		a, b := nodes[0], nodes[1]
		a.run()
		b.run()
		for i := range 2500 {
			b.claim(0, as(fmt.Sprintf("w%04d", i)))
		}
		time.Sleep(5 * time.Second)
		if got := a.workers(); len(got) != 2500 {
			t.Errorf("%d workers, want 2500", len(got))
		}
		if docs := must[[]store.Doc](t)(a.store.Docs(t.Context(), "node", "", 0)); len(docs) != 4 {
			t.Errorf("%d documents, want 1 and 3", len(docs))
		}
		time.Sleep(2 * time.Minute) // they are silent
		if docs := must[[]store.Doc](t)(a.store.Docs(t.Context(), "node", "", 0)); len(docs) != 2 {
			t.Errorf("%d documents, want 1 and 1", len(docs))
		}
	})
}

// TestNodeComesBack announces a node again whose documents were deleted while it was suspended.
func TestNodeComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := nodesOf(t, 2)
		a, b := nodes[0], nodes[1]
		a.run()
		b.run()
		time.Sleep(time.Second)
		docs := must[[]store.Doc](t)(a.store.Docs(t.Context(), "node", "", 0))
		for i := range docs {
			docs[i].Data = nil
		}
		must[[]uint64](t)(a.store.PutDocs(t.Context(), docs))
		time.Sleep(time.Minute)
		for _, f := range nodes {
			if got := f.nodes(); len(got) != 2 {
				t.Errorf("nodes %+v", got)
			}
		}
	})
}

// TestStoppedWorkers lets workers stop at the node that knows them and at another one.
func TestStoppedWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := nodesOf(t, 2)
		a, b := nodes[0], nodes[1]
		a.run()
		b.run()
		time.Sleep(time.Second)
		want := func(when string, names ...string) {
			t.Helper()
			time.Sleep(500 * time.Millisecond) // the others hear of a change within this time
			for i, f := range nodes {
				var got []string
				for _, w := range f.workers() {
					got = append(got, w.Name)
				}
				if !slices.Equal(got, names) {
					t.Errorf("%s: node %d lists %q, want %q", when, i, got, names)
				}
				if n := must[gq.Stats](t)(f.Stats(t.Context())).Workers; n != len(names) {
					t.Errorf("%s: node %d counts %d workers, want %d", when, i, n, len(names))
				}
			}
		}
		ask := func(f *fixture, worker string) {
			t.Helper()
			must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Worker: worker, Queues: []string{"q"}, N: 1}))
		}
		ask(a, "here")
		ask(a, "there")
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = a.Claim(ctx, gq.ClaimRequest{Worker: "waiting", Queues: []string{"q"}, N: 1, Wait: time.Hour})
		}()
		want("all claim", "here", "there", "waiting")
		for f, worker := range map[*fixture]string{a: "here", b: "there"} {
			if err := f.WorkerStopped(t.Context(), worker); err != nil {
				t.Fatal(err)
			}
		}
		want("two have stopped", "waiting")
		if err := b.WorkerStopped(t.Context(), "waiting"); err != nil {
			t.Fatal(err)
		}
		leave() // its server notices afterwards
		<-gone
		want("all have stopped")
		time.Sleep(2 * time.Second) // longer than clocks differ
		ask(b, "here")
		ask(a, "there")
		time.Sleep(6 * time.Second) // a node tells this often what it has heard of workers that it knows
		want("they are back", "here", "there")

		a.submit(gq.Spec{Queue: "q"})
		_, lease := a.take(as("here"), on("q"))
		time.Sleep(6 * time.Second)
		for _, f := range nodes {
			if err := f.WorkerStopped(t.Context(), "here"); !errors.Is(err, gq.ErrConflict) {
				t.Errorf("a worker that holds a job: %v", err)
			}
		}
		must[gq.State](t)(b.Complete(t.Context(), lease, nil)) // not where it was claimed
		if err := a.WorkerStopped(t.Context(), "here"); err != nil {
			t.Error(err)
		}
		want("its job is done", "there")
		if err := a.WorkerStopped(t.Context(), ""); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("no name: %v", err)
		}
	})
}

// TestWorkerWithSeveralFilters lists everything that a worker claims, if it claims for several
// sets of queues or types at once, and no longer what it has stopped claiming.
func TestWorkerWithSeveralFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := nodesOf(t, 2)
		for _, f := range nodes {
			f.run()
		}
		ask := func(c gq.ClaimRequest) {
			t.Helper()
			c.Worker, c.N = "w", 1
			must[[]gq.Job](t)(nodes[0].Claim(t.Context(), c))
		}
		want := func(when string, want gq.LiveWorker) {
			t.Helper()
			time.Sleep(6 * time.Second) // a node tells this often what it has heard of workers that it knows
			for i, f := range nodes {
				for _, got := range f.workers() {
					if !slices.Equal(got.Queues, want.Queues) || !slices.Equal(got.Types, want.Types) || !slices.Equal(got.Offers, want.Offers) || got.MaxCost != want.MaxCost {
						t.Errorf("%s: node %d lists %+v", when, i, got)
					}
				}
			}
		}
		time.Sleep(time.Second)
		one := gq.ClaimRequest{Queues: []string{"a", "b"}, Types: []string{"t"}, MaxCost: 3}
		two := gq.ClaimRequest{Queues: []string{"b", "c"}, Types: []string{"u"}, Offers: []string{"gpu"}, MaxCost: 7}
		for range 3 {
			ask(one)
			ask(two)
		}
		want("two sets", gq.LiveWorker{Queues: []string{"a", "b", "c"}, Types: []string{"t", "u"}, Offers: []string{"gpu"}, MaxCost: 7})
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan struct{})
		go func() { // a claim that waits for long is not forgotten
			defer close(gone)
			_, _ = nodes[0].Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: []string{"b", "c"}, N: 1, Wait: time.Hour})
		}()
		time.Sleep(2 * time.Minute)
		ask(one)
		want("any type", gq.LiveWorker{Queues: []string{"b", "c", "a"}})
		leave()
		<-gone
		time.Sleep(2 * time.Minute)
		ask(one)
		want("one set", gq.LiveWorker{Queues: []string{"a", "b"}, Types: []string{"t"}, MaxCost: 3})
	})
}

// TestWorkerOfTwoServers counts the jobs of a worker that holds some through each of two servers.
func TestWorkerOfTwoServers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, _ := nodesOf(t, 2)
		for i, f := range nodes {
			f.run()
			for range i + 1 {
				f.submit(gq.Spec{})
				f.take(as("w"))
			}
		}
		time.Sleep(6 * time.Second) // a node tells this often what it has heard of workers that it knows
		for i, f := range nodes {
			if got := f.workers(); len(got) != 1 || got[0].Running != 3 || len(got[0].Leases) != 3 {
				t.Errorf("node %d lists %+v", i, got)
			}
		}
	})
}
