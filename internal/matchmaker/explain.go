package matchmaker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/matchmaker/backlog"
	"github.com/gopherqueue/gq/match"
)

// shown is the most providers that an explanation names.
const shown = 20

// refusals lists why each provider, by id, cannot get a waiting job; no reasons if it
// can. It also returns the input that it judged by. The caller holds mu.
func (d *Dispatcher) refusals(ctx context.Context, job *gq.Job) (in *match.Input, verdicts []match.Verdict, err error) {
	if err := d.catchUp(ctx); err != nil {
		return nil, nil, err
	}
	m, err := matchJob(job, nil)
	if err != nil {
		return nil, nil, err
	}
	now := d.now().Unix()
	if err := d.refreshHeartbeats(ctx, now); err != nil {
		return nil, nil, err
	}
	at := d.at(now)
	in = &match.Input{Now: now, Policy: d.settings.Policy, Jobs: []match.Job{m}}
	if w := d.backlog.Get(job.State.ID); w != nil {
		in.Jobs[0].Excluded = excluded(w, at.Seed())
		if in.Grants, err = d.granted(ctx, []*backlog.Job{w}, now); err != nil {
			return nil, nil, err
		}
	}
	for _, p := range d.registry.ByID() {
		in.Providers = append(in.Providers, p.View(&d.settings.Health, at.Epoch, now))
	}
	verdicts, err = match.Explain(in, m.ID)
	return in, verdicts, err
}

// explain adds to the engine's explanation of a job which filter rejected which provider.
func (d *Dispatcher) explain(ctx context.Context, job *gq.Job) ([]gq.Reason, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	in, verdicts, err := d.refusals(ctx, job)
	if errs.KindOf(err) == gq.KindInvalid {
		return []gq.Reason{{
			Cause: gq.CauseConstraint, Summary: "asks for nothing that a provider could be matched with: " + err.Error(),
			Remedy: "cancel it, and submit it to POST /api/matching/jobs",
		}}, nil
	}
	if err != nil {
		return nil, err
	}
	fitting := 0
	tally := make(map[match.Reason]int)
	for _, v := range verdicts {
		if v.Reasons == 0 {
			fitting++
		}
		for _, r := range v.Reasons.List() {
			tally[r]++
		}
	}
	switch {
	case len(verdicts) == 0:
		return []gq.Reason{{
			Cause: gq.CauseNoWorker, Summary: "no provider is registered",
			Remedy: "register one: POST /api/matching/providers",
		}}, nil
	case fitting > 0:
		return []gq.Reason{d.inLine(job, fitting, len(verdicts))}, nil
	}
	near := nearest(in, verdicts)
	first := gq.Reason{
		Cause:   gq.CauseConstraint,
		Summary: fmt.Sprintf("none of %d providers fits: %s", len(verdicts), tallied(tally)),
		More:    max(0, len(verdicts)-shown),
	}
	first.Remedy, first.Until = d.remedy(in, near)
	reasons := []gq.Reason{first}
	if near.reasons.Has(match.Excluded) {
		reasons[0].Summary += "; an excluded provider had this attempt and does not get it again under the same seed"
		if d.beacon != nil && near.reasons == 1<<match.Excluded {
			reasons = append(reasons, d.stalled(in.Now)...)
		}
	} else if w := d.backlog.Get(job.State.ID); w != nil && w.Unserved() {
		reasons[0].Summary = "set aside: " + first.Summary
	}
	for _, v := range verdicts[:min(len(verdicts), shown)] {
		reasons = append(reasons, gq.Reason{Cause: gq.CauseConstraint, Summary: fmt.Sprintf("provider %s: %s", v.Provider, named(v.Reasons.List()))})
	}
	return reasons, nil
}

// inLine explains a job that a provider could get.
func (d *Dispatcher) inLine(job *gq.Job, fitting, of int) gq.Reason {
	r := gq.Reason{
		Cause:   gq.CauseNext,
		Summary: fmt.Sprintf("%d of %d providers fit; it waits for its turn in a round", fitting, of),
		Remedy:  "wait, or submit it with a higher fee or tier",
	}
	if w := d.backlog.Get(job.State.ID); w != nil && d.backlog.First(w, d.now()) {
		r.Summary = fmt.Sprintf("%d of %d providers fit; it is the first job of the next round", fitting, of)
		r.Remedy = fmt.Sprintf("wait: rounds are %v apart", time.Duration(d.settings.DispatchInterval)*time.Millisecond)
	}
	return r
}

func named(reasons []match.Reason) string {
	names := make([]string, len(reasons))
	for i, r := range reasons {
		names[i] = r.String()
	}
	return strings.Join(names, ", ")
}

// tallied lists reasons with their number of providers, the most frequent first.
func tallied(tally map[match.Reason]int) string {
	var reasons []match.Reason
	for r := range tally {
		reasons = append(reasons, r)
	}
	slices.SortFunc(reasons, func(a, b match.Reason) int { return cmp.Or(cmp.Compare(tally[b], tally[a]), cmp.Compare(a, b)) })
	parts := make([]string, len(reasons))
	for i, r := range reasons {
		parts[i] = fmt.Sprintf("%d %s", tally[r], r)
	}
	return strings.Join(parts, ", ")
}
