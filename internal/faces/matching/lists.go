package matching

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
)

// Page sizes of lists. A round is larger than other entries.
const (
	defaultPage   = 100
	maxPage       = 1000
	defaultRounds = 20
	maxRounds     = 100
)

func invalid(field, format string, args ...any) error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: fmt.Sprintf(format, args...)}}}
}

// limit returns the size of a page.
func (p *pageInput) limit(otherwise, most int) (int, error) {
	if p.Limit == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(p.Limit)
	if err != nil || n < 1 || n > most {
		return 0, invalid("limit", "is not between 1 and %d", most)
	}
	return n, nil
}

// number parses a cursor that is a number; 0 stands for the first page.
func (p *pageInput) number() (uint64, error) {
	if p.Cursor == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(p.Cursor, 10, 63)
	if err != nil || n == 0 {
		return 0, invalid("cursor", "%.64q is not one that a list has returned", p.Cursor)
	}
	return n, nil
}

// numbered returns the cursor of the next page, "" for none.
func numbered[T int64 | uint64](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// leasesBody is a page of active leases.
type leasesBody struct {
	Leases []heldBody `json:"leases"`
	Next   string     `json:"next_cursor"`
}

type heldBody struct {
	LeaseBody
	Job jobBody `json:"job"`
}

func (f *Face) leases(ctx context.Context, in *heldInput, _ *httpx.None) (*httpx.Answer[leasesBody], error) {
	return f.leasesOf(ctx, in.ID, &in.pageInput)
}

func (f *Face) allLeases(ctx context.Context, in *leasesInput, _ *httpx.None) (*httpx.Answer[leasesBody], error) {
	return f.leasesOf(ctx, in.ProviderID, &in.pageInput)
}

func (f *Face) leasesOf(ctx context.Context, provider string, in *pageInput) (*httpx.Answer[leasesBody], error) {
	limit, err := in.limit(defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	after, err := in.number()
	if err != nil {
		return nil, err
	}
	found, err := f.dispatch.Leases(ctx, provider, int64(after), limit)
	if err != nil {
		return nil, err
	}
	out := leasesBody{make([]heldBody, len(found.Leases)), numbered(found.Next)}
	for i := range found.Leases {
		out.Leases[i] = heldBody{leaseOf(&found.Leases[i].Lease), jobOf(&found.Leases[i].Job)}
	}
	return httpx.OK(out), nil
}

// jobsBody is a page of jobs.
type jobsBody struct {
	Jobs []jobBody `json:"jobs"`
	Next string    `json:"next_cursor"`
}

func (f *Face) jobs(ctx context.Context, in *jobsInput, _ *httpx.None) (*httpx.Answer[jobsBody], error) {
	limit, err := in.limit(defaultPage, maxPage)
	if err != nil {
		return nil, err
	}
	q := matchmaker.JobQuery{State: in.State, Requester: in.Requester, Cursor: in.Cursor, Limit: limit}
	if states := matchmaker.JobStates(); q.State != "" && !slices.Contains(states, q.State) {
		return nil, invalid("state", "%.64q is not one of %s", q.State, strings.Join(states, ", "))
	}
	if in.Kind != "" {
		if q.Kind, err = match.ParseKind(in.Kind); err != nil {
			return nil, invalid("kind", "%.64q is not one of %v", in.Kind, match.Kinds())
		}
	}
	found, err := f.dispatch.Jobs(ctx, q)
	if err != nil {
		return nil, err
	}
	out := jobsBody{make([]jobBody, len(found.Jobs)), found.Next}
	for i := range found.Jobs {
		out.Jobs[i] = jobOf(&found.Jobs[i])
	}
	return httpx.OK(out), nil
}

// roundsBody is a page of rounds.
type roundsBody struct {
	Rounds []matchmaker.RoundSummary `json:"rounds"`
	Next   string                    `json:"next_cursor"`
}

func (f *Face) rounds(ctx context.Context, in *pageInput, _ *httpx.None) (*httpx.Answer[roundsBody], error) {
	limit, err := in.limit(defaultRounds, maxRounds)
	if err != nil {
		return nil, err
	}
	before, err := in.number()
	if err != nil {
		return nil, err
	}
	list, next, err := f.dispatch.Rounds(ctx, before, limit)
	if err != nil {
		return nil, err
	}
	return httpx.OK(roundsBody{some(list), numbered(next)}), nil
}

type cancelRequest struct {
	Reason string `json:"reason,omitzero"`
}

func (f *Face) cancelJob(ctx context.Context, in *idInput, body *cancelRequest) (*httpx.Answer[jobBody], error) {
	id, err := gq.ParseJobID(in.ID)
	if err != nil {
		return nil, err
	}
	j, err := f.dispatch.CancelJob(ctx, id, body.Reason)
	if err != nil {
		return nil, err
	}
	return httpx.OK(jobOf(&j)), nil
}

func (f *Face) cancelLease(ctx context.Context, in *idInput, body *endRequest) (*httpx.Answer[LeaseBody], error) {
	return answer(f.dispatch.CancelLease(ctx, body.ref(in), body.Reason))
}

// cancelledBody is the result of cancelling a round.
type cancelledBody struct {
	Round     uint64       `json:"round"`
	Cancelled []gq.LeaseID `json:"cancelled"`
	Ended     int          `json:"ended_before"`
}

func (f *Face) cancelRound(ctx context.Context, in *roundInput, body *cancelRequest) (*httpx.Answer[cancelledBody], error) {
	n, err := in.number()
	if err != nil {
		return nil, err
	}
	out, err := f.dispatch.CancelRound(ctx, n, body.Reason)
	if err != nil {
		return nil, err
	}
	return httpx.OK(cancelledBody{out.Round, some(out.Cancelled), out.Ended}), nil
}
