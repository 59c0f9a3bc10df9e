package engine

import (
	"slices"
	"time"
)

// maxSpans is the number of spans that a schedule remembers.
const maxSpans = 100

// spans are the periods whose slots all have a job, sorted and disjoint, as Unix nanoseconds:
// the first is included, the second is not. Slots that follow each other share a span, so a
// schedule that skips nothing has one. Beyond maxSpans the two oldest are joined, so that a
// slot may be taken for fired but never fires twice.
type spans [][2]int64

// has reports whether a slot has a job.
func (c spans) has(slot time.Time) bool {
	at := slot.UnixNano()
	i, found := slices.BinarySearchFunc(c, at, func(s [2]int64, at int64) int {
		switch {
		case s[1] <= at:
			return -1
		case s[0] > at:
			return 1
		}
		return 0
	})
	return found && i < len(c)
}

// with returns the spans with another one. The receiver stays as it is.
func (c spans) with(from, until time.Time) spans {
	added := [2]int64{from.UnixNano(), until.UnixNano()}
	out := make(spans, 0, len(c)+1)
	for _, s := range c {
		if s[1] < added[0] || s[0] > added[1] {
			out = append(out, s)
			continue
		}
		added[0], added[1] = min(added[0], s[0]), max(added[1], s[1])
	}
	i, _ := slices.BinarySearchFunc(out, added, func(a, b [2]int64) int { return int(min(max(a[0]-b[0], -1), 1)) })
	out = slices.Insert(out, i, added)
	if n := len(out) - maxSpans; n > 0 {
		out[n][0] = out[0][0]
		out = out[n:]
	}
	return out
}
