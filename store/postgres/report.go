package postgres

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/projection"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
)

// The views of schema.sql show the queues of the scheduler's pool and the queue of
// matching. Only jobs of these queues are also written to gq.report.
const (
	schedulerPool = "scheduler"
	matchingQueue = match.Queue
)

// reported tells whether the views show the jobs of a queue.
func reported(q gq.Queue) bool { return q.Pool == schedulerPool || q.Name == matchingQueue }

// reports is what a transaction writes to gq.report and gq.report_event.
type reports struct {
	jobs   []reportJob
	at     map[int64]int // index in jobs by sequence number
	events []reportEvent
}

// reportJob is a row of gq.report: see specColumns and stateColumns.
type reportJob struct {
	Seq   int64
	isNew bool // the columns of the spec are set

	// From the spec.
	ID        string
	Queue     string
	Type      string
	Cost      int64
	Requester string
	Tier      string
	MaxFee    int64
	Asks      string

	// From the state.
	Status         int16
	Held           bool
	SchedulerState string
	MatchingState  string
	Priority       string
	Attempts       int
	Faults         int
	Created        int64
	Started        int64
	FirstStarted   int64
	Completed      int64
	Failure        string
	FailureCode    string
	Reason         string
	Lifetime       int64
	RunLifetime    int64
	LeaseTTL       int64
	RenewBefore    int64

	// From the lease.
	ClaimedBy  string
	Lease      string
	LastRun    string
	LeaseState string
	Worker     string
	Granted    int64
	Beat       int64
	Expires    int64
	TTL        int64
	LeaseCost  int64
}

// reportEvent is a row of gq.report_event: see eventColumns.
type reportEvent struct {
	Segment        int64
	Place          int // within the segment
	Job            string
	Queue          string
	Type           string
	Final          bool
	SchedulerState string
	Attempt        int
	Lease          string
	LeaseState     string
	LeaseEnd       string
	EndsRun        bool
	Fault          bool
	Worker         string
	Until          int64
	Cost           int64
	Beat           int64
	Message        string
	Reason         string

	Submitted string // JSON of a reportSubmission, or empty
}

// reportSubmission is what the scheduler API shows of a submission.
type reportSubmission struct {
	Priority string `json:"priority"`
	Addon    string `json:"addon_id"`
	Type     string `json:"job_type,omitempty"`
	Cost     int64  `json:"cost_units"`
}

// job records the state of a job that the views show. spec is nil unless the job is new to
// the views.
func (p *reports) job(queue string, spec *gq.Spec, s *gq.State) {
	seq := int64(s.Sequence)
	i, known := p.at[seq]
	if !known {
		if p.at == nil {
			p.at = make(map[int64]int)
		}
		i = len(p.jobs)
		p.at[seq] = i
		p.jobs = append(p.jobs, reportJob{Seq: seq})
	}
	r := &p.jobs[i]
	if spec != nil {
		r.isNew = true
		r.ID, r.Queue, r.Type, r.Cost = s.ID.String(), queue, spec.Type, spec.CostUnits
		r.Requester, r.Tier, r.MaxFee = printable(spec.Requester), printable(spec.Tier), spec.MaxFee
		if _, err := match.ParseKind(spec.Type); queue == matchingQueue && err == nil {
			r.Asks = printable(string(projection.MatchingText(spec.Attributes)))
		}
	}
	r.state(s)
}

func (r *reportJob) state(s *gq.State) {
	v := projection.View{Status: s.Status, Detail: s.Detail, Attempt: s.Attempt}
	r.Failure, r.FailureCode = "", ""
	if s.Failure != nil {
		v.Category = s.Failure.Category
		r.Failure, r.FailureCode = printable(s.Failure.Message), printable(match.FaultName(s.Failure.Code))
	}
	r.Status, r.Held, r.SchedulerState, r.MatchingState = int16(s.Status), s.Status.Held(), v.Scheduler(), v.Matching()
	r.Priority, r.Attempts, r.Faults = projection.SchedulerPriority(s.Own), s.Attempt, s.Faults
	r.Created, r.Started = nanoseconds(s.CreatedAt), nanoseconds(s.StartedAt)
	r.FirstStarted, r.Completed = nanoseconds(s.FirstStartedAt), nanoseconds(s.CompletedAt)
	r.Reason = printable(s.Reason)
	r.Lifetime, r.RunLifetime, r.LeaseTTL = int64(s.Policy.Lifetime), int64(s.Policy.RunLifetime), int64(s.Policy.LeaseTTL)
	r.LastRun = printable(string(s.LastAttempt()))
	end := time.Unix(0, 0)
	r.RenewBefore = int64(end.Sub(machine.RenewBy(gq.Lease{ExpiresAt: end, HeartbeatAt: end, TTL: s.Policy.LeaseTTL}, s.Policy)))
	l := s.Lease
	if l == nil {
		return
	}
	r.ClaimedBy = ""
	if s.Status.Held() || s.Status.Terminal() && (l.Attempt > 0 || l.State == gq.LeaseCancelled) {
		r.ClaimedBy = printable(l.Worker)
	}
	r.Lease, r.LeaseState, r.Worker = printable(string(l.ID)), projection.SchedulerLease(l.State), printable(l.Worker)
	r.Granted, r.Beat, r.Expires = nanoseconds(l.GrantedAt), nanoseconds(l.HeartbeatAt), nanoseconds(l.ExpiresAt)
	r.TTL, r.LeaseCost = int64(l.TTL), l.CostUnits
}

// event records an event of a job that the views show. A segment of 0 is filled in by
// write; spec is needed only for the event of a submission.
func (p *reports) event(segment int64, place int, queue string, spec *gq.Spec, e *gq.Event) {
	v := projection.View{Status: e.Status, Detail: e.Detail}
	r := reportEvent{
		Segment: segment, Place: place, Job: e.Job.String(), Queue: queue, Type: e.Type.String(), Final: e.Status.Terminal(),
		Attempt: e.Attempt, Lease: printable(string(e.Lease)), EndsRun: machine.EndsRun(e), Worker: printable(e.Worker),
		Until: nanoseconds(e.Until), Cost: e.CostUnits, Beat: nanoseconds(e.Beat), Reason: printable(e.Reason),
	}
	if e.LeaseState.Valid() {
		r.LeaseState = projection.SchedulerLease(e.LeaseState)
	}
	if o := match.OutcomeOf(e); o != 0 {
		r.LeaseEnd = projection.MatchingLease(o.LeaseState(), 0)
	}
	if e.Failure != nil {
		v.Category = e.Failure.Category
		r.Message, r.Fault = printable(e.Failure.Message), match.FaultOf(e.Failure.Code) != 0
	}
	r.SchedulerState = v.Scheduler()
	if e.Type == gq.EventSubmitted && spec != nil {
		r.Submitted = submissionOf(spec)
	}
	p.events = append(p.events, r)
}

// submissionOf returns the JSON of a submission.
func submissionOf(spec *gq.Spec) string {
	text, _ := json.Marshal(reportSubmission{ // strings and a number: it cannot fail
		projection.SchedulerPriority(spec.Metadata.Priority), spec.Queue, spec.Type, spec.CostUnits,
	})
	return string(text)
}

// printable replaces what PostgreSQL cannot store in text: NUL characters and invalid UTF-8.
func printable(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\ufffd"), "\ufffd")
}

var (
	newColumns     = slices.Concat(reportColumns[reportJob]{reportSeq}, specColumns, stateColumns)
	changedColumns = slices.Concat(reportColumns[reportJob]{reportSeq}, stateColumns)

	newReports = newColumns.statementFor(`
		INSERT INTO gq.report (` + newColumns.names() + `)
		SELECT ` + newColumns.expressions() + `
		FROM %s
		ON CONFLICT (seq) DO NOTHING`)
	changedReports = changedColumns.statementFor(`
		UPDATE gq.report AS s
		SET (` + stateColumns.names() + `) = ROW(` + stateColumns.expressions() + `)
		FROM %s
		WHERE s.seq = ANY (ARRAY [n.seq])`)
	newReportEvents = eventColumns.statementFor(`
		INSERT INTO gq.report_event (` + eventColumns.names() + `)
		SELECT ` + eventColumns.expressions() + `
		FROM %s
		ON CONFLICT (segment, place) DO NOTHING`)
	// submissions completes events that were written before their jobs.
	submissions = `
		UPDATE gq.report_event AS e
		SET submitted = n.submitted
		FROM (SELECT unnest($1::uuid[]) AS job, unnest($2::text[])::jsonb AS submitted) AS n
		WHERE e.job = n.job AND e.type = 'job.submitted'`
)

// write queues what was recorded. segment is that of the events without one.
func (p *reports) write(batch *pgx.Batch, segment int64) {
	var fresh, changed []*reportJob
	for i := range p.jobs {
		if r := &p.jobs[i]; r.isNew {
			fresh = append(fresh, r)
		} else {
			changed = append(changed, r)
		}
	}
	events := make([]*reportEvent, len(p.events))
	for i := range p.events {
		events[i] = &p.events[i]
		if events[i].Segment == 0 {
			events[i].Segment = segment
		}
	}
	newReports.write(batch, fresh)
	changedReports.write(batch, changed)
	newReportEvents.write(batch, events)
}

// reportQueue writes the jobs and events of a queue that the views did not show before.
// The caller has locked the live jobs.
func (tx *txn) reportQueue(ctx context.Context, queue string, live []*row) error {
	done, err := tx.scanRows(tx.Query(ctx, "SELECT "+columns+" FROM gq.done AS s WHERE s.queue = $1 AND "+kept, queue))
	if err != nil {
		return err
	}
	for _, r := range live {
		tx.leave(r)
		if !r.changed {
			r.changed = true
			tx.rows = append(tx.rows, r)
		}
		r.reported = true
	}
	for rows := range slices.Chunk(append(slices.Clone(live), done...), reportStep) {
		if err := tx.reportRows(ctx, queue, rows); err != nil {
			return err
		}
	}
	return nil
}

// reportStep is how many jobs reportQueue reads at once.
const reportStep = 500

func (tx *txn) reportRows(ctx context.Context, queue string, rows []*row) error {
	ids := make(map[gq.JobID]bool, len(rows))
	var segments []int64
	for _, r := range rows {
		ids[r.state.ID] = true
		segments = append(segments, r.segments...)
	}
	slices.Sort(segments)
	segments = slices.Compact(segments)
	var p reports
	byID := make(map[gq.JobID]*gq.Spec, len(rows))
	for _, r := range rows {
		spec, err := r.specOf()
		if err != nil {
			return err
		}
		byID[r.state.ID] = spec
		p.job(queue, spec, &r.state)
	}
	var number int64
	var data []byte
	var jobs []int64
	found, err := tx.Query(ctx, `
		SELECT n.id, l.data, l.jobs
		FROM unnest($1::bigint[]) AS n (id)
		CROSS JOIN LATERAL (SELECT data, jobs FROM gq.log WHERE id = n.id OFFSET 0) AS l`, segments)
	if err != nil {
		return err
	}
	_, err = pgx.ForEachRow(found, []any{&number, &data, &jobs}, func() error {
		return tx.s.ids.walkLog(data, jobs, func(place int, e gq.Event) {
			if ids[e.Job] {
				p.event(number, place, queue, byID[e.Job], &e)
			}
		})
	})
	if err != nil {
		return err
	}
	p.write(&tx.more, 0)
	return nil
}
