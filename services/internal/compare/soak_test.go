package compare_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq/services/internal/compare"
	"github.com/gopherqueue/gq/services/internal/load"
)

// soakRounds is how often memory is measured. Each round is a separate load whose jobs
// are all followed to their end.
const soakRounds = 20

// kept is how many jobs all nodes of a design keep together before they forget the
// oldest ended ones. Until then memory grows, as it should. Design C keeps them on
// disk.
var kept = map[string]int{"A": 100_000, "B": 600_000, "C": 0}

// Under a long load a design needs no more memory at the end than in the middle. make
// soak runs it, ten minutes for each design.
func TestSoak(t *testing.T) {
	total, err := time.ParseDuration(os.Getenv("GQ_SOAK"))
	if err != nil {
		t.Skip("takes half an hour; make soak runs it")
	}
	for _, d := range compare.Designs() {
		t.Run(d.Name, func(t *testing.T) {
			c := up(t, d.Name)
			s := load.DefaultSettings()
			s.Targets, s.Concurrency, s.Duration, s.Warmup, s.MaxTracked = c.Public, 32, total/soakRounds, 100*time.Millisecond, 2000
			memory := make(map[string][]float64)
			accepted, middle := 0, 0
			for round := range soakRounds {
				if round == soakRounds/2 {
					middle = accepted
				}
				report, err := load.Run(t.Context(), s)
				if err != nil {
					t.Fatal(err)
				}
				if !report.Correct() {
					t.Errorf("round %d: %+v %v", round, report.Jobs, report.Examples)
				}
				accepted += report.Jobs.Accepted
				all := 0.0
				for name, mib := range c.Memory() {
					memory[name] = append(memory[name], mib)
					all += mib
				}
				t.Logf("round %2d: %8d jobs, %6.0f requests/s, all nodes %.0f MiB", round, accepted, report.PerSecond, all)
			}
			if middle < kept[d.Name] {
				t.Fatalf("too slow to tell: half of the time had %d jobs, and %d are remembered; set SOAK_TIME to more than %v", middle, kept[d.Name], total)
			}
			for _, name := range slices.Sorted(maps.Keys(memory)) {
				if err := grown(memory[name]); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// grown compares the last quarter with the third. Uncollected garbage is not growth: a
// fifth and 32 MiB are allowed.
func grown(mib []float64) error {
	n := len(mib)
	before, after := slices.Max(mib[n/2:n-n/4]), slices.Max(mib[n-n/4:])
	if after > 1.2*before+32 {
		return fmt.Errorf("%.0f MiB after the middle, %.0f MiB in the end", before, after)
	}
	return nil
}

func TestGrown(t *testing.T) {
	for name, test := range map[string]struct {
		at   func(i int) float64
		want bool
	}{
		"flat":                {func(int) float64 { return 50 }, false},
		"full after a while":  {func(i int) float64 { return 100 * float64(min(i, 9)) }, false},
		"saw teeth":           {func(i int) float64 { return 200 + 100*float64(i%3) }, false},
		"slowly but steadily": {func(i int) float64 { return 100 + 40*float64(i) }, true},
	} {
		mib := make([]float64, soakRounds)
		for i := range mib {
			mib[i] = test.at(i)
		}
		if err := grown(mib); (err != nil) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
