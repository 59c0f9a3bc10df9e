package monolith_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/internal/testing/taskqueuetest"
	"github.com/gopherqueue/gq/services/internal/monolith"
	"github.com/gopherqueue/gq/services/internal/rpc"
	"github.com/gopherqueue/gq/services/internal/servicetest"
)

// start starts nodes of one slot each in the test process.
func start(t *testing.T, nodes int) (addrs []string, journals []*servicetest.Journal, stops []func()) {
	t.Helper()
	var listeners []net.Listener
	for range nodes {
		listener := taskqueuetest.Listen(t)
		listeners = append(listeners, listener)
		addrs = append(addrs, listener.Addr().String())
	}
	for i, listener := range listeners {
		journal := &servicetest.Journal{}
		log := journal.Log(fmt.Sprintf("node-%d", i))
		n, err := monolith.New(monolith.Config{Peers: addrs, Index: i, Slots: 1, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { n.Close() })
		stopWork := taskqueuetest.Go(t, n.Run)
		stopServer := servicetest.Serve(t, listener, log, n.Register)
		journals = append(journals, journal)
		stops = append(stops, func() { stopServer(); stopWork() })
	}
	return addrs, journals, stops
}

func TestDesignB(t *testing.T) {
	spec.Covers(t, "T-07", "T-13", "T-16", "T-264")
	addrs, journals, _ := start(t, 6)
	target := taskqueuetest.Target{Addresses: addrs, Slots: 6}
	taskqueuetest.Run(t, target)
	for i, j := range journals {
		if anomalies := j.Anomalies(t, target); len(anomalies) > 0 {
			t.Errorf("node %d: anomalies: %v", i, anomalies)
		}
	}
}

// patience is the time limit for what must happen eventually.
const patience = 2 * time.Minute

func clients(t *testing.T, addrs []string) (nodes []publicpb.TaskQueuePublicServiceClient) {
	t.Helper()
	for _, addr := range addrs {
		conn, err := rpc.DialPatiently(addr, "test", patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		nodes = append(nodes, publicpb.NewTaskQueuePublicServiceClient(conn))
	}
	return nodes
}

func TestOwnerIsStable(t *testing.T) {
	spec.Covers(t, "T-19", "T-261")
	// FNV-1a 64 of "" and "a" are published; ids must keep their owner forever.
	for id, want := range map[string]uint64{"": 0xcbf29ce484222325, "a": 0xaf63dc4c8601ec8c, "foobar": 0x85944171f73967e8} {
		for _, n := range []int{1, 2, 6, 7} {
			if got := taskwork.Owner(id, n); got != int(want%uint64(n)) {
				t.Errorf("owner of %q among %d is %d", id, n, got)
			}
		}
	}
}

func TestOneNodeDoesItAll(t *testing.T) {
	spec.Covers(t, "T-08")
	addrs, _, _ := start(t, 1)
	node := clients(t, addrs)[0]
	accepted, err := node.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x", PayloadSizeBytes: 3}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		got, err := node.GetJobResult(ctx, &publicpb.GetJobResultRequest{JobId: accepted.GetJobId()})
		if err != nil {
			t.Fatal(err)
		}
		if got.GetResultReady() {
			if !taskwork.Matches(got.GetOutputBytes(), "x", 3) {
				t.Errorf("result %v", got)
			}
			return
		}
		rpc.Wait(ctx, 5*time.Millisecond)
	}
}

// A node accepts and lists only its own jobs.
func TestNodesOwnWhatTheyAccept(t *testing.T) {
	spec.Covers(t, "T-18", "T-19", "T-20", "T-22", "T-256", "T-261")
	addrs, _, _ := start(t, 3)
	nodes := clients(t, addrs)
	accepted := make([]map[string]bool, len(nodes))
	for i := range 60 {
		n := i % len(nodes)
		answer, err := nodes[n].SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		if owner := taskwork.Owner(answer.GetJobId(), len(nodes)); owner != n {
			t.Errorf("node %d accepted a job of node %d", n, owner)
		}
		if accepted[n] == nil {
			accepted[n] = make(map[string]bool)
		}
		accepted[n][answer.GetJobId()] = true
	}
	for n, node := range nodes {
		list, err := node.ListJobs(t.Context(), &publicpb.ListJobsRequest{})
		if err != nil || len(list.GetJobs()) != 20 {
			t.Fatalf("node %d lists %d jobs, %v", n, len(list.GetJobs()), err)
		}
		for _, j := range list.GetJobs() {
			if !accepted[n][j.GetJobId()] {
				t.Errorf("node %d lists a job of another one", n)
			}
		}
	}
}

// A key belongs to one node, whichever node gets the call.
func TestKeysAreForwarded(t *testing.T) {
	addrs, _, _ := start(t, 3)
	nodes := clients(t, addrs)
	for k := range 9 {
		key := fmt.Sprintf("key-%d", k)
		ids := make(map[string]bool)
		for _, node := range nodes {
			answer, err := node.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}, ClientRequestId: key})
			if err != nil {
				t.Fatal(err)
			}
			ids[answer.GetJobId()] = true
			if taskwork.Owner(answer.GetJobId(), len(nodes)) != taskwork.Owner(key, len(nodes)) {
				t.Error("the job lies elsewhere than its key")
			}
		}
		if len(ids) != 1 {
			t.Errorf("%s made %v", key, ids)
		}
	}
}

// While a node is down its jobs are UNAVAILABLE, and those of others are not.
func TestNodeIsGone(t *testing.T) {
	spec.Covers(t, "T-214")
	addrs, journals, stops := start(t, 3)
	nodes := clients(t, addrs)
	var ids []string
	for _, node := range nodes {
		answer, err := node.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, answer.GetJobId())
	}
	stops[2]()
	for i, want := range []codes.Code{codes.OK, codes.OK, codes.Unavailable} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			_, err := nodes[0].GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: ids[i]})
			if status.Code(err) == want {
				break
			}
			if status.Code(err) != codes.DeadlineExceeded || ctx.Err() != nil { // a slow machine answers this first
				t.Fatalf("status of a job of node %d: %v, want %v", i, err, want)
			}
		}
	}
	about := make(map[string]bool)
	for _, l := range journals[0].Lines(t, "rpc_error") {
		if l.Text("grpc_code") == "UNAVAILABLE" {
			about[l.Text("job_id")] = true
		}
	}
	if len(about) != 1 || !about[ids[2]] {
		t.Errorf("lines %v", journals[0].Lines(t, "rpc_error"))
	}
}

// Nodes that disagree about their peers answer NOT_FOUND and do not forward a call
// forever.
func TestCallsAreForwardedOnce(t *testing.T) {
	addrs, journals, _ := start(t, 2)
	node := clients(t, addrs)[0]
	id := "0" // changed below until node 1 owns it
	for i := 0; taskwork.Owner(id, 2) != 1; i++ {
		id = fmt.Sprint(i)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "gq-forwarded", "1")
	if _, err := node.GetJobStatus(ctx, &publicpb.GetJobStatusRequest{JobId: id}); status.Code(err) != codes.NotFound {
		t.Errorf("forwarded to the wrong node: %v", err)
	}
	if lines := journals[1].Lines(t, "rpc_error"); len(lines) > 0 {
		t.Errorf("it was passed on: %v", lines)
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	_, err := monolith.New(monolith.Config{Peers: []string{"a", ""}, Index: 2})
	for _, want := range []string{"address is empty", "index: 2", "slots: 0"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}
