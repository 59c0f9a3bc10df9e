package match

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"

	"github.com/gopherqueue/gq"
)

// Seed is the only source of randomness in a round: it orders the providers, breaks ties
// and names the leases.
type Seed [sha256.Size]byte

// Tags separate hashes of equal fields for different purposes. The hash of a pair has no
// tag; no other hash has its number of fields.
const (
	matchTag = "AICF|match"
	leaseTag = "AICF|lease"
)

// NewSeed derives the seed of a chain at a height from its public beacon. The numbers
// must not be negative.
func NewSeed(chain string, epoch, height int64, beacon []byte) Seed {
	var text []byte
	text = append(text, matchTag+"|"...)
	text = append(append(text, chain...), '|')
	text = append(strconv.AppendInt(text, epoch, 10), '|')
	text = append(strconv.AppendInt(text, height, 10), '|')
	text = hex.AppendEncode(text, beacon)
	return sha256.Sum256(text)
}

// String returns the seed as 64 lowercase hexadecimal digits.
func (s Seed) String() string { return hex.EncodeToString(s[:]) }

// MarshalText returns the seed as 64 lowercase hexadecimal digits.
func (s Seed) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText parses 64 hexadecimal digits.
func (s *Seed) UnmarshalText(text []byte) error {
	var read Seed
	if len(text) != hex.EncodedLen(len(read)) {
		return fmt.Errorf("seed: %d characters instead of %d: %w", len(text), hex.EncodedLen(len(read)), gq.ErrInvalid)
	}
	if _, err := hex.Decode(read[:], text); err != nil {
		return fmt.Errorf("seed: %w: %w", err, gq.ErrInvalid)
	}
	*s = read
	return nil
}

// Lease returns the id of the lease that a provider gets for an attempt of a job, counted
// from 0, under this seed. It is the hash of these four.
func (s Seed) Lease(job, provider string, attempt int64) gq.LeaseID {
	text := appendLease(make([]byte, 0, 256), job, provider, attempt)
	return leaseID(sha256.Sum256(hex.AppendEncode(text, s[:])))
}

// appendLease appends what is hashed for the id of a lease, up to the seed.
func appendLease(text []byte, job, provider string, attempt int64) []byte {
	text = append(text, leaseTag+"|"...)
	text = append(append(text, job...), '|')
	text = append(append(text, provider...), '|')
	return append(strconv.AppendInt(text, attempt, 10), '|')
}

func leaseID(sum [sha256.Size]byte) gq.LeaseID { return gq.LeaseID(hex.EncodeToString(sum[:])) }

// Pair decides which of several tied jobs gets a scarce slot of a provider: the one with
// the lower digest, compared from the first byte.
func (s Seed) Pair(job, provider string) [sha256.Size]byte {
	return sha256.Sum256(appendPair(make([]byte, 0, 256), job, provider, s))
}

func appendPair(text []byte, job, provider string, s Seed) []byte {
	text = append(append(text, job...), '|')
	text = append(append(text, provider...), '|')
	return hex.AppendEncode(text, s[:])
}

// Shuffle returns the ids in the order of this seed, whatever their order before.
func (s Seed) Shuffle(ids []string) []string {
	shuffled := slices.Clone(ids)
	slices.Sort(shuffled)
	shuffle(s, shuffled)
	return shuffled
}

// shuffle is Fisher–Yates from the last index down.
func shuffle[T any](s Seed, sorted []T) {
	stream := words{seed: s}
	for i := len(sorted) - 1; i > 0; i-- {
		j := uniform(uint64(i)+1, stream.next)
		sorted[i], sorted[j] = sorted[j], sorted[i]
	}
}

// words is the stream of random words of a seed: hashes of the seed and a counter, each
// cut into four.
type words struct {
	seed  Seed
	count uint64 // blocks made
	block [sha256.Size]byte
	left  int // unused bytes at the end of the block
}

func (w *words) next() uint64 {
	if w.left == 0 {
		var text [sha256.Size + 8]byte
		copy(text[:], w.seed[:])
		binary.BigEndian.PutUint64(text[sha256.Size:], w.count)
		w.block, w.left = sha256.Sum256(text[:]), sha256.Size
		w.count++
	}
	word := binary.BigEndian.Uint64(w.block[sha256.Size-w.left:])
	w.left -= 8
	return word
}

// uniform draws an unbiased number below n: it drops words beyond the last whole multiple
// of n.
func uniform(n uint64, next func() uint64) uint64 {
	surplus := -n % n // 2⁶⁴ mod n
	for {
		if w := next(); w <= ^surplus {
			return w % n
		}
	}
}
