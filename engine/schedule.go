package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// kindSchedule is the kind of the documents that contain schedules.
const kindSchedule = "schedule"

// errNoSchedules rejects schedules if the store cannot fire them exactly once.
var errNoSchedules = errors.New("schedules need a store that writes a schedule and its jobs in one commit (store.Changer)")

// entry is a decoded schedule.
type entry struct {
	gq.Schedule
	times   firingTimes
	zone    *time.Location
	fired   spans
	version uint64
}

// calendar caches decoded schedules, so that each version is decoded once.
type calendar struct {
	mu    *sync.Mutex
	known map[string]*entry // guarded by mu
	bad   map[string]uint64 // versions that could not be decoded; guarded by mu
}

func newCalendar() calendar {
	return calendar{mu: new(sync.Mutex), known: map[string]*entry{}, bad: map[string]uint64{}}
}

// record is the document of a schedule.
type record struct {
	Cron        string         `json:"cron,omitempty"`
	Every       time.Duration  `json:"every,omitempty"`
	TimeZone    string         `json:"time_zone,omitempty"`
	Start       time.Time      `json:"start"`
	End         time.Time      `json:"end,omitzero"`
	Jitter      time.Duration  `json:"jitter,omitempty"`
	Overlap     gq.OverlapRule `json:"overlap"`
	Missed      gq.MissedRule  `json:"missed"`
	MissedLimit int            `json:"missed_limit,omitempty"`
	Paused      bool           `json:"paused,omitempty"`
	Template    []byte         `json:"template"`               // the encoded spec
	QueuePolicy bool           `json:"queue_policy,omitempty"` // the template has no policy; the queue's applies
	Next        time.Time      `json:"next"`
	Last        time.Time      `json:"last"`
	LastJob     gq.JobID       `json:"last_job"`
	Fired       int            `json:"fired,omitempty"`
	FiredSpans  spans          `json:"fired_spans,omitempty"`
	Skipped     int            `json:"skipped,omitempty"`
	LastError   string         `json:"last_error,omitempty"`
	CreatedAt   time.Time      `json:"created_at"`
	UpdatedAt   time.Time      `json:"updated_at"`
}

// templateID is a placeholder, because the encoding requires an id.
var templateID = machine.NewJobID([16]byte{})

func encodeSchedule(s *gq.Schedule, fired spans) ([]byte, error) {
	t := s.Template.WithDefaults()
	t.ID = templateID
	spec, err := codec.AppendSpec(&t, nil)
	if err != nil {
		return nil, err
	}
	return json.Marshal(record{
		Cron: s.Cron, Every: s.Every, TimeZone: s.TimeZone, Start: s.Start, End: s.End,
		Jitter: s.Jitter, Overlap: s.Overlap, FiredSpans: fired, Skipped: s.Skipped, LastError: s.LastError,
		Missed: s.Missed, MissedLimit: s.MissedLimit, Paused: s.Paused,
		Template: spec, QueuePolicy: s.Template.Policy == gq.Policy{},
		Next: s.Next, Last: s.Last, LastJob: s.LastJob, Fired: s.Fired, CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
	})
}

func decodeSchedule(d store.Doc) (*entry, error) {
	var r record
	if err := json.Unmarshal(d.Data, &r); err != nil {
		return nil, fmt.Errorf("schedule %s: %w: %w", d.Name, gq.ErrCorrupt, err)
	}
	template, err := codec.DecodeSpec(r.Template)
	if err != nil {
		return nil, fmt.Errorf("template of schedule %s: %w", d.Name, err)
	}
	template.ID = gq.JobID{}
	if r.QueuePolicy {
		template.Policy = gq.Policy{}
	}
	e := &entry{version: d.Version, fired: r.FiredSpans, Schedule: gq.Schedule{
		Name: d.Name, Cron: r.Cron, Every: r.Every, TimeZone: r.TimeZone, Start: r.Start, End: r.End,
		Jitter: r.Jitter, Overlap: r.Overlap, Skipped: r.Skipped, LastError: r.LastError,
		Missed: r.Missed, MissedLimit: r.MissedLimit, Paused: r.Paused, Template: template,
		Next: r.Next, Last: r.Last, LastJob: r.LastJob, Fired: r.Fired, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}}
	var faults []gq.Fault
	if e.zone, faults = zoneOf(e.TimeZone); len(faults) == 0 {
		e.times, faults = firingTimesOf(&e.Schedule)
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("schedule %s: %w", d.Name, &gq.InvalidError{Faults: faults})
	}
	return e, nil
}

// open returns the decoded schedule of a document.
func (c *calendar) open(d store.Doc) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.known[d.Name]; e != nil && e.version == d.Version {
		return e, nil
	}
	e, err := decodeSchedule(d)
	if err != nil {
		return nil, err
	}
	c.known[d.Name] = e
	return e, nil
}

// complain reports whether a document that cannot be decoded must be logged: once per version.
func (c *calendar) complain(d store.Doc) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bad[d.Name] == d.Version {
		return false
	}
	c.bad[d.Name] = d.Version
	return true
}

// only removes all other schedules from the cache.
func (c *calendar) only(names map[string]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.known, func(name string, _ *entry) bool { return !names[name] })
	maps.DeleteFunc(c.bad, func(name string, _ uint64) bool { return !names[name] })
}

// PutSchedule creates or replaces a schedule. A replaced schedule keeps its counters, and its
// next firing time unless the cron expression, the interval, the time zone or the start
// changed. All faults are reported at once as [gq.ErrInvalid].
func (e *Engine) PutSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error) {
	if _, ok := e.store.(store.Changer); !ok {
		return gq.Schedule{}, fmt.Errorf("set schedule %.80q: %w", s.Name, errNoSchedules)
	}
	s, faults, err := e.completeSchedule(ctx, s)
	if err != nil {
		return gq.Schedule{}, fmt.Errorf("set schedule %.80q: %w", s.Name, err)
	}
	out, err := e.changeSchedule(ctx, s.Name, func(old *entry, now time.Time) (entry, error) {
		return e.newEntry(s, faults, old, now)
	})
	if err != nil {
		return gq.Schedule{}, fmt.Errorf("set schedule %.80q: %w", s.Name, err)
	}
	return out, nil
}

// completeSchedule fills in the defaults of a schedule. It also returns the faults that depend on
// its queue.
func (e *Engine) completeSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, []gq.Fault, error) {
	s.Missed, s.Overlap = cmp.Or(s.Missed, gq.MissedOnce), cmp.Or(s.Overlap, gq.OverlapAllow)
	if o := s.Template.Overrides; !o.IsZero() {
		base := s.Template.Policy
		if base == (gq.Policy{}) && o.Preset == 0 {
			var err error
			if base, err = e.queues.policy(ctx, e.store, cmp.Or(s.Template.Queue, gq.DefaultQueue)); err != nil {
				return s, nil, err
			}
		}
		s.Template.Policy, s.Template.Overrides = o.Over(base), gq.Spec{}.Overrides
	}
	policy := s.Template.Policy // if zero, that of the queue at each firing
	s.Template = s.Template.WithDefaults()
	s.Template.Policy = policy
	late, err := e.lateTemplate(ctx, &s.Template, s.Jitter)
	if err != nil {
		return s, nil, err
	}
	deep, err := e.tooManyMissed(ctx, &s)
	return s, append(late, deep...), err
}

// newEntry returns what a complete schedule becomes in place of an old one, which is nil if there
// is none.
func (e *Engine) newEntry(s gq.Schedule, known []gq.Fault, old *entry, now time.Time) (entry, error) {
	next := entry{Schedule: s}
	next.Last, next.LastJob, next.Fired, next.Skipped, next.LastError, next.CreatedAt = time.Time{}, gq.JobID{}, 0, 0, "", now
	if old != nil {
		next.Last, next.LastJob, next.Fired, next.CreatedAt = old.Last, old.LastJob, old.Fired, old.CreatedAt
		next.Skipped, next.LastError = old.Skipped, old.LastError
		if next.Start.IsZero() {
			next.Start = old.Start
		}
	}
	if next.Start.IsZero() {
		next.Start = now
	}
	next.Start, next.End = next.Start.UTC().Truncate(time.Second), next.End.UTC()
	faults := append(errs.FaultsOf(machine.CheckSchedule(&next.Schedule, e.config.Limits)), known...)
	faults = append(faults, e.unregistered("template.policy", &next.Template.Policy)...)
	times, more := firingTimesOf(&next.Schedule)
	faults = append(faults, errs.FaultsOf(e.checkCallback("template.callback_url", next.Template.Metadata.CallbackURL))...)
	faults = append(append(faults, more...), tooMuchJitter(&next.Schedule)...)
	if len(faults) > 0 {
		return next, &gq.InvalidError{Faults: faults}
	}
	if old == nil || old.Cron != next.Cron || old.Every != next.Every || old.TimeZone != next.TimeZone || !old.Start.Equal(next.Start) {
		next.Next = times.next(later(now, next.Start.Add(-1)))
		return next, nil
	}
	next.Next, next.fired = old.Next, old.fired
	switch {
	case next.Next.IsZero(): // perhaps the old schedule had ended
		next.Next = times.next(later(now, next.Start.Add(-1)))
	case !next.End.IsZero() && next.Next.After(next.End):
		next.Next = time.Time{}
	}
	return next, nil
}

// tooManyMissed reports a fault if a schedule could fire more missed slots at once than its
// queue holds jobs.
func (e *Engine) tooManyMissed(ctx context.Context, s *gq.Schedule) ([]gq.Fault, error) {
	if s.Missed != gq.MissedAll || machine.CheckQueueName(s.Template.Queue) != nil {
		return nil, nil
	}
	most, err := e.maxDepth(ctx, s.Template.Queue)
	if limit := cmp.Or(s.MissedLimit, defaultMissed); err == nil && most > 0 && limit > most {
		return []gq.Fault{{Field: "missed_limit", Problem: fmt.Sprintf(
			"up to %d missed slots would fire at once, but the queue %s holds at most %s (max_depth); set missed_limit to %d or less, or raise max_depth",
			limit, s.Template.Queue, quantity.Of(most, "job"), most,
		)}}, nil
	}
	return nil, err
}

// maxDepth returns the depth limit of a queue; 0 is none.
func (e *Engine) maxDepth(ctx context.Context, queue string) (int, error) {
	q, _, err := e.findQueue(ctx, queue)
	return q.MaxDepth, err
}

// tooMuchJitter reports a fault if a job could run after the next slot. It compares the next
// hundred slots of a cron expression; [machine.CheckSchedule] checks intervals.
func tooMuchJitter(s *gq.Schedule) []gq.Fault {
	if s.Jitter <= 0 || s.Jitter > gq.MaxDuration || s.Cron == "" {
		return nil
	}
	endless := *s
	endless.End = time.Time{}
	times, faults := firingTimesOf(&endless)
	if len(faults) > 0 {
		return nil // reported elsewhere
	}
	at := times.next(s.Start)
	for range 100 {
		next := times.next(at)
		if next.IsZero() {
			return nil
		}
		if gap := next.Sub(at); s.Jitter >= gap {
			return []gq.Fault{{Field: "jitter", Problem: fmt.Sprintf("%v is not shorter than the %v between the slots %s and %s",
				s.Jitter, gap, at.Format(time.RFC3339), next.Format(time.RFC3339))}}
		}
		at = next
	}
	return nil
}

// lateTemplate reports a fault if a job would outlive its lifetime before it may run: because of
// the jitter, or because of the delay of a template that has no policy of its own.
func (e *Engine) lateTemplate(ctx context.Context, t *gq.Spec, jitter time.Duration) ([]gq.Fault, error) {
	own := t.Policy != gq.Policy{}
	if jitter <= 0 && (own || t.Delay <= 0) || machine.CheckQueueName(t.Queue) != nil {
		return nil, nil
	}
	filled := *t
	filled.ID = machine.NewJobID([16]byte{})
	if !own {
		var err error
		if filled.Policy, err = e.queues.policy(ctx, e.store, t.Queue); err != nil {
			return nil, err
		}
	}
	late := func(delay time.Duration) string {
		filled.Delay = delay
		for _, f := range errs.FaultsOf(machine.CheckSpec(&filled, e.config.Limits)) {
			if f.Field == "delay" && delay <= gq.MaxDuration {
				return f.Problem
			}
		}
		return ""
	}
	switch problem := late(t.Delay); {
	case problem != "" && own: // CheckSchedule reports it
		return nil, nil
	case problem != "":
		return []gq.Fault{{Field: "template.delay", Problem: problem}}, nil
	}
	if problem := late(t.Delay + max(jitter, 0)); problem != "" {
		return []gq.Fault{{Field: "jitter", Problem: "with the template's delay, " + problem}}, nil
	}
	return nil, nil
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// PauseSchedule stops a schedule from firing.
func (e *Engine) PauseSchedule(ctx context.Context, name string) (gq.Schedule, error) {
	return e.setPaused(ctx, name, true)
}

// ResumeSchedule ends a pause. The firings missed meanwhile are skipped.
func (e *Engine) ResumeSchedule(ctx context.Context, name string) (gq.Schedule, error) {
	return e.setPaused(ctx, name, false)
}

func (e *Engine) setPaused(ctx context.Context, name string, paused bool) (gq.Schedule, error) {
	out, err := e.changeSchedule(ctx, name, func(old *entry, now time.Time) (entry, error) {
		if old == nil {
			return entry{}, noSchedule(name)
		}
		next := *old
		if next.Paused && !paused {
			next.Next = old.times.next(later(now, old.Start.Add(-1)))
		}
		next.Paused = paused
		return next, nil
	})
	if err != nil {
		verb := "resume"
		if paused {
			verb = "pause"
		}
		return gq.Schedule{}, scheduleError(verb, name, err)
	}
	return out, nil
}

// changeSchedule applies change to a schedule, which is nil if it does not exist, and retries
// after concurrent modifications.
func (e *Engine) changeSchedule(ctx context.Context, name string, change func(old *entry, now time.Time) (entry, error)) (gq.Schedule, error) {
	for {
		var old *entry
		d, err := e.store.Doc(ctx, kindSchedule, name)
		switch {
		case err == nil:
			// A schedule that cannot be decoded can still be replaced.
			old, _ = e.calendar.open(d)
		case !errors.Is(err, gq.ErrNotFound) && !errors.Is(err, gq.ErrInvalid):
			return gq.Schedule{}, err
		}
		now, err := e.storeNow(ctx)
		if err != nil {
			return gq.Schedule{}, err
		}
		next, err := change(old, now)
		if err != nil {
			return gq.Schedule{}, err
		}
		next.UpdatedAt = now
		_, err = e.writeSchedule(ctx, &next.Schedule, next.fired, d.Version)
		if err == nil {
			e.announceSchedule(&next.Schedule)
			return ownSchedule(next.Schedule), nil
		}
		if !errors.Is(err, gq.ErrConflict) {
			return gq.Schedule{}, err
		}
	}
}

// announceSchedule tells all engines of the store when a schedule that was changed fires next.
func (e *Engine) announceSchedule(s *gq.Schedule) {
	if a, ok := e.store.(store.Announcer); ok && !s.Paused && !s.Next.IsZero() {
		a.Announce(s.Next)
	}
}

// storeNow returns the time of the store in UTC.
func (e *Engine) storeNow(ctx context.Context) (time.Time, error) {
	if !e.clock.known() { // this is the first call to the store
		now, err := e.store.Now(ctx)
		if err != nil {
			return time.Time{}, err
		}
		e.clock.observe(now)
	}
	return e.Now().UTC(), nil
}

// ownSchedule copies a schedule for a caller, who may modify it. The original is cached.
func ownSchedule(s gq.Schedule) gq.Schedule {
	s.Template = store.CopySpec(s.Template)
	return s
}

func (e *Engine) readSchedule(ctx context.Context, name string) (*entry, error) {
	d, err := e.store.Doc(ctx, kindSchedule, name)
	if errors.Is(err, gq.ErrNotFound) {
		return nil, noSchedule(name)
	}
	if err != nil {
		return nil, err
	}
	return e.calendar.open(d)
}

func noSchedule(name string) error { return gq.ErrNotFound.Errorf("no schedule %.80q", name) }

// scheduleError returns the error of a call about a schedule.
func scheduleError(verb, name string, err error) error {
	if errors.Is(err, gq.ErrNotFound) {
		return err // names the schedule
	}
	return fmt.Errorf("%s schedule %.80q: %w", verb, name, err)
}

// writeSchedule writes a schedule that was read at a version, and returns the new version.
func (e *Engine) writeSchedule(ctx context.Context, s *gq.Schedule, fired spans, version uint64) (uint64, error) {
	data, err := encodeSchedule(s, fired)
	if err != nil {
		return 0, err
	}
	versions, err := e.store.PutDocs(ctx, []store.Doc{{Kind: kindSchedule, Name: s.Name, Version: version, Data: data}})
	if err != nil {
		return 0, err
	}
	return versions[0], nil
}

// Schedule returns a schedule, or [gq.ErrNotFound].
func (e *Engine) Schedule(ctx context.Context, name string) (gq.Schedule, error) {
	s, err := e.readSchedule(ctx, name)
	if err != nil {
		return gq.Schedule{}, scheduleError("get", name, err)
	}
	return ownSchedule(s.Schedule), nil
}

// Schedules lists all schedules, sorted by name.
func (e *Engine) Schedules(ctx context.Context) ([]gq.Schedule, error) {
	entries, err := e.readSchedules(ctx)
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	out := make([]gq.Schedule, len(entries))
	for i, s := range entries {
		out[i] = ownSchedule(s.Schedule)
	}
	return out, nil
}

func (e *Engine) readSchedules(ctx context.Context) (entries []*entry, err error) {
	names := map[string]bool{}
	for after := ""; ; {
		docs, err := e.store.Docs(ctx, kindSchedule, after, store.MaxPage)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			names[d.Name], after = true, d.Name
			s, err := e.calendar.open(d)
			switch {
			case err == nil:
				entries = append(entries, s)
			case e.calendar.complain(d):
				e.log.Error("a schedule cannot be decoded and does not fire", "schedule", d.Name, "error", err)
			}
		}
		if len(docs) < store.MaxPage {
			e.calendar.only(names)
			return entries, nil
		}
	}
}

// DeleteSchedule removes a schedule and its last declaration, and keeps the jobs it submitted.
func (e *Engine) DeleteSchedule(ctx context.Context, name string) error {
	for {
		d, err := e.store.Doc(ctx, kindSchedule, name)
		if err == nil {
			d.Data = nil
			docs := []store.Doc{d}
			said, _, problem := e.saidOf(ctx, name)
			if problem == nil && said.Version != 0 {
				said.Data = nil
				docs = append(docs, said)
			}
			_, err = e.store.PutDocs(ctx, docs)
		}
		if errors.Is(err, gq.ErrConflict) {
			continue
		}
		if errors.Is(err, gq.ErrNotFound) {
			return noSchedule(name)
		}
		if err != nil {
			return scheduleError("delete", name, err)
		}
		return nil
	}
}
