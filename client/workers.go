package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/pbconv"
)

// Claim returns up to N claimable jobs, each under a lease, with their payloads and checkpoints.
// If there are none, it waits up to Wait for the first one and then returns no jobs.
//
// If the context ends while it waits, Claim returns no jobs and no error. It releases jobs that
// arrive afterwards without using up an attempt.
func (c *Client) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	if r.N == 0 { // the wire format cannot tell 0 from unset, which means 1
		return nil, fmt.Errorf("claim for worker %.80q: %w", r.Worker,
			&gq.InvalidError{Faults: []gq.Fault{{Field: "n", Problem: "0 is not between 1 and 1000"}}})
	}
	var jobs []gq.Job
	request := pbconv.ProtoClaim(&r)
	err := c.attempts(ctx, func(ctx context.Context) (safety, error) {
		s, err := c.work.open(ctx)
		switch {
		case errors.Is(err, errNoStream):
			var server peer.Peer
			answer, err := c.workers.Claim(ctx, request, grpc.Peer(&server))
			if err == nil {
				jobs, err = read("claim", answer.GetJobs(), pbconv.JobsFromProto)
			}
			return unsent(&server), err
		case err != nil:
			return repeat, err
		}
		c.work.claims(r.Worker)
		var sent bool
		jobs, sent, err = s.claim(ctx, request)
		return safeIf(!sent), err
	})
	if ctx.Err() != nil {
		c.giveBack(jobs)
		return nil, nil //nolint:nilerr // the end of a wait is no error
	}
	if err != nil {
		return nil, translated(err, request)
	}
	return jobs, nil
}

// giveBack releases jobs that arrived after their caller had left.
func (c *Client) giveBack(jobs []gq.Job) {
	if len(jobs) == 0 {
		return
	}
	request := &pb.SettleRequest{}
	for i := range jobs {
		if l := jobs[i].State.Lease; l != nil {
			request.Outcomes = append(request.Outcomes, pbconv.ProtoOutcome(&gq.Outcome{
				Lease: l.Ref(), Verdict: gq.VerdictRelease, Reason: "claim abandoned", NoState: true,
			}))
		}
	}
	c.later(func() {
		ctx, cancel := context.WithTimeout(c.life, max(closeWithin, c.options.RetryFor))
		defer cancel()
		_, _ = invoke(ctx, c, repeat, c.workers.Settle, request) // otherwise their leases expire
	})
}

// Start begins to execute a claimed job. A ttl of 0 is the policy's.
func (c *Client) Start(ctx context.Context, lease gq.LeaseRef, ttl time.Duration) (gq.State, error) {
	m, err := invoke(ctx, c, once, c.workers.Start, &pb.StartRequest{Lease: pbconv.ProtoLeaseRef(lease), Ttl: pbconv.ProtoDuration(ttl)})
	if err != nil {
		return gq.State{}, err
	}
	return read("start", m, pbconv.StateFromProto)
}

// Heartbeat renews leases and stores progress and checkpoints. The state in each result has a
// pending cancel request ([gq.Cancellation.Requested]).
func (c *Client) Heartbeat(ctx context.Context, beats []gq.Heartbeat) ([]gq.LeaseResult, error) {
	safe := repeat
	for i := range beats {
		for k := range beats[i].Spawn {
			safe = safe && safeIf(repeatable(&beats[i].Spawn[k]))
		}
	}
	return inParts(beats, pbconv.ProtoBeat, func(m *pb.Beat) int { return len(m.GetCheckpoint()) + spawnBytes(m.GetSpawn()) },
		func(part []*pb.Beat, large bool) ([]gq.LeaseResult, error) {
			request := &pb.HeartbeatRequest{Beats: part}
			return c.report(ctx, "heartbeat", safe, request, &pb.WorkRequest{Message: &pb.WorkRequest_Heartbeat{Heartbeat: request}},
				func(ctx context.Context) (*pb.Answers, error) { return c.workers.Heartbeat(ctx, request) }, len(part), large)
		})
}

// Settle ends leases: each job completes, fails or is released. Repeating the same call returns
// the same result.
func (c *Client) Settle(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
	return inParts(outcomes, pbconv.ProtoOutcome, func(m *pb.Outcome) int {
		return len(m.GetComplete().GetResult()) + spawnBytes(m.GetComplete().GetSpawn())
	},
		func(part []*pb.Outcome, large bool) ([]gq.LeaseResult, error) {
			request := &pb.SettleRequest{Outcomes: part}
			return c.report(ctx, "settle", repeat, request, &pb.WorkRequest{Message: &pb.WorkRequest_Settle{Settle: request}},
				func(ctx context.Context) (*pb.Answers, error) { return c.workers.Settle(ctx, request) }, len(part), large)
		})
}

// Complete ends one job with success.
func (c *Client) Complete(ctx context.Context, lease gq.LeaseRef, result []byte) (gq.State, error) {
	return c.settle(ctx, gq.Outcome{Lease: lease, Verdict: gq.VerdictComplete, Result: result})
}

// Fail ends one attempt without success. The category of the failure and the job's policy decide
// whether to retry.
func (c *Client) Fail(ctx context.Context, lease gq.LeaseRef, f gq.Failure) (gq.State, error) {
	return c.settle(ctx, gq.Outcome{Lease: lease, Verdict: gq.VerdictFail, Failure: f})
}

// Release returns one job to its queue without using up an attempt. It is claimable after the
// delay.
func (c *Client) Release(ctx context.Context, lease gq.LeaseRef, delay time.Duration, reason string) (gq.State, error) {
	return c.settle(ctx, gq.Outcome{Lease: lease, Verdict: gq.VerdictRelease, Delay: delay, Reason: reason})
}

func (c *Client) settle(ctx context.Context, o gq.Outcome) (gq.State, error) {
	answers, err := c.Settle(ctx, []gq.Outcome{o})
	if err != nil {
		return gq.State{}, err
	}
	return answers[0].State, answers[0].Err
}

// Workers lists the workers that claimed jobs from the server or sent it heartbeats in the last
// minute, sorted by name.
func (c *Client) Workers(ctx context.Context) ([]gq.LiveWorker, error) {
	m, err := invoke(ctx, c, repeat, c.workers.ListWorkers, &pb.ListWorkersRequest{})
	if err != nil {
		return nil, err
	}
	return readAll("list workers", m.GetWorkers(), pbconv.LiveWorkerFromProto)
}

// WorkerStopped says that a worker has stopped, so that no server lists it any longer. The error
// is [gq.ErrConflict] if it holds jobs.
func (c *Client) WorkerStopped(ctx context.Context, worker string) error {
	c.work.forgets(worker)
	_, err := invoke(ctx, c, repeat, c.workers.WorkerStopped, &pb.WorkerStoppedRequest{Worker: worker})
	return err
}

// report sends beats or outcomes, on the stream if the server has one.
func (c *Client) report(ctx context.Context, verb string, safe safety, request proto.Message, streamed *pb.WorkRequest,
	unary func(context.Context) (*pb.Answers, error), n int, large bool,
) ([]gq.LeaseResult, error) {
	var answers *pb.Answers
	err := c.attempts(ctx, func(ctx context.Context) (safety, error) {
		s, err := c.work.open(ctx)
		switch {
		case errors.Is(err, errNoStream) || s != nil && large && proto.Size(request) > s.messageBytes-1<<10:
			// A message that is too large would end the stream for all.
			answers, err = unary(ctx)
			return safe, err
		case err != nil:
			return repeat, err
		}
		var sent bool
		answers, sent, err = s.report(ctx, streamed)
		return safe || safeIf(!sent), err
	})
	if err != nil {
		return nil, translated(err, request)
	}
	out, err := read(verb, answers, pbconv.AnswersFromProto)
	if err == nil && len(out) != n {
		err = fmt.Errorf("%s: the server gave %d answers to %d items", verb, len(out), n)
	}
	return out, err
}

func spawnBytes(specs []*pb.Spec) (n int) {
	for _, s := range specs {
		n += len(s.GetPayload()) + 1<<10
	}
	return n
}

// inParts splits items into requests that a server accepts.
func inParts[V, M any](items []V, encode func(*V) M, size func(M) int, send func(part []M, large bool) ([]gq.LeaseResult, error)) ([]gq.LeaseResult, error) {
	var answers []gq.LeaseResult
	part, bytes := make([]M, 0, min(len(items), maxItems)), 0
	for i := range items {
		m := encode(&items[i])
		n := size(m)
		if len(part) == maxItems || len(part) > 0 && bytes+n > maxBytes {
			some, err := send(part, bytes > maxBytes)
			if err != nil {
				return nil, err
			}
			answers = append(answers, some...)
			part, bytes = make([]M, 0, min(len(items)-i, maxItems)), 0
		}
		part, bytes = append(part, m), bytes+n
	}
	if len(part) == 0 {
		return answers, nil
	}
	some, err := send(part, bytes > maxBytes)
	if err != nil || answers == nil {
		return some, err
	}
	return append(answers, some...), nil
}
