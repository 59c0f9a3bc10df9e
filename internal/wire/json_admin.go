package wire

import (
	"time"

	"github.com/gopherqueue/gq"
)

// Grant is a set of scopes on queues.
type Grant struct {
	Scopes []string `json:"scopes" doc:"submit, work, observe, read, admin"`
	Queues []string `json:"queues" doc:"Patterns in which * stands for any characters."`
}

// Token describes a token without its secret.
type Token struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Grants    []Grant   `json:"grants"`
	Rate      int       `json:"rate,omitzero" doc:"Calls a second."`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"Absent is never."`
	Token     string    `json:"token,omitzero" doc:"What callers show. It is told this once."`
}

// NewToken is a request for a token.
type NewToken struct {
	Name      string    `json:"name"`
	Grants    []Grant   `json:"grants"`
	Rate      int       `json:"rate,omitzero" doc:"Calls a second; 0 is no limit."`
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"Absent is never."`
}

// Tokens is the list of all tokens.
type Tokens struct {
	Tokens []Token `json:"tokens"`
}

// Delivery notifies a callback URL that a job has ended.
type Delivery struct {
	ID         string       `json:"id" doc:"The Webhook-Id."`
	Job        gq.JobID     `json:"job"`
	Queue      string       `json:"queue"`
	Type       gq.EventType `json:"type"`
	URL        string       `json:"url"`
	State      string       `json:"state" doc:"pending, delivered or dead."`
	Attempts   int          `json:"attempts"`
	CreatedAt  time.Time    `json:"created_at"`
	NextAt     time.Time    `json:"next_at,omitzero"`
	LastAt     time.Time    `json:"last_at,omitzero"`
	LastStatus int          `json:"last_status,omitzero" doc:"That the receiver answered with."`
	Reason     string       `json:"reason,omitzero" doc:"Why it has not succeeded."`
}

// Deliveries is a page of deliveries.
type Deliveries struct {
	Deliveries []Delivery `json:"deliveries"`
	NextCursor string     `json:"next_cursor" doc:"Of the next page; empty on the last."`
}

// AuditEntry is a change that somebody made.
type AuditEntry struct {
	At      time.Time `json:"at"`
	By      string    `json:"by" doc:"Name of the token; everyone without access control."`
	TokenID string    `json:"token_id,omitzero"`
	Face    string    `json:"face,omitzero" doc:"http, grpc or dashboard."`
	From    string    `json:"from,omitzero" doc:"Address of the caller."`
	Verb    string    `json:"verb" doc:"Such as pause or cancel."`
	Object  string    `json:"object" doc:"Such as queue mail."`
	Count   int64     `json:"count,omitzero" doc:"Jobs that were changed, for actions on many."`
	Detail  string    `json:"detail,omitzero"`
	Outcome string    `json:"outcome" doc:"ok, or the kind of the error."`
}

// Audit is a page of the audit trail.
type Audit struct {
	Entries    []AuditEntry `json:"entries"`
	NextCursor string       `json:"next_cursor" doc:"Of the next page; empty on the last."`
}

// WebhookSecret is the secret that signs deliveries.
type WebhookSecret struct {
	Secret string `json:"secret"`
}
