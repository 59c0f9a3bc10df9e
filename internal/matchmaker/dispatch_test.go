package matchmaker_test

import (
	"encoding/base64"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

// Waiting jobs are considered every interval, and changes at once.
func TestRun(t *testing.T) {
	spec.Covers(t, "M-35", "M-36", "M-137")
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, openStore(t), matchmaker.Options{})
		f.policy(`{"dispatch_interval_ms":3600000}`)
		f.run()
		j := f.submit()
		f.provider("p")
		time.Sleep(100 * time.Millisecond)
		if now := f.is(j, "ASSIGNED", 0); now.Lease == "" {
			f.Errorf("job %+v", now)
		}
		second := f.submit()
		time.Sleep(100 * time.Millisecond)
		f.is(second, "ASSIGNED", 0)
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, openStore(t), matchmaker.Options{})
		f.policy(`{"cooldown":{"decline_secs":2}}`)
		f.provider("p")
		j := f.submit()
		l := f.assigned()
		f.run()
		time.Sleep(300 * time.Millisecond)
		if _, err := f.Decline(f.Context(), matchmaker.Ref{Lease: l.ID}); err != nil {
			f.Fatal(err)
		}
		declined := time.Now()
		for f.job(j).State != "ASSIGNED" {
			f.beats("p")
			time.Sleep(10 * time.Millisecond)
			if time.Since(declined) > 12*time.Second {
				f.Fatal("it is not looked at again")
			}
		}
		// By then the pause and the seed's ten seconds are over, and a round follows
		// within an interval.
		if d := f.lease(f.job(j).Lease).Start.Sub(declined); d > 10*time.Second+300*time.Millisecond {
			f.Errorf("assigned %v after it was declined", d)
		}
	})
}

// While no job waits, nothing is written, and almost nothing is read.
func TestIdleRoundsCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, openStore(t), matchmaker.Options{})
		f.provider("p")
		f.run()
		time.Sleep(time.Second)
		before, _ := f.store.LastEvent(f.Context())
		head, err := f.store.Doc(f.Context(), "matching", "head")
		if err != nil {
			f.Fatal(err)
		}
		time.Sleep(24 * time.Hour)
		after, _ := f.store.LastEvent(f.Context())
		again, err := f.store.Doc(f.Context(), "matching", "head")
		if err != nil || before != after || again.Version != head.Version {
			f.Errorf("a day of idleness wrote %d events, head %d to %d: %v", after-before, head.Version, again.Version, err)
		}
	})
}

func TestBatch(t *testing.T) {
	spec.Covers(t, "M-09", "M-37")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"starvation":{"every":0}}`)
		for _, p := range names(40) {
			f.provider(p)
		}
		for i := range 300 {
			f.submit(fee(int64(i) * 1000))
		}
		first := f.round()
		if len(first.Assignments) != 256 || len(first.Requeued) != 0 {
			f.Fatalf("%d assigned, %d requeued", len(first.Assignments), len(first.Requeued))
		}
		if !slices.IsSortedFunc(first.Assignments, func(a, b match.Assignment) int { return int(b.Score - a.Score) }) {
			f.Error("not by score")
		}
		second := f.round()
		if len(second.Assignments) != 44 {
			f.Errorf("then %d", len(second.Assignments))
		}
		f.idle("nothing is left")
	})
}

// Providers take turns over the rounds of one height.
func TestRoundRobin(t *testing.T) {
	spec.Covers(t, "M-46")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		if err := f.PutBeacon(f.Context(), match.Beacon{Chain: "c", Epoch: 1, Height: 1}); err != nil {
			f.Fatal(err)
		}
		given := make(map[string]int)
		for _, p := range names(5) {
			f.provider(p)
		}
		for range 50 {
			f.submit()
			given[f.assigned().Provider]++
		}
		for p, n := range given {
			if n != 10 {
				f.Errorf("%s was given %d of 50", p, n)
			}
		}
	})
}

func TestSnapshot(t *testing.T) {
	spec.Covers(t, "M-23", "M-32", "M-33")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("silent")
		f.provider("unattested", func(p *match.Provider) { p.AttestationExpiresAt = time.Now().Unix() + 31 })
		if _, err := f.Register(f.Context(), match.Provider{
			ID: "unhealthy", Status: match.Active, Capabilities: match.Kinds(), Stake: 10_000, AttestationExpiresAt: match.MaxTime, Health: 499_990_000,
		}, map[string]bool{"health_ppb": true}); err != nil {
			f.Fatal(err)
		}
		order := func() []string { return slices.Sorted(slices.Values(f.round().Order)) }
		if got := order(); !slices.Equal(got, []string{"silent", "unattested"}) {
			f.Errorf("at first: %v", got)
		}
		time.Sleep(time.Second) // it recovers
		if got := order(); !slices.Equal(got, []string{"silent", "unattested", "unhealthy"}) {
			f.Errorf("a second later: %v", got)
		}
		time.Sleep(29 * time.Second)
		f.beats("unattested", "unhealthy")
		if got := order(); !slices.Equal(got, []string{"silent", "unattested", "unhealthy"}) {
			f.Errorf("after the timeout, to the second: %v", got)
		}
		time.Sleep(time.Second)
		if got := order(); !slices.Equal(got, []string{"unhealthy"}) {
			f.Errorf("after it: %v", got)
		}
	})
}

// Only an active provider gets jobs, however it got another status and whichever
// dispatcher decides.
func TestOnlyActiveProvidersAreGivenJobs(t *testing.T) {
	spec.Covers(t, "M-22", "M-25")
	for _, status := range match.Statuses() {
		if status == match.Active {
			continue
		}
		t.Run(status.String(), func(t *testing.T) {
			bubble(t, matchmaker.Options{}, func(f *fixture) {
				f.provider("registered", func(p *match.Provider) { p.Status = status })
				f.provider("changed")
				if _, err := f.SetStatus(f.Context(), "changed", status, ""); err != nil {
					f.Fatal(err)
				}
				j := f.submit()
				for name, d := range map[string]*fixture{"the dispatcher": f, "another one": f.another(matchmaker.Options{})} {
					if r := d.round(); len(r.Assignments) != 0 || len(r.Order) != 0 {
						f.Errorf("%s: all providers are %s: %+v", name, status, r)
					}
					for _, p := range []string{"registered", "changed"} {
						if d.standing(p).Eligible {
							f.Errorf("%s: %s is %s and said to be eligible", name, p, status)
						}
					}
				}
				f.is(j, "QUEUED", 0)
				f.provider("active")
				if l := f.assigned(); l.Provider != "active" || l.Job.String() != j.ID {
					f.Errorf("once there is an active one: %+v", l)
				}
				if status == match.Retired {
					return // it does not come back
				}
				if _, err := f.SetStatus(f.Context(), "active", status, ""); err != nil {
					f.Fatal(err)
				}
				if _, err := f.SetStatus(f.Context(), "changed", match.Active, ""); err != nil {
					f.Fatal(err)
				}
				if l := f.assigned(); l.Provider != "changed" {
					f.Errorf("active again: %+v", l)
				}
			})
		})
	}
}

// The units that a provider gets in an epoch, counted here from the assignments, never
// exceed the limit of the kind: over several rounds, after a restart, however the leases
// ended, and separately for each kind.
func TestUnitsPerEpoch(t *testing.T) {
	spec.Covers(t, "M-27", "M-111")
	for _, kind := range match.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			bubble(t, matchmaker.Options{}, func(f *fixture) {
				f.policy(`{"quotas":{"ai_units_per_epoch":13,"quantum_units_per_epoch":8},"cooldown":{"fails_in_a_row":0},
					"eligibility":{"heartbeat_timeout_secs":10000}}`)
				most := map[match.Kind]int64{match.AI: 13, match.Quantum: 8}
				f.provider("p")
				of := func(k match.Kind, n int64) func(*match.Enqueue) {
					return func(e *match.Enqueue) { e.Kind, e.Units = k, n }
				}
				given := func(r matchmaker.Round, end func(matchmaker.Lease)) (sum map[match.Kind]int64) {
					sum = make(map[match.Kind]int64)
					for _, a := range r.Assignments {
						l := f.lease(a.Lease)
						sum[l.Kind] += f.unitsOf(l)
						end(f.ack(l)) // granted units stay granted
					}
					return sum
				}
				for epoch := range 2 {
					total := make(map[match.Kind]int64)
					for i := range 4 {
						for range 3 {
							f.submit(of(kind, 2))
						}
						d := f
						if i%2 == 1 {
							d = f.another(matchmaker.Options{}) // it knows only what is stored
						}
						for k, n := range given(d.round(), f.fail) {
							total[k] += n
						}
					}
					if want := most[kind] / 2 * 2; len(total) != 1 || total[kind] != want {
						f.Errorf("epoch %d: given %v, want %d units of %s", epoch, total, want, kind)
					}
					if p := f.standing("p"); p.AIUnitsUsed != total[match.AI] || p.QuantumUnitsUsed != total[match.Quantum] {
						f.Errorf("epoch %d: it is said to have used %d and %d units, and was given %v", epoch, p.AIUnitsUsed, p.QuantumUnitsUsed, total)
					}
					for _, other := range match.Kinds() {
						if other == kind {
							continue
						}
						f.submit(of(other, most[other]))
						n := given(f.round(), func(l matchmaker.Lease) {
							if err := f.complete(l); err != nil {
								f.Error(err)
							}
						})
						if n[other] != most[other] || len(n) != 1 {
							f.Errorf("epoch %d: of the other kind, %s: given %v", epoch, other, n)
						}
					}
					time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour))) // the next epoch
					f.beats("p")
				}
			})
		})
	}
}

func TestQuotas(t *testing.T) {
	spec.Covers(t, "M-26", "M-28", "M-42", "M-113")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"quotas":{"leases_max_per_provider":2,"ai_units_per_epoch":10},"cooldown":{"fails_in_a_row":0},
			"health":{"decay_ack_timeout_ppb":0},"eligibility":{"heartbeat_timeout_secs":10000}}`)
		f.provider("p")
		for range 4 {
			f.submit(units(1))
		}
		r := f.round()
		if len(r.Assignments) != 2 || len(r.Requeued) != 2 {
			f.Fatalf("the cap of leases: %+v", r)
		}
		if err := f.complete(f.ack(f.lease(r.Assignments[0].Lease))); err != nil {
			f.Fatal(err)
		}
		if r := f.round(); len(r.Assignments) != 1 {
			f.Errorf("after a completion: %+v", r)
		}
		f.policy(`{"quotas":{"leases_max_per_provider":16}}`)
		f.round()
		f.submit(units(7))
		f.idle("it has 4 of 10 units")
		small := f.submit(units(6))
		if l := f.assigned(); l.Job.String() != small.ID {
			f.Errorf("six are left: %+v", l)
		}
		if p := f.standing("p"); p.AIUnitsUsed != 10 || p.LeasesActive != 4 {
			f.Errorf("the account: %+v", p)
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour))) // the next epoch
		f.beats("p")
		r = f.round()
		if len(r.Assignments) == 0 {
			f.Errorf("in the next epoch: %+v", r)
		}

		f.policy(`{"quotas":{"requester_max":2,"requester_window_secs":60,"ai_units_per_epoch":1000}}`)
		time.Sleep(61 * time.Second)
		f.beats("p")
		f.round()
		time.Sleep(61 * time.Second)
		f.beats("p")
		for range 5 {
			f.submit(by("greedy"))
		}
		modest := f.submit(by("modest"))
		r = f.round()
		counts := f.requesters(r)
		if counts["greedy"] != 2 || counts["modest"] != 1 {
			f.Errorf("within the window: %v, %s", counts, modest.ID)
		}
		restarted := f.another(matchmaker.Options{})
		if counts := restarted.requesters(restarted.round()); counts["greedy"] != 0 {
			f.Errorf("after a restart: %v", counts)
		}
		time.Sleep(61 * time.Second)
		f.beats("p")
		if counts := f.requesters(f.round()); counts["greedy"] != 2 {
			f.Errorf("in the next window: %v", counts)
		}
	})
}

func (f *fixture) requesters(r matchmaker.Round) map[string]int {
	f.Helper()
	counts := make(map[string]int)
	for _, a := range r.Assignments {
		counts[f.job(matchmaker.Job{Job: match.Job{ID: a.Job}}).Requester]++
	}
	return counts
}

// Every twentieth match goes to a job that pays little.
func TestStarvation(t *testing.T) {
	spec.Covers(t, "M-112", "M-153")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		for _, p := range names(5) {
			f.provider(p)
		}
		poor := make(map[string]bool)
		for range 3 {
			poor[f.submit(fee(10)).ID] = true
		}
		time.Sleep(time.Second)
		var matches []bool
		for range 3 {
			f.beats(names(5)...)
			for range 20 {
				f.submit(fee(1_000_000))
			}
			f.policy(`{"batch_size":20}`)
			for _, a := range f.round().Assignments {
				matches = append(matches, poor[a.Job])
				if err := f.complete(f.ack(f.lease(a.Lease))); err != nil {
					f.Fatal(err)
				}
			}
		}
		for i, wasPoor := range matches {
			if wasPoor != ((i+1)%20 == 0) {
				f.Errorf("match %d: poor %v", i+1, wasPoor)
			}
		}
	})
}

// Jobs that no provider could serve do not block others, and their explanation says why
// they wait.
func TestSetAside(t *testing.T) {
	spec.Covers(t, "M-30")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"batch_size":2}`)
		f.provider("p")
		f.provider("q", func(p *match.Provider) { p.Capabilities = []match.Kind{match.Quantum} })
		var rare []matchmaker.Job
		for range 5 {
			rare = append(rare, f.submit(model("rare"), fee(1_000_000)))
		}
		plain := f.submit(model("m"))
		r := f.round()
		if len(r.Assignments) != 1 || r.Assignments[0].Job != plain.ID || len(r.Requeued) != 0 {
			f.Fatalf("the round: %+v", r)
		}
		if len(r.Unserved) != 1 || r.Unserved[0].Jobs != 5 || r.Unserved[0].Like.Spec.Model != "rare" {
			f.Errorf("set aside: %+v", r.Unserved)
		}
		x := f.explain(rare[0])
		for _, want := range []string{"constraint: set aside: none of 2 providers fits: ", "2 no_model", "provider p: no_model", "provider q: incapable, no_model"} {
			if !strings.Contains(x, want) {
				f.Errorf("explained as %s\nwant %s", x, want)
			}
		}
		f.provider("p", func(p *match.Provider) { p.Models = []string{"rare"} })
		if r := f.round(); len(r.Assignments) != 2 || len(r.Unserved) != 0 {
			f.Errorf("when somebody can: %+v", r)
		}
		if _, err := f.SetStatus(f.Context(), "p", match.Suspended, ""); err != nil {
			f.Fatal(err)
		}
		if r := f.round(); len(r.Unserved) != 2 {
			f.Errorf("when nobody can any more: %+v", r)
		}
		f.submit(units(100_001))
		if r := f.round(); len(r.Unserved) != 3 {
			f.Errorf("more units than anyone gets: %+v", r.Unserved)
		}
	})
}

func TestRequesterLists(t *testing.T) {
	spec.Covers(t, "M-29")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"batch_size":1}`)
		f.provider("p", func(p *match.Provider) { p.Deny = []string{"bad"} })
		f.submit(by("bad"), fee(1_000_000))
		good := f.submit(by("good"))
		if l := f.assigned(); l.Job.String() != good.ID {
			f.Errorf("assigned %+v", l)
		}
		f.provider("p", func(p *match.Provider) { p.Allow = []string{"bad"} })
		good = f.submit(by("good"))
		if l := f.assigned(); l.Job.String() == good.ID {
			f.Errorf("assigned %+v", l)
		}
		if x := f.explain(good); !strings.Contains(x, "provider p: not_allowed") {
			f.Errorf("explained as %s", x)
		}
	})
}

func TestExplain(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		j := f.submit()
		if x := f.explain(j); !strings.Contains(x, "no_worker: no provider is registered") {
			f.Errorf("explained as %s", x)
		}
		f.provider("p")
		if x := f.explain(j); !strings.Contains(x, "next: 1 of 1 providers fit") {
			f.Errorf("explained as %s", x)
		}
		l := f.ack(f.assigned())
		if x := f.explain(j); !strings.Contains(x, "running: attempt 1 of 6 has run on worker p") {
			f.Errorf("explained as %s", x)
		}
		f.fail(l)
		if x := f.explain(j); !strings.Contains(x, "backoff: ") {
			f.Errorf("explained as %s", x)
		}
		foreign, err := f.engine.Submit(f.Context(), gq.Spec{Queue: matchmaker.DefaultQueue, Type: "other"})
		if err != nil {
			f.Fatal(err)
		}
		f.idle("it is none of ours")
		if x := f.explain(matchmaker.Job{Job: match.Job{ID: foreign.ID().String()}}); !strings.Contains(x, "asks for nothing that a provider could be matched with") {
			f.Errorf("explained as %s", x)
		}
	})
}

// Whatever another API submits to the queue, jobs of this one are matched: a job that no
// round can process is left out, and its explanation says so.
func TestJobsThatNoRoundCanHaveStopNoOther(t *testing.T) {
	for name, alien := range map[string]gq.Spec{
		"negative depth": {Attributes: map[string]string{"matching.0": `{"spec":{"depth":-1}}`}},
		"negative size":  {Attributes: map[string]string{"matching.0": `{"size_bytes":-5}`}},
		"no denominator": {Attributes: map[string]string{"matching.0": `{"size_bytes":-1048576}`}},
		"endless fee":    {Attributes: map[string]string{"matching.0": `{}`}, MaxFee: 1 << 60},
		"nothing asked":  {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, matchmaker.Options{}, func(f *fixture) {
				f.provider("p")
				alien.Queue, alien.Type = matchmaker.DefaultQueue, match.AI.String()
				alien.Policy = gq.PresetAI.Policy()
				made, err := f.engine.Submit(f.Context(), alien)
				if err != nil {
					f.Fatal(err)
				}
				j := f.submit()
				if l := f.assigned(); l.Job.String() != j.ID {
					f.Errorf("assigned %v, want %s", l.Job, j.ID)
				}
				why, err := f.engine.Explain(f.Context(), made.ID())
				if err != nil || !strings.Contains(why.Summary, "asks for nothing") {
					f.Errorf("explained by %+v, %v", why, err)
				}
			})
		})
	}
}

// A tier that is no longer configured weighs nothing and blocks nobody.
func TestTierThatIsGone(t *testing.T) {
	set := match.DefaultSettings()
	set.Priority.Tiers["GOLD"] = 450_000_000
	bubble(t, matchmaker.Options{Settings: &set}, func(f *fixture) {
		gold := f.submit(func(e *match.Enqueue) { e.Tier = "GOLD" })
		f = f.another(matchmaker.Options{})
		f.provider("p")
		free := f.submit()
		r := f.round()
		if len(r.Assignments) != 2 || r.Assignments[0].Score != r.Assignments[1].Score {
			f.Fatalf("assigned %+v, want %s and %s, which weigh the same now", r.Assignments, gold.ID, free.ID)
		}
		f.is(gold, "ASSIGNED", 0)
		rec, err := f.RoundRecord(f.Context(), r.Number)
		if err == nil {
			err = rec.Check()
		}
		if err != nil {
			f.Errorf("computed again: %v", err)
		}
	})
}

// A paused queue hands out nothing, not even through rounds, and continues when it is
// resumed.
func TestPausedQueue(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		if _, err := f.engine.Pause(f.Context(), matchmaker.DefaultQueue); err != nil {
			f.Fatal(err)
		}
		f.run()
		j := f.submit()
		time.Sleep(time.Second)
		f.idle("paused")
		f.is(j, "QUEUED", 0)
		if _, err := f.engine.Resume(f.Context(), matchmaker.DefaultQueue); err != nil {
			f.Fatal(err)
		}
		time.Sleep(time.Second)
		f.is(j, "ASSIGNED", 0)
	})
}

// Jobs that wait for another one take part in rounds when that one has ended, and block
// none before.
func TestJobsThatWaitForAnother(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		other, err := f.engine.Submit(f.Context(), gq.Spec{Queue: "other", Type: "t", Policy: gq.PresetJobModel.Policy()})
		if err != nil {
			f.Fatal(err)
		}
		var waiting []matchmaker.Job
		for range 3 {
			made, err := f.engine.Submit(f.Context(), gq.Spec{
				Queue: matchmaker.DefaultQueue, Type: match.AI.String(), Policy: gq.PresetAI.Policy(), MaxFee: 1000,
				Attributes: map[string]string{"matching.0": "{}"},
				DependsOn:  []gq.Dependency{{Kind: gq.DependencyAfter, Job: other.ID()}},
			})
			if err != nil {
				f.Fatal(err)
			}
			waiting = append(waiting, matchmaker.Job{Job: match.Job{ID: made.ID().String()}})
		}
		f.run()
		f.provider("p")
		j := f.submit()
		time.Sleep(time.Second)
		f.is(j, "ASSIGNED", 0)
		for _, w := range waiting {
			f.is(w, "QUEUED", 0)
		}
		claimed, err := f.engine.Claim(f.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"other"}, N: 1})
		if err != nil || len(claimed) != 1 {
			f.Fatalf("claimed %v, %v", claimed, err)
		}
		if _, err := f.engine.Settle(f.Context(), []gq.Outcome{{Lease: claimed[0].State.Lease.Ref(), Verdict: gq.VerdictComplete}}); err != nil {
			f.Fatal(err)
		}
		time.Sleep(time.Second)
		for _, w := range waiting {
			f.is(w, "ASSIGNED", 0)
		}
	})
}

// A round whose record is longer than a document still runs and is recorded, and nothing
// of it is kept beyond the horizon.
func TestLongRecord(t *testing.T) {
	const more = "matching.more"
	parts := func(f *fixture) int {
		f.Helper()
		docs, err := f.store.Docs(f.Context(), more, "", 100)
		if err != nil {
			f.Fatal(err)
		}
		return len(docs)
	}
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"quotas": {"leases_max_per_provider": 100}, "ttl": {"gc_horizon_secs": 7200}}`)
		f.provider("p")
		random := rand.NewChaCha8([32]byte{1})
		noise := make([]byte, 12_000)
		for range 80 {
			_, _ = random.Read(noise)
			f.submit(func(e *match.Enqueue) { e.Regions = []string{"eu", base64.StdEncoding.EncodeToString(noise)} })
		}
		r := f.round()
		if len(r.Assignments) != 80 || parts(f) == 0 {
			f.Fatalf("%d of 80 jobs assigned, and %d documents more", len(r.Assignments), parts(f))
		}
		rec, err := f.RoundRecord(f.Context(), r.Number)
		if err == nil {
			err = rec.Check()
		}
		if err != nil {
			f.Errorf("computed again: %v", err)
		}
		done := func(id gq.LeaseID) {
			if err := f.complete(f.ack(f.lease(id))); err != nil {
				f.Fatal(err)
			}
		}
		for _, a := range r.Assignments {
			done(a.Lease)
		}
		for range 4 { // each is a base record
			time.Sleep(time.Hour)
			f.beats("p")
			f.submit()
			done(f.assigned().ID)
		}
		time.Sleep(time.Minute)
		f.beats("p")
		f.idle("all are assigned")
		f.idle("all are assigned")
		if n := parts(f); n > 0 {
			f.Errorf("%d documents of a round past the horizon", n)
		}
	})
}

// A round takes no more jobs than fit into one commit, and gives a provider no more leases than
// fit into its account. A policy that says more is refused; one that was stored with more is
// read as what rounds use.
func TestRoomOfARound(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		for _, more := range []string{`{"batch_size":513}`, `{"quotas":{"leases_max_per_provider":4097}}`} {
			_, err := f.ChangeSettings(f.Context(), func(s *match.Settings) error { return s.Update([]byte(more)) })
			if f.refused(more, err, gq.ErrInvalid); err == nil || !strings.Contains(err.Error(), "is not between") {
				f.Errorf("%s: %v", more, err)
			}
		}
		f.policy(`{"batch_size":512,"quotas":{"leases_max_per_provider":4096}}`)
		f.amend("matching", "settings", `"batch_size":512`, `"batch_size":5000`)
		f.amend("matching", "settings", `"leases_max_per_provider":4096`, `"leases_max_per_provider":100000`)
		f = f.another(matchmaker.Options{})
		if set, err := f.Settings(f.Context()); err != nil || set.BatchSize != 512 || set.Quotas.LeasesMax != 4096 {
			f.Errorf("%+v, %v", set, err)
		}
		f.provider("p")
		for range match.MaxBatch + 10 {
			f.submit()
		}
		r := f.round()
		if len(r.Assignments) != match.MaxBatch {
			f.Errorf("%d jobs of %d assigned", len(r.Assignments), match.MaxBatch+10)
		}
		if r := f.round(); len(r.Assignments) != 10 {
			f.Errorf("%d jobs of the 10 that were left assigned", len(r.Assignments))
		}
		rec, err := f.RoundRecord(f.Context(), r.Number)
		if err != nil || rec.Check() != nil || rec.Input.Policy.Quotas.LeasesMax != match.MaxLeases || rec.Input.Policy.BatchSize != match.MaxBatch {
			f.Errorf("recorded %+v, %v", rec.Input.Policy, err)
		}
		if set := f.policy(`{"ack_timeout_ms":5000}`); set.BatchSize != 512 {
			f.Errorf("after a change %+v", set)
		}
	})
}
