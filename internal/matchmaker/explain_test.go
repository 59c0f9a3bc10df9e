package matchmaker_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
)

// why explains a waiting job.
func (f *fixture) why(j matchmaker.Job) gq.Explanation {
	f.Helper()
	x, err := f.engine.Explain(f.Context(), jobID(f, j.ID))
	if err != nil {
		f.Fatal(err)
	}
	return x
}

// standsStill reports whether an explanation blames the beacon.
func standsStill(x *gq.Explanation) bool {
	return slices.ContainsFunc(x.Also, func(r gq.Reason) bool { return strings.HasPrefix(r.Summary, matchmaker.StalledBeacon) })
}

// wants checks the cause and remedy of an explanation.
func (f *fixture) wants(what string, x *gq.Explanation, cause gq.Cause, remedy string, until time.Time) {
	f.Helper()
	if x.Cause != cause || !strings.Contains(x.Remedy, remedy) || !x.Until.Equal(until) {
		f.Errorf("%s: %s: %s (remedy %q, until %v); want %s, %q, %v", what, x.Cause, x.Summary, x.Remedy, x.Until, cause, remedy, until)
	}
}

// However a provider loses a lease without fault, only another seed lets it have the attempt
// again, and the explanation says what brings one.
func TestExplainExclusion(t *testing.T) {
	for what, lose := range map[string]func(*fixture, matchmaker.Lease) error{
		"decline": func(f *fixture, l matchmaker.Lease) error {
			_, err := f.Decline(f.Context(), matchmaker.Ref{Lease: l.ID})
			return err
		},
		"jail": func(f *fixture, _ matchmaker.Lease) error {
			_, err := f.SetStatus(f.Context(), "p", match.Jailed, "")
			if err == nil {
				_, err = f.SetStatus(f.Context(), "p", match.Active, "")
			}
			return err
		},
		"quota": func(f *fixture, _ matchmaker.Lease) error {
			f.policy(`{"quotas":{"leases_max_per_provider":0}}`)
			f.policy(`{"quotas":{"leases_max_per_provider":16}}`)
			return nil
		},
		"operator": func(f *fixture, l matchmaker.Lease) error {
			_, err := f.CancelLease(f.Context(), matchmaker.Ref{Lease: l.ID}, "")
			return err
		},
	} {
		bubble(t, matchmaker.Options{}, func(f *fixture) {
			f.policy(`{"eligibility":{"heartbeat_timeout_secs":100000},"seed":{"height_secs":10},"cooldown":{"decline_secs":5}}`)
			f.provider("p")
			j := f.submit()
			if err := lose(f, f.assigned()); err != nil {
				f.Fatal(err)
			}
			time.Sleep(6 * time.Second)
			x := f.why(j)
			f.wants(what+" by the clock", &x, gq.CauseConstraint, "wait: the next height begins at 2000-01-01T00:00:10Z", time.Unix(946684810, 0))
			time.Sleep(4 * time.Second)
			x = f.why(j)
			f.wants(what+" at the next height", &x, gq.CauseNext, "wait", time.Time{})

			if err := f.PutBeacon(f.Context(), match.Beacon{Chain: "c", Epoch: 1, Height: 1}); err != nil {
				f.Fatal(err)
			}
			if err := lose(f, f.assigned()); err != nil {
				f.Fatal(err)
			}
			const remedy = "post the next beacon (POST /api/matching/beacon): that of chain c, epoch 1, height 1"
			for _, after := range []time.Duration{6 * time.Second, 93 * time.Second} {
				time.Sleep(after)
				f.idle("under the same seed")
				x = f.why(j)
				f.wants(what+" under a beacon", &x, gq.CauseConstraint, remedy, time.Time{})
				if !strings.Contains(x.Summary, "none of 1 providers fits: 1 excluded") || standsStill(&x) {
					f.Errorf("%s: %+v", what, x)
				}
			}
			time.Sleep(time.Second)
			if x := f.another(matchmaker.Options{}).why(j); !standsStill(&x) || !strings.Contains(x.Also[0].Summary, "height 1 was posted 10 heights of 10 s ago") {
				f.Errorf("%s: after ten heights: %+v", what, x)
			}
			if err := f.PutBeacon(f.Context(), match.Beacon{Chain: "c", Epoch: 1, Height: 2}); err != nil {
				f.Fatal(err)
			}
			x = f.why(j)
			f.wants(what+" under the next beacon", &x, gq.CauseNext, "wait", time.Time{})
			f.assigned()
		})
	}
}

// Nobody can tell how many jobs come before one that waits for a round.
func TestExplainTurn(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		first, second := f.submit(), f.submit()
		for _, j := range []matchmaker.Job{first, second} {
			x := f.why(j)
			f.wants("in line", &x, gq.CauseNext, "wait", time.Time{})
			if x.Ahead >= 0 {
				f.Errorf("%d jobs come before job %s, want unknown", x.Ahead, j.ID)
			}
		}
	})
}

// A beacon that an earlier version stored, without its time, counts from the start of the
// server.
func TestBeaconWithoutItsTime(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"eligibility":{"heartbeat_timeout_secs":100000}}`)
		f.provider("p")
		if err := f.PutBeacon(f.Context(), match.Beacon{Chain: "c", Epoch: 1, Height: 1}); err != nil {
			f.Fatal(err)
		}
		f.amend("matching", "beacon", `,"at":946684800`, ``)
		j := f.submit()
		again := f.another(matchmaker.Options{})
		if _, err := again.Decline(again.Context(), matchmaker.Ref{Lease: again.assigned().ID}); err != nil {
			f.Fatal(err)
		}
		time.Sleep(99 * time.Second)
		if x := again.why(j); standsStill(&x) {
			f.Errorf("too early: %+v", x)
		}
		time.Sleep(time.Second)
		if x := again.why(j); !standsStill(&x) {
			f.Errorf("after ten heights: %+v", x)
		}
	})
}

// Each refusal has the remedy that ends it, and the remedy is that of the provider that is
// closest to getting the job.
func TestRemedies(t *testing.T) {
	for _, test := range []struct {
		name    string
		policy  string
		arrange func(*fixture)
		job     func(*match.Enqueue)
		remedy  string
		until   int64 // seconds from the start
	}{
		{"model", `{}`, func(f *fixture) { f.provider("p") }, model("x"), "register a provider that fits: p lacks model x", 0},
		{"several", `{}`, func(f *fixture) { f.provider("p", func(p *match.Provider) { p.MaxDepth, p.Gates = 1, []string{"h"} }) }, func(e *match.Enqueue) {
			e.Kind, e.Spec, e.Regions = match.Quantum, match.Demand{Gates: []string{"h", "t"}, Depth: 2, Width: 11}, []string{"moon"}
		}, "p lacks a region of moon, gates t, max_depth 2, max_width 11", 0},
		{"kind and stake", `{}`, func(f *fixture) {
			f.provider("p", func(p *match.Provider) {
				p.Capabilities, p.Stake, p.Deny = []match.Kind{match.AI}, 4999, []string{"eve"}
			})
		}, func(e *match.Enqueue) { e.Kind, e.Requester = match.Quantum, "eve" }, `p lacks the capability QUANTUM, a stake of 5000, requester "eve" allowed`, 0},
		{"silent", `{}`, func(f *fixture) { f.provider("p"); time.Sleep(31 * time.Second) }, nil, "let provider p send heartbeats", 0},
		{"suspended", `{}`, func(f *fixture) {
			f.provider("p")
			if _, err := f.SetStatus(f.Context(), "p", match.Suspended, ""); err != nil {
				f.Fatal(err)
			}
		}, nil, "gq provider status p ACTIVE", 0},
		{"unattested", `{}`, func(f *fixture) { f.provider("p", func(p *match.Provider) { p.AttestationExpiresAt = 1 }) }, nil, "later attestation_expires_at", 0},
		{"full", `{"quotas":{"leases_max_per_provider":1}}`, func(f *fixture) { f.provider("p"); f.submit(); f.assigned() }, nil, "wait until a lease of provider p ends", 0},
		{"no leases at all", `{"quotas":{"leases_max_per_provider":0}}`, func(f *fixture) { f.provider("p") }, nil, "raise quotas.leases_max_per_provider, which is 0", 0},
		{"units", `{"quotas":{"ai_units_per_epoch":1},"seed":{"epoch_secs":60}}`, func(f *fixture) { f.provider("p"); f.submit(); f.assigned() }, nil, "wait: the next epoch begins at 2000-01-01T00:01:00Z; or raise quotas.ai_units_per_epoch", 60},
		{"more units than any", `{"quotas":{"quantum_units_per_epoch":4}}`, func(f *fixture) { f.provider("p") }, func(e *match.Enqueue) { e.Kind, e.Units = match.Quantum, 5 }, "raise quotas.quantum_units_per_epoch, which is 4: the job counts 5", 0},
		{"requester", `{"quotas":{"requester_max":1}}`, func(f *fixture) { f.provider("p"); f.submit(); f.assigned() }, nil, "wait: requester \"\" has had quotas.requester_max leases", 0},
		{"the nearest", `{"cooldown":{"decline_secs":25}}`, func(f *fixture) {
			f.provider("a", func(p *match.Provider) { p.Models = nil })
			f.provider("b")
			f.provider("c", func(p *match.Provider) { p.AttestationExpiresAt = 1 })
			f.submit(model("m"))
			if _, err := f.Decline(f.Context(), matchmaker.Ref{Lease: f.assigned().ID}); err != nil {
				f.Fatal(err)
			}
		}, model("m"), "wait: the pause of provider b ends at 2000-01-01T00:00:25Z", 25},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, matchmaker.Options{}, func(f *fixture) {
				f.policy(test.policy)
				test.arrange(f)
				if test.job == nil {
					test.job = func(*match.Enqueue) {}
				}
				j := f.submit(test.job)
				f.round()
				until := time.Time{}
				if test.until > 0 {
					until = time.Unix(946684800+test.until, 0)
				}
				x := f.why(j)
				f.wants("", &x, gq.CauseConstraint, test.remedy, until)
			})
		})
	}
}

// Providers that a round would include are listed as workers of the queue, with what they hold.
func TestProvidersAreWorkers(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("b")
		f.provider("a", func(p *match.Provider) { p.Capabilities = []match.Kind{match.Quantum} })
		f.provider("suspended")
		f.provider("nothing", func(p *match.Provider) { p.Capabilities = nil })
		if _, err := f.SetStatus(f.Context(), "suspended", match.Suspended, ""); err != nil {
			f.Fatal(err)
		}
		f.submit()
		l := f.assigned()
		workers, err := f.engine.Workers(f.Context())
		if err != nil || len(workers) != 2 || workers[0].Name != "a" || workers[1].Name != "b" {
			f.Fatalf("%+v, %v", workers, err)
		}
		a, b := &workers[0], &workers[1]
		if !a.Serves(matchmaker.DefaultQueue, "QUANTUM") || a.Serves(matchmaker.DefaultQueue, "AI") || a.Serves("other", "QUANTUM") || len(a.Lacks([]string{matchmaker.Requirement})) > 0 {
			f.Errorf("%+v", a)
		}
		if b.Running != 1 || !slices.Equal(b.Leases, []gq.LeaseID{l.ID}) || !b.LastSeen.Equal(time.Unix(946684800, 0)) {
			f.Errorf("%+v", b)
		}
		workers[0].Queues[0] = "mine" // the caller may change what it got
		if again, err := f.engine.Workers(f.Context()); err != nil || again[0].Queues[0] != matchmaker.DefaultQueue {
			f.Errorf("%+v, %v", again, err)
		}
		if s, err := f.engine.Stats(f.Context()); err != nil || s.Workers != 2 {
			f.Errorf("%d workers, %v", s.Workers, err)
		}
		time.Sleep(31 * time.Second)
		f.beats("a")
		if workers, err = f.engine.Workers(f.Context()); err != nil || len(workers) != 1 || workers[0].Name != "a" {
			f.Errorf("after the silence of b: %+v, %v", workers, err)
		}
	})
}
