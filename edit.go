package gq

import "time"

// JobEdit says what changes in a waiting job. Zero fields change nothing. A payload never
// changes: [Driver.Edit] replaces the job by another one.
type JobEdit struct {
	Queue   string    // moves the job to this queue
	Payload *Payload  // instead of the old one; an empty content type is JSON
	RunAt   time.Time // earliest first attempt
}

// Empty reports whether the edit changes nothing.
func (e JobEdit) Empty() bool { return e.Queue == "" && e.Payload == nil && e.RunAt.IsZero() }

// Apply returns a changed copy of a spec.
func (e JobEdit) Apply(s Spec) Spec {
	if e.Queue != "" {
		s.Queue = e.Queue
	}
	if e.Payload != nil {
		s.Payload = *e.Payload
	}
	if !e.RunAt.IsZero() {
		s.RunAt = e.RunAt
	}
	return s
}
