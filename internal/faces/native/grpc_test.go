package native

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/machine"
)

var (
	_ engine.API = (*altered)(nil)
	_ error      = (*brokenOffError)(nil)
)

// problemOf returns the problem in the status of a call.
func problemOf(t *testing.T, err error) (*status.Status, *pb.Problem) {
	t.Helper()
	s := status.Convert(err)
	for _, d := range s.Details() {
		if p, ok := d.(*pb.Problem); ok {
			return s, p
		}
	}
	t.Fatalf("no problem in %v", err)
	return nil, nil
}

func TestGRPCBadInput(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	before, err := h.engine.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	badType := protowire.AppendString(protowire.AppendTag(nil, 3, protowire.BytesType), "\xff")
	badSpec := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), badType)
	many := make([]*pb.Spec, MaxItems+1)
	for i := range many {
		many[i] = &pb.Spec{Type: "t"}
	}
	for _, c := range []struct {
		name   string
		call   func(ctx context.Context) error
		code   codes.Code
		fields string // of the faults
	}{
		{"no spec", func(ctx context.Context) error {
			_, err := h.jobs.Submit(ctx, &pb.SubmitRequest{})
			return err
		}, codes.InvalidArgument, "type"},
		{"invalid UTF-8", func(context.Context) error {
			return h.invokeRaw(pb.JobsService_Submit_FullMethodName, badSpec, new(pb.Submitted))
		}, codes.InvalidArgument, "type"},
		{"no message", func(context.Context) error {
			return h.invokeRaw(pb.JobsService_Get_FullMethodName, []byte{0xff, 0xff}, new(pb.Job))
		}, codes.InvalidArgument, "request"},
		{"an id that is given", func(ctx context.Context) error {
			_, err := h.jobs.Submit(ctx, &pb.SubmitRequest{Spec: &pb.Spec{Type: "t", Id: machine.NewJobID([16]byte{1}).String()}})
			return err
		}, codes.InvalidArgument, "id"},
		{"bad times", func(ctx context.Context) error {
			_, err := h.jobs.Submit(ctx, &pb.SubmitRequest{Spec: &pb.Spec{
				Type: "t", RunAt: &timestamppb.Timestamp{Seconds: 1 << 60}, Delay: &durationpb.Duration{Seconds: 1 << 60},
			}})
			return err
		}, codes.InvalidArgument, "run_at delay"},
		{"bad id", func(ctx context.Context) error {
			_, err := h.jobs.Get(ctx, &pb.GetRequest{Id: "x"})
			return err
		}, codes.InvalidArgument, "id"},
		{"bad page", func(ctx context.Context) error {
			_, err := h.jobs.List(ctx, &pb.ListRequest{Limit: 1 << 40})
			return err
		}, codes.InvalidArgument, "limit"},
		{"negative page", func(ctx context.Context) error {
			_, err := h.jobs.List(ctx, &pb.ListRequest{Limit: -1 << 40})
			return err
		}, codes.InvalidArgument, "limit"},
		{"bad cursor", func(ctx context.Context) error {
			_, err := h.jobs.List(ctx, &pb.ListRequest{Cursor: "\x00"})
			return err
		}, codes.InvalidArgument, "cursor"},
		{"unknown status", func(ctx context.Context) error {
			_, err := h.jobs.List(ctx, &pb.ListRequest{Query: &pb.Query{Statuses: []pb.Status{99}}})
			return err
		}, codes.InvalidArgument, "statuses[0]"},
		{"too many", func(ctx context.Context) error {
			_, err := h.jobs.SubmitBatch(ctx, &pb.SubmitBatchRequest{Specs: many})
			return err
		}, codes.InvalidArgument, "specs"},
		{"too many beats", func(ctx context.Context) error {
			_, err := h.workers.Heartbeat(ctx, &pb.HeartbeatRequest{Beats: make([]*pb.Beat, MaxItems+1)})
			return err
		}, codes.InvalidArgument, "beats"},
		{"too many outcomes", func(ctx context.Context) error {
			_, err := h.workers.Settle(ctx, &pb.SettleRequest{Outcomes: make([]*pb.Outcome, MaxItems+1)})
			return err
		}, codes.InvalidArgument, "outcomes"},
		{"graph", func(ctx context.Context) error {
			_, err := h.jobs.SubmitGraph(ctx, &pb.SubmitGraphRequest{Drafts: []*pb.Draft{{Spec: &pb.Spec{Type: "t"}}, {
				Spec: &pb.Spec{RunAt: &timestamppb.Timestamp{Nanos: -1}}, Needs: []*pb.Need{{Kind: 77}},
			}}})
			return err
		}, codes.InvalidArgument, "jobs[1].run_at jobs[1].needs[0].kind"},
		{"claim", func(ctx context.Context) error {
			_, err := h.workers.Claim(ctx, &pb.ClaimRequest{N: 1 << 40, Wait: durationpb.New(2 * time.Hour)})
			return err
		}, codes.InvalidArgument, "n worker wait"},
		{"wait", func(ctx context.Context) error {
			_, err := h.jobs.Wait(ctx, &pb.WaitRequest{Id: machine.NewJobID([16]byte{1}).String(), Timeout: durationpb.New(time.Hour)})
			return err
		}, codes.InvalidArgument, "timeout"},
		{"schedule", func(ctx context.Context) error {
			_, err := h.schedules.SetSchedule(ctx, &pb.SetScheduleRequest{Schedule: &pb.Schedule{Name: "s", Every: &durationpb.Duration{Nanos: -1, Seconds: 1}}})
			return err
		}, codes.InvalidArgument, "every"},
		{"queue", func(ctx context.Context) error {
			_, err := h.queues.SetQueue(ctx, &pb.SetQueueRequest{Name: "a b", Policy: &pb.Policy{MaxAttempts: new(int64)}})
			return err
		}, codes.InvalidArgument, "name policy.max_attempts"},
		{"not found", func(ctx context.Context) error {
			_, err := h.jobs.Get(ctx, &pb.GetRequest{Id: machine.NewJobID([16]byte{1}).String()})
			return err
		}, codes.NotFound, ""},
		{"stale lease", func(ctx context.Context) error {
			_, err := h.workers.Start(ctx, &pb.StartRequest{Lease: &pb.LeaseRef{Id: "nobody's"}})
			return err
		}, codes.Aborted, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, p := problemOf(t, c.call(t.Context()))
			if s.Code() != c.code || p.GetRequestId() == "" {
				t.Errorf("%v, %v", s, p)
			}
			var fields []string
			for _, f := range p.GetFaults() {
				fields = append(fields, f.GetField())
			}
			if got := strings.Join(fields, " "); got != c.fields {
				t.Errorf("faults of %q, want %q: %s", got, c.fields, s.Message())
			}
		})
	}
	if log := h.log.String(); strings.Contains(log, "ERROR") || strings.Contains(log, "panic") {
		t.Errorf("bad input is the server's fault: %s", log)
	}
	after, err := h.engine.Stats(t.Context())
	if err != nil || after.Total != before.Total {
		t.Errorf("bad input changed %v to %v, %v", before.Total, after.Total, err)
	}
}

// Items of a batch get individual results, including malformed ones.
func TestGRPCBatchItems(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	out, err := h.jobs.SubmitBatch(t.Context(), &pb.SubmitBatchRequest{Specs: []*pb.Spec{
		{Type: "t"}, {Type: "t", Delay: &durationpb.Duration{Seconds: 1 << 60}}, {}, {Type: "t"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range out.GetSubmitted() {
		word := s.GetState().GetStatus().String()
		for _, f := range s.GetProblem().GetFaults() {
			word = f.GetField()
		}
		got = append(got, word)
	}
	if want := []string{"STATUS_SCHEDULED", "delay", "type", "STATUS_SCHEDULED"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	claimed, err := h.workers.Claim(t.Context(), &pb.ClaimRequest{Worker: "w", N: 2})
	if err != nil || len(claimed.GetJobs()) != 2 {
		t.Fatal(claimed, err)
	}
	lease := func(i int) *pb.LeaseRef { return &pb.LeaseRef{Id: claimed.GetJobs()[i].GetState().GetLease().GetId()} }
	answers, err := h.workers.Settle(t.Context(), &pb.SettleRequest{Outcomes: []*pb.Outcome{
		{Lease: lease(0), Verdict: &pb.Outcome_Fail{Fail: &pb.Failure{Category: 99}}},
		{Lease: lease(1), Verdict: &pb.Outcome_Complete{Complete: &pb.Completion{}}},
		{Lease: &pb.LeaseRef{Id: "other"}, Verdict: &pb.Outcome_Complete{Complete: &pb.Completion{}}},
		{Lease: lease(0)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	for _, a := range answers.GetAnswers() {
		got = append(got, a.GetProblem().GetCode()+strings.TrimPrefix(a.GetState().GetStatus().String(), "STATUS_UNSPECIFIED"))
	}
	if want := []string{"invalid", "STATUS_COMPLETED", "stale_lease", "invalid"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestGRPCPartialPolicy(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	if _, err := h.queues.SetQueue(t.Context(), &pb.SetQueueRequest{Name: "q", Policy: &pb.Policy{
		Preset: pb.Preset_PRESET_SEMANTICS.Enum(), LeaseTtl: durationpb.New(7 * time.Second),
	}}); err != nil {
		t.Fatal(err)
	}
	policy := func(spec *pb.Spec) gq.Policy {
		t.Helper()
		out, err := h.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: spec})
		if err != nil {
			t.Fatal(err)
		}
		id, err := gq.ParseJobID(out.GetState().GetId())
		if err != nil {
			t.Fatal(err)
		}
		return h.job(id).Spec.Policy
	}
	want := gq.PresetSemantics.Policy()
	want.LeaseTTL = 7 * time.Second
	if got := policy(&pb.Spec{Type: "t", Queue: "q"}); got != want {
		t.Errorf("the queue's policy is not taken: %+v", got)
	}
	attempts := int64(9)
	want.MaxAttempts = 9
	if got := policy(&pb.Spec{Type: "t", Queue: "q", Policy: &pb.Policy{MaxAttempts: &attempts}}); got != want {
		t.Errorf("what is absent is not the queue's: %+v", got)
	}
	want = gq.PresetTaskQueue.Policy()
	want.MaxAttempts = 9
	if got := policy(&pb.Spec{Type: "t", Queue: "q", Policy: &pb.Policy{Preset: pb.Preset_PRESET_TASKQUEUE.Enum(), MaxAttempts: &attempts}}); got != want {
		t.Errorf("what is absent is not the preset's: %+v", got)
	}
	want = machine.DefaultPolicy()
	want.MaxAttempts = 9
	if got := policy(&pb.Spec{Type: "t", Queue: "new", Policy: &pb.Policy{MaxAttempts: &attempts}}); got != want {
		t.Errorf("a queue that does not exist yet has the defaults: %+v", got)
	}
	// A change keeps what it does not name.
	q, err := h.queues.SetQueue(t.Context(), &pb.SetQueueRequest{Name: "q", MaxRunning: &attempts})
	if err != nil || q.GetMaxRunning() != 9 || q.GetPolicy().GetPreset() != pb.Preset_PRESET_SEMANTICS || q.GetPolicy().GetLeaseTtl().AsDuration() != 7*time.Second {
		t.Errorf("%v, %v", q, err)
	}
}

func TestGRPCInternalErrorsStayInTheLog(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, func(e engine.API) engine.API {
		return &altered{API: e, get: func(context.Context, gq.JobID, gq.Parts) (gq.Job, error) { return gq.Job{}, errSecret }}
	})
	request := &pb.GetRequest{Id: machine.NewJobID([16]byte{1}).String()}
	for _, c := range []struct{ sent, want string }{{"mine-42", "mine-42"}, {"bad\x01id", ""}, {strings.Repeat("x", 200), ""}, {"", ""}} {
		ctx := t.Context()
		if c.sent != "" && !strings.Contains(c.sent, "\x01") {
			ctx = named(ctx, c.sent)
		}
		_, err := h.jobs.Get(ctx, request)
		s, p := problemOf(t, err)
		if s.Code() != codes.Internal || strings.Contains(s.Message(), "hunter2") || !strings.Contains(s.Message(), "internal") {
			t.Errorf("told as %v", s)
		}
		id := p.GetRequestId()
		if c.want != "" && id != c.want || id == "" || len(id) > 128 {
			t.Errorf("request %q is known as %q", c.sent, id)
		}
		if log := h.log.String(); !strings.Contains(log, id) || !strings.Contains(log, "hunter2") || !strings.Contains(s.Message(), id) {
			t.Errorf("request %s is not in the log:\n%s", id, log)
		}
	}
}

// A call with a request id gets it back, even on success.
func TestGRPCAnswersByName(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	for sent, want := range map[string][]string{"": nil, "mine-42": {"mine-42"}, strings.Repeat("x", 200): nil} {
		ctx := t.Context()
		if sent != "" {
			ctx = named(ctx, sent)
		}
		var header metadata.MD
		if _, err := h.jobs.Stats(ctx, &pb.StatsRequest{}, grpc.Header(&header)); err != nil {
			t.Fatal(err)
		}
		if got := header.Get(requestHeader); !slices.Equal(got, want) {
			t.Errorf("a call named %.80q is answered as %q, want %q", sent, got, want)
		}
		stream, err := h.workers.Work(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		header, _ = stream.Header() // the stream ends without a hello
		if got := header.Get(requestHeader); !slices.Equal(got, want) {
			t.Errorf("a stream named %.80q is answered as %q, want %q", sent, got, want)
		}
	}
}

func TestGRPCPanics(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, func(e engine.API) engine.API {
		return &altered{API: e, get: func(context.Context, gq.JobID, gq.Parts) (gq.Job, error) { panic("hunter2") }}
	})
	_, err := h.jobs.Get(t.Context(), &pb.GetRequest{Id: machine.NewJobID([16]byte{1}).String()})
	s, p := problemOf(t, err)
	if s.Code() != codes.Internal || strings.Contains(s.Message(), "hunter2") {
		t.Errorf("told as %v", s)
	}
	if log := h.log.String(); !strings.Contains(log, p.GetRequestId()) || !strings.Contains(log, "grpc_test.go") {
		t.Errorf("the stack is not in the log: %s", log)
	}
	if _, err := h.jobs.Stats(t.Context(), &pb.StatsRequest{}); err != nil {
		t.Errorf("the server does not go on: %v", err)
	}
}

func TestGRPCLogsNoPayloads(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	if _, err := h.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: &pb.Spec{Type: "t", Payload: []byte(`"hunter2"`)}}); err != nil {
		t.Fatal(err)
	}
	h.until("the call is logged", func() bool { return strings.Contains(h.log.String(), pb.JobsService_Submit_FullMethodName) })
	if strings.Contains(h.log.String(), "hunter2") {
		t.Errorf("a payload is in the log: %s", h.log)
	}
}

func TestGRPCDeadlines(t *testing.T) {
	var got time.Time
	h := serveGRPC(t, GRPCOptions{}, func(e engine.API) engine.API {
		return &altered{API: e, get: func(ctx context.Context, _ gq.JobID, _ gq.Parts) (gq.Job, error) {
			got, _ = ctx.Deadline()
			return gq.Job{}, nil
		}}
	})
	for _, c := range []struct{ asked, want time.Duration }{
		{0, 30 * time.Second},
		{2 * time.Minute, 2 * time.Minute},
		{time.Hour, 5 * time.Minute},
	} {
		ctx, began := t.Context(), time.Now()
		if c.asked > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.asked)
			defer cancel()
		}
		if _, err := h.jobs.Get(ctx, &pb.GetRequest{Id: machine.NewJobID([16]byte{1}).String()}); err != nil {
			t.Fatal(err)
		}
		if got.Before(began.Add(c.want)) || got.After(time.Now().Add(c.want)) {
			t.Errorf("with a deadline of %v the engine has %v from the beginning of the call", c.asked, got.Sub(began))
		}
	}
	// A call that times out says so.
	slow := serveGRPC(t, GRPCOptions{}, func(e engine.API) engine.API {
		return &altered{API: e, get: func(ctx context.Context, _ gq.JobID, _ gq.Parts) (gq.Job, error) {
			<-ctx.Done()
			return gq.Job{}, fmt.Errorf("get: %w", context.Cause(ctx))
		}}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := slow.jobs.Get(ctx, &pb.GetRequest{Id: machine.NewJobID([16]byte{1}).String()})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("told as %v", err)
	}
	if strings.Contains(slow.log.String(), "ERROR") {
		t.Errorf("the end of a client's time is the server's fault: %s", slow.log)
	}
}

func TestGRPCMessageSize(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	_, err := h.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: &pb.Spec{Type: "t", ContentType: "x", Payload: make([]byte, 2<<20)}})
	if s, p := problemOf(t, err); s.Code() != codes.InvalidArgument || p.GetFaults()[0].GetField() != "payload" {
		t.Errorf("a payload above the limit: %v", s)
	}
	_, err = h.jobs.Submit(t.Context(), &pb.SubmitRequest{Spec: &pb.Spec{Type: "t", ContentType: "x", Payload: make([]byte, 5<<20)}})
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted {
		t.Errorf("a message above the limit: %v", s)
	}
	if errs.KindOf(pbconv.ErrorFromStatus(err)) != gq.KindInvalid {
		t.Errorf("a client would try again: %v", err)
	}
	large := GRPCOptions{Limits: gq.Limits{PayloadBytes: 16 << 20, ResultBytes: 1, CheckpointBytes: 1}}.withDefaults()
	if n := large.messageBytes(); n != 17<<20 {
		t.Errorf("payloads of 16 MiB and messages of %d bytes", n)
	}
}

func TestGRPCAuthorization(t *testing.T) {
	var calls []string
	h := serveGRPC(t, GRPCOptions{
		Unary: []grpc.UnaryServerInterceptor{func(ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			calls = append(calls, "interceptor")
			return next(ctx, r)
		}},
		Authorize: func(_ context.Context, method string, request proto.Message) error {
			calls = append(calls, method)
			if _, ok := request.(*pb.PauseQueueRequest); ok {
				return gq.ErrDenied
			}
			return nil
		},
	}, nil)
	if _, err := h.jobs.Stats(t.Context(), &pb.StatsRequest{}); err != nil {
		t.Error(err)
	}
	_, err := h.queues.PauseQueue(t.Context(), &pb.PauseQueueRequest{Name: "q"})
	if s, p := problemOf(t, err); s.Code() != codes.PermissionDenied || p.GetCode() != "denied" {
		t.Errorf("told as %v", s)
	}
	want := []string{"interceptor", pb.JobsService_Stats_FullMethodName, "interceptor", pb.QueuesService_PauseQueue_FullMethodName}
	if !slices.Equal(calls, want) {
		t.Errorf("%v, want %v", calls, want)
	}
	if _, err := h.engine.Queue(t.Context(), "q"); errs.KindOf(err) != gq.KindNotFound {
		t.Errorf("a denied call was made: %v", err)
	}
}

func TestGRPCHealthAndReflection(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	health := healthpb.NewHealthClient(h.conn)
	names := []string{"", "gopherqueue.v1.JobsService", "gopherqueue.v1.WorkersService", "gopherqueue.v1.QueuesService", "gopherqueue.v1.SchedulesService", "gopherqueue.v1.WorkflowsService"}
	for _, name := range names {
		r, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		if err != nil || r.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: %v, %v", name, r, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := reflectionpb.NewServerReflectionClient(h.conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	r, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names[1:] {
		if !slices.ContainsFunc(r.GetListServicesResponse().GetService(), func(s *reflectionpb.ServiceResponse) bool { return s.GetName() == name }) {
			t.Errorf("%s is not listed", name)
		}
	}
	cancel()
	h.face.Drain()
	if r, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || r.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("after Drain: %v, %v", r, err)
	}
}

func TestGRPCTellsOfAFailedStore(t *testing.T) {
	told := 0
	h := serveGRPC(t, GRPCOptions{Failed: func(error) { told++ }}, func(e engine.API) engine.API {
		return &altered{API: e, get: func(context.Context, gq.JobID, gq.Parts) (gq.Job, error) {
			return gq.Job{}, fmt.Errorf("get: %w", gq.ErrStoreFailed)
		}}
	})
	for range 3 {
		_, err := h.jobs.Get(t.Context(), &pb.GetRequest{Id: machine.NewJobID([16]byte{1}).String()})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("told as %v", err)
		}
	}
	if told != 1 {
		t.Errorf("told %d times", told)
	}
}

// Stopping a server before it has started is not an error.
func TestGRPCStopsBeforeItServes(t *testing.T) {
	g := NewGRPC(newEngine(t), GRPCOptions{})
	g.Drain()
	g.GracefulStop()
	if err := g.Serve(bufconn.Listen(1)); err != nil {
		t.Error(err)
	}
}

// A wait that ends before the job was read, for example from a slow database, still
// returns the job's current state.
func TestGRPCWaitsThatAreTooShort(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, func(e engine.API) engine.API {
		return &altered{API: e, wait: func(ctx context.Context, _ gq.JobID) (gq.Job, error) {
			<-ctx.Done()
			return gq.Job{}, fmt.Errorf("wait: %w", context.Cause(ctx))
		}}
	})
	id := h.submit()
	check := func(what string, timeout time.Duration) {
		t.Helper()
		job, err := h.jobs.Wait(t.Context(), &pb.WaitRequest{Id: id.String(), Timeout: durationpb.New(timeout)})
		if err != nil || job.GetState().GetStatus() != pb.Status_STATUS_SCHEDULED {
			t.Errorf("%s: %v, %v", what, job, err)
		}
	}
	check("a short wait", time.Millisecond)
	h.face.Drain()
	check("while the server stops", time.Minute)
}

// Drain ends waits, so that a graceful stop does not wait for them.
func TestGRPCDrainEndsWaits(t *testing.T) {
	h := serveGRPC(t, GRPCOptions{}, nil)
	id := h.submit()
	if _, err := h.engine.Pause(t.Context(), gq.DefaultQueue); err != nil {
		t.Fatal(err)
	}
	type answer struct {
		waited  *pb.Job
		claimed *pb.ClaimResponse
		err     error
	}
	answers := make(chan answer, 2)
	go func() {
		job, err := h.jobs.Wait(t.Context(), &pb.WaitRequest{Id: id.String()})
		answers <- answer{waited: job, err: err}
	}()
	go func() {
		r, err := h.workers.Claim(t.Context(), &pb.ClaimRequest{Worker: "w", Wait: durationpb.New(time.Hour)})
		answers <- answer{claimed: r, err: err}
	}()
	watch, err := healthpb.NewHealthClient(h.conn).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	h.until("the claim waits", func() bool { return h.waiting() == 1 })
	h.face.Drain()
	for err == nil {
		_, err = watch.Recv()
	}
	if status.Code(err) != codes.Canceled {
		t.Errorf("a watch of the health ends with %v", err)
	}
	if _, err := h.workers.Claim(t.Context(), &pb.ClaimRequest{Worker: "w", Wait: durationpb.New(time.Hour)}); status.Code(err) != codes.Unavailable {
		t.Errorf("a claim after that: %v", err)
	}
	for range 2 {
		a := <-answers
		if a.err != nil || a.waited != nil && a.waited.GetState().GetStatus() != pb.Status_STATUS_SCHEDULED || len(a.claimed.GetJobs()) != 0 {
			t.Errorf("%v", a)
		}
	}
}
