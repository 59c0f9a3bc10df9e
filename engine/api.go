package engine

import (
	"context"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// API is every call that faces make on an engine: those of programs, and a few that only the
// documents' APIs need. Access control, metrics and traces stand in front of an engine as
// another API.
type API interface {
	gq.Driver

	// Jobs reads several jobs; those that do not exist are left out.
	Jobs(ctx context.Context, ids []gq.JobID, parts gq.Parts) (map[gq.JobID]gq.Job, error)
	// ByLease reads the job that a lease is or was the newest of.
	ByLease(ctx context.Context, lease gq.LeaseID, parts gq.Parts) (gq.Job, error)
	// Advance does to a job at once what time has made due.
	Advance(ctx context.Context, id gq.JobID) (gq.State, error)
	// CatchUp returns once what was done before it can be read in events.
	CatchUp(ctx context.Context) error
	// BeforeFirstEvent is the number after which events are still kept.
	BeforeFirstEvent(ctx context.Context) (uint64, error)

	// Prepare, Report and Admit are the steps of the scheduler API between a claim and the
	// start of a job.
	Prepare(ctx context.Context, lease gq.LeaseRef, d gq.Detail) (gq.State, error)
	Report(ctx context.Context, lease gq.LeaseRef, d gq.Detail, r machine.Report) (gq.State, error)
	Admit(ctx context.Context, lease gq.LeaseRef, ttl, again time.Duration) (gq.State, error)

	// ConfigurePool is PutPool for the configuration of a server: it leaves a pool alone
	// that somebody else has set up.
	ConfigurePool(ctx context.Context, p gq.Pool) error
	// Sample measures a pool, and Samples reads what was measured.
	Sample(ctx context.Context, pool string) error
	Samples(ctx context.Context, pool string, from time.Time) ([]machine.Sample, error)
}

var _ API = (*Engine)(nil)
