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

	// Trail lists the audit trail, newest first; by and verb are empty for all.
	Trail func(ctx context.Context, by, verb, cursor string, limit int) (page []TrailEntry, next string, err error)

	// Deliveries lists webhook deliveries; state is pending, dead, delivered or empty for all.
	Deliveries func(ctx context.Context, state, cursor string, limit int) (page []Delivery, next string, err error)
	// Redeliver tries a delivery again that was given up.
	Redeliver func(ctx context.Context, id string) error

	// Matching is the queue of the jobs that matching assigns. Visitors who may not read it are not offered the
	// pages of providers and rounds. "" offers them to everybody.
	Matching string

	// Providers lists the providers of matching after an id.
	Providers func(ctx context.Context, after string, limit int) ([]Provider, error)

	// Rounds lists recorded rounds of matching before a number, newest first; 0 is the newest.
	// next is where the next page begins, 0 on the last.
	Rounds func(ctx context.Context, before uint64, limit int) (page []Round, next uint64, err error)
	// Round returns one of them, with up to limit assignments and refused jobs.
	Round func(ctx context.Context, number uint64, limit int) (RoundDetail, error)

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

// TrailEntry is a change that somebody made, as the audit trail has it.
type TrailEntry struct {
	At           time.Time
	By           string // name of the token
	Face, From   string // API and address of the caller
	Verb, Object string
	Count        int64 // jobs that were changed, for actions on many
	Detail       string
	Outcome      string // ok, or the kind of the error
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

// Round summarises a round of matching.
type Round struct {
	Number   uint64
	At       time.Time
	Jobs     int // that the round considered
	Assigned int
	Refused  int // that no provider got
	SetAside int // that no provider of the round could serve, even without other jobs
}

// RoundDetail is a round with what it decided.
type RoundDetail struct {
	Round
	Providers   int
	Assignments []Assignment
	Refusals    []Refusal
	Unserved    []Unserved
}

// Assignment gives a job to a provider.
type Assignment struct {
	Job, Provider string
	Attempt       int64
	Score         float64 // 0 to 1
}

// Refusal says why no provider got a job.
type Refusal struct {
	Job     string
	Kind    string
	Fitting int            // providers that could have taken it, but had no room left for it
	Reasons map[string]int // providers by the reason why they could not
}

// Unserved are jobs that no provider of a round could serve, even without other jobs.
type Unserved struct {
	Like string // what they ask for
	Jobs int
}

// Setting is a key of the configuration with its value.
type Setting struct{ Name, Value, Usage string }
