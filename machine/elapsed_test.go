package machine_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// The event of a start says how long the job had been claimable, that of an end how long the
// execution took, and no other says anything.
func TestElapsed(t *testing.T) {
	p := machine.DefaultPolicy()
	j := submit(t, p)
	j.after(3 * time.Second)
	ref := j.claim(machine.Grant{}) // held
	j.after(2*time.Second + 1500*time.Nanosecond).do(start(ref, 0))
	j.after(7 * time.Second).do(release(ref, time.Minute))
	j.after(90 * time.Second)
	again := j.run() // half a minute after its time
	j.after(time.Second).do(complete(again))
	var told []time.Duration
	for _, e := range j.events {
		if e.Elapsed != 0 {
			told = append(told, e.Elapsed)
		}
		switch e.Type {
		case gq.EventStarted, gq.EventRetrying, gq.EventCompleted:
		default:
			if e.Elapsed != 0 {
				t.Errorf("%s says %v", e.Type, e.Elapsed)
			}
		}
	}
	want := []time.Duration{5*time.Second + time.Microsecond, 7 * time.Second, 30 * time.Second, time.Second}
	if len(told) != len(want) {
		t.Fatalf("events say %v, want %v", told, want)
	}
	for i := range want {
		if told[i] != want[i] {
			t.Errorf("event %d says %v, want %v", i, told[i], want[i])
		}
	}
}
