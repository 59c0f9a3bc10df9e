package sha256batch

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// ways returns a hasher for each way of hashing that this machine has.
func ways() map[string]*Hasher {
	ways := map[string]*Hasher{"best": New(), "alone": New(), "plain": New()}
	ways["alone"].batch = nil
	ways["plain"].batch, ways["plain"].digest = nil, nil
	return ways
}

// check hashes the chosen texts in every way and compares with crypto/sha256.
func check(t *testing.T, ways map[string]*Hasher, ending string, beginnings []string, which []int32) {
	t.Helper()
	chosen := make(map[int32]bool)
	for _, i := range which {
		chosen[i] = true
	}
	for way, h := range ways {
		h.SetEnding(ending[:len(ending)/2], ending[len(ending)/2:])
		got := make([]uint64, len(beginnings))
		h.Sum64(got, beginnings, which)
		whole := make([][sha256.Size]byte, len(beginnings))
		h.Sum256(whole, beginnings, which)
		for i, beginning := range beginnings {
			sum := sha256.Sum256([]byte(beginning + ending))
			want := binary.BigEndian.Uint64(sum[:])
			if !chosen[int32(i)] {
				want, sum = 0, [sha256.Size]byte{}
			}
			if whole[i] != sum {
				t.Fatalf("%s: text %d of %d with %d+%d bytes: %x, want %x", way, i, len(beginnings), len(beginning), len(ending), whole[i], sum)
			}
			if got[i] != want {
				t.Fatalf("%s: text %d of %d with %d+%d bytes: %016x, want %016x", way, i, len(beginnings), len(beginning), len(ending), got[i], want)
			}
		}
	}
}

// noise returns a text of any bytes.
func noise(rng *rand.Rand, length int) string {
	text := make([]byte, length)
	for i := range text {
		text[i] = byte(rng.Uint32())
	}
	return string(text)
}

// Whatever part of a block, or number of blocks, the beginnings and the ending have.
func TestSum64OfAnyLengths(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	ways := ways()
	every := make([]int32, 16)
	for i := range every {
		every[i] = int32(i)
	}
	for length := range 2*sha256.BlockSize + 2 {
		for ending := range 2*sha256.BlockSize + 2 {
			beginnings := make([]string, len(every))
			for i := range beginnings {
				beginnings[i] = noise(rng, length)
			}
			check(t, ways, noise(rng, ending), beginnings, every)
		}
	}
}

// Any number of texts, with lengths that change among them, and only those asked for.
func TestSum64OfSome(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	ways := ways()
	for n := range 70 {
		for range 20 {
			beginnings, which := make([]string, n), []int32{}
			length := rng.IntN(256)
			for i := range beginnings {
				if rng.IntN(12) == 0 {
					length = rng.IntN(256)
				}
				beginnings[i] = noise(rng, length)
				if rng.IntN(8) > 0 {
					which = append(which, int32(i))
				}
			}
			check(t, ways, noise(rng, rng.IntN(400)), beginnings, which)
		}
	}
}

// The same beginnings with one ending after another, fewer of them each time.
func TestSum64Again(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for length := range 70 {
		ways := ways()
		beginnings, which := make([]string, 50), make([]int32, 50)
		for i := range beginnings {
			beginnings[i], which[i] = noise(rng, length), int32(i)
		}
		end := rng.IntN(100)
		for len(which) > 0 {
			check(t, ways, noise(rng, end), beginnings, which)
			last := len(which) - 1
			which[rng.IntN(len(which))] = which[last]
			which = which[:last]
		}
	}
}

func FuzzSum64(f *testing.F) {
	f.Add("|provider|seed", []byte("job-0001job-0002job-0003job-0004job-0005job-0006"), uint8(8))
	f.Add("", bytes.Repeat([]byte{0xff}, 2000), uint8(255))
	ways := ways()
	f.Fuzz(func(t *testing.T, ending string, text []byte, length uint8) {
		var beginnings []string
		var which []int32
		for ; len(text) > 0 && length > 0; text = text[min(len(text), int(length)):] {
			which = append(which, int32(len(beginnings)))
			beginnings = append(beginnings, string(text[:min(len(text), int(length))]))
		}
		check(t, ways, ending, beginnings, which)
	})
}

// Not an error in the result, but a loss of speed that nothing else would show.
func TestStateIsDigest(t *testing.T) {
	if !stateIsDigest() {
		t.Error("crypto/sha256 encodes its state in another way now: texts hashed alone take a third longer until this package follows")
	}
}

func BenchmarkSum64(b *testing.B) {
	for _, n := range []int{1, 6, 7, 16, 256} {
		beginnings, which := make([]string, n), make([]int32, n)
		for i := range n {
			beginnings[i], which[i] = fmt.Sprintf("3f0c5e5a-0000-4000-8000-%012d", i), int32(i)
		}
		for way, h := range ways() {
			b.Run(fmt.Sprintf("%d/%s", n, way), func(b *testing.B) {
				h.SetEnding("|provider-000001|", strings.Repeat("0", 64))
				into := make([]uint64, n)
				for b.Loop() {
					h.Sum64(into, beginnings, which)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/text")
			})
		}
	}
}
