package pbconv

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

var drawSubmitted = rapid.Custom(func(r *rapid.T) gq.SubmitResult {
	return gq.SubmitResult{
		State:    rapid.OneOf(drawJob, drawPlainJob).Draw(r, "job").State,
		Existing: rapid.Bool().Draw(r, "existing"), Same: rapid.Bool().Draw(r, "same"), Replaces: maybeOf(drawJobID).Draw(r, "replaces"),
	}
})

func TestSubmittedIsTheGeneratedMessage(t *testing.T) {
	direct, generated := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		sent := rapid.SliceOfN(drawSubmitted, 0, 4).Draw(r, "sent")
		if n := rapid.IntRange(0, 8).Draw(r, "refused"); n < len(sent) {
			sent[n] = gq.SubmitResult{Err: gq.ErrQueueFull}
		}
		want, plain := new(pb.SubmitBatchResponse), true
		var data []byte
		for i := range sent {
			want.Submitted = append(want.Submitted, ProtoSubmitted(&sent[i], "request"))
			plain = plain && sent[i].Err == nil && sent[i].Replaces.IsZero() && isPlainState(&sent[i].State)
			var err error
			if data, err = AppendSubmitted(data, &sent[i], "request"); err != nil {
				r.Fatal(err)
			}
		}
		var got pb.SubmitBatchResponse
		if err := proto.Unmarshal(data, &got); err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
			r.Fatalf("generated (-), appended (+):\n%s", diff)
		}
		decoded, ok := DecodeSubmitted(data)
		if ok != plain {
			r.Fatalf("decoded directly: %v, want %v", ok, plain)
		}
		if !ok {
			generated++
			return
		}
		direct++
		for i := range want.Submitted {
			wanted, err := SubmittedFromProto(want.Submitted[i])
			if err != nil {
				r.Fatal(err)
			}
			if diff := cmp.Diff(wanted, decoded[i], sameValue); diff != "" {
				r.Fatalf("from the generated message (-), decoded (+):\n%s", diff)
			}
		}
	})
	if direct == 0 || generated == 0 {
		t.Errorf("%d responses were decoded directly and %d were not, want some of each", direct, generated)
	}
}

func TestDecodeSubmittedLeavesOddMessages(t *testing.T) {
	state := gq.State{ID: gq.JobID{1}, Status: gq.StatusScheduled}
	valid, err := AppendSubmitted(nil, &gq.SubmitResult{State: state}, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := DecodeSubmitted(valid); !ok {
		t.Fatal("a plain answer was not decoded")
	}
	for name, data := range map[string][]byte{
		"an unknown field":    append([]byte{0x10, 1}, valid...),
		"a number":            append(append([]byte(nil), valid...), 0x08, 1),
		"an answer cut short": valid[:len(valid)-1],
		"an empty answer":     {0x0a, 0},
	} {
		if out, ok := DecodeSubmitted(data); ok {
			t.Errorf("%s was decoded as %+v", name, out)
		}
	}
}

// drawPlainSpec draws a submission as most are.
var drawPlainSpec = rapid.Custom(func(r *rapid.T) gq.Spec {
	s := drawPlainJob.Draw(r, "job").Spec
	s.ID, s.Policy, s.Metadata = gq.JobID{}, gq.Policy{}, gq.Metadata{}
	return s
})

func TestSubmissionsAreTheGeneratedMessage(t *testing.T) {
	direct, generated := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		sent := rapid.SliceOfN(rapid.OneOf(drawPlainSpec, drawPlainSpec, drawSpec), 0, 4).Draw(r, "sent")
		want, plain := new(pb.SubmitBatchRequest), true
		var data []byte
		for i := range sent {
			want.Specs = append(want.Specs, ProtoSpec(&sent[i]))
			plain = plain && isPlainSpec(&sent[i])
			var err error
			if data, err = AppendSubmission(data, &sent[i]); err != nil {
				r.Fatal(err)
			}
		}
		var got pb.SubmitBatchRequest
		if err := proto.Unmarshal(data, &got); err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(want, &got, protocmp.Transform()); diff != "" {
			r.Fatalf("generated (-), appended (+):\n%s", diff)
		}
		if n := CountSubmissions(data); n != len(sent) {
			r.Fatalf("counted %d, sent %d", n, len(sent))
		}
		decoded, ok := DecodeSubmissions(data)
		if ok != plain {
			r.Fatalf("decoded directly: %v, want %v", ok, plain)
		}
		if !ok {
			generated++
			return
		}
		direct++
		for i, m := range want.Specs {
			wanted, err := SpecFromProto(m, gq.Policy{})
			if err != nil {
				r.Fatal(err)
			}
			if diff := cmp.Diff(wanted, decoded[i], sameValue); diff != "" {
				r.Fatalf("generated (-), direct (+):\n%s", diff)
			}
		}
	})
	if direct == 0 || generated == 0 {
		t.Errorf("%d requests were decoded directly and %d were not", direct, generated)
	}
}

// Text that is not UTF-8, an id that is none and a number of the wrong type are faults, which
// the generated message tells.
func TestFaultySubmissionsAreNotDecodedDirectly(t *testing.T) {
	for name, m := range map[string]*pb.Spec{
		"text": {Type: "\xff"}, "id": {Type: "t", ReplayOf: "job"}, "own id": {Type: "t", Id: "5b1e1f42-65a3-4b8f-8a3e-3f1f3c4e9d10"},
	} {
		data := unchecked(&pb.SubmitBatchRequest{Specs: []*pb.Spec{{Type: "t"}, m}})
		if got, ok := DecodeSubmissions(data); ok {
			t.Errorf("%s: decoded as %+v", name, got)
		}
	}
	for name, data := range map[string][]byte{
		"type as number": {10, 2, 24, 1}, "cut off": {10, 4, 26, 2, 't'}, "other field": {16, 1},
	} {
		if got, ok := DecodeSubmissions(data); ok {
			t.Errorf("%s: decoded as %+v", name, got)
		}
	}
	if _, err := AppendSubmission(nil, &gq.Spec{Type: "t", FairKey: "\xff"}); err == nil {
		t.Error("text that is not UTF-8 was encoded")
	}
}
