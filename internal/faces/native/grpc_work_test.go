package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/pbconv"
)

// bench is a greeted Work stream.
type bench struct {
	*hall
	stream pb.WorkersService_WorkClient
	cancel context.CancelFunc
}

// open opens a stream and says hello.
func (h *hall) open() *bench {
	h.Helper()
	b := h.dialWork()
	b.send(&pb.WorkRequest{Id: 1, Message: &pb.WorkRequest_Hello{Hello: &pb.Hello{Worker: "w"}}})
	if r := b.receive(); r.GetId() != 1 || r.GetWelcome().GetItems() != MaxItems || r.GetWelcome().GetMessageBytes() != 4<<20 {
		h.Fatalf("hello is answered with %v", r)
	}
	return b
}

func (h *hall) dialWork(o ...grpc.CallOption) *bench {
	h.Helper()
	ctx, cancel := context.WithCancel(h.Context())
	h.Cleanup(cancel)
	stream, err := h.workers.Work(ctx, o...)
	if err != nil {
		h.Fatal(err)
	}
	return &bench{h, stream, cancel}
}

func (b *bench) send(r *pb.WorkRequest) {
	b.Helper()
	if err := b.stream.Send(r); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) receive() *pb.WorkResponse {
	b.Helper()
	r, err := b.stream.Recv()
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func (b *bench) credit(id uint64, n int64, wait time.Duration) {
	b.Helper()
	b.send(&pb.WorkRequest{Id: id, Message: &pb.WorkRequest_Credit{Credit: &pb.ClaimRequest{N: n, Wait: pbconv.ProtoDuration(wait)}}})
}

func (b *bench) complete(id uint64, jobs ...*pb.Job) {
	b.Helper()
	settle := &pb.SettleRequest{}
	for _, j := range jobs {
		settle.Outcomes = append(settle.Outcomes, &pb.Outcome{
			Lease: &pb.LeaseRef{Id: j.GetState().GetLease().GetId()}, Verdict: &pb.Outcome_Complete{Complete: &pb.Completion{}},
		})
	}
	b.send(&pb.WorkRequest{Id: id, Message: &pb.WorkRequest_Settle{Settle: settle}})
}

func TestWorkMovesJobs(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	var ids []gq.JobID
	for range 5 {
		ids = append(ids, h.submit())
	}
	b := h.open()
	b.credit(7, 3, 0)
	r := b.receive()
	if r.GetId() != 7 || len(r.GetJobs().GetJobs()) != 3 || r.GetJobs().GetMore() {
		t.Fatalf("%v", r)
	}
	for i, j := range r.GetJobs().GetJobs() {
		if j.GetState().GetId() != ids[i].String() || j.GetState().GetLease().GetWorker() != "w" || string(j.GetSpec().GetPayload()) != "null" {
			t.Errorf("%v", j)
		}
	}
	// Requests run concurrently; answers name their request.
	b.credit(8, 1000, time.Minute)
	b.credit(9, 1, time.Minute)
	b.send(&pb.WorkRequest{Id: 10, Message: &pb.WorkRequest_Heartbeat{Heartbeat: &pb.HeartbeatRequest{Beats: []*pb.Beat{
		{Lease: &pb.LeaseRef{Id: r.GetJobs().GetJobs()[0].GetState().GetLease().GetId()}}, {Lease: &pb.LeaseRef{Id: "other"}},
	}}}})
	b.complete(11, r.GetJobs().GetJobs()...)
	seen := make(map[uint64]*pb.WorkResponse)
	got := 0 // remaining jobs, for one of the credits or both
	for seen[10] == nil || seen[11] == nil || got < 2 {
		r := b.receive()
		seen[r.GetId()] = r
		got += len(r.GetJobs().GetJobs())
	}
	if a := seen[11].GetAnswers().GetAnswers(); len(a) != 3 || a[2].GetState().GetStatus() != pb.Status_STATUS_COMPLETED {
		t.Errorf("settle: %v", seen[11])
	}
	if a := seen[10].GetAnswers().GetAnswers(); len(a) != 2 || a[1].GetProblem().GetCode() != gq.ErrStaleLease.Code {
		t.Errorf("heartbeat: %v", seen[10])
	}
	if n := len(seen[9].GetJobs().GetJobs()); n > 1 {
		t.Errorf("%d jobs for a credit of 1", n)
	}
	if err := b.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for { // an open credit is withdrawn, then the stream ends
		r, err := b.stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got += len(r.GetJobs().GetJobs())
	}
	if got > 2 {
		t.Errorf("%d jobs came for the credits", got)
	}
}

// A job is sent as soon as it is available, and never more than the credit allows.
func TestWorkHonoursCredit(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	b := h.open()
	b.credit(2, 2, time.Minute)
	h.until("the credit is open", func() bool { return h.waiting() == 1 })
	for range 4 {
		h.submit()
	}
	first := len(b.receive().GetJobs().GetJobs())
	if first < 1 || first > 2 {
		t.Errorf("%d jobs for a credit of 2", first)
	}
	b.credit(3, 1, time.Minute)
	if n := len(b.receive().GetJobs().GetJobs()); n != 1 {
		t.Errorf("%d jobs for a credit of 1", n)
	}
	count, err := h.engine.Counts(t.Context(), gq.DefaultQueue)
	if err != nil || count[0].Held() != int64(first)+1 {
		t.Errorf("%d jobs are held, %d were sent, %v", count[0].Held(), first+1, err)
	}
}

func TestWorkWithdraw(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	b := h.open()
	b.credit(2, 1, time.Hour)
	h.until("the credit is open", func() bool { return h.waiting() == 1 })
	b.send(&pb.WorkRequest{Message: &pb.WorkRequest_Withdraw{Withdraw: &pb.Withdraw{Credit: 2}}})
	if r := b.receive(); r.GetId() != 2 || r.GetJobs() == nil || len(r.GetJobs().GetJobs()) != 0 {
		t.Errorf("%v", r)
	}
	h.submit()
	b.send(&pb.WorkRequest{Message: &pb.WorkRequest_Withdraw{Withdraw: &pb.Withdraw{Credit: 99}}}) // unknown credits are ignored
	b.credit(2, 1, 0)                                                                              // the id can be reused
	if r := b.receive(); len(r.GetJobs().GetJobs()) != 1 {
		t.Errorf("%v", r)
	}
	for range 1000 { // and it can be reused after each answer
		b.credit(2, 1, 0)
		if r := b.receive(); r.GetJobs() == nil {
			t.Fatalf("%v", r)
		}
	}
}

func TestWorkRefusals(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{Credits: 2, Authorize: func(_ context.Context, _ string, r proto.Message) error {
		if slices.Contains(r.(*pb.WorkRequest).GetCredit().GetQueues(), "secret") {
			return gq.ErrDenied
		}
		return nil
	}}, nil)
	b := h.open()
	refused := func(what, code, field string) {
		t.Helper()
		p := b.receive().GetProblem()
		if p.GetCode() != code || field != "" && (len(p.GetFaults()) == 0 || p.GetFaults()[0].GetField() != field) {
			t.Errorf("%s: %v", what, p)
		}
	}
	b.send(&pb.WorkRequest{Id: 2})
	refused("no message", "invalid", "message")
	b.send(&pb.WorkRequest{Id: 2, Message: &pb.WorkRequest_Hello{}})
	refused("hello again", "invalid", "hello")
	b.credit(2, 1001, 0)
	refused("too much credit", "invalid", "n")
	b.send(&pb.WorkRequest{Id: 2, Message: &pb.WorkRequest_Credit{Credit: &pb.ClaimRequest{Ttl: &durationpb.Duration{Seconds: 1 << 60}}}})
	refused("bad ttl", "invalid", "ttl")
	b.send(&pb.WorkRequest{Id: 2, Message: &pb.WorkRequest_Credit{Credit: &pb.ClaimRequest{Queues: []string{"secret"}}}})
	refused("denied", "denied", "")
	b.send(&pb.WorkRequest{Id: 2, Message: &pb.WorkRequest_Settle{Settle: &pb.SettleRequest{Outcomes: make([]*pb.Outcome, 1001)}}})
	refused("too many outcomes", "invalid", "outcomes")
	b.credit(3, 1, time.Hour)
	b.credit(3, 1, time.Hour)
	refused("the same id", "invalid", "id")
	b.credit(4, 1, time.Hour)
	b.credit(5, 1, time.Hour)
	refused("a credit too many", "too_many", "")
	// None of that ended the stream; this does.
	b.send(&pb.WorkRequest{Message: &pb.WorkRequest_Credit{Credit: &pb.ClaimRequest{}}})
	for {
		_, err := b.stream.Recv()
		if err == nil {
			continue
		}
		if s, p := problemOf(t, err); s.Code() != codes.InvalidArgument || p.GetFaults()[0].GetField() != "id" {
			t.Errorf("no id: %v", err)
		}
		break
	}
}

func TestWorkHello(t *testing.T) {
	// With such a short limit, a busy machine would make the rest silent too.
	b := serveGRPC(t, GRPCOptions{Hello: 20 * time.Millisecond}, nil).dialWork()
	if _, err := b.stream.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "hello") {
		t.Errorf("silence: %v", err)
	}
	h := serveGRPC(t, GRPCOptions{}, nil)
	b = h.dialWork()
	b.credit(1, 1, 0)
	if _, err := b.stream.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "must come first") {
		t.Errorf("no hello: %v", err)
	}
	b = h.dialWork(grpc.ForceCodecV2(raw{}))
	if err := b.stream.SendMsg([]byte{0xff}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.stream.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "gopherqueue.v1.WorkRequest") {
		t.Errorf("noise: %v", err)
	}
	b = h.dialWork()
	if err := b.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("nothing at all: %v", err)
	}
}

// Jobs claimed for a stream that broke before they were sent are released at once,
// without fault.
func TestWorkGivesBackWhatWasNotSent(t *testing.T) {
	claimed, cut := make(chan struct{}), make(chan struct{})
	h := serveGRPC(t, GRPCOptions{}, func(e engine.API) engine.API {
		return &altered{API: e, claim: func(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
			jobs, err := e.Claim(context.WithoutCancel(ctx), r)
			close(claimed)
			<-cut
			<-ctx.Done() // the server has noticed
			return jobs, err
		}}
	})
	ids := []gq.JobID{h.submit(), h.submit()}
	b := h.open()
	b.credit(2, 2, 0)
	<-claimed
	if s := h.job(ids[0]).State; s.Status != gq.StatusRunning {
		t.Fatalf("the job is %s", s.Status)
	}
	h.cut()
	close(cut)
	for _, id := range ids {
		h.until("the job is given back", func() bool { return h.job(id).State.Status != gq.StatusRunning })
		s := h.job(id).State
		if s.Status != gq.StatusScheduled || s.Faults != 0 || s.Losses != 0 || s.Bound != s.Policy.MaxAttempts+1 {
			t.Errorf("the job is %s with %d faults, %d losses, bound %d", s.Status, s.Faults, s.Losses, s.Bound)
		}
	}
}

// Jobs that were sent keep their leases: their worker may be running them.
func TestWorkLeavesWhatWasSent(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	id := h.submit()
	b := h.open()
	b.credit(2, 1, 0)
	job := b.receive().GetJobs().GetJobs()[0]
	b.credit(3, 1, time.Hour)
	h.until("the credit is open", func() bool { return h.waiting() == 1 })
	h.cut()
	h.until("the server has noticed", func() bool { return h.waiting() == 0 })
	if s := h.job(id).State; s.Status != gq.StatusRunning || string(s.Lease.ID) != job.GetState().GetLease().GetId() {
		t.Errorf("the job is %s under %v", s.Status, s.Lease)
	}
}

// An outcome that has arrived counts even if the stream breaks before the answer.
func TestWorkSettlesWhatHasArrived(t *testing.T) {
	arrived, cut := make(chan struct{}), make(chan struct{})
	h := serveGRPC(t, GRPCOptions{}, func(e engine.API) engine.API {
		return &altered{API: e, settle: func(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
			close(arrived)
			<-cut
			if ctx.Err() != nil {
				t.Errorf("the outcome was broken off: %v", ctx.Err())
			}
			return e.Settle(ctx, outcomes)
		}}
	})
	id := h.submit()
	b := h.open()
	b.credit(2, 1, 0)
	b.complete(3, b.receive().GetJobs().GetJobs()...)
	b.credit(4, 1, time.Hour)
	h.until("the credit is open", func() bool { return h.waiting() == 1 })
	<-arrived
	b.cancel()
	h.cut()
	h.until("the server has noticed", func() bool { return h.waiting() == 0 })
	close(cut)
	h.until("the job is completed", func() bool { return h.job(id).State.Status == gq.StatusCompleted })
}

func TestWorkDrain(t *testing.T) {
	arrived, drained := make(chan struct{}), make(chan struct{})
	h := serveGRPC(t, GRPCOptions{}, func(e engine.API) engine.API {
		return &altered{API: e, settle: func(ctx context.Context, outcomes []gq.Outcome) ([]gq.LeaseResult, error) {
			close(arrived)
			<-drained
			return e.Settle(ctx, outcomes)
		}}
	})
	h.submit()
	b := h.open()
	b.credit(2, 1, 0)
	jobs := b.receive().GetJobs().GetJobs()
	b.credit(3, 1, time.Hour)
	h.until("the credit is open", func() bool { return h.waiting() == 1 })
	b.complete(4, jobs...)
	<-arrived
	h.face.Drain()
	if r := b.receive(); r.GetId() != 3 || len(r.GetJobs().GetJobs()) != 0 {
		t.Errorf("the open credit: %v", r)
	}
	close(drained)
	if r := b.receive(); r.GetId() != 4 || r.GetAnswers().GetAnswers()[0].GetState().GetStatus() != pb.Status_STATUS_COMPLETED {
		t.Errorf("the outcome: %v", r)
	}
	if _, err := b.stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ends with %v", err)
	}
	if _, err := h.dialWork().stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("a new stream: %v", err)
	}
}

// Jobs that do not fit into one message of moderate size come in several.
func TestWorkSplitsLargeAnswers(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	for range 5 {
		if _, err := h.engine.Submit(t.Context(), gq.Spec{Type: "t", Payload: gq.Payload{Data: make([]byte, 600<<10), ContentType: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	b := h.open()
	b.credit(2, 5, 0)
	var parts []int
	for more := true; more; {
		r := b.receive()
		if r.GetId() != 2 {
			t.Fatalf("%v", r.GetId())
		}
		parts, more = append(parts, len(r.GetJobs().GetJobs())), r.GetJobs().GetMore()
	}
	if fmt.Sprint(parts) != "[2 2 1]" {
		t.Errorf("parts of %v jobs", parts)
	}
}

// A stream runs a limited number of requests at a time, and reads on when one of them is
// answered.
func TestWorkBoundsRequests(t *testing.T) {
	var now, most atomic.Int64
	h := serveGRPC(t, GRPCOptions{Requests: 3}, func(e engine.API) engine.API {
		return &altered{API: e, heartbeat: func(context.Context, []gq.Heartbeat) ([]gq.LeaseResult, error) {
			defer now.Add(-1)
			for n := now.Add(1); ; {
				if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
					break
				}
			}
			time.Sleep(time.Millisecond)
			return nil, nil
		}}
	})
	b := h.open()
	const n = 50
	for id := uint64(2); id < 2+n; id++ {
		b.send(&pb.WorkRequest{Id: id, Message: &pb.WorkRequest_Heartbeat{Heartbeat: &pb.HeartbeatRequest{}}})
	}
	for range n {
		b.receive()
	}
	if most.Load() > 3 {
		t.Errorf("%d requests were under way", most.Load())
	}
}

func TestWorkPanics(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, func(e engine.API) engine.API {
		return &altered{API: e, heartbeat: func(context.Context, []gq.Heartbeat) ([]gq.LeaseResult, error) { panic("hunter2") }}
	})
	b := h.open()
	b.send(&pb.WorkRequest{Id: 2, Message: &pb.WorkRequest_Heartbeat{Heartbeat: &pb.HeartbeatRequest{}}})
	if _, err := b.stream.Recv(); status.Code(err) != codes.Internal || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("told as %v", err)
	}
	h.open() // the server keeps running
}

func TestWorkTellsInternalErrorsByRequest(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, func(e engine.API) engine.API {
		return &altered{API: e, heartbeat: func(context.Context, []gq.Heartbeat) ([]gq.LeaseResult, error) { return nil, errSecret }}
	})
	b := h.open()
	b.send(&pb.WorkRequest{Id: 2, Message: &pb.WorkRequest_Heartbeat{Heartbeat: &pb.HeartbeatRequest{}}})
	p := b.receive().GetProblem()
	if p.GetCode() != "internal" || strings.Contains(p.GetMessage(), "hunter2") || p.GetRequestId() == "" {
		t.Errorf("told as %v", p)
	}
	if log := h.log.String(); !strings.Contains(log, "hunter2") || !strings.Contains(log, p.GetRequestId()) {
		t.Errorf("not in the log: %s", log)
	}
}
