package matchmaker_test

import (
	"context"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
)

// The specified group "retry and TTL": backoff, expirations, requeueing.

func TestAttemptsAreBounded(t *testing.T) {
	spec.Covers(t, "M-06", "M-77", "M-81", "M-83", "M-98", "M-124", "M-142", "M-151")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"cooldown":{"fails_in_a_row":0}}`)
		f.provider("p")
		j := f.submit()
		leases := make(map[gq.LeaseID]bool)
		for attempt := range 6 {
			f.beats("p")
			l := f.ack(f.assigned())
			if l.Attempt != int64(attempt) || leases[l.ID] {
				f.Errorf("attempt %d: %+v", attempt, l)
			}
			leases[l.ID] = true
			f.fail(l)
			if attempt == 5 {
				break
			}
			delay := time.Duration(machine.HashBackoff(5*time.Second, 900*time.Second, 2e9, j.ID, attempt)) * time.Second
			if now := f.is(j, "QUEUED", int64(attempt)+1); now.RunAt != time.Now().Add(delay).Unix() {
				f.Errorf("attempt %d: next at %d, want %d", attempt, now.RunAt, time.Now().Add(delay).Unix())
			}
			time.Sleep(delay - time.Millisecond)
			f.beats("p")
			f.idle("a moment before the backoff is over")
			time.Sleep(time.Millisecond)
		}
		now := f.is(j, "EXPIRED", 6)
		if now.Reason != "attempts_exhausted" || !now.Tombstoned || now.LastError != "PROVIDER_FAIL" {
			f.Errorf("exhausted: %+v", now)
		}
		notices := f.history(j)
		if last := notices[len(notices)-1]; last != "jobExpired attempts_exhausted" {
			f.Errorf("told as %v", notices)
		}
		time.Sleep(time.Hour)
		f.beats("p")
		f.idle("no seventh attempt")
	})
}

// The four faults count as attempts, and nothing else does.
func TestWhatCounts(t *testing.T) {
	spec.Covers(t, "M-45", "M-78", "M-79", "M-80", "M-81", "M-82", "M-151", "M-161")
	for name, test := range map[string]struct {
		end    func(f *fixture, l matchmaker.Lease)
		fault  string
		counts int64
	}{
		"ACK_TIMEOUT":   {func(*fixture, matchmaker.Lease) { time.Sleep(5 * time.Second) }, "ACK_TIMEOUT", 1},
		"LEASE_EXPIRED": {func(f *fixture, l matchmaker.Lease) { f.ack(l); time.Sleep(10 * time.Minute) }, "LEASE_EXPIRED", 1},
		"PROVIDER_FAIL": {func(f *fixture, l matchmaker.Lease) { f.fail(f.ack(l)) }, "PROVIDER_FAIL", 1},
		"PROOF_INVALID": {func(f *fixture, l matchmaker.Lease) {
			f.ack(l)
			if err := f.ReportProof(f.Context(), l.ID, "wrong root"); err != nil {
				f.Error(err)
			}
		}, "PROOF_INVALID", 1},
		"decline": {func(f *fixture, l matchmaker.Lease) {
			if _, err := f.Decline(f.Context(), matchmaker.Ref{Lease: l.ID}); err != nil {
				f.Error(err)
			}
		}, "", 0},
		"jail": {func(f *fixture, l matchmaker.Lease) {
			if _, err := f.SetStatus(f.Context(), l.Provider, match.Jailed, ""); err != nil {
				f.Error(err)
			}
		}, "", 0},
		"quota": {func(f *fixture, _ matchmaker.Lease) { f.policy(`{"quotas":{"leases_max_per_provider":0}}`) }, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, matchmaker.Options{}, func(f *fixture) {
				j := f.submit()
				before := f.job(j)
				f.idle("no match")
				if after := f.is(j, "QUEUED", 0); after.PriorityCache != before.PriorityCache || after.EnqueuedAt != before.EnqueuedAt {
					f.Errorf("no match changed %+v to %+v", before, after)
				}
				f.provider("p")
				test.end(f, f.assigned())
				if now := f.is(j, "QUEUED", test.counts); now.LastError != test.fault {
					f.Errorf("last error %q, want %q", now.LastError, test.fault)
				}
			})
		})
	}
}

func TestAbsoluteTTL(t *testing.T) {
	spec.Covers(t, "M-96", "M-98", "M-100", "M-124", "M-147", "M-151")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.sweeps()
		short, ai, qu := f.submit(living(10)), f.submit(), f.submit(quantum)
		for j, want := range map[*matchmaker.Job]int64{&short: 10, &ai: 86400, &qu: 7200} {
			if j.TTL != want || j.ExpiresAt != j.EnqueuedAt+want {
				f.Errorf("%s lives %d s until %d", j.Kind, j.TTL, j.ExpiresAt)
			}
		}
		time.Sleep(10*time.Second - time.Millisecond)
		f.is(short, "QUEUED", 0)
		f.provider("p", func(p *match.Provider) { p.Capabilities = nil })
		time.Sleep(time.Millisecond)
		f.provider("p")
		for _, a := range f.round().Assignments {
			if a.Job == short.ID {
				f.Error("an expired job was assigned")
			}
		}
		if now := f.is(short, "EXPIRED", 0); now.Reason != "ttl" || !now.Tombstoned {
			f.Errorf("expired: %+v", now)
		}
		time.Sleep(time.Second)
		f.told(short, "jobExpired ttl")
	})
}

// A lease ends with the lifetime of its job.
func TestTTLEndsALease(t *testing.T) {
	spec.Covers(t, "M-96", "M-126")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.sweeps()
		f.provider("p")
		j := f.submit(living(60))
		l := f.ack(f.assigned())
		time.Sleep(61 * time.Second)
		f.is(j, "EXPIRED", 0)
		f.ends(l.ID, "CANCELLED", "ttl")
		f.refused("after the end", f.complete(l), gq.ErrStaleLease)
		f.told(j, "jobAssigned", "leaseCancelled ttl", "jobExpired ttl")
		if p := f.standing("p"); p.LeasesActive != 0 {
			f.Errorf("it holds %d", p.LeasesActive)
		}
	})
}

func TestRelativeTTL(t *testing.T) {
	spec.Covers(t, "M-97", "M-101", "M-151")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.sweeps()
		f.policy(`{"retries":{"attempt_max":1000},"cooldown":{"fails_in_a_row":0}}`)
		f.provider("p")
		j := f.submit()
		if j.RelDeadline != 0 {
			f.Errorf("before the first lease: %d", j.RelDeadline)
		}
		time.Sleep(time.Hour)
		f.beats("p")
		first := f.ack(f.assigned())
		f.fail(first)
		for {
			now := f.job(j)
			if now.State == "EXPIRED" {
				break
			}
			if now.RelDeadline != first.Start.Unix()+21600 {
				f.Fatalf("ends at %d, want %d", now.RelDeadline, first.Start.Unix()+21600)
			}
			time.Sleep(time.Until(time.Unix(now.RunAt, 0)))
			f.beats("p")
			if r := f.round(); len(r.Assignments) == 1 {
				f.fail(f.ack(f.lease(r.Assignments[0].Lease)))
			} else {
				time.Sleep(time.Second)
			}
		}
		now := f.job(j)
		if now.Reason != "ttl" || now.Attempt >= 1000 || now.Attempt < 10 {
			f.Errorf("expired: %+v", now)
		}
		// A job that would be due again after its lifetime expires when it fails.
		backoff := time.Duration(machine.HashBackoff(5*time.Second, 900*time.Second, 2e9, now.ID, int(now.Attempt)-1)) * time.Second
		if past := time.Since(first.Start); past > 6*time.Hour+time.Minute || past+backoff < 6*time.Hour {
			f.Errorf("after %v, with a backoff of %v", past, backoff)
		}
	})
}

// The relative TTL starts with the first lease, acknowledged or not.
func TestRelativeTTLOfALeaseThatNobodyAcknowledged(t *testing.T) {
	spec.Covers(t, "M-97")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"ttl":{"rel_max_secs":4}}`)
		f.provider("p")
		j := f.submit()
		time.Sleep(2 * time.Second)
		l := f.assigned()
		if now := f.job(j); now.RelDeadline != l.Start.Unix()+4 {
			f.Errorf("ends at %d, want %d", now.RelDeadline, l.Start.Unix()+4)
		}
		time.Sleep(4*time.Second - time.Millisecond)
		f.is(j, "ASSIGNED", 0)
		time.Sleep(time.Millisecond)
		if now := f.is(j, "EXPIRED", 0); now.Reason != "ttl" {
			f.Errorf("expired: %+v", now)
		}
	})
}

// Tombstones are kept until the horizon and then deleted. It is a day here, since
// sweeping a week takes long.
func TestHorizon(t *testing.T) {
	spec.Covers(t, "M-98", "M-99", "M-102")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		if set, err := f.Settings(f.Context()); err != nil || set.TTL.GCHorizon != 7*24*60*60 {
			f.Errorf("the horizon is %d s by default, %v; want seven days", set.TTL.GCHorizon, err)
		}
		f.policy(`{"ttl":{"gc_horizon_secs":86400}}`)
		f.sweeps()
		j := f.submit(living(10))
		time.Sleep(10 * time.Second)
		time.Sleep(24*time.Hour - time.Second)
		if now := f.is(j, "EXPIRED", 0); !now.Tombstoned || now.Reason != "ttl" {
			f.Errorf("a second before: %+v", now)
		}
		time.Sleep(time.Second)
		_, err := f.Job(f.Context(), jobID(f, j.ID))
		f.refused("past the horizon", err, gq.ErrNotFound)
	})
}

// Many jobs that fail at once do not retry at once.
func TestRetriesSpreadOut(t *testing.T) {
	spec.Covers(t, "M-156")
	seconds := make(map[int64]int)
	for i := range 1000 {
		id := machine.NewJobID([16]byte{byte(i), byte(i >> 8), 7})
		seconds[machine.HashBackoff(5*time.Second, 900*time.Second, 2e9, id.String(), 5)]++
	}
	most := 0
	for _, n := range seconds {
		most = max(most, n)
	}
	if len(seconds) < 30 || most > 100 {
		t.Errorf("1000 failures come back in %d different seconds, up to %d at once", len(seconds), most)
	}
}

func TestHealthFollowsLeases(t *testing.T) {
	spec.Covers(t, "M-32", "M-91", "M-92", "M-93", "M-133", "M-162")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"health":{"recover_ppb_per_sec":0},"cooldown":{"fails_in_a_row":3,"fails_secs":60}}`)
		f.provider("p")
		f.submit()
		f.assigned()
		time.Sleep(5 * time.Second)
		f.round()
		if p := f.standing("p"); p.Health != 980_000_000 || p.Fails != 1 {
			f.Errorf("after an ACK_TIMEOUT: health %d, %d fails", p.Health, p.Fails)
		}
		time.Sleep(10 * time.Second)
		f.beats("p")
		f.ack(f.assigned())
		time.Sleep(10 * time.Minute)
		f.round()
		if p := f.standing("p"); p.Health != 880_000_000 || p.Fails != 2 {
			f.Errorf("after a LEASE_EXPIRED: health %d, %d fails", p.Health, p.Fails)
		}
		time.Sleep(time.Minute)
		f.beats("p")
		f.fail(f.ack(f.assigned()))
		p := f.standing("p")
		if pause := p.CooldownUntil.AI - time.Now().Unix(); pause != 60 || p.CooldownUntil.Quantum != p.CooldownUntil.AI {
			f.Errorf("after three failures in a row: %+v", p)
		}
		f.submit(quantum)
		f.idle("it pauses")
		time.Sleep(61 * time.Second)
		f.beats("p")
		if r := f.round(); len(r.Assignments) == 0 {
			f.Error("the pause does not end")
		}

		f.policy(`{"cooldown":{"lease_expired_secs":100,"fails_in_a_row":0}}`)
		f.provider("q")
		f.submit(by("x"))
		var l matchmaker.Lease
		for _, a := range f.round().Assignments {
			l = f.ack(f.lease(a.Lease))
		}
		time.Sleep(time.Until(l.Deadline))
		f.beats("p", "q")
		f.round()
		if until := f.standing(l.Provider).CooldownUntil; until.AI != l.Deadline.Unix()+100 {
			f.Errorf("denied until %+v, the lease ended at %d", until, l.Deadline.Unix())
		}
	})
}

type judge struct {
	verdict match.Judgement
	asked   []match.Finding
}

func (j *judge) Judge(_ context.Context, f match.Finding) (match.Judgement, error) {
	j.asked = append(j.asked, f)
	return j.verdict, nil
}

type inspector struct{ flaw string }

func (i *inspector) CheckProof(context.Context, match.Completion) (string, error) {
	return i.flaw, nil
}

type sink struct{ claims []match.Claim }

func (s *sink) accept(_ context.Context, some []match.Claim) error {
	s.claims = append(s.claims, some...)
	return nil
}

func TestProofs(t *testing.T) {
	spec.Covers(t, "M-01", "M-80", "M-94", "M-95", "M-106", "M-127")
	sla, proofs, claims := &judge{}, &inspector{flaw: "wrong root"}, &sink{}
	bubble(t, matchmaker.Options{Hooks: match.Hooks{SLA: sla, Proofs: proofs, Claims: claims.accept}}, func(f *fixture) {
		f.provider("p")
		j := f.submit()
		l := f.ack(f.assigned())
		sla.verdict = match.Judgement{Penalty: 400, Reason: "bad_proof"}
		err := f.complete(l)
		if errs.CodeOf(err) != "proof_invalid" {
			f.Errorf("a proof that does not hold: %v", err)
		}
		if now := f.is(j, "QUEUED", 1); now.LastError != "PROOF_INVALID" || now.Message != "wrong root" {
			f.Errorf("job %+v", now)
		}
		f.ends(l.ID, "CANCELLED", "PROOF_INVALID")
		want := match.Finding{Provider: "p", Job: l.Job, Lease: l.ID, Flaw: "wrong root", Stake: 10_000}
		if len(sla.asked) != 1 || sla.asked[0] != want {
			f.Errorf("the SLA engine was asked about %+v", sla.asked)
		}
		f.toldOf("p", "provider.status ACTIVE", "providerSlashed bad_proof 400")
		if p := f.standing("p"); p.Stake != 9600 || p.Slashed != 400 || p.Findings != 1 || p.LeasesActive != 0 || p.Fails != 1 {
			f.Errorf("the provider: %+v", p)
		}

		proofs.flaw, sla.verdict = "", match.Judgement{}
		time.Sleep(10 * time.Second)
		f.beats("p")
		l = f.ack(f.assigned())
		if err := f.complete(l); err != nil {
			f.Fatal(err)
		}
		if err := f.complete(l); err != nil {
			f.Error(err)
		}
		for range 2 {
			if err := f.Deliver(f.Context()); err != nil {
				f.Error(err)
			}
		}
		if len(claims.claims) != 1 || claims.claims[0].Lease != l.ID || claims.claims[0].Digest != digest {
			f.Errorf("claims %+v", claims.claims)
		}

		// A later finding concerns only the SLA engine.
		sla.verdict = match.Judgement{Penalty: 1_000_000, Reason: "fraud", Jail: true}
		if err := f.ReportProof(f.Context(), l.ID, "forged"); err != nil {
			f.Fatal(err)
		}
		f.is(j, "COMPLETED", 1)
		if p := f.standing("p"); p.Stake != 0 || p.Status != match.Jailed || p.Findings != 2 {
			f.Errorf("the provider: %+v", p)
		}
		if len(sla.asked) != 2 {
			f.Errorf("the SLA engine was asked %d times", len(sla.asked))
		}
	})
}

// Without a custom SLA engine, an installation uses its settings.
func TestSlashingBySettings(t *testing.T) {
	spec.Covers(t, "M-95")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"sla":{"slash_ppb":100000000,"jail_after":2}}`)
		f.provider("p")
		f.submit()
		for _, left := range []int64{9000, 8100} {
			l := f.ack(f.assigned())
			if err := f.ReportProof(f.Context(), l.ID, "wrong"); err != nil {
				f.Fatal(err)
			}
			if p := f.standing("p"); p.Stake != left || (p.Status == match.Jailed) != (left == 8100) {
				f.Errorf("stake %d, %s", p.Stake, p.Status)
			}
			time.Sleep(10 * time.Second)
			f.beats("p")
		}
	})
}

// Jobs that take the place of others have their deadlines and attempts, and so have their leases, while they last
// and afterwards.
func TestPutOff(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.provider("p")
		old := map[gq.JobID]matchmaker.Job{}
		for _, n := range []int64{1, 2} {
			j := f.submit(fee(n))
			old[jobID(f, j.ID)] = j
		}
		for _, a := range f.round().Assignments {
			f.fail(f.ack(f.lease(a.Lease)))
		}
		time.Sleep(10 * time.Minute) // any pause is over
		next := map[string]matchmaker.Job{}
		for id, j := range old {
			s, err := f.engine.Reschedule(f.Context(), id, f.engine.Now().Add(time.Minute))
			if err != nil || s.ID == id {
				f.Fatalf("put off: %+v, %v", s, err)
			}
			next[s.ID.String()] = j
		}
		time.Sleep(2 * time.Minute)
		f.beats("p")
		r := f.round()
		if len(r.Assignments) != 2 {
			f.Fatalf("%+v", r)
		}
		rec, err := f.RoundRecord(f.Context(), r.Number)
		if err != nil {
			f.Fatal(err)
		}
		seed := rec.Input.Seed()
		for i, a := range r.Assignments {
			check := func(when string) {
				f.Helper()
				l := f.lease(a.Lease)
				if l.Attempt != 1 || seed.Lease(l.Job.String(), l.Provider, l.Attempt) != l.ID {
					f.Errorf("%s: lease %s is of attempt %d, want 1, which gives this id", when, l.ID, l.Attempt)
				}
				j, err := f.Job(f.Context(), l.Job)
				if err != nil {
					f.Fatal(err)
				}
				if want := next[j.ID].ExpiresAt; j.ExpiresAt != want {
					f.Errorf("%s: expires at %d, want %d", when, j.ExpiresAt, want)
				}
			}
			check("assigned")
			l := f.ack(f.lease(a.Lease))
			if i == 0 {
				f.fail(l)
			} else if err := f.complete(l); err != nil {
				f.Fatal(err)
			}
			check("ended")
		}
	})
}
