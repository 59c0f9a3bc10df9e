package engine

import (
	"testing"
	"time"
)

// The next sweep is at the earliest of several times, in whatever order they become known.
func TestAgendaKeepsTheEarliest(t *testing.T) {
	a := agenda{news: make(chan struct{}, 1)}
	at := time.Unix(1_000, 0)
	for _, seconds := range []time.Duration{2, 1, 3} {
		a.at(at.Add(seconds * time.Second))
	}
	<-a.news
	if due := a.take(); !due.Equal(at.Add(time.Second)) {
		t.Errorf("due at %v", due)
	}
	if due := a.take(); !due.IsZero() {
		t.Errorf("due again at %v", due)
	}
}

// News of several queues tell of room in each.
func TestRoomInSeveralQueues(t *testing.T) {
	var r rooms
	r.wait("b", time.Unix(1_000, 0))
	for _, c := range []struct {
		queues []string
		want   bool
	}{{[]string{"a", "b"}, true}, {[]string{"b", "a"}, true}, {[]string{"a", "c"}, false}, {nil, false}} {
		if got := r.changed(c.queues); got != c.want {
			t.Errorf("news of %q: %v", c.queues, got)
		}
	}
}
