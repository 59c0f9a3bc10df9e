package machine

import (
	"time"

	"github.com/gopherqueue/gq"
)

// retryKept is how long a job is kept at least whose key only makes its submission repeatable.
const retryKept = time.Minute

// KeepKey lengthens the retention of a job that would otherwise be removed while its key must
// still find it.
func KeepKey(s *gq.Spec) {
	if s.Policy.Retention <= 0 || s.Key.Name == "" {
		return
	}
	kept := s.Policy.IdempotencyWindow
	switch {
	case ForRetry(s.Key):
		kept = retryKept
	case ForReplay(s.Key):
		return // once the replay is removed, the job can be replayed again
	case s.Unique.While != 0:
		kept = s.Unique.Period
	}
	s.Policy.Retention = max(s.Policy.Retention, kept)
}
