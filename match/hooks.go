package match

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
)

// Hooks connect the server's matching queue to other systems. Nil fields are off.
//
// Proofs and SLA decide something and are called while a provider waits for the answer.
// Claims, Rulings and Rounds are told what has happened. Their records are stored in the
// commit of what they tell of, and delivered from there at least once, until the sink
// accepts them: a sink that is slow or fails delays no round and no call.
type Hooks struct {
	Proofs  ProofChecker     // nil accepts every proof
	SLA     Judge            // nil judges by the settings
	Claims  Sink[Claim]      // completions
	Rulings Sink[Ruling]     // invalid proofs and their consequences
	Rounds  Sink[RoundProof] // rounds that assigned something, in order
}

// Sink accepts records. If it returns an error, the same records are delivered again later,
// perhaps together with others. After a crash, too, records may come again: their ids tell.
type Sink[T any] func(ctx context.Context, records []T) error

// Completion is a provider's report that it has done a job.
type Completion struct {
	Lease    gq.LeaseID      `json:"lease_id"`
	Job      gq.JobID        `json:"job_id"`
	Provider string          `json:"provider_id"`
	Kind     Kind            `json:"kind"`
	Attempt  int64           `json:"attempt"`
	Digest   string          `json:"output_digest"`   // 32 to 64 bytes in hexadecimal
	Meta     json.RawMessage `json:"meta,omitempty"`  // an object, or empty
	Proof    string          `json:"proof,omitempty"` // a reference to the proof, or the proof itself
}

// ProofChecker checks a completion before it is accepted. It returns why the proof is
// invalid, "" if it is valid, or an error if it cannot decide now: then the completion is
// refused, and the provider can repeat it.
type ProofChecker interface {
	CheckProof(ctx context.Context, c Completion) (flaw string, err error)
}

// Finding is an invalid proof.
type Finding struct {
	Provider string     `json:"provider_id"`
	Job      gq.JobID   `json:"job_id"`
	Lease    gq.LeaseID `json:"lease_id"`
	Flaw     string     `json:"flaw"`
	Stake    int64      `json:"stake"`  // of the provider
	Before   int64      `json:"before"` // earlier findings about the provider
}

// Judgement is the consequence of a finding.
type Judgement struct {
	Penalty int64  `json:"penalty"` // stake to take; 0 for none
	Reason  string `json:"reason"`
	Jail    bool   `json:"jail"`
}

// Judge decides what follows from findings.
type Judge interface {
	Judge(ctx context.Context, f Finding) (Judgement, error)
}

// Claim is an accepted completion, as a payment system needs it: a reference to the proof,
// or the digest alone. The lease identifies it.
type Claim struct {
	Lease    gq.LeaseID `json:"lease_id"`
	Job      gq.JobID   `json:"job_id"`
	Provider string     `json:"provider_id"`
	Kind     Kind       `json:"kind"`
	Attempt  int64      `json:"attempt"`
	Units    int64      `json:"units"`
	Digest   string     `json:"output_digest"`
	Proof    string     `json:"proof,omitempty"`
	At       time.Time  `json:"at"`
}

// Ruling is a finding with its judgement. Number counts the rulings of a store.
type Ruling struct {
	Number uint64 `json:"number"`
	Finding
	Judgement           // with the stake that was taken
	At        time.Time `json:"at"`
}

// RoundProof commits the queue to a round: whoever has it can later check the record of the
// round against it. InputDigest is the SHA-256 of the input as gq match replay --input
// prints it, OrderDigest that of the order of providers, one id a line.
type RoundProof struct {
	Round uint64 `json:"round"`
	Beacon
	Now         int64        `json:"now"`
	Seed        Seed         `json:"seed"`
	InputDigest string       `json:"input_digest"`
	OrderDigest string       `json:"order_digest"`
	Assignments []Assignment `json:"assignments"`
	Requeued    []string     `json:"requeued"`
}

// RecordID returns the id under which the claim is delivered.
func (c Claim) RecordID() string { return "claim-" + string(c.Lease) }

// RecordID returns the id under which the ruling is delivered.
func (r Ruling) RecordID() string { return "sla-" + strconv.FormatUint(r.Number, 10) }

// RecordID returns the id under which the proof is delivered.
func (r RoundProof) RecordID() string { return "round-" + strconv.FormatUint(r.Round, 10) }
