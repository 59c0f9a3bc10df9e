package scheduler

import (
	"context"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/projection"
	"github.com/gopherqueue/gq/machine"
)

// entry is one line of the audit trail.
type entry struct {
	id    uint64 // increases over time
	at    gq.Event
	about string // JOB or LEASE
	of    string // id of the job or lease
	typ   eventType
	data  map[string]any
}

// The types of entities in entries.
const (
	entityJob   = "JOB"
	entityLease = "LEASE"
)

// entriesOf translates an event: to nothing if this API does not show the change, and to
// two entries if it also starts or ends a lease. Each event reserves two entry ids, so an
// entry keeps its id forever.
func entriesOf(e *gq.Event) (all []entry) {
	add := func(about, of string, typ eventType, data map[string]any) {
		for name, value := range data {
			if s, is := value.(string); is && s == "" {
				delete(data, name)
			}
		}
		id := 2 * e.Seq
		if about == entityJob {
			id++
		}
		all = append(all, entry{id: id, at: *e, about: about, of: of, typ: typ, data: data})
	}
	job := func(typ eventType, data map[string]any) { add(entityJob, e.Job.String(), typ, data) }
	lease := func(typ eventType, data map[string]any) { add(entityLease, string(e.Lease), typ, data) }

	if machine.EndsRun(e) {
		typ := eventType("LEASE_RELEASED")
		if e.LeaseState == gq.LeaseExpired {
			typ = "LEASE_EXPIRED"
		}
		lease(typ, map[string]any{"job_id": e.Job.String(), "worker_id": e.Worker, "cost_units": e.CostUnits})
	}
	under := map[string]any{"worker_id": e.Worker, "lease_id": ""}
	if machine.EndsRun(e) || e.Type == gq.EventStarted {
		under["lease_id"] = string(e.Lease)
	}
	with := func(name string, value any) map[string]any {
		under[name] = value
		return under
	}
	switch e.Type {
	case gq.EventSubmitted:
		job("JOB_SUBMITTED", map[string]any{})
	case gq.EventClaimed:
		job("JOB_CLAIMED", map[string]any{"worker_id": e.Worker, "claim_expires_at": stamp(e.Until)})
	case gq.EventPreparing:
		job(eventType("JOB_"+projection.View{Status: e.Status, Detail: e.Detail}.Scheduler()), map[string]any{"worker_id": e.Worker})
	case gq.EventStarted:
		lease("LEASE_GRANTED", map[string]any{
			"job_id": e.Job.String(), "worker_id": e.Worker, "cost_units": e.CostUnits, "expires_at": stamp(e.Until),
		})
		job("JOB_RUNNING", with("attempt", e.Attempt))
	case gq.EventCompleted:
		job("JOB_DONE", under)
	case gq.EventFailed, gq.EventDeadLettered:
		v := projection.View{Status: e.Status}
		if e.Failure != nil {
			v.Category = e.Failure.Category
			under["error"] = e.Failure.Message
		}
		job(eventType("JOB_"+v.Scheduler()), with("reason", e.Reason))
	case gq.EventRetrying:
		if e.Failure != nil {
			under["error"] = e.Failure.Message
		}
		under["next_retry_at"] = stamp(e.Until)
		job("JOB_REQUEUED", with("reason", e.Reason))
	case gq.EventScheduled:
		if e.Lease != "" { // a claim was lost or given back
			job("JOB_REQUEUED", map[string]any{"worker_id": e.Worker, "reason": e.Reason})
		}
	case gq.EventCancelled:
		job("JOB_CANCELED", with("reason", e.Reason))
	case gq.EventCancelRequested:
		job("JOB_CANCEL_REQUESTED", map[string]any{"reason": e.Reason})
	case gq.EventCancelDelivered:
		job("JOB_CANCEL_DELIVERED", map[string]any{"worker_id": e.Worker})
	case gq.EventRenewed:
		lease("LEASE_RENEWED", map[string]any{"job_id": e.Job.String(), "worker_id": e.Worker, "expires_at": stamp(e.Until)})
	case gq.EventUpdated:
		switch d, denied := machine.ParseDenial(e.Reason); {
		case !denied:
			job("JOB_UPDATED", map[string]any{})
		case d.Count == 1: // the count of its repeats comes later, see countDenials
			job(leaseDenied, map[string]any{
				"worker_id": e.Worker, "used": d.Used, "requested": d.Requested, "capacity": d.Capacity, "count": 1,
			})
		}
	case gq.EventDelayed: // still QUEUED in this API
	}
	return all
}

// submittedAs adds the submitted fields of the job to submission entries.
func submittedAs(entries []entry, jobs map[gq.JobID]gq.Job) {
	for i := range entries {
		v := &entries[i]
		job, known := jobs[v.at.Job]
		if v.at.Type == gq.EventSubmitted && known {
			v.data["priority"] = priorityName(job.Spec.Metadata.Priority)
			v.data["addon_id"], v.data["job_type"], v.data["cost_units"] = job.Spec.Queue, job.Spec.Type, job.Spec.CostUnits
		}
	}
}

// leaseDenied is the type of an entry about a lease that did not fit. Repeats with the same
// numbers are counted in the first.
const leaseDenied = "LEASE_DENIED"

// countDenials says in the entries of a job how often each lease was denied.
func countDenials(entries []entry, history []gq.Event, s *gq.State) {
	counts, first, last := map[uint64]int{}, uint64(0), machine.Denial{}
	for i := range history {
		e := &history[i]
		d, denied := machine.ParseDenial(e.Reason)
		if e.Type != gq.EventUpdated || !denied {
			continue
		}
		if d.Count == 1 {
			first, last = e.Seq, d
		}
		counts[first] = d.Count
	}
	if d, denied := machine.ParseDenial(s.Reason); denied && d.Like(last) {
		counts[first] = max(counts[first], d.Count)
	}
	for i := range entries {
		if v := &entries[i]; v.typ == leaseDenied && v.at.Job == s.ID && counts[v.at.Seq] > 0 {
			v.data["count"] = counts[v.at.Seq]
		}
	}
}

// eventType is the type of an entry, a string with a schema of its own.
type eventType string

// eventTypes lists the types of entries.
func eventTypes() []string {
	return []string{
		"JOB_SUBMITTED", "JOB_CLAIMED", "JOB_PREPARING", "JOB_LEASE_PENDING", "JOB_RUNNING", "JOB_DONE", "JOB_FAILED", "JOB_TIMEOUT", "JOB_REQUEUED", "JOB_CANCEL_REQUESTED", "JOB_CANCEL_DELIVERED", "JOB_CANCELED", "JOB_UPDATED",
		"LEASE_GRANTED", leaseDenied, "LEASE_RENEWED", "LEASE_RELEASED", "LEASE_EXPIRED",
	}
}

// event is an entry in the audit trail of a job.
type event struct {
	TS   stamp          `json:"ts"`
	Type eventType      `json:"type"`
	Data map[string]any `json:"data"`
}

type eventsAnswer struct {
	Events []event `json:"events" doc:"Oldest first."`
}

func (f *Face) events(ctx context.Context, in *jobInput, _ *httpx.None) (*httpx.Answer[eventsAnswer], error) {
	job, err := f.job(ctx, in, 0)
	if err != nil {
		return nil, err
	}
	history, err := f.engine.History(ctx, job.State.ID)
	if err != nil {
		return nil, or(err, CodeJobNotFound)
	}
	out := eventsAnswer{Events: []event{}}
	var entries []entry
	for i := range history {
		entries = append(entries, entriesOf(&history[i])...)
	}
	submittedAs(entries, map[gq.JobID]gq.Job{job.State.ID: job})
	countDenials(entries, history, &job.State)
	for _, v := range entries {
		out.Events = append(out.Events, event{stamp(v.at.Time), v.typ, v.data})
	}
	return httpx.OK(out), nil
}

// leaseRun is a lease under which a job ran, and how it ended.
type leaseRun struct {
	lease gq.Lease
	ended gq.Event // zero while the lease is active
}

// runsOf lists the leases under which a job ran, in order. The last one is in the job's
// state, earlier ones are in its history.
func (f *Face) runsOf(ctx context.Context, job *gq.Job) ([]leaseRun, error) {
	s := &job.State
	switch l := s.Lease; {
	case s.Attempt == 0 || l == nil: // without a lease, its attempts are those of the job whose place it took
		return nil, nil
	case s.Attempt == 1 && l.Attempt == 1 && (l.State == gq.LeaseActive || s.Status == gq.StatusCompleted || s.Status == gq.StatusFailed):
		// Only these two ends are always those of the lease: a job can be cancelled or outlived after it.
		run := leaseRun{lease: *l}
		if l.State != gq.LeaseActive {
			run.ended = gq.Event{Time: s.CompletedAt, LeaseState: l.State, Status: s.Status}
		}
		return []leaseRun{run}, nil
	}
	history, err := f.engine.History(ctx, s.ID)
	if err != nil {
		return nil, err
	}
	var runs []leaseRun
	for i := range history {
		e := &history[i]
		switch {
		case e.Type == gq.EventStarted:
			runs = append(runs, leaseRun{lease: gq.Lease{
				ID: e.Lease, Version: e.Version, State: gq.LeaseActive, Worker: e.Worker, Attempt: e.Attempt, CostUnits: e.CostUnits,
				GrantedAt: e.Time, HeartbeatAt: e.Time, ExpiresAt: e.Until, TTL: e.Until.Sub(e.Time),
			}})
		case machine.EndsRun(e) && len(runs) > 0 && runs[len(runs)-1].lease.ID == e.Lease:
			run := &runs[len(runs)-1]
			run.ended, run.lease.State = *e, e.LeaseState
			if !e.Beat.IsZero() {
				run.lease.HeartbeatAt, run.lease.ExpiresAt = e.Beat, e.Beat.Add(run.lease.TTL)
			}
		}
	}
	for i := range runs {
		if runs[i].lease.ID == s.Lease.ID {
			runs[i].lease = *s.Lease
		}
	}
	return runs, nil
}
