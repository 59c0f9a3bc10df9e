package services_test

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/internal/testing/taskqueuetest"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/coordinator"
	"github.com/gopherqueue/gq/services/gateway"
	"github.com/gopherqueue/gq/services/internal/rpc"
	"github.com/gopherqueue/gq/services/internal/servicetest"
	"github.com/gopherqueue/gq/services/job"
	"github.com/gopherqueue/gq/services/queue"
	"github.com/gopherqueue/gq/services/result"
	"github.com/gopherqueue/gq/services/worker"
)

// Types decide who may call what: a service can call only what the fields of its
// configuration offer, and it gets no other fields of that kind.
func TestCallerMatrix(t *testing.T) {
	spec.Covers(t, "T-52", "T-54", "T-56", "T-58", "T-61", "T-63", "T-76", "T-77", "T-115", "T-116", "T-118", "T-119", "T-120", "T-121")
	want := map[string][]string{
		"gateway": {
			"CreateJob", "DeleteJobIfStatus", "EnqueueJob", "GetJobRecord", "GetResult", "ListJobRecords", "RemoveJobIfPresent",
			"SetCancelRequested", "StoreResult", "TransitionJobStatus",
		},
		"coordinator": {"DequeueJob", "GetJobRecord", "RemoveJobIfPresent", "StoreResult", "TransitionJobStatus"},
		"worker":      {"FetchWork", "ReportWorkOutcome", "WorkerHeartbeat"},
		"job":         nil, "queue": nil, "result": nil,
	}
	for name, config := range map[string]any{
		"gateway": gateway.Config{}, "coordinator": coordinator.Config{}, "worker": worker.Config{}, "job": job.Config{}, "queue": queue.Config{}, "result": result.Config{},
	} {
		var methods []string
		for _, field := range reflect.VisibleFields(reflect.TypeOf(config)) {
			if field.Type.Kind() == reflect.Interface {
				for m := range field.Type.Methods() {
					methods = append(methods, m.Name)
				}
			}
		}
		slices.Sort(methods)
		if !slices.Equal(methods, want[name]) {
			t.Errorf("%s may call %v, want %v", name, methods, want[name])
		}
	}
}

// No service reaches another service, or a network, except through its configuration.
func TestServicesShareNothing(t *testing.T) {
	spec.Covers(t, "T-48", "T-66", "T-67", "T-282")
	names := []string{"coordinator", "gateway", "job", "queue", "result", "worker"}
	found, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	packages := make(map[string]bool)
	for _, file := range found {
		packages[filepath.Dir(file)] = true
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range syntax.Imports {
			path := strings.Trim(i.Path.Value, `"`)
			other := strings.Contains(path, "gopherqueue/gq/services") && path != "github.com/gopherqueue/gq/services/internal/rpc" &&
				!strings.HasPrefix(path, "github.com/gopherqueue/gq/services/api/")
			if other || strings.HasPrefix(path, "net") || strings.HasPrefix(path, "os") || strings.HasPrefix(path, "database") {
				t.Errorf("%s imports %s", file, path)
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "ServiceClient(") {
			t.Errorf("%s makes a client of its own", file)
		}
	}
	for _, name := range names {
		if !packages[name] {
			t.Errorf("no package %s", name)
		}
	}
	if len(packages) != len(names) {
		t.Errorf("packages %v", packages)
	}
}

// Each service serves only its own API.
func TestEachServiceServesItsOwn(t *testing.T) {
	spec.Covers(t, "T-04", "T-49", "T-53", "T-55", "T-59", "T-106", "T-110", "T-111", "T-112", "T-113")
	d := start(t, 0)
	for addr, want := range map[string]string{
		d.gateway: "taskqueue.v1.TaskQueuePublicService", d.job: "taskqueue.internal.v1.JobInternalService", d.queue: "taskqueue.internal.v1.QueueInternalService",
		d.coordinator: "taskqueue.internal.v1.CoordinatorInternalService", d.result: "taskqueue.internal.v1.ResultInternalService",
	} {
		stream, err := grpc_reflection_v1.NewServerReflectionClient(connect(t, patiently, addr, "test")).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{}})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		var ours []string
		for _, s := range answer.GetListServicesResponse().GetService() {
			if strings.HasPrefix(s.GetName(), "taskqueue.") {
				ours = append(ours, s.GetName())
			}
		}
		if !slices.Equal(ours, []string{want}) {
			t.Errorf("it serves %v, want %s", ours, want)
		}
	}
}

func waitFor(t *testing.T, client publicpb.TaskQueuePublicServiceClient, id string, want publicpb.JobStatus) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		now, err := client.GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: id})
		if err == nil && now.GetStatus() == want {
			return
		}
		if !rpc.Wait(ctx, 20*time.Millisecond) {
			t.Fatalf("status %v, %v; want %v", now, err, want)
		}
	}
}

// answers repeats a call until it returns a code. On a slow machine services may time
// out on each other first.
func answers(t *testing.T, what string, want codes.Code, call func() error) {
	t.Helper()
	for limit := time.Now().Add(patience); ; {
		err := call()
		if status.Code(err) == want {
			return
		}
		if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Unavailable || time.Now().After(limit) {
			t.Fatalf("%s: %v, want %v", what, err, want)
		}
	}
}

// A gateway has no state: another one answers the same, whatever happened to the first.
func TestGatewaysAreInterchangeable(t *testing.T) {
	spec.Covers(t, "T-50", "T-62", "T-68")
	d := start(t, 1)
	first := d.client(t)
	listener := taskqueuetest.Listen(t)
	servicetest.Serve(t, listener, d.journal.Log("gateway"), func(r grpc.ServiceRegistrar) { d.registerGateway(t, r) })
	second := publicpb.NewTaskQueuePublicServiceClient(connect(t, patiently, listener.Addr().String(), "test"))

	request := &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x", PayloadSizeBytes: 100}, ClientRequestId: "key"}
	accepted, err := first.SubmitJob(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	id := accepted.GetJobId()
	waitFor(t, first, id, done)
	before, err := first.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: id})
	if err != nil {
		t.Fatal(err)
	}
	d.stopGateway()
	again, err := second.SubmitJob(t.Context(), request)
	if err != nil || !proto.Equal(again, accepted) {
		t.Errorf("the other gateway answers %v, %v", again, err)
	}
	after, err := second.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: id})
	if err != nil || !proto.Equal(before, after) {
		t.Errorf("the other gateway has the result %v, %v", after, err)
	}
	record, err := internalpb.NewJobInternalServiceClient(connect(t, patiently, d.job, "test")).GetJobRecord(t.Context(), &internalpb.GetJobRecordRequest{JobId: id})
	if err != nil || record.GetSummary().GetStatus() != done {
		t.Errorf("the job service says %v, %v", record, err)
	}
	envelope, err := internalpb.NewResultInternalServiceClient(connect(t, patiently, d.result, "test")).GetResult(t.Context(), &internalpb.GetResultRequest{JobId: id})
	if err != nil || string(envelope.GetOutputBytes()) != string(after.GetOutputBytes()) {
		t.Errorf("the result service says %v, %v", envelope, err)
	}
}

// holds reports whether a value, or anything reachable from it, contains mark.
func holds(v reflect.Value, mark string, seen map[any]bool) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return false
		}
		if v.Kind() == reflect.Pointer {
			if key := [2]any{v.Pointer(), v.Type()}; seen[key] {
				return false
			} else {
				seen[key] = true
			}
		}
		return holds(v.Elem(), mark, seen)
	case reflect.String:
		return strings.Contains(v.String(), mark)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 && v.Kind() == reflect.Slice {
			return strings.Contains(string(v.Bytes()), mark)
		}
		for i := range v.Len() {
			if holds(v.Index(i), mark, seen) {
				return true
			}
		}
	case reflect.Map:
		for i := v.MapRange(); i.Next(); {
			if holds(i.Key(), mark, seen) || holds(i.Value(), mark, seen) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if holds(v.Field(i), mark, seen) {
				return true
			}
		}
	}
	return false
}

// Only the result service keeps output, before and after it was read, and while the
// result service is down.
func TestOutputIsTheResultServices(t *testing.T) {
	spec.Covers(t, "T-56", "T-65")
	w := wire(t)
	const mark = "the-output-that-only-one-may-keep"
	check := func(when string, kept bool) {
		t.Helper()
		for name, service := range map[string]any{"gateway": w.gateway, "job": w.jobs, "queue": w.queue, "coordinator": w.coordinator, "result": w.results} {
			if got := holds(reflect.ValueOf(service), mark, make(map[any]bool)); got != (kept && name == "result") {
				t.Errorf("%s: the %s service has the output: %v", when, name, got)
			}
		}
	}
	id := w.submit("")
	w.beat("w")
	w.given("w", id)
	outcome := &internalpb.ReportWorkOutcomeRequest{WorkerId: "w", JobId: id, Outcome: internalpb.JobOutcome_SUCCEEDED, OutputBytes: []byte(mark), Checksum: taskwork.Checksum([]byte(mark))}
	w.fromCoordinator.set("StoreResult", errDown)
	if answer, err := w.coordinator.ReportWorkOutcome(t.Context(), outcome); err == nil && answer.GetAccepted() {
		t.Errorf("an outcome that cannot be stored is answered with %v", answer)
	}
	check("while the result service is down", false)
	w.fromCoordinator.set("StoreResult", nil)
	if answer, err := w.coordinator.ReportWorkOutcome(t.Context(), outcome); err != nil || !answer.GetAccepted() {
		t.Fatalf("report: %v, %v", answer, err)
	}
	check("stored", true)
	read := func() (*publicpb.GetJobResultResponse, error) {
		return w.gateway.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: id})
	}
	if got, err := read(); err != nil || string(got.GetOutputBytes()) != mark {
		t.Errorf("result %v, %v", got, err)
	}
	check("read", true)
	w.fromGateway.set("GetResult", errDown)
	if got, err := read(); status.Code(err) != codes.Unavailable {
		t.Errorf("without the result service the result is %v, %v", got, err)
	}
}

// Results survive all other services, and jobs survive the stateless ones.
func TestResultsSurviveTheOthers(t *testing.T) {
	spec.Covers(t, "T-60", "T-214")
	d := startWith(t, 1, rpc.Dial)
	client := d.client(t)
	submit := func() (id string, err error) {
		answer, err := client.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}})
		return answer.GetJobId(), err
	}
	var id string
	answers(t, "submit", codes.OK, func() (err error) { id, err = submit(); return err })
	waitFor(t, client, id, done)
	d.stopWorker()
	d.stopCoordinator()
	d.stopQueue()
	result := func() error {
		got, err := client.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: id})
		if err == nil && !got.GetResultReady() {
			t.Errorf("result %v", got)
		}
		return err
	}
	answers(t, "result", codes.OK, result)
	answers(t, "submit without a queue", codes.Unavailable, func() error { _, err := submit(); return err })
	d.stopJob()
	answers(t, "without a job service", codes.Unavailable, result)
	envelope, err := internalpb.NewResultInternalServiceClient(connect(t, patiently, d.result, "test")).GetResult(t.Context(), &internalpb.GetResultRequest{JobId: id})
	if err != nil || !envelope.GetFound() {
		t.Errorf("envelope %v, %v", envelope, err)
	}
	for _, l := range d.journal.Lines(t, "rpc_error") {
		if l.Text("grpc_code") == "" || l.Text("caller") == "" {
			t.Errorf("line %v", l)
		}
	}
}

// A client's deadline propagates to the last service, and a slow service shows as
// DEADLINE_EXCEEDED.
func TestDeadlinesPropagate(t *testing.T) {
	spec.Covers(t, "T-216")
	slow := taskqueuetest.Listen(t)
	seen := make(chan time.Duration, 1)
	servicetest.Serve(t, slow, (&servicetest.Journal{}).Log("job"), func(r grpc.ServiceRegistrar) {
		internalpb.RegisterJobInternalServiceServer(r, slowJobs{seen: seen})
	})
	jobs := internalpb.NewJobInternalServiceClient(connect(t, patiently, slow.Addr().String(), "gateway"))
	var journal servicetest.Journal
	g := gateway.New(gateway.Config{Log: journal.Log("gateway"), Jobs: jobs})
	for limit := time.Now().Add(patience); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		_, err := g.GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: "j"})
		cancel()
		if status.Code(err) != codes.DeadlineExceeded {
			t.Fatalf("a slow service: %v", err)
		}
		select {
		case left := <-seen:
			if left > 400*time.Millisecond {
				t.Errorf("the service saw %v left", left)
			}
			return
		default: // the call did not get that far in time
		}
		if time.Now().After(limit) {
			t.Fatal("the service was never reached")
		}
	}
}

type slowJobs struct {
	internalpb.UnimplementedJobInternalServiceServer
	seen chan<- time.Duration
}

func (s slowJobs) GetJobRecord(ctx context.Context, _ *internalpb.GetJobRecordRequest) (*internalpb.GetJobRecordResponse, error) {
	end, ok := ctx.Deadline()
	if !ok {
		return nil, errors.New("no deadline")
	}
	select {
	case s.seen <- time.Until(end):
	default: // one is enough
	}
	<-ctx.Done()
	return nil, ctx.Err()
}
