package native

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Only a request to stop the job of the heartbeat ends its wait, whether it comes before the heartbeat,
// when the job is not known yet, or after it.
func TestCancelWatch(t *testing.T) {
	own, other := gq.JobID{1}, gq.JobID{2}
	now := time.Now()
	state := gq.State{ID: own, Policy: new(machine.DefaultPolicy()), Lease: &gq.Lease{TTL: time.Hour, HeartbeatAt: now, ExpiresAt: now.Add(time.Hour)}}
	for asked, want := range map[gq.JobID]bool{own: true, other: false} {
		before := &cancelWatch{asked: make(chan struct{}, 1)}
		before.tell([]gq.JobID{asked})
		after := &cancelWatch{asked: make(chan struct{}, 1), job: own}
		after.tell([]gq.JobID{asked})
		for name, w := range map[string]*cancelWatch{"before": before, "after": after} {
			most := time.Hour
			if !want {
				most = time.Millisecond
			}
			if got := w.wait(t.Context(), &state, most); got != want {
				t.Errorf("a request for job %s %s the heartbeat ends the wait: %t, want %t", asked, name, got, want)
			}
		}
	}
	// The next heartbeat is due long before an hour is over.
	state.Lease.TTL = 30 * time.Millisecond
	if (&cancelWatch{asked: make(chan struct{}, 1)}).wait(t.Context(), &state, time.Hour) {
		t.Error("the wait ends with a request that nobody made")
	}
}
