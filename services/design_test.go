package services_test

import (
	"testing"
	"time"

	"google.golang.org/grpc"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
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

// design is design A in the test process, each service on its own port.
type design struct {
	journal servicetest.Journal
	dial    func(addr, caller string) (*grpc.ClientConn, error)

	gateway, job, queue, coordinator, result string // addresses

	stopGateway, stopJob, stopQueue, stopCoordinator, stopResult, stopWorker func()
}

// patience is the time limit for what must happen eventually.
const patience = 2 * time.Minute

// patiently dials with deadlines that do not depend on the speed of the machine.
func patiently(addr, caller string) (*grpc.ClientConn, error) {
	return rpc.DialPatiently(addr, caller, patience)
}

// start starts design A with so many worker slots. Its services wait for each other as
// long as necessary.
func start(t *testing.T, slots int) *design {
	t.Helper()
	return startWith(t, slots, patiently)
}

// startWith starts design A with a given function to dial services.
func startWith(t *testing.T, slots int, dial func(addr, caller string) (*grpc.ClientConn, error)) *design {
	t.Helper()
	d := &design{dial: dial}
	serve := func(name string, register func(grpc.ServiceRegistrar)) (addr string, stop func()) {
		listener := taskqueuetest.Listen(t)
		return listener.Addr().String(), servicetest.Serve(t, listener, d.journal.Log(name), register)
	}
	jobs := job.New(job.Config{Log: d.journal.Log("job")})
	d.job, d.stopJob = serve("job", func(r grpc.ServiceRegistrar) { internalpb.RegisterJobInternalServiceServer(r, jobs) })
	d.queue, d.stopQueue = serve("queue", func(r grpc.ServiceRegistrar) {
		internalpb.RegisterQueueInternalServiceServer(r, queue.New(queue.Config{}))
	})
	d.result, d.stopResult = serve("result", func(r grpc.ServiceRegistrar) {
		internalpb.RegisterResultInternalServiceServer(r, result.New(result.Config{Log: d.journal.Log("result")}))
	})
	dispatch := coordinator.New(coordinator.Config{
		Log:     d.journal.Log("coordinator"),
		Jobs:    internalpb.NewJobInternalServiceClient(d.connect(t, d.job, "coordinator")),
		Queue:   internalpb.NewQueueInternalServiceClient(d.connect(t, d.queue, "coordinator")),
		Results: internalpb.NewResultInternalServiceClient(d.connect(t, d.result, "coordinator")),
	})
	taskqueuetest.Go(t, dispatch.Run)
	d.coordinator, d.stopCoordinator = serve("coordinator", func(r grpc.ServiceRegistrar) {
		internalpb.RegisterCoordinatorInternalServiceServer(r, dispatch)
	})
	d.gateway, d.stopGateway = serve("gateway", func(r grpc.ServiceRegistrar) { d.registerGateway(t, r) })
	d.stopWorker = func() {}
	if slots > 0 {
		d.stopWorker = taskqueuetest.Go(t, worker.New(worker.Config{
			ID: "worker-1", Slots: slots, Log: d.journal.Log("worker"),
			Coordinator: internalpb.NewCoordinatorInternalServiceClient(d.connect(t, d.coordinator, "worker")),
		}).Run)
	}
	return d
}

func (d *design) registerGateway(t *testing.T, r grpc.ServiceRegistrar) {
	publicpb.RegisterTaskQueuePublicServiceServer(r, gateway.New(gateway.Config{
		Log:     d.journal.Log("gateway"),
		Jobs:    internalpb.NewJobInternalServiceClient(d.connect(t, d.job, "gateway")),
		Queue:   internalpb.NewQueueInternalServiceClient(d.connect(t, d.queue, "gateway")),
		Results: internalpb.NewResultInternalServiceClient(d.connect(t, d.result, "gateway")),
	}))
}

func (d *design) client(t *testing.T) publicpb.TaskQueuePublicServiceClient {
	return publicpb.NewTaskQueuePublicServiceClient(connect(t, patiently, d.gateway, "test"))
}

// connect connects to a service as another service does.
func (d *design) connect(t *testing.T, addr, caller string) *grpc.ClientConn {
	t.Helper()
	return connect(t, d.dial, addr, caller)
}

func connect(t *testing.T, dial func(addr, caller string) (*grpc.ClientConn, error), addr, caller string) *grpc.ClientConn {
	t.Helper()
	conn, err := dial(addr, caller)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestDesignA(t *testing.T) {
	spec.Covers(t, "T-13", "T-15", "T-39", "T-264")
	d := start(t, 6)
	target := taskqueuetest.Target{Addresses: []string{d.gateway}, Slots: 6}
	taskqueuetest.Run(t, target)
	checkLog(t, d, target)
}

// checkLog checks what must hold for every log line.
func checkLog(t *testing.T, d *design, target taskqueuetest.Target) {
	t.Helper()
	for _, l := range d.journal.Lines(t, "") {
		for _, field := range []string{"level", "service", "method", "event", "message"} {
			if l.Text(field) == "" {
				t.Errorf("no %s in %v", field, l)
			}
		}
		if ts, ok := l["ts_ms"].(float64); !ok || ts < 1.6e12 {
			t.Errorf("ts_ms of %v", l)
		}
		if l.Text("event") == "rpc_error" && (l.Text("grpc_code") == "" || l.Text("caller") == "" || l.Text("request_id") == "") {
			t.Errorf("an error without code, caller or request: %v", l)
		}
	}
	if anomalies := d.journal.Anomalies(t, target); len(anomalies) > 0 {
		t.Errorf("anomalies: %v", anomalies)
	}
}
