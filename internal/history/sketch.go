package history

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
)

// Sketch counts durations in buckets whose width grows with the duration: two for each power of
// two microseconds. The zero value is empty.
type Sketch struct {
	low    int     // bucket of the first count
	counts []int64 // up to that of the last bucket that is not empty
}

// buckets reach to 2^45 µs, more than a year. The first one is below 2^4 µs.
const (
	firstPower = 4
	lastPower  = 45
	buckets    = 2*(lastPower-firstPower) + 1
)

// bucket returns the bucket of a duration.
func bucket(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	power := bits.Len64(us) - 1
	if power < firstPower {
		return 0
	}
	return min(2*(power-firstPower)+1+int(us>>(power-1)&1), buckets-1)
}

// start returns the first duration of a bucket.
func start(b int) time.Duration {
	if b == 0 {
		return 0
	}
	power := firstPower + (b-1)/2
	half := uint64(1) << (power - 1)
	return time.Duration(half*uint64(2+(b-1)%2)) * time.Microsecond
}

// Add counts a duration.
func (s *Sketch) Add(d time.Duration) { s.add(bucket(d), 1) }

func (s *Sketch) add(b int, n int64) {
	if n == 0 {
		return
	}
	if len(s.counts) == 0 {
		s.low = b
	}
	if b < s.low {
		s.counts = slices.Insert(s.counts, 0, make([]int64, s.low-b)...)
		s.low = b
	}
	if i := b - s.low; i >= len(s.counts) {
		s.counts = append(s.counts, make([]int64, i+1-len(s.counts))...)
	}
	s.counts[b-s.low] += n
}

// Merge adds the counts of another sketch.
func (s *Sketch) Merge(o *Sketch) {
	for i, n := range o.counts {
		s.add(o.low+i, n)
	}
}

// Count returns how many durations were added.
func (s *Sketch) Count() (total int64) {
	for _, n := range s.counts {
		total += n
	}
	return total
}

// Quantile estimates the duration that a share of all durations does not exceed, at most a fifth
// off: the harmonic mean of the bounds of its bucket.
func (s *Sketch) Quantile(share float64) time.Duration {
	rank := share * float64(s.Count())
	before := float64(0)
	for i, n := range s.counts {
		if before += float64(n); n > 0 && before >= rank {
			from, to := start(s.low+i), start(s.low+i+1)
			if from == 0 {
				return to / 2
			}
			return time.Duration(2 / (1/float64(from) + 1/float64(to)))
		}
	}
	return 0 // there are none
}

// Latency returns the summary of the durations.
func (s *Sketch) Latency() gq.Latency {
	return gq.Latency{Count: s.Count(), P50: s.Quantile(0.5), P90: s.Quantile(0.9), P99: s.Quantile(0.99)}
}

// append encodes a sketch: how many buckets there are from the first that is not empty to the
// last, which one the first is, and their counts.
func (s *Sketch) append(b []byte) []byte {
	b = append(b, byte(len(s.counts)))
	if len(s.counts) == 0 {
		return b
	}
	b = append(b, byte(s.low))
	for _, n := range s.counts {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// read decodes a sketch from the front of b, adds it, and returns the rest.
func (s *Sketch) read(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, errForm
	}
	n := int(b[0])
	if b = b[1:]; n == 0 {
		return b, nil
	}
	if len(b) == 0 || int(b[0])+n > buckets {
		return nil, errForm
	}
	first := int(b[0])
	b = b[1:]
	if len(s.counts) == 0 {
		s.low, s.counts = first, make([]int64, 0, n)
	}
	for i := range n {
		v, size := binary.Uvarint(b)
		if size <= 0 || v > maxCount {
			return nil, errForm
		}
		s.add(first+i, int64(v))
		b = b[size:]
	}
	return b, nil
}
