package taskqueuetest

import (
	"testing"

	"google.golang.org/grpc/codes"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
)

var errorCases = []testCase{
	{
		name: "Errors/Invalid", clause: "requests that cannot be are INVALID_ARGUMENT",
		Covers: []string{"T-208", "T-210"},
		run:    errorsInvalid,
	},
	{
		name: "Errors/Unknown", clause: "calls about a job that is unknown are NOT_FOUND",
		Covers: []string{"T-159", "T-208", "T-211", "T-260"},
		run:    errorsUnknown,
	},
}

func errorsInvalid(t *testing.T, s *system) {
	for _, node := range s.nodes {
		for name, r := range map[string]*publicpb.SubmitJobRequest{
			"no spec": {}, "no job_type": {Spec: &publicpb.JobSpec{WorkDurationMs: 1}}, "no job_type, keyed": {Spec: &publicpb.JobSpec{}, ClientRequestId: "k"},
		} {
			_, err := node.SubmitJob(t.Context(), r)
			wantCode(t, name, err, codes.InvalidArgument)
		}
		_, err := node.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{})
		wantCode(t, "status without id", err, codes.InvalidArgument)
		_, err = node.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{})
		wantCode(t, "result without id", err, codes.InvalidArgument)
		_, err = node.CancelJob(t.Context(), &publicpb.CancelJobRequest{Reason: "r"})
		wantCode(t, "cancel without id", err, codes.InvalidArgument)
	}
}

func errorsUnknown(t *testing.T, s *system) {
	for _, id := range []string{"3f1b6c9e-8d4a-4f6e-9b1a-0123456789ab", "no uuid at all"} {
		for _, node := range s.nodes {
			_, err := node.GetJobStatus(t.Context(), &publicpb.GetJobStatusRequest{JobId: id})
			wantCode(t, "status", err, codes.NotFound)
			_, err = node.GetJobResult(t.Context(), &publicpb.GetJobResultRequest{JobId: id})
			wantCode(t, "result", err, codes.NotFound)
			_, err = node.CancelJob(t.Context(), &publicpb.CancelJobRequest{JobId: id})
			wantCode(t, "cancel", err, codes.NotFound)
		}
	}
}
