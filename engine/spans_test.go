package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Spans agree with a set of seconds, as long as there are not too many.
func TestSpans(t *testing.T) {
	second := func(n int) time.Time { return time.Unix(int64(n), 0) }
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var c spans
		set := map[int]bool{}
		for range 30 {
			from := random.IntN(200)
			until := from + 1 + random.IntN(10)
			before, kept := slices.Clone(c), c
			c = c.with(second(from), second(until))
			if !slices.Equal(before, kept) {
				t.Fatalf("with changed %v to %v", before, kept)
			}
			for n := from; n < until; n++ {
				set[n] = true
			}
			for n := range 220 {
				if c.has(second(n)) != set[n] {
					t.Fatalf("%v has second %d: %v", c, n, !set[n])
				}
			}
			for i := 1; i < len(c); i++ {
				if c[i-1][1] >= c[i][0] {
					t.Fatalf("%v is not sorted and disjoint", c)
				}
			}
		}
	}
	var many spans
	for n := range 3 * maxSpans {
		many = many.with(second(10*n), second(10*n+1))
	}
	if len(many) != maxSpans || !many.has(second(0)) || !many.has(second(5)) || !many.has(second(30*maxSpans-10)) || many.has(second(30*maxSpans-15)) {
		t.Errorf("%d spans, from %v to %v", len(many), many[0], many[len(many)-1])
	}
}
