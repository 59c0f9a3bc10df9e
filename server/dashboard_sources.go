package server

import (
	"context"
	"encoding/json"
	"time"

	"github.com/gopherqueue/gq/dashboard"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/delivery"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/trail"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/server/config"
)

// tokens lists the tokens for the dashboard.
func (a *door) tokens(ctx context.Context) ([]dashboard.Token, error) {
	tokens, err := a.admin.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]dashboard.Token, len(tokens))
	for i, t := range tokens {
		list[i] = dashboard.Token{ID: t.ID, Name: t.Name, Rate: t.Rate, CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt, UsedAt: t.UsedAt}
		for _, g := range t.Grants {
			list[i].Grants = append(list[i].Grants, g.String())
		}
	}
	return list, nil
}

// auditTrail lists the audit trail for the dashboard.
func (a *door) auditTrail(ctx context.Context, by, verb, cursor string, limit int) ([]dashboard.TrailEntry, string, error) {
	page, err := a.admin.Audit(ctx, trail.Query{By: by, Verb: verb, Cursor: cursor, Limit: limit})
	if err != nil {
		return nil, "", err
	}
	list := make([]dashboard.TrailEntry, len(page.Entries))
	for i, e := range page.Entries {
		list[i] = dashboard.TrailEntry{
			At: e.At, By: e.By, Face: e.Face, From: e.From, Verb: e.Verb, Object: e.Object, Count: e.Count, Detail: e.Detail, Outcome: e.Outcome,
		}
	}
	return list, page.Next, nil
}

// deliveries lists webhook deliveries for the dashboard.
func (a *door) deliveries(ctx context.Context, state, cursor string, limit int) ([]dashboard.Delivery, string, error) {
	page, err := a.admin.Deliveries(ctx, delivery.State(state), cursor, limit)
	if err != nil {
		return nil, "", err
	}
	list := make([]dashboard.Delivery, len(page.Deliveries))
	for i, d := range page.Deliveries {
		list[i] = dashboard.Delivery{
			ID: d.ID, State: string(d.State), Job: d.Job, Queue: d.Queue, Type: d.Type, URL: d.URL, Attempts: d.Attempts,
			CreatedAt: d.CreatedAt, NextAt: d.NextAt, LastAt: d.LastAt, LastStatus: d.Status, Reason: d.Reason,
		}
	}
	return list, page.Next, nil
}

func (a *door) redeliver(ctx context.Context, id string) error {
	_, err := a.admin.RetryDelivery(ctx, id)
	return err
}

// providersOf lists the providers of matching for callers who may read its jobs, as its API does.
func providersOf(g *access.Guard, m *matchmaker.Dispatcher) func(ctx context.Context, after string, limit int) ([]dashboard.Provider, error) {
	return func(ctx context.Context, after string, limit int) ([]dashboard.Provider, error) {
		if err := g.Allow(ctx, access.Read, matchmaker.DefaultQueue, nil); err != nil {
			return nil, err
		}
		providers, err := m.Providers(ctx, after, limit)
		if err != nil {
			return nil, err
		}
		list := make([]dashboard.Provider, len(providers))
		for i := range providers {
			p := &providers[i]
			list[i] = dashboard.Provider{
				ID: p.ID, Status: p.Status.String(), Reason: p.Reason, Region: p.Region, Models: p.Models, Eligible: p.Eligible,
				Leases: p.LeasesActive, Stake: p.Stake, Health: float64(p.Health) / 1e9, Fails: p.Fails,
			}
			if p.LastHeartbeatAt > 0 {
				list[i].SeenAt = time.Unix(p.LastHeartbeatAt, 0)
			}
			for _, k := range p.Capabilities {
				list[i].Kinds = append(list[i].Kinds, k.String())
			}
		}
		return list, nil
	}
}

// settingsOf lists the configuration for administrators.
func settingsOf(g *access.Guard, cfg *config.Config) func(context.Context) ([]dashboard.Setting, error) {
	return func(ctx context.Context) ([]dashboard.Setting, error) {
		if err := g.Administer(ctx); err != nil {
			return nil, err
		}
		var list []dashboard.Setting
		for _, s := range cfg.Settings() {
			if !s.Short {
				list = append(list, dashboard.Setting{Name: s.Key, Value: s.Text(), Usage: s.Usage})
			}
		}
		return list, nil
	}
}

// roundsOf lists recorded rounds of matching.
func roundsOf(g *access.Guard, m *matchmaker.Dispatcher) func(ctx context.Context, before uint64, limit int) ([]dashboard.Round, uint64, error) {
	return func(ctx context.Context, before uint64, limit int) ([]dashboard.Round, uint64, error) {
		if err := g.Allow(ctx, access.Read, matchmaker.DefaultQueue, nil); err != nil {
			return nil, 0, err
		}
		rounds, next, err := m.Rounds(ctx, before, limit)
		if err != nil {
			return nil, 0, err
		}
		list := make([]dashboard.Round, len(rounds))
		for i, r := range rounds {
			list[i] = dashboard.Round{Number: r.Round, At: time.Unix(r.Now, 0), Jobs: r.Jobs, Assigned: r.Assignments, Refused: r.Requeued, SetAside: r.SetAside}
		}
		return list, next, nil
	}
}

// roundOf returns a recorded round, and computes from its input why providers did not get jobs.
func roundOf(g *access.Guard, m *matchmaker.Dispatcher) func(ctx context.Context, number uint64, limit int) (dashboard.RoundDetail, error) {
	return func(ctx context.Context, number uint64, limit int) (out dashboard.RoundDetail, err error) {
		if err := g.Allow(ctx, access.Read, matchmaker.DefaultQueue, nil); err != nil {
			return out, err
		}
		r, err := m.RoundRecord(ctx, number)
		if err != nil {
			return out, err
		}
		out.Round = dashboard.Round{
			Number: r.Round, At: time.Unix(r.Input.Now, 0), Jobs: len(r.Input.Jobs), Assigned: len(r.Result.Assignments), Refused: len(r.Result.Requeued),
		}
		out.Providers = len(r.Input.Providers)
		for _, a := range r.Result.Assignments[:min(limit, len(r.Result.Assignments))] {
			out.Assignments = append(out.Assignments, dashboard.Assignment{Job: a.Job, Provider: a.Provider, Attempt: a.Attempt, Score: float64(a.Score) / 1e9})
		}
		kinds := make(map[string]string)
		for i := range r.Input.Jobs {
			kinds[r.Input.Jobs[i].ID] = r.Input.Jobs[i].Kind.String()
		}
		for _, job := range r.Result.Requeued[:min(limit, len(r.Result.Requeued))] {
			refusal := dashboard.Refusal{Job: job, Kind: kinds[job], Reasons: make(map[string]int)}
			verdicts, err := match.Explain(&r.Input, job)
			if err != nil {
				return out, err
			}
			for _, verdict := range verdicts {
				if verdict.Reasons == 0 {
					refusal.Fitting++
				}
				for _, reason := range verdict.Reasons.List() {
					refusal.Reasons[reason.String()]++
				}
			}
			out.Refusals = append(out.Refusals, refusal)
		}
		for _, u := range r.Unserved {
			out.SetAside += u.Jobs
			like, err := json.Marshal(u.Like)
			if err != nil {
				return out, err
			}
			out.Unserved = append(out.Unserved, dashboard.Unserved{Like: string(like), Jobs: u.Jobs})
		}
		return out, nil
	}
}
