package postgres

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestPollTellsWhatWasNumberedHere lets a node without notifications number the events of
// another node, as it does after its own commits. It must still tell its listeners of them
// when it polls.
func TestPollTellsWhatWasNumberedHere(t *testing.T) {
	url := pgtest.Database(t)
	nodes := make([]*Store, 2)
	for i := range nodes {
		var err error
		if nodes[i], err = Open(t.Context(), url, store.Config{}); err != nil {
			t.Fatal(err)
		}
		defer nodes[i].Close()
	}
	h := &nodes[1].notifier
	var told []string
	h.mu.Lock()
	h.listeners[0] = func(n store.News) { told = append(told, n.Queues...) } // without Notify, so that no goroutine listens for notifications
	h.mu.Unlock()

	spec := gq.Spec{ID: machine.NewJobID(random()), Type: "t", Queue: "theirs"}.WithDefaults()
	out, err := nodes[0].Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec}}})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	h.round(true)
	for limit := time.Now().Add(2 * time.Minute); len(told) == 0 && time.Now().Before(limit); {
		h.poll(t.Context()) // may have to be repeated if the database is slow
	}
	if !slices.Contains(told, "theirs") {
		t.Errorf("told of %q, want theirs among them", told)
	}
	if !nodes[1].registry.knows("theirs") {
		t.Error("the queue of the other node is told of and is not counted among those there are")
	}
	told = nil
	h.poll(t.Context())
	if len(told) > 0 {
		t.Errorf("told of %q again, and nothing had happened", told)
	}
}

// TestCommitsShareARound adds up what several commits may have changed.
func TestCommitsShareARound(t *testing.T) {
	var all effects
	for _, due := range []int64{0, 30, 10, 0, 20} {
		one := effects{due: due, parent: due == 10, cancels: []gq.JobID{{byte(due)}}}
		one.open("a")
		one.free("b")
		all.add(&one)
	}
	later := effects{}
	later.open("c")
	all.add(&later)
	n := all.news(7)
	slices.Sort(n.Queues)
	if want := instant(10); !n.Due.Equal(want) || !n.DueKnown {
		t.Errorf("the news says that something is due at %v, want %v, the earliest", n.Due, want)
	}
	if !n.Dependents {
		t.Error("the news does not say that a job has ended for which others wait")
	}
	if !slices.Equal(n.Queues, []string{"a", "c"}) || !slices.Equal(n.Freed, []string{"b"}) || n.Event != 7 {
		t.Errorf("the news is %+v", n)
	}
	if want := []gq.JobID{{0}, {30}, {10}, {0}, {20}}; !slices.Equal(n.Cancels, want) {
		t.Errorf("the news names %v as asked to stop, want those of all commits, %v", n.Cancels, want)
	}
}

// TestOtherNodesHear tells another node of what only this one knows: jobs that are asked to stop, more of them in one
// round than a notification can name, and times that are soon, however shortly one follows the other.
func TestOtherNodesHear(t *testing.T) {
	url := pgtest.Database(t)
	nodes := make([]*Store, 2)
	for i := range nodes {
		var err error
		if nodes[i], err = Open(t.Context(), url, store.Config{}); err != nil {
			t.Fatal(err)
		}
		defer nodes[i].Close()
	}
	const n = 2*maxCancels + 1
	heard, relayed := make(chan gq.JobID, 10*n), make(chan string, 10)
	var due atomic.Int64
	defer nodes[1].Notify(false, func(n store.News) {
		if !n.Due.IsZero() {
			due.Store(n.Due.UnixNano())
		}
		for _, id := range n.Cancels {
			heard <- id
		}
		if n.Relayed != nil {
			relayed <- string(n.Relayed)
		}
	})()
	h := &nodes[1].notifier
	for limit := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) { //nolint:forbidigo // a database and real time
		h.mu.Lock()
		listens := !h.joined.IsZero()
		h.mu.Unlock()
		if listens {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("the second node does not listen")
		}
	}
	cancels := make([]gq.JobID, n)
	for i := range cancels {
		cancels[i] = machine.NewJobID(random())
	}
	nodes[0].notifier.notify(t.Context(), &effects{cancels: cancels}, 0, false)
	for i, want := range cancels {
		select {
		case got := <-heard:
			if got != want {
				t.Fatalf("the other node heard of job %v, want %v", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the other node heard of %d jobs that are asked to stop, want %d", i, n)
		}
	}
	if err := nodes[0].Relay(t.Context(), [][]byte{[]byte(`"one"`), []byte(`"two"`)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"one"`, `"two"`} {
		select {
		case got := <-relayed:
			if got != want {
				t.Errorf("the other node was told %s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("the other node was not told %s", want)
		}
	}
	for at := time.Now().Add(dueSoon / 2); at.After(time.Now().Add(dueSoon / 4)); at = at.Add(-5 * time.Second) {
		nodes[0].Announce(at)
		for limit := time.Now().Add(time.Minute); due.Load() != at.UnixNano(); time.Sleep(time.Millisecond) { //nolint:forbidigo // as above
			if time.Now().After(limit) {
				t.Fatalf("the other node did not hear that something is due at %v", at)
			}
		}
	}
}

// TestNewsWithoutPolling looks at what a commit tells at once, in its own process. A node that
// polls hears of everything in the end, which hides news that was not told.
func TestNewsWithoutPolling(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var told []store.News
	s.notifier.mu.Lock()
	s.notifier.listeners[0] = func(n store.News) { told = append(told, n) } // not Notify, which polls
	s.notifier.mu.Unlock()
	news := func() []store.News {
		s.notifier.mu.Lock()
		defer s.notifier.mu.Unlock()
		news := told
		told = nil
		return news
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(s.PutPool(t.Context(), gq.Pool{Name: "p", Capacity: 1}))
	for _, name := range []string{"a", "b"} {
		q := machine.NewQueue(name)
		q.Pool = "p"
		check(s.PutQueue(t.Context(), q))
	}
	add := func(spec gq.Spec) gq.JobID {
		t.Helper()
		spec.ID = machine.NewJobID(random())
		out, err := s.Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec.WithDefaults()}}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		return spec.ID
	}
	first := add(gq.Spec{Queue: "a", Type: "t", CostUnits: 1})
	add(gq.Spec{Queue: "b", Type: "t", CostUnits: 1})
	add(gq.Spec{Queue: "c", Type: "t", DependsOn: []gq.Dependency{{Job: first, Kind: gq.DependencyAfter}}})
	claim := func(queue string) []gq.Job {
		t.Helper()
		out, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{queue}}, N: 1, Worker: "w", TTL: time.Hour}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		return out[0].Jobs
	}
	held := claim("a")
	if len(held) != 1 || len(claim("b")) != 0 {
		t.Fatal("the pool has room for one job")
	}
	news()
	out, err := s.Update(t.Context(), []store.Update{{Ref: store.Ref{Job: first}, Apply: func(st gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Complete(st, held[0].State.Lease.Ref(), nil, now)
	}}})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	var freed []string
	dependents := false
	for _, n := range news() {
		freed, dependents = append(freed, n.Freed...), dependents || n.Dependents
	}
	if !slices.Contains(freed, "a") || !slices.Contains(freed, "b") {
		t.Errorf("a job of a has ended: room is told of in %q, want a and b, which share a pool", freed)
	}
	if !dependents {
		t.Error("nobody is told that a job has ended for which another one waits")
	}
}

// Capacity that one queue of a pool frees is free for each of its queues, whichever that is.
func TestRoomOfEachQueueOfAPool(t *testing.T) {
	h := &notifier{sharing: make(map[string]*[]string), listeners: make(map[int]func(store.News))}
	var freed []string
	h.listeners[1] = func(n store.News) { freed = n.Freed }
	pool := []string{"a", "b", "c"}
	h.learn(pool)
	for _, queue := range pool {
		h.spread(store.News{Freed: []string{queue}})
		for _, other := range pool {
			if !slices.Contains(freed, other) {
				t.Errorf("a job of %s has ended: room is told of in %q", queue, freed)
			}
		}
	}
}

// A node that receives no notifications cannot know that it is alone.
func TestANodeThatHearsNothingIsNotAlone(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		what        string
		joined, met time.Time
		want        bool
	}{
		{"no notifications", time.Time{}, time.Time{}, false},
		{"no notifications any more", time.Time{}, long, false},
		{"for a moment", time.Now(), time.Time{}, false},
		{"nobody", long, time.Time{}, true},
		{"somebody", long, time.Now(), false},
		{"nobody any more", long, long, true},
	} {
		h := &notifier{met: c.met}
		h.join(c.joined)
		if got := h.aloneLocked(); got != c.want {
			t.Errorf("%s: alone %v", c.what, got)
		}
	}
}
