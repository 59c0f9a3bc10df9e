package gq

import "fmt"

// WorkflowID identifies a workflow: a version 7 UUID, so ids sort by the time they were made.
// The zero value is no workflow.
type WorkflowID [16]byte

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
