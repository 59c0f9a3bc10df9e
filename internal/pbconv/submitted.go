package pbconv

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// The submissions of a batch and their answers are the most bytes of a server after the jobs of
// Work streams, and are encoded and decoded in the same way: see JobsResponse.

// AppendSubmission appends a spec to an encoded SubmitBatchRequest. It fails if the spec has
// text that is not UTF-8: see [CheckText].
func AppendSubmission(b []byte, s *gq.Spec) ([]byte, error) {
	if isPlainSpec(s) {
		return appendSpec(b, 1, s, s.Key), nil
	}
	b, spec := openMessage(b, 1)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, ProtoSpec(s))
	if err != nil {
		return nil, err
	}
	return closeMessage(b, spec), nil
}

// isPlainSpec reports whether appendSpec can encode every field of a submission.
func isPlainSpec(s *gq.Spec) bool {
	return s.ID.IsZero() && s.Policy == gq.Policy{} && s.Overrides.IsZero() && emptyMetadata(&s.Metadata) &&
		s.RunAt.IsZero() && s.Delay == 0 && len(s.DependsOn) == 0 && len(s.Requires) == 0 && len(s.Attributes) == 0 &&
		s.Unique.IsZero() && s.Replaces.IsZero() && s.OrderKey == "" && s.Workflow.IsZero() && s.Ref == "" && s.Gate == 0 &&
		utf8.ValidString(s.Queue) && utf8.ValidString(s.Type) && utf8.ValidString(s.Payload.ContentType) &&
		utf8.ValidString(s.Key.Name) && utf8.ValidString(s.Key.Scope) && utf8.ValidString(s.LimitKey) &&
		utf8.ValidString(s.FairKey) && utf8.ValidString(s.Requester) && utf8.ValidString(s.Tier)
}

// CountSubmissions returns the number of specs in a SubmitBatchRequest.
func CountSubmissions(data []byte) int { return countFields(data, 1) }

// DecodeSubmissions decodes a SubmitBatchRequest. It returns false if a spec has other fields
// than those that appendSpec encodes, or faults: then the generated message has to be used.
func DecodeSubmissions(data []byte) ([]gq.Spec, bool) {
	var d jobDecoder
	specs := make([]gq.Spec, countFields(data, 1))
	var r fieldReader
	for i := 0; len(data) > 0; i++ {
		if data = r.next(data); r.odd || r.field != 1 || !d.spec(&specs[i], r.bytes()) {
			return nil, false
		}
	}
	return specs, !r.odd
}

// AppendSubmitted appends the result of one submission to an encoded SubmitBatchResponse. It
// fails if the result has text that is not UTF-8.
func AppendSubmitted(b []byte, s *gq.SubmitResult, request string) ([]byte, error) {
	b, submitted := openMessage(b, 1)
	if s.Err != nil || !s.Replaces.IsZero() || !isPlainState(&s.State) {
		b, err := proto.MarshalOptions{}.MarshalAppend(b, ProtoSubmitted(s, request))
		if err != nil {
			return nil, err
		}
		return closeMessage(b, submitted), nil
	}
	b = appendState(b, 1, &s.State)
	b = appendUint(b, 2, protowire.EncodeBool(s.Existing))
	b = appendUint(b, 3, protowire.EncodeBool(s.Same))
	return closeMessage(b, submitted), nil
}

// isPlainState reports whether appendState can encode every field of a state that is sent
// without a spec.
func isPlainState(s *gq.State) bool {
	return (s.Policy == nil || s.Policy.Preset == gq.PresetJobModel && s.Policy.IsPreset()) &&
		s.Gate == 0 && s.ReplacedBy.IsZero() && s.OrderedAfter.IsZero() && s.TraceParent == "" && s.SubmittedAt.IsZero() &&
		s.Failure == nil && s.Cancellation == gq.Cancellation{}
}

// DecodeSubmitted decodes a SubmitBatchResponse. It returns false if an answer is an error or
// has other fields than those of [AppendSubmitted]: then the generated message has to be used.
func DecodeSubmitted(data []byte) ([]gq.SubmitResult, bool) {
	d := jobDecoder{policy: machine.DefaultPolicy()}
	out := make([]gq.SubmitResult, countFields(data, 1))
	var r fieldReader
	for i := 0; len(data) > 0; i++ {
		if data = r.next(data); r.odd || r.field != 1 || !d.submitted(&out[i], r.bytes()) {
			return nil, false
		}
	}
	return out, !r.odd
}

func (d *jobDecoder) submitted(s *gq.SubmitResult, data []byte) bool {
	var r fieldReader
	var state []byte
	for len(data) > 0 {
		data = r.next(data)
		switch r.field {
		case 1:
			state = r.message(state)
		case 2:
			s.Existing = r.uint() != 0
		case 3:
			s.Same = r.uint() != 0
		default:
			return false
		}
	}
	if r.odd || state == nil || !d.state(&s.State, state) {
		return false
	}
	s.State.Policy = new(d.policy)
	return true
}
