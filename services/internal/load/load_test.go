package load_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/internal/testing/taskqueuetest"
	"github.com/gopherqueue/gq/services/internal/load"
	"github.com/gopherqueue/gq/services/internal/servicetest"
)

// fake is a task queue that completes jobs at once, and can give wrong answers.
type fake struct {
	publicpb.UnimplementedTaskQueuePublicServiceServer

	index, nodes int
	stall        func() time.Duration // delay before a submit is answered
	badID        bool
	badStatus    bool
	badBytes     bool
	badChecksum  bool
	neverReady   bool
	forgetful    bool
	cancels      bool                            // cancels its jobs by itself
	takes        func(submits int) time.Duration // how long a job takes; nil is a millisecond, which is not waited for
	refuse       func(submits int) error         // error instead of accepting a job
	canceled     map[string]bool                 // guarded by mu
	ends         map[string]time.Time            // guarded by mu
	most         int                             // largest number of open jobs; guarded by mu
	token        string                          // required of submits

	mu      sync.Mutex // guards what follows
	jobs    map[string]time.Time
	submits int
	strays  int // calls about jobs of other nodes
}

func (f *fake) SubmitJob(ctx context.Context, _ *publicpb.SubmitJobRequest) (*publicpb.SubmitJobResponse, error) {
	if sent := metadata.ValueFromIncomingContext(ctx, "authorization"); f.token != "" && !slices.Equal(sent, []string{"Bearer " + f.token}) {
		return nil, status.Error(codes.Unauthenticated, "a valid token is required")
	}
	if f.stall != nil {
		time.Sleep(f.stall())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.submits++
	if f.refuse != nil {
		if err := f.refuse(f.submits); err != nil {
			return nil, err
		}
	}
	id := ""
	for n := len(f.jobs); id == "" || taskwork.Owner(id, f.nodes) != f.index; n++ {
		id = fmt.Sprintf("%08x-0000-4000-8000-%012x", n, f.submits)
	}
	if f.badID {
		id = "00000000-0000-4000-8000-000000000000"
	}
	now := time.Now()
	f.jobs[id], f.ends[id] = now, now
	if f.takes != nil {
		f.ends[id] = now.Add(f.takes(f.submits))
	}
	open := 0
	for _, end := range f.ends {
		if end.After(now) {
			open++
		}
	}
	f.most = max(f.most, open)
	return &publicpb.SubmitJobResponse{JobId: id, InitialStatus: publicpb.JobStatus_QUEUED, AcceptedAtMs: time.Now().UnixMilli()}, nil
}

func (f *fake) known(id string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if taskwork.Owner(id, f.nodes) != f.index {
		f.strays++
	}
	at, ok := f.jobs[id]
	if !ok || f.forgetful {
		return 0, status.Error(codes.NotFound, "unknown")
	}
	return at.UnixMilli(), nil
}

// state returns a job's status and end.
func (f *fake) state(id string) (now publicpb.JobStatus, end int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.canceled[id] || f.cancels:
		return publicpb.JobStatus_CANCELED, f.jobs[id].UnixMilli() + 1
	case f.ends[id].After(time.Now()):
		return publicpb.JobStatus_QUEUED, 0
	default:
		return publicpb.JobStatus_DONE, max(f.ends[id].UnixMilli(), f.jobs[id].UnixMilli()+1)
	}
}

func (f *fake) GetJobStatus(_ context.Context, r *publicpb.GetJobStatusRequest) (*publicpb.GetJobStatusResponse, error) {
	at, err := f.known(r.GetJobId())
	if err != nil {
		return nil, err
	}
	now, end := f.state(r.GetJobId())
	a := &publicpb.GetJobStatusResponse{JobId: r.GetJobId(), Status: now, CreatedAtMs: at, FinishedAtMs: end}
	if now == publicpb.JobStatus_DONE {
		a.StartedAtMs = at
	}
	if f.badStatus {
		a.FinishedAtMs = at - 1000
	}
	return a, nil
}

func (f *fake) GetJobResult(_ context.Context, r *publicpb.GetJobResultRequest) (*publicpb.GetJobResultResponse, error) {
	if _, err := f.known(r.GetJobId()); err != nil {
		return nil, err
	}
	now, _ := f.state(r.GetJobId())
	if f.neverReady || now == publicpb.JobStatus_QUEUED {
		return &publicpb.GetJobResultResponse{JobId: r.GetJobId(), Checksum: taskwork.EmptyChecksum}, nil
	}
	a := &publicpb.GetJobResultResponse{JobId: r.GetJobId(), ResultReady: true, TerminalStatus: now}
	if now == publicpb.JobStatus_DONE {
		a.OutputBytes = taskwork.Output("load", 16)
	}
	if f.badBytes {
		a.OutputBytes[3]++
	}
	a.Checksum = taskwork.Checksum(a.GetOutputBytes())
	if f.badChecksum {
		a.Checksum = taskwork.EmptyChecksum
	}
	return a, nil
}

func (f *fake) CancelJob(_ context.Context, r *publicpb.CancelJobRequest) (*publicpb.CancelJobResponse, error) {
	f.mu.Lock()
	if f.ends[r.GetJobId()].After(time.Now()) {
		f.canceled[r.GetJobId()] = true
	}
	f.mu.Unlock()
	now, _ := f.state(r.GetJobId())
	return &publicpb.CancelJobResponse{JobId: r.GetJobId(), Accepted: true, CurrentStatus: now}, nil
}

func serve(t *testing.T, nodes ...*fake) (targets []string) {
	t.Helper()
	for i, f := range nodes {
		f.index, f.nodes, f.jobs, f.ends, f.canceled = i, len(nodes), make(map[string]time.Time), make(map[string]time.Time), make(map[string]bool)
		listener := taskqueuetest.Listen(t)
		servicetest.Serve(t, listener, (&servicetest.Journal{}).Log("fake"), func(r grpc.ServiceRegistrar) {
			publicpb.RegisterTaskQueuePublicServiceServer(r, f)
		})
		targets = append(targets, listener.Addr().String())
	}
	return targets
}

func settings(targets []string) load.Settings {
	s := load.DefaultSettings()
	s.Targets, s.Payload, s.Concurrency = targets, 16, 4
	s.Warmup, s.Duration = 50*time.Millisecond, 300*time.Millisecond
	return s
}

// counts returns the submits and strays so far; abandoned calls may still be served.
func (f *fake) counts() (submits, strays int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.submits, f.strays
}

// steady runs a load on new nodes. If the machine stalled, so that a call timed out or
// a method was never called, it runs again, later for longer.
func steady(t *testing.T, fakes func() []*fake, adjust func(*load.Settings)) (*load.Report, []*fake) {
	t.Helper()
	return steadyUntil(t, fakes, adjust, func(*load.Report) bool { return true })
}

// steadyUntil is steady, and also repeats until enough has happened.
func steadyUntil(t *testing.T, fakes func() []*fake, adjust func(*load.Settings), enough func(*load.Report) bool) (*load.Report, []*fake) {
	t.Helper()
	const tries = 24
	for n := 1; ; n++ {
		nodes := fakes()
		s := settings(serve(t, nodes...))
		s.Duration <<= n / 6
		adjust(&s)
		r, err := load.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		disturbed := r.Jobs.Measured == 0 || !enough(r)
		for _, m := range r.Methods {
			disturbed = disturbed || m.Requests == 0 || len(m.Errors) > 0
		}
		if !disturbed || n == tries {
			return r, nodes
		}
	}
}

func TestClosedLoop(t *testing.T) {
	spec.Covers(t, "T-12", "T-17", "T-42", "T-43", "T-256", "T-273", "T-274", "T-275")
	for _, clients := range []int{1, 8} {
		r, nodes := steady(t, func() []*fake { return []*fake{{}} }, func(s *load.Settings) { s.Concurrency = clients })
		submits, _ := nodes[0].counts()
		if !r.Correct() || r.Jobs.Accepted != submits || r.Jobs.Done != submits || r.Jobs.Accepted == 0 {
			t.Errorf("report %+v, %v", r.Jobs, r.Examples)
		}
		total := 0.0
		for _, name := range load.MethodNames() {
			m := r.Methods[name]
			total += m.PerSecond
			if l := m.Latency; m.Requests == 0 || l.P50 <= 0 || l.P50 > l.P95 || l.P95 > l.P99 || l.P99 > l.Max || len(m.Errors) > 0 {
				t.Errorf("%s: %+v", name, m)
			}
		}
		if math.Abs(total-r.PerSecond) > 1 || r.Jobs.PerSecond <= 0 || r.Jobs.EndToEnd.P50 != 1 || len(r.JobSamples) != r.Jobs.Measured || len(r.Samples) == 0 {
			t.Errorf("%v requests/s of %v, jobs %+v", r.PerSecond, total, r.Jobs)
		}
	}
}

// The token is sent with every call, and failures are in the report.
func TestToken(t *testing.T) {
	s := settings(serve(t, &fake{token: "secret"}))
	refused, err := load.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if refused.Errors["UNAUTHENTICATED"] == 0 || refused.Jobs.Accepted > 0 || refused.ErrorExamples["UNAUTHENTICATED"] != "a valid token is required" {
		t.Errorf("without a token: %v of %+v, %q", refused.Errors, refused.Methods, refused.ErrorExamples)
	}
	r, _ := steady(t, func() []*fake { return []*fake{{token: "secret"}} }, func(s *load.Settings) { s.Token = "secret" })
	if !r.Correct() || r.Jobs.Accepted == 0 || r.Errors["UNAUTHENTICATED"] > 0 {
		t.Errorf("with the token: %+v, %q", r.Jobs, r.ErrorExamples)
	}
}

func TestRouting(t *testing.T) {
	spec.Covers(t, "T-18", "T-19", "T-256", "T-261")
	r, nodes := steady(t, func() []*fake { return []*fake{{}, {}, {}, {}, {}, {}} }, func(*load.Settings) {})
	if !r.Correct() {
		t.Fatalf("report %+v", r)
	}
	least, most := math.MaxInt, 0
	for i, f := range nodes {
		submits, strays := f.counts()
		least, most = min(least, submits), max(most, submits)
		if strays > 0 {
			t.Errorf("node %d was asked for %d jobs of others", i, strays)
		}
	}
	if most-least > 1 {
		t.Errorf("nodes got from %d to %d submits", least, most)
	}
}

// Every request that a stall delays counts as late.
func TestOpenLoopOmitsNothing(t *testing.T) {
	const rate, stalled = 50.0, 400 * time.Millisecond // so few that a slow machine can make them all
	run := func(rate float64) *load.Report {
		var once sync.Once
		begin := time.Now()
		f := &fake{stall: func() (d time.Duration) {
			if time.Since(begin) > 300*time.Millisecond {
				once.Do(func() { d = stalled })
			}
			return d
		}}
		s := settings(serve(t, f))
		s.Rate, s.Concurrency, s.Mix, s.Warmup, s.Duration, s.Blind = rate, 1, load.Mix{Submit: 1}, 0, time.Second, true
		r, err := load.Run(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	begin := time.Now()
	open := run(rate)
	for range 4 {
		if time.Since(begin) < 10*time.Second { // requests later than this are not made, so a stalled machine needs another try
			break
		}
		begin = time.Now()
		open = run(rate)
	}
	if m := open.Methods["SubmitJob"]; m.Requests != int(rate) {
		t.Errorf("%d requests, want all %v that were due", m.Requests, rate)
	}
	late := 0
	for _, s := range open.Samples {
		if s.Latency > 50_000 {
			late++
		}
	}
	if late < 10 { // 20 were due during the stall
		t.Errorf("%d requests were late", late)
	}
	closed := run(0)
	late = 0
	for _, s := range closed.Samples {
		if s.Latency > 300_000 {
			late++
		}
	}
	if late < 1 || late > 4 { // more than one if the machine itself stalls, but few in a second
		t.Errorf("the closed loop has %d requests of the stall's length", late)
	}
}

// Every kind of wrong answer is found.
func TestWrongAnswersAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		fake *fake
		want string
	}{
		"Cancels":     {&fake{cancels: true}, "nobody asked for that"},
		"BadID":       {&fake{badID: true}, "a second time"},
		"BadStatus":   {&fake{badStatus: true}, "with times"},
		"BadBytes":    {&fake{badBytes: true}, "wrong bytes"},
		"BadChecksum": {&fake{badChecksum: true}, "wrong checksum"},
		"NeverReady":  {&fake{neverReady: true}, ""},
		"Forgetful":   {&fake{forgetful: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := settings(serve(t, test.fake))
			for ; ; s.Duration *= 4 { // retry while the machine stalls
				ctx := t.Context()
				if name == "NeverReady" { // the run would wait for it
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, s.Duration+1200*time.Millisecond)
					defer cancel()
				}
				r, err := load.Run(ctx, s)
				if name == "NeverReady" && err != nil {
					return // it could not end
				}
				if err != nil {
					t.Fatal(err)
				}
				if name != "NeverReady" && !r.Correct() && strings.Contains(strings.Join(r.Examples, "\n"), test.want) {
					return
				}
				if submits, _ := test.fake.counts(); submits > 1 || s.Duration > 15*time.Second {
					t.Fatalf("report %+v, %v", r.Jobs, r.Examples)
				}
			}
		})
	}
}

func TestSettings(t *testing.T) {
	spec.Covers(t, "T-276")
	m, err := load.ParseMix("submit=1, status=4,result=2")
	if err != nil || m != (load.Mix{Submit: 1, Status: 4, Result: 2}) {
		t.Errorf("mix %v, %v", m, err)
	}
	for _, text := range []string{"", "submit", "submit=x", "submit=-1", "list=1"} {
		if _, err := load.ParseMix(text); err == nil {
			t.Errorf("mix %q is read", text)
		}
	}
	err = load.Settings{Rate: -1, Mix: load.Mix{Status: -1}}.Validate()
	for _, want := range []string{"targets", "rate", "concurrency", "connections", "duration", "max-tracked", "without submits", "negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
