package scheduler

import (
	"context"
	"errors"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
)

type leasesAnswer struct {
	Leases     []*Lease `json:"leases" doc:"Active ones, by the age of their jobs, oldest first."`
	NextCursor *string  `json:"next_cursor"`
}

// leases lists the active leases. Those that have ended are facts.
func (f *Face) leases(ctx context.Context, in *factsInput, _ *httpx.None) (*httpx.Answer[leasesAnswer], error) {
	q, err := f.facts(ctx, in)
	if err != nil {
		return nil, err
	}
	q.Statuses = []gq.Status{gq.StatusRunning}
	found, err := f.addonJobs(ctx, q)
	if err != nil {
		return nil, err
	}
	out := leasesAnswer{Leases: []*Lease{}, NextCursor: text(found.Next)}
	for i := range found.Jobs {
		if job := &found.Jobs[i]; job.State.Status == gq.StatusRunning {
			out.Leases = append(out.Leases, leaseOf(job, job.State.Lease))
		}
	}
	return httpx.OK(out), nil
}

// cancelLease takes a running job away from its worker. The job is queued again; if its
// cancellation was requested, it ends.
func (f *Face) cancelLease(ctx context.Context, in *leaseInput, r *cancelRequest) (*httpx.Answer[heartbeatAnswer], error) {
	reason := "lease canceled"
	if r.Reason != nil && *r.Reason != "" {
		reason = fmt.Sprintf("lease canceled: %s", *r.Reason)
	}
	job, run, err := f.leased(ctx, in, gq.WithPayload)
	if err != nil {
		return nil, err
	}
	freed, err := f.engine.Release(ctx, run.lease.Ref(), 0, reason)
	if errors.Is(err, gq.ErrStaleLease) {
		return nil, f.lost(ctx, job.State.ID, notActive(&run))
	}
	if err != nil {
		return nil, err
	}
	job.State = freed
	return httpx.OK(heartbeatAnswer{leaseOf(&job, freed.Lease), intentOf(&job)}), nil
}
