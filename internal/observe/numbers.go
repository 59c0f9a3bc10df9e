package observe

import (
	"time"

	"github.com/gopherqueue/gq"
)

// The calls that are measured.
const (
	callSubmit = iota
	callClaim
	callHeartbeat
	callSettle
	callEnd
)

var callNames = [callEnd]string{"submit", "claim", "heartbeat", "settle"}

// numbers are what this process has counted since its start.
type numbers struct {
	calls    [callEnd]*histogram // how long they took
	batches  [callEnd]*histogram // how many items they had
	accepted counter             // submissions
	refused  counter
	wait     *histogram                      // from claimable to claimed
	run      *histogram                      // from started to settled
	outcomes [gq.StatusCancelled + 1]counter // attempts by the status their job has after them
	events   [32]counter                     // by type
}

func newNumbers() *numbers {
	n := &numbers{wait: newHistogram(seconds), run: newHistogram(seconds)}
	for i := range callEnd {
		n.calls[i], n.batches[i] = newHistogram(seconds), newHistogram(sizes)
	}
	return n
}

// call measures a call with so many items, until the returned function is called.
func (n *numbers) call(which, items int) (end func()) {
	began := time.Now()
	return func() {
		n.calls[which].lasting(time.Since(began))
		n.batches[which].observe(float64(items))
	}
}

func (n *numbers) submitted(err error) {
	if err != nil {
		n.refused.add()
		return
	}
	n.accepted.add()
}

func (n *numbers) claimed(s *gq.State) {
	if s.Lease != nil && !s.ScheduledAt.IsZero() {
		n.wait.lasting(max(0, s.Lease.GrantedAt.Sub(s.ScheduledAt)))
	}
}

func (n *numbers) settled(s *gq.State) {
	if int(s.Status) < len(n.outcomes) {
		n.outcomes[s.Status].add()
	}
	if !s.StartedAt.IsZero() && !s.UpdatedAt.Before(s.StartedAt) {
		n.run.lasting(s.UpdatedAt.Sub(s.StartedAt))
	}
}

func (n *numbers) happened(t gq.EventType) {
	if int(t) < len(n.events) {
		n.events[t].add()
	}
}
