package local

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// BenchmarkSkim reads the events of jobs that were submitted, claimed and completed in batches of
// 100, one event in each iteration.
func BenchmarkSkim(b *testing.B) {
	s, err := Open(b.TempDir(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for i := range 100 {
		groups := make([]store.Group, 100)
		for k := range groups {
			groups[k] = store.One(gq.Spec{ID: machine.NewJobID([16]byte{byte(i), byte(k), 1}), Type: "t"}.WithDefaults())
		}
		if _, err := s.Insert(b.Context(), groups); err != nil {
			b.Fatal(err)
		}
		claimed, err := s.Claim(b.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: 100, Worker: "w"}})
		if err != nil {
			b.Fatal(err)
		}
		updates := make([]store.Update, len(claimed[0].Jobs))
		for k, j := range claimed[0].Jobs {
			ref := j.State.Lease.Ref()
			updates[k] = store.Update{Ref: store.Ref{Job: j.Spec.ID}, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Complete(s, ref, nil, now)
			}}
		}
		if _, err := s.Update(b.Context(), updates); err != nil {
			b.Fatal(err)
		}
	}
	read := map[string]func(ctx context.Context, after uint64) (uint64, error){
		"skim": func(ctx context.Context, after uint64) (uint64, error) {
			return s.Skim(ctx, after, 10_000, func(*gq.Event) {})
		},
		"events": func(ctx context.Context, after uint64) (uint64, error) {
			events, err := s.Events(ctx, after, 10_000)
			return after + uint64(len(events)), err
		},
	}
	for _, name := range []string{"skim", "events"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			after := uint64(0)
			for n := 0; n < b.N; {
				next, err := read[name](b.Context(), after)
				if err != nil {
					b.Fatal(fmt.Errorf("after %d: %w", after, err))
				}
				n += int(next - after)
				if after = next; next == s.lastEvent.Load() {
					after = 0
				}
			}
		})
	}
}
