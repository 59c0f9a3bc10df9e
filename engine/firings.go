package engine

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// Firings returns up to n firing times of a schedule after an instant, for people who want to
// see what an expression means. It does not look at the state of the schedule.
func Firings(s *gq.Schedule, after time.Time, n int) ([]time.Time, error) {
	times, faults := firingTimesOf(s)
	if len(faults) > 0 {
		return nil, fmt.Errorf("firings of schedule %.80q: %w", s.Name, &gq.InvalidError{Faults: faults})
	}
	var list []time.Time
	for range n {
		if after = times.next(after); after.IsZero() {
			break
		}
		list = append(list, after)
	}
	return list, nil
}
