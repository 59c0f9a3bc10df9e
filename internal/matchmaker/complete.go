package matchmaker

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Size limits of a completion.
const (
	MaxMetaBytes  = 64 << 10
	MaxProofBytes = 16 << 10
)

// result is the stored form of a completion; equal calls give equal results.
type result struct {
	Digest string          `json:"output_digest"`
	Meta   json.RawMessage `json:"meta,omitempty"`
	Proof  string          `json:"proof,omitzero"`
}

func digestOf(kept []byte) string {
	var r result
	if json.Unmarshal(kept, &r) != nil {
		return ""
	}
	return r.Digest
}

// encode validates the form of a completion and returns its stored form.
func encode(c *match.Completion) ([]byte, error) {
	var faults []gq.Fault
	add := func(field, format string, args ...any) {
		faults = append(faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	digest, err := hex.DecodeString(c.Digest)
	switch {
	case c.Digest == "":
		add("output_digest", "is missing")
	case err != nil:
		add("output_digest", "%.64q is not hexadecimal", c.Digest)
	case len(digest) < 32 || len(digest) > 64:
		add("output_digest", "has %d bytes, not 32 to 64", len(digest))
	}
	r := result{Digest: hex.EncodeToString(digest), Proof: c.Proof}
	if len(c.Meta) > 0 && !bytes.Equal(c.Meta, []byte("null")) {
		var compact bytes.Buffer
		switch err := json.Compact(&compact, c.Meta); {
		case len(c.Meta) > MaxMetaBytes:
			add("meta", "has %d bytes, and %d are allowed", len(c.Meta), MaxMetaBytes)
		case err != nil || compact.Bytes()[0] != '{':
			add("meta", "is not a JSON object")
		}
		r.Meta = compact.Bytes()
	}
	if len(c.Proof) > MaxProofBytes {
		add("proof", "has %d bytes, and %d are allowed", len(c.Proof), MaxProofBytes)
	}
	if len(faults) > 0 {
		return nil, &gq.InvalidError{Faults: faults}
	}
	return json.Marshal(r)
}

// errProof means that a proof is invalid.
var errProof = &gq.Error{Kind: gq.KindConflict, Code: match.CodeProofInvalid}

// errUnchecked means that a proof checker or an SLA engine cannot decide now. Why is in the
// log: it may name systems that providers should not know.
var errUnchecked = &gq.Error{Kind: gq.KindUnavailable, Code: "check_unavailable"}

// FlawError says why a proof is invalid. The attempt has failed.
type FlawError struct{ Flaw string }

func (e *FlawError) Error() string { return "the proof does not hold: " + e.Flaw }
func (e *FlawError) Unwrap() error { return errProof }

// Complete completes a job: it checks the form, then the proof, and then accepts the
// completion. Repeating the same call returns the same result; any other call after the
// end of the lease is [gq.ErrStaleLease] and changes nothing.
func (d *Dispatcher) Complete(ctx context.Context, r Ref, c match.Completion) (Lease, error) {
	kept, err := encode(&c)
	if err != nil {
		return Lease{}, fmt.Errorf("complete lease %.80q: %w", r.Lease, err)
	}
	apply := func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Complete(s, r.ref(), kept, now)
	}
	if err := d.complete(ctx, r, c, kept, apply); err != nil {
		return Lease{}, d.leaseRefused(ctx, "complete", r, err)
	}
	return d.acted(ctx, "complete", r)
}

func (d *Dispatcher) complete(ctx context.Context, r Ref, c match.Completion, kept []byte, apply store.Apply) error {
	job, err := d.findJob(ctx, r.Lease, 0)
	if err != nil {
		return err
	}
	update := store.Update{Ref: store.Ref{Job: job.State.ID}, Apply: apply, Result: kept}
	// Hooks do not see completions that are rejected anyway or were accepted before.
	next, events, err := apply(job.State, d.now())
	if err != nil || len(events) == 0 || next.Status != gq.StatusCompleted {
		return d.update(ctx, update)
	}
	c.Lease, c.Provider, c.Job, c.Attempt = r.Lease, job.State.Lease.Worker, job.State.ID, int64(job.State.Faults)
	if c.Kind, err = match.ParseKind(job.Spec.Type); err != nil {
		return err
	}
	if d.options.Hooks.Proofs != nil {
		flaw, err := d.options.Hooks.Proofs.CheckProof(ctx, c)
		if err != nil {
			d.log.Warn("check a proof", "lease", c.Lease, "error", err)
			return errUnchecked.Errorf("the proof cannot be checked now; repeat the call later")
		}
		if flaw != "" {
			if err := d.refuse(ctx, r, match.Finding{Provider: c.Provider, Job: c.Job, Lease: c.Lease, Flaw: flaw}); err != nil {
				return err
			}
			return &FlawError{flaw}
		}
	}
	if d.options.Hooks.Claims == nil {
		return d.update(ctx, update)
	}
	claim, err := doc(kindClaim, string(r.Lease), 0, match.Claim{
		Lease: c.Lease, Job: c.Job, Provider: c.Provider, Kind: c.Kind, Attempt: c.Attempt, Units: job.Spec.CostUnits,
		Digest: digestOf(kept), Proof: c.Proof, At: d.now().UTC(),
	})
	if err != nil {
		return err
	}
	began := time.Now()
	done, err := d.change.Change(ctx, store.Change{Docs: []store.Doc{claim}, Updates: []store.Update{update}})
	if err == nil {
		d.options.Meter.Ended(done.States[0], time.Since(began))
		d.claims.wake()
	}
	if refusal, ok := errors.AsType[*store.ChangeError](err); ok {
		return refusal.Err
	}
	if errors.Is(err, gq.ErrConflict) { // the same call ran concurrently
		return d.update(ctx, update)
	}
	return err
}

func (d *Dispatcher) update(ctx context.Context, u store.Update) error {
	began := time.Now()
	updated, err := d.store.Update(ctx, []store.Update{u})
	if err != nil {
		return err
	}
	if updated[0].Err == nil {
		d.options.Meter.Ended(updated[0].State, time.Since(began))
	}
	return updated[0].Err
}
