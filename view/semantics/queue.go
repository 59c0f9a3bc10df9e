package semantics

import (
	"context"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/classify"
	"github.com/gopherqueue/gq/internal/listing"
)

// ErrStaleLease is the error of an Ack, Nack or Extend whose lease token is not that of the newest
// lease, or whose lease has expired. Such a call changes nothing.
var ErrStaleLease = gq.ErrStaleLease

// Queue is a queue in the words of the document. It is safe for concurrent use.
type Queue struct{ driver gq.Driver }

// On returns the queue of a [gq.Client], or of any other driver.
func On(d gq.Driver) Queue { return Queue{d} }

// Enqueue adds a job, which is durable and Ready when Enqueue returns. Unless its policy or its
// options say otherwise, the job has the defaults of the document: MaxRetries 3 and LeaseTTL 5s.
// If its idempotency key belongs to a job with another content, Enqueue returns the id of that job
// and [gq.ErrKeyReused].
func (q Queue) Enqueue(ctx context.Context, s gq.Spec) (gq.JobID, error) {
	if s.Policy == (gq.Policy{}) && s.Overrides.Preset == 0 {
		s.Overrides.Preset = gq.PresetSemantics
	}
	out, err := q.driver.Submit(ctx, s)
	if err == nil {
		err = out.KeyReused()
	}
	return out.ID(), err
}

// Claimed is a job that a claim has leased to a worker.
type Claimed struct {
	Job
	Type       string
	Payload    []byte
	Checkpoint []byte // saved by an earlier execution
}

// Claim takes jobs that are Ready and leases them to a worker: they are InFlight then, each with a
// new lease token and a larger lease version. Hold has no effect. Without a job, Claim waits as long
// as the request says and returns none.
func (q Queue) Claim(ctx context.Context, r gq.ClaimRequest) ([]Claimed, error) {
	r.Hold = false // the four states do not have it
	jobs, err := q.driver.Claim(ctx, r)
	if err != nil {
		return nil, err
	}
	all := make([]Claimed, len(jobs))
	for i := range jobs {
		all[i] = Claimed{Job: Of(&jobs[i]), Type: jobs[i].Spec.Type, Payload: jobs[i].Spec.Payload.Data, Checkpoint: jobs[i].Checkpoint}
	}
	return all, nil
}

// Ack reports the success of the job that is leased with a token: it is Succeeded and never
// processed again. The result may be nil.
func (q Queue) Ack(ctx context.Context, token gq.LeaseID, result []byte) error {
	return q.settle(ctx, gq.Outcome{Lease: gq.LeaseRef{ID: token}, Verdict: gq.VerdictComplete, Result: result})
}

// Nack reports the error of a handler. The job is Ready again from its retry_at on while retries
// remain, and otherwise Failed, whatever the type of the error: see [classify.Verdict]. Only the handler's
// own verdict counts: with [gq.Permanent] the job is Failed at once, and [gq.RetryAfter] sets the least
// delay.
func (q Queue) Nack(ctx context.Context, token gq.LeaseID, err error) error {
	return q.settle(ctx, gq.Outcome{Lease: gq.LeaseRef{ID: token}, Verdict: gq.VerdictFail, Failure: classify.Verdict(err)})
}

func (q Queue) settle(ctx context.Context, o gq.Outcome) error {
	o.NoState = true
	answers, err := q.driver.Settle(ctx, []gq.Outcome{o})
	if err == nil {
		err = answers[0].Err
	}
	return err
}

// Extend is the heartbeat of a worker: from now on the lease lasts for another LeaseTTL. It returns
// the new LeaseExpiresAt.
func (q Queue) Extend(ctx context.Context, token gq.LeaseID) (time.Time, error) {
	answers, err := q.driver.Heartbeat(ctx, []gq.Heartbeat{{Lease: gq.LeaseRef{ID: token}, Progress: -1}})
	if err == nil {
		err = answers[0].Err
	}
	if err != nil {
		return time.Time{}, err
	}
	return answers[0].State.Lease.ExpiresAt.UTC(), nil
}

// Get returns a job.
func (q Queue) Get(ctx context.Context, id gq.JobID) (Job, error) {
	job, err := q.driver.Get(ctx, id, 0)
	if err != nil {
		return Job{}, err
	}
	return Of(&job), nil
}

// Page is a part of a list of jobs.
type Page struct {
	Jobs []Job
	Next string // Query.Cursor of the next page; empty on the last
}

// List returns the jobs that a query selects and that are in one of the states; without states in
// any. A page by state can have fewer jobs than its limit without being the last.
func (q Queue) List(ctx context.Context, query gq.Query, states ...State) (Page, error) {
	page, err := listing.States[State]{All: States(), Of: StateOf, Statuses: State.Statuses}.Page(ctx, q.driver, query, states)
	if err != nil {
		return Page{}, err
	}
	out := Page{Jobs: make([]Job, len(page.Jobs)), Next: page.Next}
	for i := range page.Jobs {
		out.Jobs[i] = Of(&page.Jobs[i])
	}
	return out, nil
}

// History returns the history of a job, oldest first.
func (q Queue) History(ctx context.Context, id gq.JobID) ([]Event, error) {
	events, err := q.driver.History(ctx, id)
	if err != nil {
		return nil, err
	}
	return History(events), nil
}

// Follow calls f with every transition after an event with a sequence number, and then with new
// ones, until the context ends or f returns an error; see [gq.Driver].
func (q Queue) Follow(ctx context.Context, after uint64, f func([]Event) error) error {
	return q.driver.Follow(ctx, after, func(events []gq.Event) error {
		if all := History(events); len(all) > 0 {
			return f(all)
		}
		return nil
	})
}
