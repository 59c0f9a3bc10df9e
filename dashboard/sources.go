package dashboard

import (
	"context"
	"time"

	"github.com/gopherqueue/gq"
)

// Sources are what a server knows besides its queue. Each nil function leaves a page out. All
// are called with the context of the visitor and return [gq.ErrDenied] if they may not see it.
type Sources struct {
	// Tokens lists the tokens of the server, never their secrets.
	Tokens func(ctx context.Context) ([]Token, error)

	// Deliveries lists webhook deliveries; state is pending, dead, delivered or empty for all.
	Deliveries func(ctx context.Context, state, cursor string, limit int) (page []Delivery, next string, err error)
	// Redeliver tries a delivery again that was given up.
	Redeliver func(ctx context.Context, id string) error

	// Providers lists the providers of matching after an id.
	Providers func(ctx context.Context, after string, limit int) ([]Provider, error)

	// Settings lists the configuration of the server, without secrets.
	Settings func(ctx context.Context) ([]Setting, error)
}

// Token describes an access token.
type Token struct {
	ID, Name  string
	Grants    []string // such as submit,read@mail.*
	Rate      int      // calls a second; 0 is no limit
	CreatedAt time.Time
	ExpiresAt time.Time // zero never expires
	UsedAt    time.Time // last use that this server knows of; zero is none
}

// Delivery is the notice of a webhook about the end of a job.
type Delivery struct {
	ID, State  string // pending, dead or delivered
	Job        gq.JobID
	Queue      string
	Type       gq.EventType
	URL        string
	Attempts   int
	CreatedAt  time.Time
	NextAt     time.Time
	LastAt     time.Time
	LastStatus int // HTTP status of the last response; 0 is none
	Reason     string
}

// Provider is a provider of matching.
type Provider struct {
	ID, Status, Reason, Region string
	Kinds, Models              []string
	Eligible                   bool // a round now would include it
	Leases                     int64
	Stake                      int64
	Health                     float64 // 0 to 1
	Fails                      int64   // consecutive ones
	SeenAt                     time.Time
}

// Setting is a key of the configuration with its value.
type Setting struct{ Name, Value, Usage string }
