package machine

import (
	"fmt"

	"github.com/gopherqueue/gq"
)

// DependencyOrder is how a job waits for the one before it with the same [gq.Spec.OrderKey]: like
// FAN_IN, until that one has ended, but it counts for neither depth nor priority. Stores add it;
// it is not a kind that a submission can name.
const DependencyOrder gq.DependencyKind = 6

// Waits reports whether a job with a dependency of this kind waits for the other job.
func Waits(k gq.DependencyKind) bool { return k == DependencyOrder || k.Waits() }

// checkOrder reports what contradicts an order key.
func checkOrder(s *gq.Spec, f *faults) {
	checkName("order_key", s.OrderKey, false, f)
	for i, d := range s.DependsOn {
		switch {
		case d.Kind == DependencyOrder:
			f.add(fmt.Sprintf("depends_on[%d].kind", i), "must be one of AFTER, AFTER_ANY, CHAIN, FAN_OUT, FAN_IN")
		case s.OrderKey != "" && d.Kind == gq.DependencyFanOut:
			f.add("order_key", "a job that another one fans out to runs beside it; leave out the order key or depends_on[%d], which is FAN_OUT", i)
		}
	}
	if s.OrderKey != "" && (!s.Replaces.IsZero() || s.Unique.OnCollision == gq.Replace) {
		f.add("order_key", "a job with an order key runs after the earlier ones and cannot take the place of another; cancel that job and submit this one")
	}
}

// CheckReplaced refuses to replace a job that has an order key: the jobs behind it would wait for
// one that comes after them.
func CheckReplaced(old *gq.Spec) error {
	if old.OrderKey == "" {
		return nil
	}
	return invalid("replaces", fmt.Sprintf("job %s has the order key %.64q and cannot be replaced; cancel it and submit another", old.ID, old.OrderKey))
}
