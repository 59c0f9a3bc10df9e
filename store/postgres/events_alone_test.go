package postgres

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestNodeAloneDoesNotNotify: a node sends no notifications while no other one listens, and
// the first one that does misses nothing.
func TestNodeAloneDoesNotNotify(t *testing.T) {
	url := pgtest.Database(t)
	open := func() *Store {
		s, err := Open(t.Context(), url, store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	insert := func(s *Store, queue string) {
		t.Helper()
		spec := gq.Spec{ID: machine.NewJobID(random()), Queue: queue, Type: "t"}.WithDefaults()
		out, err := s.Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec}, Mint: true}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	await := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("never: " + what)
			}
		}
	}
	first := open()
	h := &first.notifier
	first.Notify(false, func(store.News) {})
	await("the first node is alone", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.aloneLocked()
	})
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	channel := first.pool.dialect.channel()
	if _, err := conn.Exec(t.Context(), "LISTEN "+channel); err != nil {
		t.Fatal(err)
	}
	insert(first, "quiet")
	await("a round has passed", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.changes.none()
	})
	h.stop() // waits for the round
	defer h.start(first)
	if _, err := conn.Exec(t.Context(), "SELECT pg_notify($1, 'marker')", channel); err != nil {
		t.Fatal(err)
	}
	for {
		got, err := conn.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Payload == "marker" {
			break
		}
		if strings.Contains(got.Payload, "quiet") {
			t.Errorf("a node that is alone sent %s", got.Payload)
		}
	}
}

// TestNodesMeet: nodes know of each other at once, whichever came first.
func TestNodesMeet(t *testing.T) {
	t.Parallel() // it mostly waits
	url := pgtest.Database(t)
	news := make(chan store.News, 1000)
	var nodes []*Store
	for range 2 {
		s, err := Open(t.Context(), url, store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		nodes = append(nodes, s)
	}
	alone := func(s *Store) bool {
		s.notifier.mu.Lock()
		defer s.notifier.mu.Unlock()
		return s.notifier.aloneLocked()
	}
	await := func(what string, is func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("never: " + what)
			}
		}
	}
	nodes[0].Notify(false, func(store.News) {})
	await("the first node is alone", func() bool { return alone(nodes[0]) })
	nodes[1].Notify(false, func(n store.News) { news <- n })
	await("the first node knows of the second", func() bool { return !alone(nodes[0]) })
	spec := gq.Spec{ID: machine.NewJobID(random()), Queue: "told", Type: "t"}.WithDefaults()
	if _, err := nodes[0].Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec}, Mint: true}}); err != nil {
		t.Fatal(err)
	}
	within := time.After(pollRarely / 2) // sooner than a poll
	for heard := false; !heard; {
		select {
		case n := <-news:
			heard = slices.Contains(n.Queues, "told")
		case <-within:
			t.Fatal("the second node was not notified")
		}
	}
	await("the second node has met the first", func() bool {
		nodes[1].notifier.mu.Lock()
		defer nodes[1].notifier.mu.Unlock()
		return !nodes[1].notifier.met.IsZero()
	})
}
