package scheduler

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
)

// jobRun is a row of scheduler_job_runs.
type jobRun struct {
	JobID       string          `json:"job_id" format:"uuid"`
	AddonID     string          `json:"addon_id"`
	JobType     string          `json:"job_type"`
	Priority    string          `json:"priority" enum:"URGENT,HIGH,NORMAL,LOW"`
	CostUnits   int64           `json:"cost_units"`
	State       string          `json:"state" enum:"QUEUED,CLAIMED,PREPARING,LEASE_PENDING,RUNNING,DONE,FAILED,CANCELED,TIMEOUT"`
	Attempts    int             `json:"attempts"`
	CreatedAt   stamp           `json:"created_at"`
	StartedAt   *stamp          `json:"started_at"`
	FinishedAt  *stamp          `json:"finished_at"`
	ClaimedBy   *string         `json:"claimed_by"`
	LeaseID     *string         `json:"lease_id" doc:"The last one."`
	FinalStatus *string         `json:"final_status"`
	ErrorText   *string         `json:"error_text"`
	ResultJSON  json.RawMessage `json:"result_json"`
	MetricsJSON json.RawMessage `json:"metrics_json"`
}

type jobRunsAnswer struct {
	JobRuns    []jobRun `json:"job_runs"`
	NextCursor *string  `json:"next_cursor"`
}

// facts returns the query for a page of facts about jobs.
func (f *Face) facts(ctx context.Context, in *factsInput) (gq.Query, error) {
	var wrong faults
	q := gq.Query{Queue: addonNamed(in.AddonID, &wrong), Limit: in.limit(&wrong), Cursor: in.Cursor, OldestFirst: true}
	if err := wrong.err(); err != nil {
		return q, err
	}
	return q, f.engine.CatchUp(ctx)
}

func (f *Face) jobRuns(ctx context.Context, in *factsInput, _ *httpx.None) (*httpx.Answer[jobRunsAnswer], error) {
	q, err := f.facts(ctx, in)
	if err != nil {
		return nil, err
	}
	found, err := f.addonJobs(ctx, q)
	if err != nil {
		return nil, err
	}
	out := jobRunsAnswer{JobRuns: []jobRun{}, NextCursor: text(found.Next)}
	full, err := f.engine.Jobs(ctx, idsOf(found.Jobs), gq.WithResult)
	if err != nil {
		return nil, err
	}
	for i := range found.Jobs {
		job, kept := full[found.Jobs[i].State.ID]
		if !kept {
			continue
		}
		out.JobRuns = append(out.JobRuns, jobRunOf(&job))
	}
	return httpx.OK(out), nil
}

func jobRunOf(job *gq.Job) jobRun {
	s := &job.State
	intent := intentOf(job)
	row := jobRun{
		JobID: intent.JobID, AddonID: intent.AddonID, JobType: intent.JobType, Priority: intent.Priority, CostUnits: intent.CostUnits,
		State: intent.State, Attempts: intent.Attempts, CreatedAt: intent.CreatedAt,
		StartedAt: at(s.StartedAt), FinishedAt: at(s.CompletedAt), ClaimedBy: intent.ClaimedBy, LeaseID: intent.LeaseID,
	}
	if row.LeaseID == nil { // it waits, and may have run before
		row.LeaseID = text(string(s.LastAttempt()))
	}
	if result := resultOf(job); result != nil {
		row.FinalStatus, row.ErrorText = &result.Status, result.Error
		row.ResultJSON, row.MetricsJSON = given(result.ResultData), readReport(job.Result).Metrics
	}
	return row
}

// leaseRow is a row of scheduler_lease_runs.
type leaseRow struct {
	LeaseID         string  `json:"lease_id" format:"uuid"`
	JobID           string  `json:"job_id" format:"uuid"`
	AddonID         string  `json:"addon_id"`
	CostUnits       int64   `json:"cost_units"`
	TTLSec          int64   `json:"ttl_sec"`
	GrantedAt       stamp   `json:"granted_at"`
	LastHeartbeatAt stamp   `json:"last_heartbeat_at"`
	ReleasedAt      *stamp  `json:"released_at"`
	ExpiresAt       stamp   `json:"expires_at"`
	State           string  `json:"state" enum:"ACTIVE,EXPIRED,RELEASED"`
	ReleaseStatus   *string `json:"release_status"`
}

type leaseRunsAnswer struct {
	LeaseRuns  []leaseRow `json:"lease_runs"`
	NextCursor *string    `json:"next_cursor"`
}

// leaseCursor is a position in the list of leases: after Skip leases of the first job
// that follows the job cursor.
type leaseCursor struct {
	Jobs string `json:"j"`
	Skip int    `json:"s"`
}

func (l leaseCursor) String() string {
	return base64.RawURLEncoding.EncodeToString(encoded(l))
}

func parseLeaseCursor(given string) (l leaseCursor, err error) {
	if given == "" {
		return l, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(given)
	if err != nil || json.Unmarshal(raw, &l) != nil || l.Skip < 0 || l == (leaseCursor{}) {
		return l, problem(CodeInvalidCursor, "cursor: is not one that a list has returned")
	}
	return l, nil
}

func (f *Face) leaseRuns(ctx context.Context, in *factsInput, _ *httpx.None) (*httpx.Answer[leaseRunsAnswer], error) {
	q, err := f.facts(ctx, in)
	if err != nil {
		return nil, err
	}
	limit := q.Limit
	from, err := parseLeaseCursor(q.Cursor)
	if err != nil {
		return nil, err
	}
	out := leaseRunsAnswer{LeaseRuns: []leaseRow{}}
	q.Cursor = from.Jobs
	page, err := f.engine.List(ctx, q)
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for i := range page.Jobs {
		job := &page.Jobs[i]
		if ours, err := f.ours(ctx, job.Spec.Queue, known); err != nil {
			return nil, err
		} else if !ours {
			continue
		}
		runs, err := f.runsOf(ctx, job)
		if err != nil && !errors.Is(err, gq.ErrNotFound) { // the job may have been collected meanwhile
			return nil, err
		}
		for k := range runs {
			if i == 0 && k < from.Skip {
				continue
			}
			if len(out.LeaseRuns) == limit {
				next := leaseCursor{Jobs: from.Jobs, Skip: k}
				if i > 0 {
					q.Limit = i
					before, err := f.engine.List(ctx, q)
					if err != nil {
						return nil, err
					}
					next.Jobs = before.Next
				}
				out.NextCursor = text(next.String())
				return httpx.OK(out), nil
			}
			out.LeaseRuns = append(out.LeaseRuns, leaseRowOf(job, &runs[k]))
		}
	}
	if page.Next != "" {
		out.NextCursor = text(leaseCursor{Jobs: page.Next}.String())
	}
	return httpx.OK(out), nil
}

func leaseRowOf(job *gq.Job, run *leaseRun) leaseRow {
	l := leaseOf(job, &run.lease)
	row := leaseRow{
		LeaseID: l.LeaseID, JobID: l.JobID, AddonID: l.AddonID, CostUnits: l.CostUnits, TTLSec: l.TTLSec,
		GrantedAt: l.GrantedAt, LastHeartbeatAt: l.LastHeartbeatAt, ExpiresAt: l.ExpiresAt, State: l.State,
	}
	if l.State == "RELEASED" {
		row.ReleasedAt = at(run.ended.Time)
		if run.ended.Status.Terminal() {
			row.ReleaseStatus = text(finalOf(stateOf(&job.State)))
		}
	}
	return row
}

// auditRow is a row of scheduler_events.
type auditRow struct {
	ID         uint64         `json:"id" doc:"Larger for later rows; reading can go on after any of them."`
	TS         stamp          `json:"ts"`
	EntityType string         `json:"entity_type" enum:"JOB,LEASE"`
	EntityID   string         `json:"entity_id"`
	EventType  eventType      `json:"event_type"`
	DataJSON   map[string]any `json:"data_json"`
}

type auditAnswer struct {
	Events     []auditRow `json:"events"`
	NextCursor *string    `json:"next_cursor" doc:"Where the next page begins, while there may be more; any row's id is a cursor too."`
}

func (f *Face) audit(ctx context.Context, in *pageInput, _ *httpx.None) (*httpx.Answer[auditAnswer], error) {
	var wrong faults
	limit, after := in.limit(&wrong), uint64(0)
	if in.Cursor != "" {
		var err error
		if after, err = strconv.ParseUint(in.Cursor, 10, 62); err != nil {
			wrong.add("cursor", "%.64q is not the id of a row", in.Cursor)
		}
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	if err := f.engine.CatchUp(ctx); err != nil {
		return nil, err
	}
	entries, next, err := f.entriesAfter(ctx, after, limit)
	if errors.Is(err, gq.ErrGone) && after == 0 {
		if after, err = f.engine.BeforeFirstEvent(ctx); err == nil {
			entries, next, err = f.entriesAfter(ctx, 2*after+1, limit)
		}
	}
	if err != nil {
		return nil, or(err, CodeEventsGone)
	}
	out := auditAnswer{Events: []auditRow{}}
	for _, v := range entries {
		out.Events = append(out.Events, auditRow{v.id, stamp(v.at.Time), v.about, v.of, v.typ, v.data})
	}
	if next > 0 {
		out.NextCursor = text(strconv.FormatUint(next, 10))
	}
	return httpx.OK(out), nil
}

// maxScannedEvents limits how many events one page reads. If most events belong to queues
// that are not addons, a page may be short but still have a next cursor.
const maxScannedEvents = 10_000

// entriesAfter returns the page of addon entries after an entry id, and the cursor of the
// next page, 0 at the end.
func (f *Face) entriesAfter(ctx context.Context, after uint64, limit int) (all []entry, next uint64, err error) {
	seq := after / 2
	if after > 0 && after%2 == 0 {
		seq-- // the event's second entry follows this one
	}
	addons := map[string]bool{}
	batch := min(limit+1, maxScannedEvents)
	for scanned := 0; len(all) <= limit && scanned < maxScannedEvents; {
		events, err := f.engine.Events(ctx, seq, batch)
		if err != nil {
			return nil, 0, err
		}
		if len(events) == 0 {
			next = 0
			break
		}
		for i := range events {
			ours, err := f.ours(ctx, events[i].Queue, addons)
			if err != nil {
				return nil, 0, err
			}
			if !ours {
				continue
			}
			for _, v := range entriesOf(&events[i]) {
				if v.id > after {
					all = append(all, v)
				}
			}
		}
		scanned += len(events)
		seq = events[len(events)-1].Seq
		next = 2*seq + 1 // after both entries of the last event
		batch = min(2*batch, 1000)
	}
	if len(all) > limit {
		all = all[:limit]
		next = all[limit-1].id
	}
	return all, next, f.complete(ctx, all)
}

// complete adds to entries what only their jobs know: what was submitted, and how often a lease
// was denied. Jobs that are no longer kept add nothing.
func (f *Face) complete(ctx context.Context, entries []entry) error {
	var ids []gq.JobID
	denied := map[gq.JobID]bool{}
	for i := range entries {
		v := &entries[i]
		if v.at.Type == gq.EventSubmitted || v.typ == leaseDenied {
			ids = append(ids, v.at.Job)
		}
		if v.typ == leaseDenied {
			denied[v.at.Job] = true
		}
	}
	jobs, err := f.engine.Jobs(ctx, ids, 0)
	if err != nil {
		return err
	}
	submittedAs(entries, jobs)
	for id := range denied {
		job, kept := jobs[id]
		history, err := f.engine.History(ctx, id)
		if !kept || errors.Is(err, gq.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		countDenials(entries, history, &job.State)
	}
	return nil
}
