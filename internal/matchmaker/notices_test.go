package matchmaker_test

import (
	"testing"

	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

// What happens to a provider is in the log of events, in the commit of what it caused.
func TestProvidersAreInTheLog(t *testing.T) {
	spec.Covers(t, "M-120")
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"sla":{"slash_ppb":500000000,"jail_after":2}}`)
		f.provider("p")
		f.provider("p") // a new profile is no new status
		f.provider("idle", func(p *match.Provider) { p.Status = match.Suspended })
		f.toldOf("idle", "provider.status SUSPENDED")
		if _, err := f.SetStatus(f.Context(), "idle", match.Active, ""); err != nil {
			f.Fatal(err)
		}
		l := func() matchmaker.Lease { f.submit(); return f.ack(f.assigned()) }
		if _, err := f.SetStatus(f.Context(), "idle", match.Suspended, "audit"); err != nil {
			f.Fatal(err)
		}
		for range 2 { // the second one changes nothing
			if _, err := f.SetStatus(f.Context(), "idle", match.Suspended, "audit"); err != nil {
				f.Fatal(err)
			}
		}
		for range 2 {
			held := l()
			if err := f.ReportProof(f.Context(), held.ID, "forged"); err != nil {
				f.Fatal(err)
			}
			f.drop(held)
		}
		if _, err := f.SetStatus(f.Context(), "p", match.Retired, ""); err != nil {
			f.Fatal(err)
		}
		idle := []string{"provider.status SUSPENDED", "provider.status ACTIVE", "provider.status SUSPENDED: audit"}
		f.toldOf("idle", idle...)
		p := []string{"provider.status ACTIVE", "providerSlashed PROOF_INVALID 5000", "providerSlashed PROOF_INVALID 2500", "provider.status JAILED: PROOF_INVALID", "provider.status RETIRED"}
		f.toldOf("p", p...)
		if _, err := f.SetStatus(f.Context(), "idle", match.Retired, "sold"); err != nil {
			f.Fatal(err)
		}
		for _, id := range []string{"p", "idle"} {
			if err := f.Remove(f.Context(), id); err != nil {
				f.Fatal(err)
			}
		}
		f.provider("p") // another one of this name
		f.another(matchmaker.Options{}).toldOf("p", append(p, "provider.status REMOVED", "provider.status ACTIVE")...)
		f.another(matchmaker.Options{}).toldOf("idle", append(idle, "provider.status RETIRED: sold", "provider.status REMOVED")...)
	})
}

// drop cancels the job of a lease, so that the next round takes another one.
func (f *fixture) drop(l matchmaker.Lease) {
	f.Helper()
	if _, err := f.CancelJob(f.Context(), l.Job, ""); err != nil {
		f.Fatal(err)
	}
}
