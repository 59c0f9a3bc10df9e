package matching

import (
	"fmt"
	"strconv"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
)

// roundBody is what a round decided.
type roundBody struct {
	Round *uint64 `json:"round"` // null where it assigned nothing and was not recorded
	Now   int64   `json:"now"`
	match.Beacon
	match.Result
	Unserved []matchmaker.Unserved `json:"set_aside"`
}

func (f *Face) round(c *call) (reply, error) {
	var nothing struct{}
	if err := f.read(c, &nothing); err != nil {
		return reply{}, err
	}
	r, err := f.dispatch.Round(c.context())
	if err != nil {
		return reply{}, err
	}
	return ok(roundBody{present(r.Number), r.Now, r.At, r.Result, some(r.Unserved)})
}

// Recorded is a round of the audit log: what it was decided on and what it
// decided. Whoever computes the round of the input again must get the result,
// and the order whose digest this is.
type Recorded struct {
	Round       uint64                `json:"round"`
	Input       match.Input           `json:"input"`
	Seed        match.Seed            `json:"seed"`
	Assignments []match.Assignment    `json:"assignments"`
	Requeued    []string              `json:"requeued"`
	OrderDigest string                `json:"order_digest"`
	Unserved    []matchmaker.Unserved `json:"set_aside"`
}

// Check computes the round again and reports where it differs, nil if nowhere.
func (r *Recorded) Check() error {
	rec := matchmaker.Recorded{
		Round: r.Round, Input: r.Input, OrderDigest: r.OrderDigest,
		Result: match.Result{Seed: r.Seed, Assignments: r.Assignments, Requeued: r.Requeued},
	}
	return rec.Check()
}

// RecordedOf is a round of the audit log.
func RecordedOf(r *matchmaker.Recorded) Recorded {
	return Recorded{r.Round, r.Input, r.Result.Seed, r.Result.Assignments, r.Result.Requeued, r.OrderDigest, some(r.Unserved)}
}

func (f *Face) recorded(c *call) (reply, error) {
	n, err := strconv.ParseUint(c.r.PathValue("n"), 10, 64)
	if err != nil {
		return reply{}, &gq.InvalidError{Faults: []gq.Fault{{Field: "round", Problem: fmt.Sprintf("%.64q is not a number", c.r.PathValue("n"))}}}
	}
	r, err := f.dispatch.RoundRecord(c.context(), n)
	if err != nil {
		return reply{}, err
	}
	return ok(RecordedOf(&r))
}

func (f *Face) policy(c *call) (reply, error) {
	set, err := f.dispatch.Settings(c.context())
	if err != nil {
		return reply{}, err
	}
	return ok(set)
}

func (f *Face) putPolicy(c *call) (reply, error) {
	text, err := f.body(c)
	if err != nil {
		return reply{}, err
	}
	set, err := f.dispatch.ChangeSettings(c.context(), func(s *match.Settings) error { return s.Update(text) })
	if err != nil {
		return reply{}, err
	}
	return ok(set)
}

func (f *Face) beacon(c *call) (reply, error) {
	b, err := f.dispatch.Beacon(c.context())
	if err != nil {
		return reply{}, err
	}
	return ok(b)
}

func (f *Face) putBeacon(c *call) (reply, error) {
	text, err := f.body(c)
	if err != nil {
		return reply{}, err
	}
	b, err := match.DecodeBeacon(text)
	if err != nil {
		return reply{}, err
	}
	if err := f.dispatch.PutBeacon(c.context(), b); err != nil {
		return reply{}, err
	}
	return ok(beaconBody{b, b.Seed()})
}

// beaconBody is where the chain stands, and the seed of rounds there.
type beaconBody struct {
	match.Beacon
	Seed match.Seed `json:"seed"`
}
