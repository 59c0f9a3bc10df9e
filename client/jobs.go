package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/retry"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/machine"
)

// Limits of one request. A larger item is sent alone: a server that accepts larger items also
// accepts larger messages.
const (
	maxItems = 1000
	maxBytes = 3 << 20
)

// Submit stores a job. The server fills in defaults: the policy of the queue, and the rest as in
// [gq.Spec.WithDefaults].
//
// If the idempotency key is already used, Submit returns the existing job, and Same reports
// whether that job has the same content.
//
// Calls of many goroutines without a key share requests.
func (c *Client) Submit(ctx context.Context, s gq.Spec) (out gq.SubmitResult, err error) {
	s, drawn := c.keyed(s)
	if drawn && shares(ctx) {
		out, err = c.submitShared(ctx, &s)
	} else {
		out, err = c.submitAlone(ctx, &s)
	}
	if drawn {
		out.Existing, out.Same = false, false
	}
	return out, err
}

// submitAlone makes a request for one submission.
func (c *Client) submitAlone(ctx context.Context, s *gq.Spec) (gq.SubmitResult, error) {
	m, err := invoke(ctx, c, safeIf(repeatable(s)), c.jobs.Submit, &pb.SubmitRequest{Spec: pbconv.ProtoSpec(s)})
	if err != nil {
		if faults := errs.FaultsOf(err); faults != nil && wire.RequestOf(err) == "" {
			err = fmt.Errorf("submit %.80q: %w", s.Type, err)
		}
		return gq.SubmitResult{Err: err}, err
	}
	return read("submit", m, pbconv.SubmittedFromProto)
}

// keyed gives a submission without a key a random one, unless Options.SendOnce is set or nothing is
// repeated anyway. No other call has that key, so a job with it was stored by this call.
func (c *Client) keyed(s gq.Spec) (_ gq.Spec, drawn bool) {
	return c.keyedAs(s, new(retryKeys))
}

func (c *Client) keyedAs(s gq.Spec, keys *retryKeys) (_ gq.Spec, drawn bool) {
	if c.options.SendOnce || c.options.RetryFor < 0 || s.Key != (gq.IdempotencyKey{}) || !s.Unique.IsZero() {
		return s, false
	}
	s.Key = gq.IdempotencyKey{Scope: machine.RetryScope, Name: keys.next()}
	return s, true
}

// retryKeys draws the names of keys for the submissions of one call.
type retryKeys struct {
	at     time.Time
	random [10]byte
	drawn  int
}

func (k *retryKeys) next() string {
	if k.drawn == 0 {
		k.at = time.Now()
		_, _ = rand.Read(k.random[:]) // never fails
	}
	k.drawn++
	return machine.RetryName(k.at, k.random, k.drawn-1)
}

// repeatable reports whether a submission can be sent again if its outcome is unknown. That of a
// unique job cannot: the job may have lost its key, or would collide with itself.
func repeatable(s *gq.Spec) bool { return s.Key.Name != "" && s.Unique.IsZero() }

// Enqueue submits a job and returns only its id. If the idempotency key belongs to a job with
// different content, it returns the id of that job and [gq.ErrKeyReused].
func (c *Client) Enqueue(ctx context.Context, s gq.Spec) (gq.JobID, error) {
	out, err := c.Submit(ctx, s)
	if err == nil {
		err = out.KeyReused()
	}
	return out.ID(), err
}

// SubmitBatch stores many jobs. Each has its own result. If the call itself returns an error, it
// is unknown which jobs were stored. Large batches are sent in several requests.
func (c *Client) SubmitBatch(ctx context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
	out := make([]gq.SubmitResult, len(specs))
	drawn := make([]bool, len(specs))
	var (
		request []byte // encoded
		at      []int  // index in specs of each spec of the request
		keyless bool
	)
	flush := func(n int) error {
		if len(at) == 0 {
			return nil
		}
		answers, err := c.submitSome(ctx, safeIf(!keyless), request[:n], len(at))
		if err != nil {
			return err
		}
		for k, i := range at {
			if out[i] = answers[k]; drawn[i] {
				out[i].Existing, out[i].Same = false, false
			}
		}
		request, at, keyless = append([]byte(nil), request[n:]...), at[:0], false
		return nil
	}
	var keys retryKeys
	for i := range specs {
		var s gq.Spec
		s, drawn[i] = c.keyedAs(specs[i], &keys)
		before := len(request)
		longer, err := pbconv.AppendSubmission(request, &s)
		if err != nil {
			fault := pbconv.CheckText(pbconv.ProtoSpec(&s))
			if fault == nil {
				fault = err
			}
			// Rejected as the server would.
			out[i].Err = fmt.Errorf("submit %.80q: %w", s.Type, fault)
			continue
		}
		if request = longer; len(at) == maxItems || len(request) > maxBytes {
			if err := flush(before); err != nil {
				return nil, err
			}
		}
		at, keyless = append(at, i), keyless || !repeatable(&s)
	}
	if err := flush(len(request)); err != nil {
		return nil, err
	}
	return out, nil
}

// submitSome makes one request with so many specs.
func (c *Client) submitSome(ctx context.Context, s safety, specs []byte, n int) ([]gq.SubmitResult, error) {
	codec := new(submittedCodec)
	submit := func(ctx context.Context, r *pb.SubmitBatchRequest, o ...grpc.CallOption) (*pb.SubmitBatchResponse, error) {
		return c.jobs.SubmitBatch(ctx, r, append(o, grpc.ForceCodecV2(codec))...)
	}
	request := new(pb.SubmitBatchRequest)
	request.ProtoReflect().SetUnknown(specs) // sent as they are
	m, err := invoke(ctx, c, s, submit, request)
	if err != nil {
		return nil, err
	}
	out := codec.results
	if out == nil {
		out, err = readAll("submit", m.GetSubmitted(), pbconv.SubmittedFromProto)
	}
	if err == nil && len(out) != n {
		err = fmt.Errorf("submit: the server gave %d answers to %d submissions", len(out), n)
	}
	return out, err
}

// SubmitGraph stores jobs that depend on each other: all of them or none. They refer to each
// other by Ref and to existing jobs by id.
func (c *Client) SubmitGraph(ctx context.Context, drafts []gq.GraphJob) ([]gq.SubmitResult, error) {
	keys, drawn := true, make([]bool, len(drafts))
	request := &pb.SubmitGraphRequest{Drafts: make([]*pb.Draft, len(drafts))}
	for i, d := range drafts {
		d.Spec, drawn[i] = c.keyed(d.Spec)
		keys = keys && repeatable(&d.Spec)
		request.Drafts[i] = pbconv.ProtoDraft(&d)
	}
	m, err := invoke(ctx, c, safeIf(keys), c.jobs.SubmitGraph, request)
	if err != nil {
		return nil, err
	}
	out, err := readAll("submit graph", m.GetSubmitted(), pbconv.SubmittedFromProto)
	for i := range out {
		if drawn[i] {
			out[i].Existing, out[i].Same = false, false
		}
	}
	return out, err
}

// Get returns a job as of now.
func (c *Client) Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error) {
	m, err := invoke(ctx, c, repeat, c.jobs.Get, &pb.GetRequest{
		Id: id.String(), WithPayload: parts&gq.WithPayload != 0, WithResult: parts&gq.WithResult != 0, WithCheckpoint: parts&gq.WithCheckpoint != 0,
	})
	if err != nil {
		return gq.Job{}, err
	}
	return read("get", m, pbconv.JobFromProto)
}

// List returns a page of jobs in order of submission.
func (c *Client) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	m, err := invoke(ctx, c, repeat, c.jobs.List, &pb.ListRequest{Query: pbconv.ProtoQuery(&q), Cursor: q.Cursor, Limit: int64(q.Limit)})
	if err != nil {
		return gq.Page{}, err
	}
	jobs, err := read("list jobs", m.GetJobs(), pbconv.JobsFromProto)
	return gq.Page{Jobs: jobs, Next: m.GetNextCursor()}, err
}

// UpdateMetadata changes the metadata of a live job.
func (c *Client) UpdateMetadata(ctx context.Context, id gq.JobID, p gq.MetadataPatch) (gq.Job, error) {
	m, err := invoke(ctx, c, once, c.jobs.Update, pbconv.ProtoUpdate(id, &p))
	if err != nil {
		return gq.Job{}, err
	}
	return read("update", m, pbconv.JobFromProto)
}

// Cancel ends a job at once if it is not running, and asks the worker of a running job to stop.
// Cancelling twice changes nothing.
func (c *Client) Cancel(ctx context.Context, id gq.JobID, reason string) (gq.State, error) {
	m, err := invoke(ctx, c, repeat, c.jobs.Cancel, &pb.CancelRequest{Id: id.String(), Reason: pbconv.Prose(reason)})
	if err != nil {
		return gq.State{}, err
	}
	return read("cancel", m, pbconv.StateFromProto)
}

// Reschedule sets the run time of a waiting job. A zero or past time makes it claimable at once.
func (c *Client) Reschedule(ctx context.Context, id gq.JobID, at time.Time) (gq.State, error) {
	m, err := invoke(ctx, c, repeat, c.jobs.Reschedule, &pb.RescheduleRequest{Id: id.String(), RunAt: pbconv.ProtoTime(at)})
	if err != nil {
		return gq.State{}, err
	}
	return read("reschedule", m, pbconv.StateFromProto)
}

// CancelWhere cancels every live job that a query selects. It ignores the cursor and the limit of
// the query. After an error the report has the known counts, and repeating the call continues.
func (c *Client) CancelWhere(ctx context.Context, q gq.Query, reason string) (gq.CancelReport, error) {
	var report gq.CancelReport
	request := &pb.CancelWhereRequest{Query: pbconv.ProtoQuery(&q), Reason: pbconv.Prose(reason)}
	err := c.attempts(withTrace(ctx), func(ctx context.Context) (safety, error) {
		var server peer.Peer
		m, err := c.jobs.CancelWhere(ctx, request, grpc.Peer(&server))
		if report = pbconv.CancelReportFromProto(m); err != nil {
			report = pbconv.CancelReportFromStatus(err)
		}
		return unsent(&server), err
	})
	if err != nil {
		return report, translated(err, request)
	}
	return report, nil
}

// Edit replaces a waiting job by a copy with another payload, queue or run time.
func (c *Client) Edit(ctx context.Context, id gq.JobID, change gq.JobEdit) (gq.SubmitResult, error) {
	m, err := invoke(ctx, c, once, c.jobs.Edit, pbconv.ProtoEdit(id, change))
	if err != nil {
		return gq.SubmitResult{}, err
	}
	return read("edit", m, pbconv.SubmittedFromProto)
}

// Replay submits a finished job again, as a new one. If it was replayed before, the result is its
// replay, with Existing set, also after a lost answer.
func (c *Client) Replay(ctx context.Context, id gq.JobID) (gq.SubmitResult, error) {
	m, err := invoke(ctx, c, repeat, c.jobs.Replay, &pb.ReplayRequest{Id: id.String()})
	if err != nil {
		return gq.SubmitResult{}, err
	}
	return read("replay", m, pbconv.SubmittedFromProto)
}

// ReplayWhere submits finished jobs that a query selects again, up to Query.Limit in a call. The
// query must name at least one status. [gq.ReplayReport.Next] is the cursor of the next call.
func (c *Client) ReplayWhere(ctx context.Context, q gq.Query) (gq.ReplayReport, error) {
	m, err := invoke(ctx, c, once, c.jobs.ReplayWhere, &pb.ReplayWhereRequest{Query: pbconv.ProtoQuery(&q), Cursor: q.Cursor, Limit: int64(q.Limit)})
	if err != nil {
		return gq.ReplayReport{}, err
	}
	return read("replay many", m, pbconv.ReplayReportFromProto)
}

// CountWhere counts the jobs that a query selects. [gq.CountReport.Next] is the cursor of the
// next call.
func (c *Client) CountWhere(ctx context.Context, q gq.Query) (gq.CountReport, error) {
	m, err := invoke(ctx, c, repeat, c.jobs.CountWhere, &pb.CountWhereRequest{Query: pbconv.ProtoQuery(&q), Cursor: q.Cursor})
	return gq.CountReport{Jobs: m.GetJobs(), Next: m.GetNextCursor()}, err
}

// Purge removes a finished job before its retention is over.
func (c *Client) Purge(ctx context.Context, id gq.JobID) error {
	_, err := invoke(ctx, c, once, c.jobs.Purge, &pb.PurgeRequest{Id: id.String()})
	return err
}

// PurgeWhere removes every finished job that a query selects. The query must name at least one
// status. PurgeWhere ignores its cursor and limit. After an error, such as the end of its deadline, the
// number is what was removed so far, and repeating the call continues.
func (c *Client) PurgeWhere(ctx context.Context, q gq.Query) (int, error) {
	var purged int64
	request := &pb.PurgeWhereRequest{Query: pbconv.ProtoQuery(&q)}
	err := c.attempts(withTrace(ctx), func(ctx context.Context) (safety, error) {
		var server peer.Peer
		m, err := c.jobs.PurgeWhere(ctx, request, grpc.Peer(&server))
		if purged = m.GetPurged(); err != nil {
			purged = pbconv.PurgedFromStatus(err)
		}
		return unsent(&server), err
	})
	if err != nil {
		return int(purged), translated(err, request)
	}
	return int(purged), nil
}

// Times of Wait.
const (
	waitPart  = time.Minute           // per request
	waitSpare = 50 * time.Millisecond // for the answer to arrive before the deadline
)

// Wait blocks until a job has ended and returns it with its result. If the context ends first,
// Wait returns the job as last read and an error, which has kind [gq.KindTimeout] if a deadline
// passed.
func (c *Client) Wait(ctx context.Context, id gq.JobID) (gq.Job, error) {
	var seen gq.Job
	for {
		part := waitPart
		if deadline, ok := ctx.Deadline(); ok {
			part = min(part, max(time.Until(deadline)-waitSpare, time.Millisecond))
		}
		began := time.Now()
		m, err := invoke(ctx, c, repeat, c.jobs.Wait, &pb.WaitRequest{Id: id.String(), Timeout: pbconv.ProtoDuration(part)})
		if err == nil {
			if seen, err = read("wait", m, pbconv.JobFromProto); err != nil || seen.State.Status.Terminal() {
				return seen, err
			}
			if time.Since(began) < part { // the server is stopping, or it is the end of our time
				retry.Pause(ctx, retryFirst)
			} else if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= waitSpare {
				<-ctx.Done()
			}
		}
		switch {
		case ctx.Err() != nil && !seen.State.ID.IsZero():
			cause := context.Cause(ctx)
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				cause = fmt.Errorf("%w: %w", gq.ErrTimeout, cause)
			}
			return seen, fmt.Errorf("wait for %s, which is %s: %w", id, seen.State.Status, cause)
		case err != nil:
			return seen, err
		}
	}
}

// Explain returns why a job does not run.
func (c *Client) Explain(ctx context.Context, id gq.JobID) (gq.Explanation, error) {
	m, err := invoke(ctx, c, repeat, c.jobs.Explain, &pb.ExplainRequest{Id: id.String()})
	if err != nil {
		return gq.Explanation{}, err
	}
	return read("explain", m, pbconv.ExplanationFromProto)
}

// History returns all events of a job, oldest first.
func (c *Client) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	m, err := invoke(ctx, c, repeat, c.jobs.History, &pb.HistoryRequest{Id: id.String()})
	if err != nil {
		return nil, err
	}
	return read("history", m.GetEvents(), pbconv.EventsFromProto)
}

// Counts returns the number of jobs in each status, of the named queues or of all.
func (c *Client) Counts(ctx context.Context, queues ...string) ([]gq.Count, error) {
	m, err := invoke(ctx, c, repeat, c.jobs.Count, &pb.CountRequest{Queues: slices.Clone(queues)})
	if err != nil {
		return nil, err
	}
	return readAll("count jobs", m.GetQueues(), pbconv.CountFromProto)
}

// Stats returns the counts of all queues, the number of live workers and the store's metrics.
func (c *Client) Stats(ctx context.Context) (gq.Stats, error) {
	m, err := invoke(ctx, c, repeat, c.jobs.Stats, &pb.StatsRequest{})
	if err != nil {
		return gq.Stats{}, err
	}
	return read("stats", m, pbconv.StatsFromProto)
}
