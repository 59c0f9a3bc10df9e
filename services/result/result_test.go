package result_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/internal/testing/spec"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/internal/servicetest"
	"github.com/gopherqueue/gq/services/result"
)

func open(c result.Config) (*result.Service, *servicetest.Journal) {
	journal := &servicetest.Journal{}
	c.Log = journal.Log("result")
	return result.New(c), journal
}

func TestFirstEnvelopeStands(t *testing.T) {
	spec.Covers(t, "T-188", "T-189", "T-190", "T-191", "T-201", "T-236", "T-237", "T-260", "T-261")
	s, journal := open(result.Config{})
	doneEnvelope := &internalpb.StoreResultRequest{JobId: "j", TerminalStatus: publicpb.JobStatus_DONE, RuntimeMs: 5, OutputSummary: "s", OutputBytes: []byte("out")}
	for i, test := range []struct {
		r    *internalpb.StoreResultRequest
		want *internalpb.StoreResultResponse
	}{
		{doneEnvelope, &internalpb.StoreResultResponse{Stored: true, CurrentTerminalStatus: publicpb.JobStatus_DONE}},
		{doneEnvelope, &internalpb.StoreResultResponse{Stored: true, AlreadyExists: true, CurrentTerminalStatus: publicpb.JobStatus_DONE}},
		{&internalpb.StoreResultRequest{JobId: "j", TerminalStatus: publicpb.JobStatus_CANCELED}, &internalpb.StoreResultResponse{AlreadyExists: true, CurrentTerminalStatus: publicpb.JobStatus_DONE}},
		{&internalpb.StoreResultRequest{JobId: "j", TerminalStatus: publicpb.JobStatus_DONE, OutputBytes: []byte("other")}, &internalpb.StoreResultResponse{AlreadyExists: true, CurrentTerminalStatus: publicpb.JobStatus_DONE}},
	} {
		got, err := s.StoreResult(t.Context(), test.r)
		if err != nil || !proto.Equal(got, test.want) {
			t.Errorf("store %d: %v, %v; want %v", i, got, err, test.want)
		}
	}
	if lines := journal.Lines(t, "result_conflict"); len(lines) != 2 || lines[0].Text("job_id") != "j" {
		t.Errorf("conflicts logged: %v", lines)
	}
	want := &internalpb.GetResultResponse{
		Found: true, JobId: "j", TerminalStatus: publicpb.JobStatus_DONE, RuntimeMs: 5, OutputSummary: "s", OutputBytes: []byte("out"), Checksum: taskwork.Checksum([]byte("out")),
	}
	for range 3 {
		if got, err := s.GetResult(t.Context(), &internalpb.GetResultRequest{JobId: "j"}); err != nil || !proto.Equal(got, want) {
			t.Errorf("get: %v, %v", got, err)
		}
	}
	if got, err := s.GetResult(t.Context(), &internalpb.GetResultRequest{JobId: "ghost"}); err != nil || got.GetFound() {
		t.Errorf("unknown: %v, %v", got, err)
	}
}

func TestRefusals(t *testing.T) {
	spec.Covers(t, "T-202")
	s, _ := open(result.Config{})
	for name, r := range map[string]*internalpb.StoreResultRequest{
		"no id":          {TerminalStatus: publicpb.JobStatus_DONE},
		"long id":        {JobId: strings.Repeat("x", 1000), TerminalStatus: publicpb.JobStatus_DONE},
		"no status":      {JobId: "j"},
		"not terminal":   {JobId: "j", TerminalStatus: publicpb.JobStatus_RUNNING},
		"no status at 6": {JobId: "j", TerminalStatus: 6},
		"too large":      {JobId: "j", TerminalStatus: publicpb.JobStatus_DONE, OutputBytes: make([]byte, taskwork.MaxOutputBytes+1)},
		"wrong checksum": {JobId: "j", TerminalStatus: publicpb.JobStatus_DONE, Checksum: "00"},
	} {
		if _, err := s.StoreResult(t.Context(), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.GetResult(t.Context(), &internalpb.GetResultRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("get without id: %v", err)
	}
	if _, err := s.StoreResult(t.Context(), &internalpb.StoreResultRequest{JobId: "j", TerminalStatus: publicpb.JobStatus_DONE, OutputBytes: make([]byte, taskwork.MaxOutputBytes)}); err != nil {
		t.Errorf("as large as may be: %v", err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	has := func(s *result.Service, id string) bool {
		got, err := s.GetResult(t.Context(), &internalpb.GetResultRequest{JobId: id})
		return err == nil && got.GetFound()
	}
	fill := func(s *result.Service, n, size int) {
		for i := range n {
			if _, err := s.StoreResult(t.Context(), &internalpb.StoreResultRequest{JobId: fmt.Sprint(i), TerminalStatus: publicpb.JobStatus_DONE, OutputBytes: make([]byte, size)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	byCount, journal := open(result.Config{MaxResults: 1000})
	fill(byCount, 5000, 0)
	if has(byCount, "3999") || !has(byCount, "4000") || !has(byCount, "4999") {
		t.Error("the newest 1000 should be kept")
	}
	if lines := journal.Lines(t, "result_evicted"); len(lines) > 0 {
		t.Errorf("%d lines", len(lines))
	}
	byBytes, journal := open(result.Config{MaxBytes: 1000})
	fill(byBytes, 15, 100)
	if has(byBytes, "4") || !has(byBytes, "5") {
		t.Error("the newest 1000 bytes should be kept")
	}
	if lines := journal.Lines(t, "result_evicted"); len(lines) != 5 || lines[0].Text("job_id") != "0" {
		t.Errorf("lines %v", lines)
	}
}
