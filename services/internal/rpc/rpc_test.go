package rpc_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/internal/testing/taskqueuetest"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/rpc"
	"github.com/gopherqueue/gq/services/internal/servicetest"
)

// server answers every call with one function, and counts calls.
type server struct {
	publicpb.UnimplementedTaskQueuePublicServiceServer
	internalpb.UnimplementedCoordinatorInternalServiceServer
	internalpb.UnimplementedJobInternalServiceServer

	mu     sync.Mutex
	calls  int // guarded by mu
	end    time.Time
	left   time.Duration
	answer func(context.Context) error
}

func (s *server) handle(ctx context.Context) error {
	end, _ := ctx.Deadline()
	s.mu.Lock()
	s.calls++
	s.end, s.left = end, time.Until(end)
	s.mu.Unlock()
	return s.answer(ctx)
}

func (s *server) SubmitJob(ctx context.Context, _ *publicpb.SubmitJobRequest) (*publicpb.SubmitJobResponse, error) {
	return &publicpb.SubmitJobResponse{}, s.handle(ctx)
}

func (s *server) GetJobStatus(ctx context.Context, _ *publicpb.GetJobStatusRequest) (*publicpb.GetJobStatusResponse, error) {
	return &publicpb.GetJobStatusResponse{}, s.handle(ctx)
}

func (s *server) GetJobResult(ctx context.Context, _ *publicpb.GetJobResultRequest) (*publicpb.GetJobResultResponse, error) {
	return &publicpb.GetJobResultResponse{}, s.handle(ctx)
}

func (s *server) CancelJob(ctx context.Context, _ *publicpb.CancelJobRequest) (*publicpb.CancelJobResponse, error) {
	return &publicpb.CancelJobResponse{}, s.handle(ctx)
}

func (s *server) ListJobs(ctx context.Context, _ *publicpb.ListJobsRequest) (*publicpb.ListJobsResponse, error) {
	return &publicpb.ListJobsResponse{}, s.handle(ctx)
}

func (s *server) FetchWork(ctx context.Context, _ *internalpb.FetchWorkRequest) (*internalpb.FetchWorkResponse, error) {
	return &internalpb.FetchWorkResponse{}, s.handle(ctx)
}

func (s *server) WorkerHeartbeat(ctx context.Context, _ *internalpb.WorkerHeartbeatRequest) (*internalpb.WorkerHeartbeatResponse, error) {
	return &internalpb.WorkerHeartbeatResponse{}, s.handle(ctx)
}

func (s *server) GetJobRecord(ctx context.Context, _ *internalpb.GetJobRecordRequest) (*internalpb.GetJobRecordResponse, error) {
	return &internalpb.GetJobRecordResponse{}, s.handle(ctx)
}

// taken returns the number of calls since the last time, and for the latest one its
// deadline and how much time was left.
func (s *server) taken() (calls int, end time.Time, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls, s.calls = s.calls, 0
	return calls, s.end, s.left
}

type fixture struct {
	*server
	journal     servicetest.Journal
	public      publicpb.TaskQueuePublicServiceClient
	coordinator internalpb.CoordinatorInternalServiceClient
	jobs        internalpb.JobInternalServiceClient
}

// open calls as usual, but with enough time for a slow machine.
func open(t *testing.T) *fixture {
	t.Helper()
	return openWith(t, func(addr, caller string) (*grpc.ClientConn, error) { return rpc.DialWithin(addr, caller, patience) })
}

// patience is the time limit for what must happen eventually.
const patience = 2 * time.Minute

func openWith(t *testing.T, dial func(addr, caller string) (*grpc.ClientConn, error)) *fixture {
	t.Helper()
	f := &fixture{server: &server{}}
	listener := taskqueuetest.Listen(t)
	servicetest.Serve(t, listener, f.journal.Log("here"), func(r grpc.ServiceRegistrar) {
		publicpb.RegisterTaskQueuePublicServiceServer(r, f.server)
		internalpb.RegisterCoordinatorInternalServiceServer(r, f.server)
		internalpb.RegisterJobInternalServiceServer(r, f.server)
	})
	conn, err := dial(listener.Addr().String(), "tester")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	f.public = publicpb.NewTaskQueuePublicServiceClient(conn)
	f.coordinator = internalpb.NewCoordinatorInternalServiceClient(conn)
	f.jobs = internalpb.NewJobInternalServiceClient(conn)
	return f
}

// methods returns a call of each kind.
func (f *fixture) methods(ctx context.Context) map[string]func() error {
	return map[string]func() error{
		"SubmitJob, keyed": func() error {
			_, err := f.public.SubmitJob(ctx, &publicpb.SubmitJobRequest{ClientRequestId: "k"})
			return err
		},
		"SubmitJob": func() error { _, err := f.public.SubmitJob(ctx, &publicpb.SubmitJobRequest{}); return err },
		"CancelJob": func() error { _, err := f.public.CancelJob(ctx, &publicpb.CancelJobRequest{JobId: "j"}); return err },
		"GetJobStatus": func() error {
			_, err := f.public.GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: "j"})
			return err
		},
		"GetJobResult": func() error {
			_, err := f.public.GetJobResult(ctx, &publicpb.GetJobResultRequest{JobId: "j"})
			return err
		},
		"ListJobs": func() error { _, err := f.public.ListJobs(ctx, &publicpb.ListJobsRequest{}); return err },
		"FetchWork": func() error {
			_, err := f.coordinator.FetchWork(ctx, &internalpb.FetchWorkRequest{WorkerId: "w"})
			return err
		},
		"WorkerHeartbeat": func() error {
			_, err := f.coordinator.WorkerHeartbeat(ctx, &internalpb.WorkerHeartbeatRequest{WorkerId: "w"})
			return err
		},
		"GetJobRecord": func() error {
			_, err := f.jobs.GetJobRecord(ctx, &internalpb.GetJobRecordRequest{JobId: "j"})
			return err
		},
	}
}

func TestDeadlines(t *testing.T) {
	spec.Covers(t, "T-252", "T-253", "T-254", "T-255")
	f := openWith(t, rpc.Dial)
	f.answer = func(context.Context) error { return nil }
	for name, call := range f.methods(t.Context()) {
		want := map[string]time.Duration{
			"SubmitJob": 3 * time.Second, "SubmitJob, keyed": 3 * time.Second, "CancelJob": 3 * time.Second, "FetchWork": 1500 * time.Millisecond,
		}[name]
		if want == 0 {
			want = time.Second
		}
		begin := f.reach(t, call)
		// However long it was in transit, it has the rest of its deadline.
		if _, end, left := f.taken(); left > want || end.Sub(begin) < want {
			t.Errorf("%s has %v left and ends %v after it began, want %v", name, left, end.Sub(begin), want)
		}
	}
	const own = 300 * time.Millisecond
	begin := f.reach(t, func() error {
		short, cancel := context.WithTimeout(t.Context(), own)
		defer cancel()
		return f.methods(short)["SubmitJob"]()
	})
	if _, end, left := f.taken(); left > own || end.Sub(begin) < own {
		t.Errorf("the caller's own deadline is not kept: %v", left)
	}
}

// reach repeats a call until it reaches the server, which its deadline may prevent on a
// slow machine. It returns when that call began.
func (f *fixture) reach(t *testing.T, call func() error) (begin time.Time) {
	t.Helper()
	for limit := time.Now().Add(patience); ; {
		f.taken()
		begin = time.Now()
		err := call()
		f.mu.Lock()
		reached := f.calls == 1
		f.mu.Unlock()
		if err == nil && reached {
			return begin
		}
		if code := status.Code(err); code != codes.OK && code != codes.DeadlineExceeded && code != codes.Unavailable || time.Now().After(limit) {
			t.Fatal(err)
		}
	}
}

func TestHungServer(t *testing.T) {
	spec.Covers(t, "T-216", "T-253")
	f := openWith(t, rpc.Dial)
	f.answer = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	start := time.Now()
	err := f.methods(t.Context())["GetJobStatus"]()
	if took := time.Since(start); status.Code(err) != codes.DeadlineExceeded || took < 900*time.Millisecond || took > patience {
		t.Errorf("%v after %v", err, took)
	}
}

func TestWhatIsRetried(t *testing.T) {
	t.Parallel()
	spec.Covers(t, "T-210", "T-211", "T-212", "T-216", "T-238", "T-240", "T-241")
	for name := range open(t).methods(t.Context()) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t)
			for code, repeated := range map[codes.Code]bool{
				codes.Unavailable: true, codes.ResourceExhausted: true, codes.DeadlineExceeded: name != "SubmitJob",
				codes.InvalidArgument: false, codes.NotFound: false, codes.FailedPrecondition: false, codes.Internal: false, codes.Aborted: false,
			} {
				f.answer = func(context.Context) error { return status.Error(code, "no") }
				if err := f.methods(t.Context())[name](); status.Code(err) != code {
					t.Errorf("%v, want %v", err, code)
				}
				want := 1
				if repeated && name != "FetchWork" {
					want = rpc.MaxAttempts
				}
				if calls, _, _ := f.taken(); calls != want {
					t.Errorf("after %v: %d attempts, want %d", code, calls, want)
				}
			}
		})
	}
}

// In virtual time only the number of attempts ends the retries.
func TestRetryProfile(t *testing.T) {
	spec.Covers(t, "T-239", "T-240", "T-262")
	for n, ms := range map[int]int{1: 100, 2: 200, 3: 400, 4: 800, 5: 1000, 60: 1000} {
		most := time.Duration(ms) * time.Millisecond
		if low, middle, high := rpc.RetryDelay(n, 0), rpc.RetryDelay(n, 0.5), rpc.RetryDelay(n, 1); low != 0 || middle != most/2 || high != most {
			t.Errorf("retry %d waits between %v and %v, %v in the middle; want up to %v", n, low, high, middle, most)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		calls, start := 0, time.Now()
		err := rpc.Retry(t.Context(), func(codes.Code) bool { return true }, func() error { calls++; return errors.New("no") })
		if err == nil || calls != 4 || time.Since(start) > 700*time.Millisecond {
			t.Errorf("%d attempts in %v: %v", calls, time.Since(start), err)
		}
		calls = 0
		err = rpc.Retry(t.Context(), func(codes.Code) bool { return true }, func() error {
			if calls++; calls < 3 {
				return errors.New("no")
			}
			return nil
		})
		if err != nil || calls != 3 {
			t.Errorf("%d attempts: %v", calls, err)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		calls = 0
		_ = rpc.Retry(soon, func(codes.Code) bool { return true }, func() error { calls++; return errors.New("no") })
		if calls != 1 {
			t.Errorf("%d attempts without time for more", calls)
		}
	})
}

func TestEveryErrorLeavesALine(t *testing.T) {
	spec.Covers(t, "T-208", "T-217", "T-246", "T-247", "T-248", "T-249", "T-250", "T-251", "T-262")
	f := open(t)
	for _, test := range []struct {
		answer  func(context.Context) error
		code    codes.Code
		message string // in the log
		hidden  bool   // from the client
	}{
		{func(context.Context) error { return status.Error(codes.NotFound, "no such job") }, codes.NotFound, "no such job", false},
		{func(context.Context) error { return status.Error(codes.FailedPrecondition, "other payload") }, codes.FailedPrecondition, "other payload", false},
		{func(context.Context) error { return status.Error(codes.InvalidArgument, "bad") }, codes.InvalidArgument, "bad", false},
		{func(context.Context) error { return errors.New("secret detail") }, codes.Internal, "secret detail", true},
		{func(context.Context) error { panic("secret panic") }, codes.Internal, "secret panic", true},
		{func(context.Context) error { return context.DeadlineExceeded }, codes.DeadlineExceeded, "deadline", false},
	} {
		f.answer = test.answer
		before := len(f.journal.Lines(t, "rpc_error"))
		err := f.methods(t.Context())["CancelJob"]()
		if status.Code(err) != test.code || test.hidden && strings.Contains(err.Error(), "secret") {
			t.Errorf("client sees %v, want %v", err, test.code)
		}
		lines := f.journal.Lines(t, "rpc_error")[before:]
		if len(lines) == 0 {
			t.Fatalf("%v: no line", test.code)
		}
		l := lines[0]
		if l.Text("method") != "CancelJob" || l.Text("grpc_code") != rpc.CodeName(test.code) || !strings.Contains(l.Text("message"), test.message) ||
			l.Text("job_id") != "j" || l.Text("caller") != "tester" || l.Text("service") != "here" || l.Text("level") == "" || len(l.Text("request_id")) != 16 {
			t.Errorf("line %v", l)
		}
		if _, ok := l["latency_ms"].(float64); !ok {
			t.Errorf("latency of %v", l)
		}
		if ts, _ := l["ts_ms"].(float64); time.Since(time.UnixMilli(int64(ts))).Abs() > time.Minute {
			t.Errorf("time of %v", l)
		}
	}
	f.answer = func(context.Context) error { return status.Error(codes.Unavailable, "x") }
	_ = f.methods(t.Context())["FetchWork"]()
	lines := f.journal.Lines(t, "rpc_error")
	if l := lines[len(lines)-1]; l.Text("worker_id") != "w" || l.Text("job_id") != "" {
		t.Errorf("line %v", l)
	}
}

func TestNoLineForSuccess(t *testing.T) {
	f := open(t)
	f.answer = func(context.Context) error { return nil }
	for _, call := range f.methods(t.Context()) {
		if err := call(); err != nil {
			t.Error(err)
		}
	}
	if lines := f.journal.Lines(t, ""); len(lines) > 0 {
		t.Errorf("lines %v", lines)
	}
}

// The mapping of other services' errors covers all codes.
func TestDownstream(t *testing.T) {
	spec.Covers(t, "T-214")
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		want := codes.Unavailable
		switch code {
		case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.ResourceExhausted, codes.DeadlineExceeded, codes.Canceled, codes.Internal:
			want = code
		default:
		}
		if got := status.Code(rpc.Downstream("job", status.Error(code, "x"))); got != want {
			t.Errorf("%v becomes %v, want %v", code, got, want)
		}
		if name := rpc.CodeName(code); name != strings.ToUpper(name) || name == "" {
			t.Errorf("%v is called %q", code, name)
		}
	}
}

func TestServerEndsCallsInProgress(t *testing.T) {
	s := &server{}
	started := make(chan struct{})
	s.answer = func(ctx context.Context) error { close(started); return nil }
	var journal servicetest.Journal
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := servicetest.Serve(t, listener, journal.Log("x"), func(r grpc.ServiceRegistrar) { publicpb.RegisterTaskQueuePublicServiceServer(r, s) })
	conn, err := rpc.DialWithin(listener.Addr().String(), "t", patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := publicpb.NewTaskQueuePublicServiceClient(conn).ListJobs(context.Background(), &publicpb.ListJobsRequest{})
		ended <- err
	}()
	<-started
	stop()
	if err := <-ended; err != nil {
		t.Errorf("a call in progress: %v", err)
	}
	if _, err := publicpb.NewTaskQueuePublicServiceClient(conn).ListJobs(t.Context(), &publicpb.ListJobsRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("a call after the end: %v", err)
	}
}

func TestClip(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		want string
	}{{"abc", 3, "abc"}, {"abcd", 3, "abc"}, {"aéb", 2, "a"}, {"aéb", 3, "aé"}, {"", 0, ""}} {
		if got := rpc.Clip(test.text, test.n); got != test.want {
			t.Errorf("%q clipped to %d is %q", test.text, test.n, got)
		}
	}
}
