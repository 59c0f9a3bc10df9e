package wire

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
)

// Queue is a queue with its settings.
type Queue struct {
	Name       string           `json:"name"`
	Paused     bool             `json:"paused"`
	MaxRunning int              `json:"max_running" doc:"Jobs held at once; 0 is no limit."`
	MaxDepth   int              `json:"max_depth" doc:"Live jobs; 0 is no limit."`
	Rate       *Rate            `json:"rate,omitempty" doc:"Claims; absent is no limit."`
	KeyLimit   int              `json:"key_limit" doc:"Jobs held at once with the same limit_key; 0 is no limit."`
	KeyRate    *Rate            `json:"key_rate,omitempty" doc:"Claims of jobs with the same limit_key, by weight; absent is no limit."`
	OwnKeys    int              `json:"own_keys,omitzero" doc:"Limit keys with limits of their own."`
	Fair       bool             `json:"fair" doc:"Each fair_key is served in turn."`
	Pool       string           `json:"pool,omitzero" doc:"Whose capacity its held jobs occupy."`
	Policy     *Policy          `json:"policy,omitempty" doc:"What its jobs start from."`
	UpdatedAt  time.Time        `json:"updated_at,omitzero"`
	Counts     map[string]int64 `json:"counts,omitempty" doc:"Jobs by state."`
}

// Rate is a rate limit.
type Rate struct {
	Count int      `json:"count"`
	Per   Duration `json:"per"`
	Burst int      `json:"burst,omitzero" doc:"At once after a pause; 0 is 1."`
}

func rateOf(r gq.Rate) *Rate {
	if !r.Limited() {
		return nil
	}
	return &Rate{Count: r.Count, Per: Duration(r.Per), Burst: r.Burst}
}

// Domain converts the rate. Nil and a count of 0 are no limit.
func (r *Rate) Domain() gq.Rate {
	if r == nil || r.Count == 0 && r.Burst == 0 {
		return gq.Rate{}
	}
	return gq.Rate{Count: r.Count, Per: time.Duration(r.Per), Burst: r.Burst}
}

// Queues is a page of queues.
type Queues struct {
	Queues     []Queue `json:"queues"`
	NextCursor string  `json:"next_cursor" doc:"Of the next page; empty on the last."`
}

// QueueOf converts a queue; counts are optional.
func QueueOf(q *gq.Queue, c *gq.Count) Queue {
	out := Queue{
		Name: q.Name, Paused: q.Paused, MaxRunning: q.MaxRunning, MaxDepth: q.MaxDepth, KeyLimit: q.KeyLimit,
		Fair: q.Fair, Pool: q.Pool, UpdatedAt: utc(q.UpdatedAt), Rate: rateOf(q.Rate), KeyRate: rateOf(q.KeyRate), OwnKeys: q.OwnKeys,
	}
	if q.Policy != (gq.Policy{}) {
		out.Policy = PolicyOf(&q.Policy)
	}
	if c != nil {
		out.Counts = countsOf(c)
	}
	return out
}

// QueuesOf converts queues with their counts.
func QueuesOf(queues []gq.Queue, counts []gq.Count) Queues {
	by := make(map[string]*gq.Count, len(counts))
	for i := range counts {
		by[counts[i].Queue] = &counts[i]
	}
	out := Queues{Queues: make([]Queue, len(queues))}
	for i := range queues {
		c := by[queues[i].Name]
		if c == nil {
			c = &gq.Count{}
		}
		out.Queues[i] = QueueOf(&queues[i], c)
	}
	return out
}

// countsOf lists every state, including empty ones.
func countsOf(c *gq.Count) map[string]int64 {
	out := make(map[string]int64, len(enum.All[gq.Status]()))
	for _, s := range enum.All[gq.Status]() {
		out[s.String()] = c.By[s]
	}
	return out
}

// QueueChange changes the settings of a queue. Absent members stay as they are, and null takes a
// limit away.
type QueueChange struct {
	Paused     *bool   `json:"paused,omitempty"`
	MaxRunning *int    `json:"max_running,omitempty" nullable:"true" doc:"0 or null removes the limit."`
	MaxDepth   *int    `json:"max_depth,omitempty" nullable:"true" doc:"0 or null removes the limit."`
	Rate       *Rate   `json:"rate,omitempty" nullable:"true" doc:"Null, or a count of 0, removes the limit."`
	KeyLimit   *int    `json:"key_limit,omitempty" nullable:"true" doc:"0 or null removes the limit."`
	KeyRate    *Rate   `json:"key_rate,omitempty" nullable:"true" doc:"Null, or a count of 0, removes the limit."`
	Fair       *bool   `json:"fair,omitempty"`
	Pool       *string `json:"pool,omitempty" nullable:"true" doc:"Empty or null takes the queue out of its pool."`
	Policy     *Policy `json:"policy,omitempty" doc:"Changes what it names; a preset replaces all of it."`
}

func (c *QueueChange) decodeJSON(d *jsonDecoder, text []byte) {
	d.value(text, reflect.ValueOf(c).Elem(), "")
	var given map[string]json.RawMessage
	_ = json.Unmarshal(text, &given) // what is no object has been refused
	null := func(name string) bool { return string(given[name]) == "null" }
	if null("rate") {
		c.Rate = new(Rate)
	}
	if null("key_rate") {
		c.KeyRate = new(Rate)
	}
	for name, to := range map[string]**int{"max_running": &c.MaxRunning, "max_depth": &c.MaxDepth, "key_limit": &c.KeyLimit} {
		if null(name) {
			*to = new(int)
		}
	}
	if null("pool") {
		c.Pool = new(string)
	}
}

// Apply applies the change to a queue.
func (c *QueueChange) Apply(q *gq.Queue) {
	set(&q.Paused, c.Paused)
	set(&q.MaxRunning, c.MaxRunning)
	set(&q.MaxDepth, c.MaxDepth)
	set(&q.KeyLimit, c.KeyLimit)
	set(&q.Fair, c.Fair)
	set(&q.Pool, c.Pool)
	if c.Rate != nil {
		q.Rate = c.Rate.Domain()
	}
	if c.KeyRate != nil {
		q.KeyRate = c.KeyRate.Domain()
	}
	q.Policy = c.Policy.Over(q.Policy)
}

// Pool is capacity that queues share.
type Pool struct {
	Name      string    `json:"name"`
	Capacity  int64     `json:"capacity" doc:"Cost units that held jobs may occupy together."`
	Used      int64     `json:"used,omitzero" doc:"Cost units that held jobs occupied when the pools were listed; absent is none."`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
}

// PoolOf converts a pool.
func PoolOf(p gq.Pool) Pool { return Pool{p.Name, p.Capacity, p.Used, utc(p.UpdatedAt)} }

// Pools is the list of pools.
type Pools struct {
	Pools []Pool `json:"pools"`
}

// PoolChange sets the capacity of a pool.
type PoolChange struct {
	Capacity *int64 `json:"capacity" nullable:"false"`
}

// Schedule submits a job at every slot of a calendar or an interval.
type Schedule struct {
	Name        string          `json:"name"`
	Cron        string          `json:"cron,omitzero" doc:"Five fields, or six with the second first."`
	Every       *Duration       `json:"every,omitempty" doc:"Instead: the interval."`
	TimeZone    string          `json:"time_zone,omitzero" doc:"Of the calendar; UTC."`
	Start       time.Time       `json:"start,omitzero" doc:"No slot before."`
	End         time.Time       `json:"end,omitzero" doc:"No slot after."`
	Jitter      *Duration       `json:"jitter,omitempty" doc:"Each job is delayed by a part of it."`
	Overlap     *gq.OverlapRule `json:"overlap,omitempty" doc:"What a slot does while the last job is live."`
	Missed      *gq.MissedRule  `json:"missed,omitempty" doc:"What becomes of slots at which nobody was there."`
	MissedLimit int             `json:"missed_limit,omitzero"`
	Paused      bool            `json:"paused"`
	Job         Spec            `json:"job" doc:"What is submitted at every slot."`

	NextAt    time.Time `json:"next_at,omitzero"`
	LastAt    time.Time `json:"last_at,omitzero"`
	LastJob   gq.JobID  `json:"last_job,omitzero"`
	Fired     int       `json:"fired" doc:"Jobs so far."`
	Skipped   int       `json:"skipped" doc:"Slots without a job because of the overlap rule or an error."`
	LastError string    `json:"last_error,omitzero" doc:"Why the last slot has no job."`
	CreatedAt time.Time `json:"created_at,omitzero"`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
}

// Schedules is the list of schedules.
type Schedules struct {
	Schedules []Schedule `json:"schedules"`
}

// ScheduleDraft is a schedule to be created or replaced.
type ScheduleDraft struct {
	Cron        string          `json:"cron,omitzero" doc:"Five fields, or six with the second first; or @hourly, @daily, @weekly, @monthly, @yearly."`
	Every       *Duration       `json:"every,omitempty" doc:"Instead: the interval."`
	TimeZone    string          `json:"time_zone,omitzero" doc:"Of the calendar; UTC."`
	Start       time.Time       `json:"start,omitzero" doc:"No slot before; now."`
	End         time.Time       `json:"end,omitzero" doc:"No slot after."`
	Jitter      *Duration       `json:"jitter,omitempty" doc:"Each job is delayed by a part of it, which depends on name and slot; shorter than the time between two slots."`
	Overlap     *gq.OverlapRule `json:"overlap,omitempty" doc:"What a slot does while the last job is live; allow."`
	Missed      *gq.MissedRule  `json:"missed,omitempty" doc:"What becomes of slots at which nobody was there; once."`
	MissedLimit int             `json:"missed_limit,omitzero" doc:"Of \"all\": the most that are made up for; 100."`
	Paused      bool            `json:"paused,omitzero"`
	Job         Spec            `json:"job" doc:"What is submitted at every slot."`
}

// Domain converts the schedule.
func (d *ScheduleDraft) Domain(name string, queuePolicy func(string) (gq.Policy, error)) (gq.Schedule, error) {
	out := gq.Schedule{
		Name: name, Cron: d.Cron, Every: durationOf(d.Every), TimeZone: d.TimeZone, Start: utc(d.Start),
		End: utc(d.End), Jitter: durationOf(d.Jitter),
		MissedLimit: d.MissedLimit, Paused: d.Paused,
	}
	set(&out.Missed, d.Missed)
	set(&out.Overlap, d.Overlap)
	var err error
	if out.Template, err = d.Job.Domain(queuePolicy); err != nil {
		faults := errs.FaultsOf(err)
		if len(faults) == 0 {
			return out, err
		}
		prefixed := make([]gq.Fault, len(faults))
		for i, f := range faults {
			prefixed[i] = gq.Fault{Field: "job." + f.Field, Problem: f.Problem}
		}
		return out, &gq.InvalidError{Faults: prefixed}
	}
	return out, nil
}

// ScheduleFaults renames the fields of a schedule's job to their JSON names.
func ScheduleFaults(err error) error {
	faults := errs.FaultsOf(err)
	if len(faults) == 0 {
		return err
	}
	renamed := make([]gq.Fault, len(faults))
	for i, f := range faults {
		if rest, ok := strings.CutPrefix(f.Field, "template."); ok {
			f.Field = "job." + rest
		}
		renamed[i] = f
	}
	return &gq.InvalidError{Faults: renamed}
}

// ScheduleOf converts a schedule.
func ScheduleOf(s *gq.Schedule) Schedule {
	out := Schedule{
		Name: s.Name, Cron: s.Cron, TimeZone: s.TimeZone, Start: utc(s.Start),
		MissedLimit: s.MissedLimit, Paused: s.Paused, Job: specOf(&s.Template),
		NextAt: utc(s.Next), LastAt: utc(s.Last), LastJob: s.LastJob, Fired: s.Fired,
		End: utc(s.End), Skipped: s.Skipped, LastError: s.LastError,
		CreatedAt: utc(s.CreatedAt), UpdatedAt: utc(s.UpdatedAt),
	}
	if s.Every != 0 {
		out.Every = new(Duration(s.Every))
	}
	if s.Jitter != 0 {
		out.Jitter = new(Duration(s.Jitter))
	}
	if s.Missed.Valid() {
		out.Missed = new(s.Missed)
	}
	if s.Overlap.Valid() {
		out.Overlap = new(s.Overlap)
	}
	return out
}

// specOf converts a template to the form in which it would be submitted.
func specOf(s *gq.Spec) Spec {
	out := Spec{
		Type: s.Type, Queue: s.Queue, ContentType: s.Payload.ContentType, Priority: Priority(s.Metadata.Priority),
		CostUnits: s.CostUnits, Requires: s.Requires, LimitKey: s.LimitKey, FairKey: s.FairKey, OrderKey: s.OrderKey, Weight: s.Weight,
		Requester: s.Requester, Tier: s.Tier, MaxFee: s.MaxFee, Attributes: s.Attributes,
		Tags: s.Metadata.Tags, CorrelationID: s.Metadata.CorrelationID, CallbackURL: s.Metadata.CallbackURL,
	}
	var other []byte
	if out.ContentType == "" || isJSONType(out.ContentType) {
		out.Payload, other = embedded(s.Payload.Data)
	} else {
		other = s.Payload.Data
	}
	if other != nil {
		out.PayloadBase64 = &other
	}
	if s.Delay != 0 {
		out.Delay = new(Duration(s.Delay))
	}
	if s.Policy != (gq.Policy{}) {
		out.Policy = PolicyOf(&s.Policy)
	}
	return out
}
