package machine

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// Denial says why a full pool did not let a held job start, and how often in a row with the same
// numbers. Its text is the Reason of the job while it waits, and of the events about it.
type Denial struct {
	Used, Requested, Capacity int64
	Count                     int
}

const denialText = "capacity exceeded: used=%d, requested=%d, capacity=%d, count=%d"

func (d Denial) String() string {
	return fmt.Sprintf(denialText, d.Used, d.Requested, d.Capacity, d.Count)
}

// ParseDenial reads the text of a denial. It reports false for any other text.
func ParseDenial(text string) (d Denial, ok bool) {
	_, err := fmt.Sscanf(text, denialText, &d.Used, &d.Requested, &d.Capacity, &d.Count)
	return d, err == nil && d.Count > 0 && d.String() == text
}

// Like reports whether two denials have the same numbers.
func (d Denial) Like(o Denial) bool {
	d.Count = o.Count
	return d == o
}

// Deny records that the pool of a job that waits for capacity is full. A repeat with the same
// numbers only counts; the event that ends the repeats has their number.
func Deny(s gq.State, ref gq.LeaseRef, full *CapacityError, now time.Time) (gq.State, []gq.Event, error) {
	if err := holds(&s, ref, now); err != nil {
		return s, nil, err
	}
	if s.Detail != gq.DetailLeasePending {
		return s, nil, illegal(s, "deny")
	}
	t := begin(s)
	d := Denial{Used: full.Used, Requested: full.Requested, Capacity: full.Capacity, Count: 1}
	if last, denied := ParseDenial(t.Reason); denied && last.Like(d) {
		d.Count = last.Count + 1
	} else {
		t.undenied()
		withLease(t.note(gq.EventUpdated), t.Lease).Reason = d.String()
	}
	t.Reason = d.String()
	return t.State, t.events, nil
}

// undenied ends a row of denials. If there were several, an event says how many.
func (t *step) undenied() {
	d, denied := ParseDenial(t.Reason)
	if !denied {
		return
	}
	if d.Count > 1 {
		t.note(gq.EventUpdated).Reason = t.Reason
	}
	t.Reason = ""
}
