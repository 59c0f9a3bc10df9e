package matchmaker_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// market fills a store with providers and queued jobs of several shapes, and returns a
// dispatcher that has read them.
func market(b *testing.B, jobs, providers, shapes int) *matchmaker.Dispatcher {
	b.Helper()
	s := openStore(b)
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	set := match.DefaultSettings()
	set.DepthMax = int64(jobs) + 1_000_000
	set.Quotas.LeasesMax, set.Quotas.AIUnitsPerEpoch = match.MaxLeases, 1_000_000_000
	set.Eligibility.HeartbeatTimeout = 1_000_000
	d, err := matchmaker.New(e, s, matchmaker.Options{Settings: &set})
	if err != nil {
		b.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	ctx := context.Background()
	seed(b, s, providers, shapes, rng)
	policy := set.JobPolicy(match.AI, 0)
	for from := 0; from < jobs; from += 10_000 {
		specs := make([]gq.Spec, min(10_000, jobs-from))
		for i := range specs {
			specs[i] = gq.Spec{
				Queue: matchmaker.DefaultQueue, Type: "AI", Policy: policy, Requires: []string{matchmaker.Requirement},
				Requester: fmt.Sprintf("r%d", rng.IntN(1000)), MaxFee: rng.Int64N(2_000_000), CostUnits: 1,
				Attributes: map[string]string{"matching.0": fmt.Sprintf(`{"spec":{"model":"model-%d"},"size_bytes":%d}`, rng.IntN(shapes), rng.Int64N(1<<20))},
			}
		}
		if _, err := e.SubmitBatch(ctx, specs); err != nil {
			b.Fatal(err)
		}
	}
	began := time.Now()
	if _, err := d.Round(ctx); err != nil { // reads everything
		b.Fatal(err)
	}
	b.Logf("%d jobs and %d providers were read in %v", jobs, providers, time.Since(began).Round(time.Millisecond))
	return d
}

// seed writes the documents of a registry with this many providers.
func seed(b *testing.B, s store.Store, providers, shapes int, rng *rand.Rand) {
	b.Helper()
	now := time.Now().Unix()
	for from := 0; from < providers; from += 300 {
		var docs []store.Doc
		for i := from; i < min(from+300, providers); i++ {
			id := fmt.Sprintf("provider-%06d", i)
			models := ""
			for k := range 8 {
				if k > 0 {
					models += ","
				}
				models += fmt.Sprintf("%q", fmt.Sprintf("model-%d", rng.IntN(shapes)))
			}
			docs = append(docs,
				store.Doc{Kind: "matching.provider", Name: id, Data: fmt.Appendf(nil,
					`{"id":%q,"status":"ACTIVE","capabilities":["AI"],"models":[%s],"region":"eu","stake":10000,"attestation_expires_at":8589934591,"registered_at":%d,"updated_at":%d}`, id, models, now, now)},
				store.Doc{Kind: "matching.ledger", Name: id, Data: fmt.Appendf(nil, `{"health_ppb":1000000000,"health_at":%d,"epoch_id":0}`, now)},
				store.Doc{Kind: "matching.beat", Name: id, Data: fmt.Appendf(nil, `{"at":%d}`, now)})
		}
		if _, err := s.PutDocs(context.Background(), docs); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRound measures a round from the backlog to the commit. The interval is 250 ms.
// The run with a million jobs must be selected by name, since filling the store takes
// long.
func BenchmarkRound(b *testing.B) {
	for _, size := range []struct{ jobs, providers, shapes int }{
		{10_000, 1000, 10},
		{100_000, 1000, 100},
		{100_000, 10_000, 1000},
		{1_000_000, 10_000, 1000},
	} {
		b.Run(fmt.Sprintf("%dx%d", size.jobs, size.providers), func(b *testing.B) {
			if size.jobs > 100_000 && testing.Short() {
				b.Skip("-short leaves out the size that takes a minute to fill")
			}
			d := market(b, size.jobs, size.providers, size.shapes)
			assigned := 0
			for b.Loop() {
				r, err := d.Round(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				assigned += len(r.Assignments)
			}
			b.ReportMetric(float64(assigned)/float64(b.N), "jobs/round")
		})
	}
}
