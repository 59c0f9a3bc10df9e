package machine_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// A hold that ends before the start is no attempt: the next attempt names the one before, and the
// job has been claimable all along.
func TestHoldLost(t *testing.T) {
	for _, held := range []struct {
		name   string
		preset gq.Preset
		end    func(j *subject, ref gq.LeaseRef)
	}{
		{"released", gq.PresetJobModel, func(j *subject, ref gq.LeaseRef) { j.do(release(ref, 0)) }},
		{"expired", gq.PresetJobModel, func(j *subject, _ gq.LeaseRef) { j.after(j.s.Policy.Hold).do(advance) }},
		{"lost by fault", gq.PresetAI, func(j *subject, _ gq.LeaseRef) { j.after(j.s.Policy.Hold).do(advance) }},
	} {
		t.Run(held.name, func(t *testing.T) {
			j := submit(t, held.preset.Policy())
			since := j.s.ScheduledAt
			hold := func() {
				t.Helper()
				for range 2 {
					ref := j.after(time.Second).claim(machine.Grant{})
					held.end(j, ref)
					if !j.s.HoldLost() {
						t.Fatalf("a %s job does not wait for another holder", j.s.Status)
					}
					j.now = j.now.Add(time.Hour)
					if at := j.s.At(j.now); at.Status != gq.StatusScheduled || !at.ScheduledAt.Equal(since) {
						t.Fatalf("%s since %v, want %v", at.Status, at.ScheduledAt, since)
					}
				}
			}
			hold()
			if last := j.s.LastAttempt(); last != "" {
				t.Errorf("the last attempt is %s before the first", last)
			}
			first := j.run()
			if l := j.s.Lease; l.Previous != "" {
				t.Errorf("the first attempt follows %s", l.Previous)
			}
			if !j.s.ScheduledAt.Equal(since) {
				t.Errorf("scheduled at %v, want %v", j.s.ScheduledAt, since)
			}
			j.do(fail(first, gq.CategoryTemporary))
			since = j.s.RunAt
			j.now = since
			j.do(advance)
			hold()
			if last := j.s.LastAttempt(); last != first.ID {
				t.Errorf("the last attempt is %q, want %s", last, first.ID)
			}
			j.run()
			if l := j.s.Lease; l.Previous != first.ID {
				t.Errorf("the second attempt follows %q, want %s", l.Previous, first.ID)
			}
		})
	}
}
