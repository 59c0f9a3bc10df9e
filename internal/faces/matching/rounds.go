package matching

import (
	"context"
	"strconv"

	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
)

// roundBody is the result of a round.
type roundBody struct {
	Round *uint64 `json:"round"` // null if it assigned nothing and so was not recorded
	Now   int64   `json:"now"`
	match.Beacon
	match.Result
	Unserved []matchmaker.Unserved `json:"set_aside"`
}

func (f *Face) round(ctx context.Context, _ *httpx.None, _ *emptyBody) (*httpx.Answer[roundBody], error) {
	r, err := f.dispatch.Round(ctx)
	if err != nil {
		return nil, err
	}
	return httpx.OK(roundBody{present(r.Number), r.Now, r.At, r.Result, some(r.Unserved)}), nil
}

// Recorded is a round of the audit log: its input and its result. Recomputing the round
// from the input must give the same result and an order with the same digest.
type Recorded struct {
	Round       uint64                `json:"round"`
	Input       match.Input           `json:"input"`
	Seed        match.Seed            `json:"seed"`
	Assignments []match.Assignment    `json:"assignments"`
	Requeued    []string              `json:"requeued"`
	OrderDigest string                `json:"order_digest"`
	Unserved    []matchmaker.Unserved `json:"set_aside"`
}

// Check recomputes the round and returns an error that says where it differs.
func (r *Recorded) Check() error {
	rec := matchmaker.Recorded{
		Round: r.Round, Input: r.Input, OrderDigest: r.OrderDigest,
		Result: match.Result{Seed: r.Seed, Assignments: r.Assignments, Requeued: r.Requeued},
	}
	return rec.Check()
}

// RecordedOf converts a round of the audit log.
func RecordedOf(r *matchmaker.Recorded) Recorded {
	return Recorded{r.Round, r.Input, r.Result.Seed, r.Result.Assignments, r.Result.Requeued, r.OrderDigest, some(r.Unserved)}
}

func (in *roundInput) number() (uint64, error) {
	n, err := strconv.ParseUint(in.Number, 10, 64)
	if err != nil {
		return 0, invalid("round", "%.64q is not a number", in.Number)
	}
	return n, nil
}

func (f *Face) recorded(ctx context.Context, in *roundInput, _ *httpx.None) (*httpx.Answer[Recorded], error) {
	n, err := in.number()
	if err != nil {
		return nil, err
	}
	r, err := f.dispatch.RoundRecord(ctx, n)
	if err != nil {
		return nil, err
	}
	return httpx.OK(RecordedOf(&r)), nil
}

func (f *Face) policy(ctx context.Context, _ *httpx.None, _ *httpx.None) (*httpx.Answer[match.Settings], error) {
	set, err := f.dispatch.Settings(ctx)
	if err != nil {
		return nil, err
	}
	return httpx.OK(set), nil
}

func (f *Face) putPolicy(ctx context.Context, _ *httpx.None, text *httpx.Text) (*httpx.Answer[match.Settings], error) {
	set, err := f.dispatch.ChangeSettings(ctx, func(s *match.Settings) error { return s.Update(*text) })
	if err != nil {
		return nil, err
	}
	return httpx.OK(set), nil
}

func (f *Face) beacon(ctx context.Context, _ *httpx.None, _ *httpx.None) (*httpx.Answer[match.Beacon], error) {
	b, err := f.dispatch.Beacon(ctx)
	if err != nil {
		return nil, err
	}
	return httpx.OK(b), nil
}

func (f *Face) putBeacon(ctx context.Context, _ *httpx.None, text *httpx.Text) (*httpx.Answer[beaconBody], error) {
	b, err := match.DecodeBeacon(*text)
	if err != nil {
		return nil, err
	}
	if err := f.dispatch.PutBeacon(ctx, b); err != nil {
		return nil, err
	}
	return httpx.OK(beaconBody{b, b.Seed()}), nil
}

// beaconBody is the current position of the beacon chain and the seed that it gives
// rounds.
type beaconBody struct {
	match.Beacon
	Seed match.Seed `json:"seed"`
}
