package pbconv

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/machine"
)

// drawPlainJob draws a job that is encoded without generated messages.
var drawPlainJob = rapid.Custom(func(r *rapid.T) gq.Job {
	j := drawJob.Draw(r, "job")
	j.Spec.Policy, j.Spec.Metadata = machine.DefaultPolicy(), gq.Metadata{Priority: gq.PriorityNormal}
	j.Spec.RunAt, j.Spec.Delay, j.Spec.DependsOn, j.Spec.Requires, j.Spec.Attributes = gq.Spec{}.RunAt, 0, nil, nil, nil
	j.Spec.OrderKey, j.State.OrderedAfter, j.State.TraceParent, j.State.SubmittedAt = "", gq.JobID{}, "", time.Time{}
	j.Spec.Unique, j.Spec.Replaces, j.State.ReplacedBy = gq.UniqueRule{}, gq.JobID{}, gq.JobID{}
	j.State.Policy, j.State.Failure, j.State.Cancellation = &j.Spec.Policy, nil, gq.Cancellation{}
	j.Metadata = j.Spec.Metadata
	return j
})

var drawJobsResponse = rapid.Custom(func(r *rapid.T) JobsResponse {
	return JobsResponse{
		ID: rapid.Uint64().Draw(r, "id"), More: rapid.Bool().Draw(r, "more"),
		Jobs: rapid.SliceOfN(rapid.OneOf(drawJob, drawPlainJob), 0, 4).Draw(r, "jobs"),
	}
})

// message returns the generated message of a response.
func (m *JobsResponse) message() *pb.WorkResponse {
	return &pb.WorkResponse{Id: m.ID, Message: &pb.WorkResponse_Jobs{Jobs: &pb.Jobs{Jobs: ProtoJobs(m.Jobs), More: m.More}}}
}

func TestJobsResponseIsTheGeneratedMessage(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		sent := drawJobsResponse.Draw(r, "sent")
		data, err := sent.Append(nil)
		if err != nil {
			r.Fatal(err)
		}
		var got pb.WorkResponse
		if err := proto.Unmarshal(data, &got); err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(sent.message(), &got, protocmp.Transform()); diff != "" {
			r.Fatalf("generated (-), appended (+):\n%s", diff)
		}
		var decoded JobsResponse
		if other, err := decoded.Decode(data); other != nil || err != nil {
			r.Fatal(other, err)
		}
		if diff := cmp.Diff(sent, decoded, sameValue); diff != "" {
			r.Fatalf("sent (-), decoded (+):\n%s", diff)
		}
	})
}

// A plain job must not take the way of the others, which would only be slow.
func TestPlainJobsNeedNoGeneratedMessages(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		j := drawPlainJob.Draw(r, "job")
		if !isPlain(&j) {
			r.Fatal("encoded as a generated message")
		}
		data, err := proto.Marshal(ProtoJob(&j))
		if err != nil {
			r.Fatal(err)
		}
		d := jobDecoder{policy: machine.DefaultPolicy()}
		var got gq.Job
		if !d.plain(&got, data) {
			r.Fatal("decoded as a generated message")
		}
		if diff := cmp.Diff(j, got, sameValue); diff != "" {
			r.Fatalf("sent (-), decoded (+):\n%s", diff)
		}
	})
}

func TestDecodedJobsShareNoMemory(t *testing.T) {
	sent := JobsResponse{Jobs: make([]gq.Job, 2)}
	for i := range sent.Jobs {
		j := &sent.Jobs[i]
		j.Spec = gq.Spec{Type: "t", Payload: gq.Payload{Data: []byte("payload")}, Policy: machine.DefaultPolicy(), Metadata: gq.Metadata{Priority: gq.PriorityNormal}}
		j.Metadata, j.Checkpoint, j.Result = j.Spec.Metadata, []byte("checkpoint"), []byte("result")
	}
	data, err := sent.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	var got, want JobsResponse
	for _, m := range []*JobsResponse{&got, &want} {
		if _, err := m.Decode(data); err != nil {
			t.Fatal(err)
		}
	}
	clear(data)
	*got.Jobs[0].State.Policy = gq.Policy{}
	if diff := cmp.Diff(want.Jobs[1], got.Jobs[1]); diff != "" {
		t.Error(diff)
	}
	if got := string(got.Jobs[0].Spec.Payload.Data) + string(got.Jobs[0].Checkpoint) + string(got.Jobs[0].Result); got != "payloadcheckpointresult" {
		t.Errorf("after the buffer was reused a job has %q", got)
	}
}

// FuzzJobsResponse checks that the decoder agrees with the generated messages on any data.
func FuzzJobsResponse(f *testing.F) {
	plain, other := gq.Job{Spec: gq.Spec{Type: "t", Policy: machine.DefaultPolicy()}}, gq.Job{Spec: gq.Spec{Type: "t", Delay: 1}}
	plain.State = gq.State{ID: machine.NewJobID([16]byte{1}), Status: gq.StatusRunning, Lease: &gq.Lease{ID: "l", Worker: "w"}}
	seedMessages(f, (&JobsResponse{ID: 1, Jobs: []gq.Job{plain, other, plain}, More: true}).message(),
		&pb.WorkResponse{Id: 2, Message: &pb.WorkResponse_Welcome{Welcome: &pb.Welcome{Items: 1}}})
	f.Fuzz(func(t *testing.T, data []byte) {
		var want pb.WorkResponse
		malformed := proto.Unmarshal(data, &want)
		var got JobsResponse
		response, err := got.Decode(data)
		switch {
		case (err != nil) != (malformed != nil):
			t.Fatalf("%v, the generated message: %v", err, malformed)
		case err != nil:
		case response != nil:
			if !proto.Equal(response, &want) {
				t.Fatalf("%v, the generated message: %v", response, &want)
			}
		default:
			jobs, fault := JobsFromProto(want.GetJobs().GetJobs())
			if (got.Err != nil) != (fault != nil) {
				t.Fatalf("%v, the generated message: %v", got.Err, fault)
			}
			if diff := cmp.Diff(JobsResponse{ID: want.GetId(), Jobs: jobs, More: want.GetJobs().GetMore()}, got, sameValue); fault == nil && diff != "" {
				t.Fatalf("generated (-), decoded (+):\n%s", diff)
			}
		}
	})
}
