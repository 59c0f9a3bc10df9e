package machine

import (
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// slotAttributes is the number of attributes that a scheduled job has in addition to those of
// its template.
const slotAttributes = 2

// CheckQueue reports all faults of a queue.
func CheckQueue(q gq.Queue) error {
	var f faults
	checkQueueName("name", q.Name, &f)
	checkWholePolicy(&q.Policy, "policy", &f)
	if q.MaxRunning < 0 {
		f.add("max_running", "%d is negative; 0 is no limit", q.MaxRunning)
	}
	if q.MaxDepth < 0 {
		f.add("max_depth", "%d is negative; 0 is no limit", q.MaxDepth)
	}
	checkRate(q.Rate, "rate", &f)
	if q.KeyLimit < 0 {
		f.add("key_limit", "%d is negative; 0 is no limit", q.KeyLimit)
	}
	checkRate(q.KeyRate, "key_rate", &f)
	if q.Pool != "" {
		checkQueueName("pool", q.Pool, &f)
	}
	if q.Fair && q.Policy.Aging > 0 {
		f.add("policy.aging", "%v has no effect in a fair queue, where jobs take turns within their priority; set aging to 0 or fair to false", q.Policy.Aging)
	}
	return f.err()
}

// CheckPool reports all faults of a pool.
func CheckPool(p gq.Pool) error {
	var f faults
	checkQueueName("name", p.Name, &f)
	if p.Capacity < 0 || p.Capacity > gq.MaxCapacity {
		f.add("capacity", "%d is not between 0 and %d", p.Capacity, int64(gq.MaxCapacity))
	}
	return f.err()
}

// CheckSchedule reports all faults of a schedule, except those of its cron expression and time
// zone, which the engine parses.
func CheckSchedule(s *gq.Schedule, l gq.Limits) error {
	var f faults
	if len(s.Name) > gq.MaxScheduleBytes {
		f.add("name", "%d bytes are more than %d", len(s.Name), gq.MaxScheduleBytes)
	} else {
		checkQueueName("name", s.Name, &f)
	}
	switch {
	case s.Cron == "" && s.Every == 0:
		f.add("cron", "give a calendar or an interval")
	case s.Cron != "" && s.Every != 0:
		f.add("every", "give a calendar or an interval, not both")
	case s.Cron == "" && (s.Every < gq.MinInterval || s.Every > gq.MaxDuration):
		f.add("every", "%v is not between %v and %v", s.Every, gq.MinInterval, gq.MaxDuration)
	}
	if s.Cron == "" && s.TimeZone != "" {
		f.add("time_zone", "an interval is the same in every time zone")
	}
	if year := s.Start.UTC().Year(); !s.Start.IsZero() && (year < 1970 || year > 2200) {
		f.add("start", "the year %d is not between 1970 and 2200", year)
	}
	if year := s.End.UTC().Year(); !s.End.IsZero() && (year < 1970 || year > 2200) {
		f.add("end", "the year %d is not between 1970 and 2200", year)
	}
	if !s.End.IsZero() && s.End.Before(s.Start) {
		f.add("end", "%s is before the start, %s", s.End.UTC().Format(time.RFC3339), s.Start.UTC().Format(time.RFC3339))
	}
	switch {
	case s.Jitter < 0 || s.Jitter > gq.MaxDuration:
		f.add("jitter", "%v is not between 0 and %v", s.Jitter, gq.MaxDuration)
	case s.Every > 0 && s.Jitter >= s.Every:
		f.add("jitter", "%v is not shorter than the interval of %v", s.Jitter, s.Every)
	}
	if !s.Overlap.Valid() {
		f.add("overlap", "must be one of allow, skip, queue-one, cancel-running")
	}
	if !s.Missed.Valid() {
		f.add("missed", "must be one of once, skip, all")
	}
	switch {
	case s.MissedLimit < 0 || s.MissedLimit > gq.MaxMissedFirings:
		f.add("missed_limit", "%d is not between 0 (the default) and %d", s.MissedLimit, gq.MaxMissedFirings)
	case s.MissedLimit > 0 && s.Missed.Valid() && s.Missed != gq.MissedAll:
		f.add("missed_limit", "counts only if all missed slots fire, and missed is %s; leave it out, or set missed to all", s.Missed)
	}
	t := s.Template
	if !t.ID.IsZero() {
		f.add("template.id", "is assigned by the system")
	}
	if t.Key != (gq.IdempotencyKey{}) {
		f.add("template.idempotency_key", "is made of the schedule and its slot")
	}
	if !t.Unique.IsZero() {
		f.add("template.unique", "each slot's job has a key of its own, so it cannot be unique by another one")
	}
	if !t.RunAt.IsZero() {
		f.add("template.run_at", "is the slot")
	}
	for _, fault := range CheckAssigned(&t) {
		f.add("template."+fault.Field, "%s", fault.Problem)
	}
	if len(t.DependsOn) > 0 {
		f.add("template.depends_on", "a scheduled job depends on no other")
	}
	if n := len(t.Attributes); n > gq.MaxAttributes-slotAttributes {
		f.add("template.attributes", "%d are more than %d; a slot's job has %d more", n, gq.MaxAttributes-slotAttributes, slotAttributes)
	}
	unset := t.Policy == gq.Policy{}
	t = t.WithDefaults()
	if unset {
		t.Policy.Lifetime = 0 // the queue's applies, which the engine checks
	}
	t.ID, t.Key, t.RunAt, t.DependsOn = NewJobID([16]byte{}), gq.IdempotencyKey{}, time.Time{}, nil
	t.Payload = SlotPayload(t.Payload, time.Unix(0, 0), time.UTC)
	checkPlaceholders(t.Payload, &f)
	for _, fault := range errs.FaultsOf(CheckSpec(&t, l)) {
		f.add("template."+fault.Field, "%s", fault.Problem)
	}
	return f.err()
}

// CheckLimits reports all invalid limits.
func CheckLimits(l gq.Limits) error {
	var f faults
	for _, n := range []struct {
		field string
		value int
	}{
		{"limits.payload_bytes", l.PayloadBytes},
		{"limits.result_bytes", l.ResultBytes},
		{"limits.checkpoint_bytes", l.CheckpointBytes},
	} {
		if n.value < 1 || n.value > gq.MaxPayloadBytes {
			f.add(n.field, "%d is not between 1 and %d", n.value, gq.MaxPayloadBytes)
		}
	}
	return f.err()
}
