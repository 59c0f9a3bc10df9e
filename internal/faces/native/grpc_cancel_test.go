package native

import (
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// greet opens a stream of a client that says its version, and claims jobs.
func (h *hall) greet(jobs int64) (b *bench, claimed []*pb.Job) {
	h.Helper()
	b = h.dialWork()
	b.send(&pb.WorkRequest{Id: 1, Message: &pb.WorkRequest_Hello{Hello: &pb.Hello{Worker: "w", Version: "1"}}})
	if r := b.receive(); r.GetWelcome() == nil {
		h.Fatalf("hello is answered with %v", r)
	}
	if jobs == 0 {
		return b, nil
	}
	b.credit(2, jobs, 0)
	claimed = b.receive().GetJobs().GetJobs()
	if int64(len(claimed)) != jobs {
		h.Fatalf("claimed %v", claimed)
	}
	return b, claimed
}

// told checks that the next message of a stream names the jobs that are to stop.
func (b *bench) told(want ...*pb.Job) {
	b.Helper()
	r := b.receive()
	var got, ids []string
	for _, a := range r.GetAnswers().GetAnswers() {
		got = append(got, a.GetState().GetId())
	}
	for _, j := range want {
		ids = append(ids, j.GetState().GetId())
	}
	if r.GetId() != 0 || !slices.Equal(got, ids) {
		b.Errorf("the stream was sent %v, want the jobs %v", r, ids)
	}
}

// heartbeat renews the lease of a job, and checks that nothing else came before its answer.
func (b *bench) heartbeat(id uint64, j *pb.Job) {
	b.Helper()
	b.send(&pb.WorkRequest{Id: id, Message: &pb.WorkRequest_Heartbeat{Heartbeat: &pb.HeartbeatRequest{
		Beats: []*pb.Beat{{Lease: &pb.LeaseRef{Id: j.GetState().GetLease().GetId()}}},
	}}})
	if r := b.receive(); r.GetId() != id || r.GetAnswers().GetAnswers()[0].GetProblem() != nil {
		b.Errorf("a heartbeat is answered with %v", r)
	}
}

// Requests to stop several jobs go to the streams that hold them, until a job is settled or another stream renews
// its lease. A client that does not say its version is sent none.
func TestRequestsToStopGoToTheHolders(t *testing.T) {
	var tell func([]gq.JobID)
	h := serveGRPC(t, GRPCOptions{CancelRequests: func(f func([]gq.JobID)) (stop func()) {
		tell = f
		return func() {}
	}}, nil)
	var ids []gq.JobID
	for range 5 {
		ids = append(ids, h.submit())
	}
	a, ofA := h.greet(2)
	b, ofB := h.greet(2)
	old := h.open()
	old.credit(2, 1, 0)
	ofOld := old.receive().GetJobs().GetJobs()

	tell(ids)
	a.told(ofA...)
	b.told(ofB...)
	old.heartbeat(3, ofOld[0])

	a.complete(4, ofA[0])
	if r := a.receive(); r.GetId() != 4 {
		t.Fatalf("settle is answered with %v", r)
	}
	tell(ids)
	a.told(ofA[1])
	b.told(ofB...)

	b.heartbeat(5, ofA[1]) // its worker has come back through another stream
	if err := a.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if r, err := a.stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the first stream ends with %v, %v", r, err)
	}
	tell([]gq.JobID{ids[1]})
	b.told(ofA[1])
	h.face.holders.mu.Lock()
	defer h.face.holders.mu.Unlock()
	if n := len(h.face.holders.streams); n != 4 {
		t.Errorf("%d jobs are held, want 4", n)
	}
}
