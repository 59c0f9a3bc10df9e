package services_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/coordinator"
	"github.com/gopherqueue/gq/services/gateway"
	"github.com/gopherqueue/gq/services/internal/servicetest"
	"github.com/gopherqueue/gq/services/job"
	"github.com/gopherqueue/gq/services/queue"
	"github.com/gopherqueue/gq/services/result"
)

// tap connects services without a network, so that it works in synctest bubbles. It
// records each call and can make it fail.
type tap struct {
	mu    sync.Mutex // guards what follows
	serve map[string]func(context.Context, any) (any, error)
	calls []string
	fail  map[string]error  // returned instead of calling
	lose  map[string]error  // returned after the call: the answer is lost
	hooks map[string]func() // run before the next call, once
}

func newTap() *tap {
	return &tap{
		serve: make(map[string]func(context.Context, any) (any, error)),
		fail:  make(map[string]error), lose: make(map[string]error), hooks: make(map[string]func()),
	}
}

func (p *tap) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, m := range desc.Methods {
		p.serve[m.MethodName] = func(ctx context.Context, request any) (any, error) {
			decode := func(into any) error {
				proto.Merge(into.(proto.Message), request.(proto.Message))
				return nil
			}
			return m.Handler(impl, ctx, decode, nil)
		}
	}
}

func (p *tap) Invoke(ctx context.Context, method string, request, reply any, _ ...grpc.CallOption) error {
	name := method[strings.LastIndexByte(method, '/')+1:]
	p.mu.Lock()
	p.calls = append(p.calls, name)
	fail, lose, hook, serve := p.fail[name], p.lose[name], p.hooks[name], p.serve[name]
	delete(p.hooks, name)
	p.mu.Unlock()
	if hook != nil {
		hook()
	}
	if fail != nil {
		return fail
	}
	answer, err := serve(ctx, request)
	if err != nil {
		return err
	}
	proto.Merge(reply.(proto.Message), answer.(proto.Message))
	return lose
}

func (p *tap) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, errors.New("no streams")
}

// set makes calls of a method fail; nil makes them work again.
func (p *tap) set(method string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail[method] = err
}

// setLost makes calls of a method lose their answer.
func (p *tap) setLost(method string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose[method] = err
}

// before runs a function before the next call of a method.
func (p *tap) before(method string, do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hooks[method] = do
}

// taken returns the calls since the last time.
func (p *tap) taken() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return calls
}

// wired is design A without worker and network, with one tap on the gateway's calls and
// one on the coordinator's.
type wired struct {
	t       *testing.T
	journal servicetest.Journal

	gateway     *gateway.Service
	jobs        *job.Service
	queue       *queue.Service
	results     *result.Service
	coordinator *coordinator.Service

	fromGateway, fromCoordinator *tap
}

// ticking gives the coordinator a running clock, for tests in bubbles.
func ticking(c *coordinator.Config, _ *queue.Config) { c.Now = time.Now }

// wire returns a design whose coordinator's clock stands still: no worker times out.
func wire(t *testing.T, adjust ...func(*coordinator.Config, *queue.Config)) *wired {
	w := &wired{t: t, fromGateway: newTap(), fromCoordinator: newTap()}
	now := time.Now()
	dispatch := coordinator.Config{Now: func() time.Time { return now }}
	var waiting queue.Config
	for _, f := range adjust {
		f(&dispatch, &waiting)
	}
	w.jobs = job.New(job.Config{Log: w.journal.Log("job")})
	w.queue = queue.New(waiting)
	w.results = result.New(result.Config{Log: w.journal.Log("result")})
	for _, p := range []*tap{w.fromGateway, w.fromCoordinator} {
		internalpb.RegisterJobInternalServiceServer(p, w.jobs)
		internalpb.RegisterQueueInternalServiceServer(p, w.queue)
		internalpb.RegisterResultInternalServiceServer(p, w.results)
	}
	w.gateway = gateway.New(gateway.Config{
		Log: w.journal.Log("gateway"), Jobs: internalpb.NewJobInternalServiceClient(w.fromGateway),
		Queue: internalpb.NewQueueInternalServiceClient(w.fromGateway), Results: internalpb.NewResultInternalServiceClient(w.fromGateway),
	})
	dispatch.Log = w.journal.Log("coordinator")
	dispatch.Jobs = internalpb.NewJobInternalServiceClient(w.fromCoordinator)
	dispatch.Queue = internalpb.NewQueueInternalServiceClient(w.fromCoordinator)
	dispatch.Results = internalpb.NewResultInternalServiceClient(w.fromCoordinator)
	w.coordinator = coordinator.New(dispatch)
	return w
}

var errDown = status.Error(codes.Unavailable, "down")

const (
	queued   = publicpb.JobStatus_QUEUED
	running  = publicpb.JobStatus_RUNNING
	done     = publicpb.JobStatus_DONE
	failed   = publicpb.JobStatus_FAILED
	canceled = publicpb.JobStatus_CANCELED
)

func (w *wired) submit(key string) string {
	w.t.Helper()
	answer, err := w.gateway.SubmitJob(w.t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x", WorkDurationMs: 5}, ClientRequestId: key})
	if err != nil {
		w.t.Fatalf("submit: %v", err)
	}
	w.fromGateway.taken()
	return answer.GetJobId()
}

func (w *wired) cancel(id string) *publicpb.CancelJobResponse {
	w.t.Helper()
	answer, err := w.gateway.CancelJob(w.t.Context(), &publicpb.CancelJobRequest{JobId: id, Reason: "why"})
	if err != nil {
		w.t.Fatalf("cancel: %v", err)
	}
	return answer
}

// cancelInVain cancels a job while a service is down.
func (w *wired) cancelInVain(id string) {
	w.t.Helper()
	if _, err := w.gateway.CancelJob(w.t.Context(), &publicpb.CancelJobRequest{JobId: id}); status.Code(err) != codes.Unavailable {
		w.t.Fatalf("cancel: %v", err)
	}
}

func (w *wired) beat(worker string) *internalpb.WorkerHeartbeatResponse {
	w.t.Helper()
	answer, err := w.coordinator.WorkerHeartbeat(w.t.Context(), &internalpb.WorkerHeartbeatRequest{WorkerId: worker})
	if err != nil || !answer.GetAccepted() {
		w.t.Fatalf("heartbeat: %v, %v", answer, err)
	}
	return answer
}

func (w *wired) fetch(worker string) *internalpb.FetchWorkResponse {
	w.t.Helper()
	answer, err := w.coordinator.FetchWork(w.t.Context(), &internalpb.FetchWorkRequest{WorkerId: worker})
	if err != nil {
		w.t.Fatalf("fetch: %v", err)
	}
	return answer
}

// given fetches and requires a certain job.
func (w *wired) given(worker, id string) {
	w.t.Helper()
	if answer := w.fetch(worker); !answer.GetAssigned() || answer.GetJobId() != id {
		w.t.Fatalf("fetch answers %v, want the job %s", answer, id)
	}
}

func (w *wired) report(worker, id string, outcome internalpb.JobOutcome) bool {
	w.t.Helper()
	answer, err := w.coordinator.ReportWorkOutcome(w.t.Context(), &internalpb.ReportWorkOutcomeRequest{
		WorkerId: worker, JobId: id, Outcome: outcome, RuntimeMs: 7, OutputBytes: []byte(worker), FailureReason: "broken",
	})
	if err != nil {
		w.t.Fatalf("report: %v", err)
	}
	return answer.GetAccepted()
}

// stands requires a status of a job, and a result once it has ended.
func (w *wired) stands(id string, want publicpb.JobStatus) *publicpb.GetJobStatusResponse {
	w.t.Helper()
	now, err := w.gateway.GetJobStatus(w.t.Context(), &publicpb.GetJobStatusRequest{JobId: id})
	if err != nil || now.GetStatus() != want {
		w.t.Fatalf("status %v, %v; want %v", now, err, want)
	}
	if want > running {
		got, err := w.gateway.GetJobResult(w.t.Context(), &publicpb.GetJobResultRequest{JobId: id})
		if err != nil || got.GetTerminalStatus() != want {
			w.t.Fatalf("result %v, %v; want %v", got, err, want)
		}
	}
	return now
}

// logged requires a line about a job with an event and, for anomalies, a kind.
func (w *wired) logged(event, kind, id string) {
	w.t.Helper()
	for _, l := range w.journal.Lines(w.t, event) {
		if l.Text("job_id") == id && (kind == "" || l.Text("anomaly") == kind) {
			return
		}
	}
	w.t.Errorf("no line with event %s %s about %s in %v", event, kind, id, w.journal.Lines(w.t, ""))
}
