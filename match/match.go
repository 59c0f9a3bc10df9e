// Package match decides which provider gets which job. It is a function: equal inputs
// give equal assignments, on every node, store and platform, so that anyone can recompute
// a round and audit it.
//
// The package is pure. It does no I/O, starts no goroutine, never reads the clock and
// draws no random numbers: time is part of the input and randomness comes from a [Seed].
// All arithmetic is on integers; shares are parts per billion.
//
// # A round
//
// [Match] takes an [Input], which has the providers and queued jobs at one time and the
// policy in force, and returns a [Result]. Jobs are visited by score, best first; each
// goes to the first provider that fits it, in an order shuffled from the seed. Every
// assignment updates the counters of leases, units and grants, so no quota is exceeded
// within a round. Tied jobs share scarce slots by the hash of job and provider, and at
// regular intervals the oldest cheap job goes first. [Explain] says why a provider cannot
// get a job.
//
// # What the caller does
//
// The caller decides whether a job is queued, applies backoff, lifetime and the number of
// attempts, and keeps the counters between rounds. This package keeps no state.
package match

import (
	"fmt"

	"github.com/gopherqueue/gq"
)

// Result is the result of a round.
type Result struct {
	Seed        Seed         `json:"seed"`
	Order       []string     `json:"order"`       // providers of the snapshot, in the order in which they were tried
	Assignments []Assignment `json:"assignments"` // in the order in which they were made
	Requeued    []string     `json:"requeued"`    // jobs visited without success, in that order
}

// Assignment gives one attempt of a job to a provider.
type Assignment struct {
	Job      string     `json:"job_id"`
	Provider string     `json:"provider_id"`
	Lease    gq.LeaseID `json:"lease_id"`
	Attempt  int64      `json:"attempt"`
	Score    int64      `json:"score_ppb"`
}

// Match computes one round. It does not change the input. For an invalid input it returns
// a [gq.InvalidError] with every fault, and no result.
func Match(in *Input) (Result, error) {
	if err := in.Validate(); err != nil {
		return Result{}, fmt.Errorf("match: %w", err)
	}
	return matchValid(in), nil
}

func matchValid(in *Input) Result {
	r := newRound(in)
	defer r.release()
	return r.run()
}
