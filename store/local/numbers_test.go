package local

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestNumbers compares the set with a map.
func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set numbers
		plain := map[uint64]bool{}
		draw := rapid.OneOf(rapid.Uint64Range(0, 40), rapid.Uint64Range(500, 530), rapid.Uint64Range(0, 5_000), rapid.Uint64Range(1<<40, 1<<40+600))
		sorted := func() []uint64 {
			var all []uint64
			for n := range plain {
				all = append(all, n)
			}
			slices.Sort(all)
			return all
		}
		t.Repeat(map[string]func(*rapid.T){
			"flip": func(t *rapid.T) {
				n := draw.Draw(t, "number")
				if plain[n] {
					set.remove(n)
					delete(plain, n)
				} else {
					set.add(n)
					plain[n] = true
				}
			},
			"take the first": func(t *rapid.T) {
				if all := sorted(); len(all) > 0 {
					set.remove(all[0])
					delete(plain, all[0])
				}
			},
			"ascend": func(t *rapid.T) {
				from, limit := draw.Draw(t, "from"), rapid.IntRange(1, 20).Draw(t, "limit")
				var want, got []uint64
				for _, n := range sorted() {
					if n >= from && len(want) < limit {
						want = append(want, n)
					}
				}
				set.ascend(from, func(n uint64) bool {
					got = append(got, n)
					return len(got) < limit
				})
				if !slices.Equal(got, want) {
					t.Fatalf("from %d up: %d, want %d", from, got, want)
				}
			},
			"descend": func(t *rapid.T) {
				below, limit := draw.Draw(t, "below"), rapid.IntRange(1, 20).Draw(t, "limit")
				var want, got []uint64
				for _, n := range slices.Backward(sorted()) {
					if n < below && len(want) < limit {
						want = append(want, n)
					}
				}
				set.descend(below, func(n uint64) bool {
					got = append(got, n)
					return len(got) < limit
				})
				if !slices.Equal(got, want) {
					t.Fatalf("below %d down: %d, want %d", below, got, want)
				}
			},
		})
	})
}
