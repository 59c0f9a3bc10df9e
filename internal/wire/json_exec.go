package wire

import (
	"encoding/json"
	"time"

	"github.com/gopherqueue/gq"
)

// ExecJob is a job as a program of gq work reads it, if the program gets many at once.
type ExecJob struct {
	ID            gq.JobID        `json:"id"`
	Type          string          `json:"type"`
	Queue         string          `json:"queue"`
	Attempt       int             `json:"attempt"`
	LeaseVersion  uint64          `json:"lease_version"`
	CorrelationID string          `json:"correlation_id,omitzero"`
	ContentType   string          `json:"content_type,omitzero"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	PayloadBase64 []byte          `json:"payload_base64,omitempty"`
	Slot          time.Time       `json:"slot,omitzero"`
	Traceparent   string          `json:"traceparent,omitzero"`
	Tracestate    string          `json:"tracestate,omitzero"`

	WorkflowOutcome gq.WorkflowStatus `json:"workflow_outcome,omitzero"`
}

// SetPayload embeds a payload.
func (j *ExecJob) SetPayload(p gq.Payload) {
	j.ContentType = p.ContentType
	if isJSONType(p.ContentType) {
		j.Payload, j.PayloadBase64 = embedded(p.Data)
	} else {
		j.PayloadBase64 = p.Data
	}
}

// ExecResult is what such a program writes about a job: its result, or why it failed.
type ExecResult struct {
	ID           gq.JobID        `json:"id"`
	Result       json.RawMessage `json:"result,omitempty"`
	ResultBase64 *[]byte         `json:"result_base64,omitempty"`
	Error        string          `json:"error,omitzero"`
	ExitStatus   int             `json:"exit_status,omitzero"`
}

// Outcome returns the result, or the exit status of a failure. It is 1 if the program gave only
// an error.
func (r *ExecResult) Outcome() (result []byte, status int, err error) {
	if result, err = Contents("result", r.Result, r.ResultBase64); err != nil {
		return nil, 0, err
	}
	status = r.ExitStatus
	if status == 0 && r.Error != "" {
		status = 1
	}
	switch {
	case r.ID.IsZero():
		return nil, 0, fault("id", "is required")
	case status < 0 || status > 255:
		return nil, 0, fault("exit_status", "%d is not between 0 and 255", status)
	case status != 0 && result != nil:
		return nil, 0, fault("result", "a job that failed has no result")
	}
	return result, status, nil
}
