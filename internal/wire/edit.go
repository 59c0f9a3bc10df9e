package wire

import (
	"encoding/json"
	"time"

	"github.com/gopherqueue/gq"
)

// Edit says what changes in a waiting job. What is absent stays.
type Edit struct {
	Queue         string          `json:"queue,omitzero" doc:"Moves the job to this queue."`
	Payload       json.RawMessage `json:"payload,omitempty" doc:"Any JSON, instead of the old payload."`
	PayloadBase64 *[]byte         `json:"payload_base64,omitempty" doc:"Instead: any bytes."`
	ContentType   string          `json:"content_type,omitzero" doc:"Of the payload."`
	RunAt         time.Time       `json:"run_at,omitzero" doc:"Not before this instant."`
}

// Domain converts the edit.
func (e *Edit) Domain() (gq.JobEdit, error) {
	out := gq.JobEdit{Queue: e.Queue, RunAt: utc(e.RunAt)}
	if e.Payload == nil && e.PayloadBase64 == nil {
		if e.ContentType != "" {
			return out, fault("content_type", "needs a payload")
		}
		return out, nil
	}
	spec := Spec{Payload: e.Payload, PayloadBase64: e.PayloadBase64, ContentType: e.ContentType}
	payload, err := spec.payload()
	out.Payload = &payload
	return out, err
}
