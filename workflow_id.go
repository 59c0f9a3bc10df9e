package gq

import (
	"crypto/rand"
	"fmt"
	"time"
)

// WorkflowID identifies a workflow: a version 7 UUID, so ids sort by the time they were made.
// The zero value is no workflow.
type WorkflowID [16]byte

// NewWorkflowID returns a new id, for [Flow.ID]. A program that keeps it beside the order that
// the workflow is about can submit the workflow again.
func NewWorkflowID() (id WorkflowID) {
	_, _ = rand.Read(id[6:]) // never fails
	ms := uint64(max(time.Now().UnixMilli(), 0))
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6], id[8] = id[6]&0x0f|0x70, id[8]&0x3f|0x80
	return id
}

// ParseWorkflowID parses the text of an id, such as a part of a URL.
func ParseWorkflowID(text string) (id WorkflowID, err error) {
	if err = id.UnmarshalText([]byte(text)); err == nil && id.IsZero() {
		err = &InvalidError{Faults: []Fault{{"workflow", `"" is not the id of a workflow, a version 7 UUID`}}}
	}
	return id, err
}

// IsZero reports whether id is the zero value.
func (id WorkflowID) IsZero() bool { return id == WorkflowID{} }

// Valid reports whether id is a version 7 UUID of the RFC 9562 variant.
func (id WorkflowID) Valid() bool { return id[6]>>4 == 7 && id[8]>>6 == 2 }

func (id WorkflowID) String() string { return formatUUID(id) }

// MarshalText returns the canonical text form. That of the zero id is empty.
func (id WorkflowID) MarshalText() ([]byte, error) { return JobID(id).AppendText(nil) }

// UnmarshalText parses the text of MarshalText.
func (id *WorkflowID) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*id = WorkflowID{}
		return nil
	}
	parsed, ok := parseUUID(text, true)
	if !ok || !WorkflowID(parsed).Valid() {
		return &InvalidError{Faults: []Fault{{"workflow", fmt.Sprintf("%.64q is not the id of a workflow, a version 7 UUID", text)}}}
	}
	*id = parsed
	return nil
}
