package engine

import (
	"context"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// API has every call that a server makes on an engine: the calls of [gq.Driver] and a few that
// only some of its APIs need. Access control, metrics and traces wrap an engine and implement
// API too.
type API interface {
	gq.Driver

	// Jobs returns several jobs. It leaves out those that do not exist.
	Jobs(ctx context.Context, ids []gq.JobID, parts gq.Parts) (map[gq.JobID]gq.Job, error)
	// ByLease returns the job whose current or last lease has this id.
	//gq:needs read or work on the job
	ByLease(ctx context.Context, lease gq.LeaseID, parts gq.Parts) (gq.Job, error)
	// Advance applies due changes, such as an expired lease, to one job at once.
	//gq:needs any on the job
	Advance(ctx context.Context, id gq.JobID) (gq.State, error)
	// CatchUp applies due changes to all jobs at once.
	//gq:needs any on any queue
	CatchUp(ctx context.Context) error
	// BeforeFirstEvent returns the sequence number before the oldest stored event.
	//gq:needs read on any queue
	BeforeFirstEvent(ctx context.Context) (uint64, error)

	// Connected says that a stream of a worker is open until the returned function is called,
	// which tells whether the stream broke. Claims and heartbeats under the returned context
	// count as made through a stream. The leases of a worker whose last stream broke are ended
	// soon, unless a server hears from it again.
	Connected(ctx context.Context, worker, version string) (through context.Context, end func(broke bool), err error)

	// Prepare, Report and Admit are the steps of the scheduler API between claiming and
	// starting a job.
	//gq:needs work on the job
	Prepare(ctx context.Context, lease gq.LeaseRef, d gq.Detail) (gq.State, error)
	//gq:needs work on the job
	Report(ctx context.Context, lease gq.LeaseRef, d gq.Detail, r machine.Report) (gq.State, error)
	//gq:needs work on the job
	Admit(ctx context.Context, lease gq.LeaseRef, ttl, again time.Duration) (gq.State, error)

	// ConfigurePool is PutPool for the configuration of a server: it keeps changes that
	// were made at run time.
	//gq:needs admin on all queues
	ConfigurePool(ctx context.Context, p gq.Pool) error
	// Sample measures a pool. Samples returns the measurements.
	//gq:needs read on all queues
	Sample(ctx context.Context, pool string) error
	//gq:needs read on all queues
	Samples(ctx context.Context, pool string, from time.Time) ([]machine.Sample, error)
}

var _ API = (*Engine)(nil)
