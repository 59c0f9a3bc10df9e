package pbconv

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// stable checks a decoder with arbitrary bytes: it never panics, names a field in every
// fault, and what it decodes survives encoding and decoding again.
func stable[V any, M any, P interface {
	*M
	proto.Message
}](t *testing.T, data []byte, decode func(P) (V, error), encode func(*V) P) {
	t.Helper()
	m := P(new(M))
	if err := proto.Unmarshal(data, m); err != nil {
		err := Malformed(data, m.ProtoReflect().Descriptor())
		if len(errs.FaultsOf(err)) == 0 {
			t.Fatalf("bytes that are no message: %v", err)
		}
		return
	}
	v, err := decode(m)
	if err != nil {
		faults := errs.FaultsOf(err)
		for _, f := range faults {
			if f.Field == "" || f.Problem == "" {
				t.Fatalf("a fault without a name: %v", err)
			}
		}
		if len(faults) == 0 {
			t.Fatalf("an error without faults: %v", err)
		}
		return
	}
	again, err := decode(encode(&v))
	if err != nil {
		t.Fatalf("what was read cannot be read again: %v", err)
	}
	if diff := cmp.Diff(v, again, sameValue); diff != "" {
		t.Fatal(diff)
	}
}

func seedMessages(f *testing.F, messages ...proto.Message) {
	f.Helper()
	f.Add([]byte{})
	f.Add([]byte{0xff})
	for _, m := range messages {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

func FuzzProtoSpec(f *testing.F) {
	policy := gq.PresetAI.Policy()
	policy.Backoff.Custom = "mine"
	seedMessages(f, ProtoSpec(&gq.Spec{
		Type: "t", Policy: policy, Delay: 5, DependsOn: []gq.Dependency{{Kind: gq.DependencyFanIn, Job: machine.NewJobID([16]byte{1})}},
		Attributes: map[string]string{"a": "b"}, Metadata: gq.Metadata{Tags: map[string]string{"c": "d"}},
	}))
	f.Fuzz(func(t *testing.T, data []byte) {
		stable(t, data, func(m *pb.Spec) (gq.Spec, error) { return SpecFromProto(m, machine.DefaultPolicy()) }, ProtoSpec)
	})
}

func FuzzProtoSchedule(f *testing.F) {
	seedMessages(f, ProtoSchedule(&gq.Schedule{Name: "n", Cron: "* * * * *", Every: 1, Template: gq.Spec{Type: "t"}}))
	f.Fuzz(func(t *testing.T, data []byte) { stable(t, data, Bases(nil).Schedule, ProtoSchedule) })
}

func FuzzProtoBeat(f *testing.F) {
	seedMessages(f, ProtoBeat(&gq.Heartbeat{Lease: gq.LeaseRef{ID: "l"}, Progress: 0.5, Checkpoint: []byte{1}, Spawn: []gq.Spec{{Type: "t"}}}))
	f.Fuzz(func(t *testing.T, data []byte) {
		stable(t, data, func(m *pb.Beat) (gq.Heartbeat, error) {
			b, err := Bases(nil).Beat(m)
			if b.Progress < 0 {
				b.Progress = -1 // all of them leave it unset
			}
			return b, err
		}, ProtoBeat)
	})
}

func FuzzProtoOutcome(f *testing.F) {
	seedMessages(f,
		ProtoOutcome(&gq.Outcome{Verdict: gq.VerdictComplete, Result: []byte{}, Spawn: []gq.Spec{{}}}),
		ProtoOutcome(&gq.Outcome{Verdict: gq.VerdictFail, Failure: gq.Failure{Category: gq.CategorySystem, RetryAfter: 1}}),
		ProtoOutcome(&gq.Outcome{Verdict: gq.VerdictRelease, Delay: 1, Reason: "r"}))
	f.Fuzz(func(t *testing.T, data []byte) { stable(t, data, Bases(nil).Outcome, ProtoOutcome) })
}

func FuzzProtoClaim(f *testing.F) {
	seedMessages(f, ProtoClaim(&gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, N: 5, Wait: 1}))
	f.Fuzz(func(t *testing.T, data []byte) { stable(t, data, ClaimFromProto, ProtoClaim) })
}

func FuzzProtoQuery(f *testing.F) {
	seedMessages(f, ProtoQuery(&gq.Query{Queue: "q", Statuses: []gq.Status{gq.StatusRunning}}))
	f.Fuzz(func(t *testing.T, data []byte) { stable(t, data, QueryFromProto, ProtoQuery) })
}

// FuzzProtoJob decodes what a client gets from a server.
func FuzzProtoJob(f *testing.F) {
	policy := gq.PresetScheduler.Policy()
	seedMessages(f, ProtoJob(&gq.Job{
		Spec:   gq.Spec{Type: "t", Policy: machine.DefaultPolicy()},
		State:  gq.State{ID: machine.NewJobID([16]byte{2}), Policy: &policy, Lease: &gq.Lease{ID: "l"}, Failure: &gq.Failure{Code: "c"}},
		Result: []byte("1"),
	}))
	f.Fuzz(func(t *testing.T, data []byte) { stable(t, data, JobFromProto, ProtoJob) })
}

func FuzzProtoExplanation(f *testing.F) {
	seedMessages(f, ProtoExplanation(&gq.Explanation{Reason: gq.Reason{Cause: gq.CauseNext, Jobs: []gq.Related{{}}}, Timeline: []gq.Event{{Failure: &gq.Failure{}}}}))
	f.Fuzz(func(t *testing.T, data []byte) { stable(t, data, ExplanationFromProto, ProtoExplanation) })
}

// FuzzProtoProblem checks that any response of a server gives an error that can be
// handled.
func FuzzProtoProblem(f *testing.F) {
	seedMessages(f, ProtoProblem(gq.ErrStaleLease, "r"), ProtoProblem(&gq.InvalidError{Faults: []gq.Fault{{Field: "f", Problem: "p"}}}, ""))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := new(pb.Problem)
		if proto.Unmarshal(data, m) != nil {
			return
		}
		err := ErrorFromProblem(m)
		if err == nil || err.Error() != m.GetMessage() || errs.KindOf(err).String() == "" {
			t.Fatalf("%v became %v", m, err)
		}
	})
}
