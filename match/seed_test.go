package match_test

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

// The two seeds of the published vectors.
var (
	seed1 = match.NewSeed("testnet-1", 42, 1000, []byte{0x00, 0xff, 0x10})
	seed2 = match.NewSeed("kjede-å", 0, 0, nil)
)

func TestSeedVectors(t *testing.T) {
	spec.Covers(t, "M-07")
	for _, test := range []struct {
		seed match.Seed
		want string
	}{
		{seed1, "fee89e1301189919159f790b907538af5db699d59d4833542312721ea2ef2bdb"},
		{seed2, "7d5963300559d5592c81b89fdb1f29f67ddf3c8d577c871948ea8d86a0cce414"},
	} {
		if test.seed.String() != test.want {
			t.Errorf("%v, want %s", test.seed, test.want)
		}
	}
	for what, other := range map[string]match.Seed{
		"chain":  match.NewSeed("testnet-2", 42, 1000, []byte{0x00, 0xff, 0x10}),
		"epoch":  match.NewSeed("testnet-1", 43, 1000, []byte{0x00, 0xff, 0x10}),
		"height": match.NewSeed("testnet-1", 42, 1001, []byte{0x00, 0xff, 0x10}),
		"beacon": match.NewSeed("testnet-1", 42, 1000, []byte{0x00, 0xff, 0x11}),
		"order":  match.NewSeed("testnet-1", 1000, 42, []byte{0x00, 0xff, 0x10}),
	} {
		if other == seed1 {
			t.Errorf("another %s, and still the same seed", what)
		}
	}
}

func TestSeedText(t *testing.T) {
	text, err := seed1.MarshalText()
	var back match.Seed
	if err != nil || string(text) != seed1.String() || back.UnmarshalText(text) != nil || back != seed1 {
		t.Errorf("%s, %v is read back as %v", text, err, back)
	}
	for _, bad := range []string{"", "00", strings.Repeat("g", 64), strings.Repeat("0", 65)} {
		if err := back.UnmarshalText([]byte(bad)); !errors.Is(err, gq.ErrInvalid) || back != seed1 {
			t.Errorf("%q is read as %v, %v", bad, back, err)
		}
	}
}

func TestRandomWords(t *testing.T) {
	spec.Covers(t, "M-40")
	for _, test := range []struct {
		seed match.Seed
		want []uint64
	}{
		{seed1, []uint64{0x5f3157883a816b2d, 0x839af514e0287590, 0x4b95267d6d6beca7, 0xfcce4f2475547308, 0xd5f65e2e7facf420, 0xb6310f495527bd6b}},
		{seed2, []uint64{0x45a9b7c92c3dca44, 0x9c25b58f0419254c, 0x1f1395b553e6df62, 0xb6a7c79bf993c709, 0xb0647532233112fe, 0x48ec2e77fd614122}},
	} {
		if got := match.Words(test.seed, len(test.want)); !slices.Equal(got, test.want) {
			t.Errorf("%v gives %x, want %x", test.seed, got, test.want)
		}
	}
}

func TestUniform(t *testing.T) {
	for _, test := range []struct {
		n     uint64
		words []uint64
		want  uint64
	}{
		{10, []uint64{math.MaxUint64 - 5, math.MaxUint64, math.MaxUint64 - 6}, 9},
		{8, []uint64{math.MaxUint64}, 7},
		{2, []uint64{math.MaxUint64}, 1},
		{3, []uint64{math.MaxUint64, math.MaxUint64 - 1}, 2},
		{1<<63 + 1, []uint64{1<<63 + 1, 1 << 63}, 1 << 63},
	} {
		rest := test.words
		got := match.Uniform(test.n, func() uint64 {
			w := rest[0]
			rest = rest[1:]
			return w
		})
		if got != test.want || len(rest) > 0 {
			t.Errorf("below %d from %x: %d with %d words left, want %d with none", test.n, test.words, got, len(rest), test.want)
		}
	}
}

// ids returns n names p0, p1 and so on.
func ids(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("p%d", i)
	}
	return list
}

func TestShuffleVectors(t *testing.T) {
	spec.Covers(t, "M-39", "M-40")
	for _, test := range []struct {
		seed match.Seed
		want string
	}{
		{seed1, "p2 p3 p4 p0 p1"},
		{seed1, "p6 p2 p3 p0 p5 p4 p9 p8 p7 p1"},
		{seed2, "p4 p1 p3 p0 p2"},
		{seed2, "p8 p0 p3 p1 p7 p4 p6 p9 p5 p2"},
		{seed1, "p0"},
		{seed1, ""},
	} {
		given := ids(len(strings.Fields(test.want)))
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(given), func(i, j int) { given[i], given[j] = given[j], given[i] })
		before := slices.Clone(given)
		if got := strings.Join(test.seed.Shuffle(given), " "); got != test.want {
			t.Errorf("%v: %s, want %s", test.seed, got, test.want)
		}
		if !slices.Equal(given, before) {
			t.Error("the list given was changed")
		}
	}
}

// Over many seeds, each of the 24 orders of four is about equally frequent, and so is
// each provider in the first place.
func TestShuffleIsFair(t *testing.T) {
	spec.Covers(t, "M-40", "M-135")
	const seeds = 24_000
	orders, first := make(map[string]int), make(map[string]int)
	for height := range int64(seeds) {
		order := match.NewSeed("fair", 0, height, nil).Shuffle(ids(4))
		orders[strings.Join(order, " ")]++
		first[order[0]]++
	}
	// Five standard deviations: 31 and 67.
	if len(orders) != 24 || len(first) != 4 {
		t.Errorf("%d orders, %d in front", len(orders), len(first))
	}
	for order, n := range orders {
		if n < 1000-155 || n > 1000+155 {
			t.Errorf("%s came %d times, want about 1000", order, n)
		}
	}
	for id, n := range first {
		if n < 6000-335 || n > 6000+335 {
			t.Errorf("%s was in front %d times, want about 6000", id, n)
		}
	}
}

func TestLeaseVectors(t *testing.T) {
	spec.Covers(t, "M-48")
	for _, test := range []struct {
		job     string
		attempt int64
		want    gq.LeaseID
	}{
		{"job-0001", 0, "266e00744d271d350ad0dcf635c6762bc33f8fc352fd9f95245c30cb67c4e97f"},
		{"job-0001", 1, "09f9b38810e37c7dc669a71c1f6cc5a1cf38e8c0e15e04751e77dde57c7d1010"},
		{"jobb-å", 0, "b092d231d27cfb84f85f80019b1df22ccc7141410b587e0b9f4439e0e0d52f02"},
	} {
		if got := seed1.Lease(test.job, "p3", test.attempt); got != test.want {
			t.Errorf("%s attempt %d: %s, want %s", test.job, test.attempt, got, test.want)
		}
	}
	all := map[gq.LeaseID]bool{
		seed1.Lease("job-0001", "p3", 0): true, seed1.Lease("job-0001", "p3", 1): true, seed1.Lease("job-0001", "p4", 0): true,
		seed1.Lease("job-0002", "p3", 0): true, seed2.Lease("job-0001", "p3", 0): true,
	}
	if len(all) != 5 {
		t.Error("attempt, provider, job or seed does not change the lease")
	}
}

func TestPairVectors(t *testing.T) {
	spec.Covers(t, "M-47")
	for job, want := range map[string]string{
		"job-0001": "df4014b1e1967c5a278c13375de1a161dcac8a865c2fbb42aacd85b28120b6cf",
		"job-0002": "ece83342a9440f0de7360f65ca779de2b801c761c11aaf45bdd76029a4f60cac",
	} {
		if got := seed1.Pair(job, "p3"); hex.EncodeToString(got[:]) != want {
			t.Errorf("%s p3: %x, want %s", job, got, want)
		}
	}
}

// The same fields hashed for a seed, a lease, a pair or a retry never give the same hash,
// because the purpose is part of the text.
func TestHashesAreSeparated(t *testing.T) {
	spec.Covers(t, "M-131")
	lease := string(seed1.Lease("7", "8", 9))
	seed := match.NewSeed("7", 8, 9, seed1[:]).String()
	pair := seed1.Pair("7", "8")
	if lease == seed || lease == hex.EncodeToString(pair[:]) || seed == hex.EncodeToString(pair[:]) {
		t.Errorf("lease %s, seed %s and pair %x are not all different", lease, seed, pair)
	}
}

func TestLowest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := rapid.SliceOf(rapid.IntRange(0, 20)).Draw(t, "items")
		k := rapid.IntRange(0, len(items)).Draw(t, "k")
		want := slices.Sorted(slices.Values(items))[:k]
		if got := match.Lowest(items, k, func(a, b int) int { return a - b }); !slices.Equal(got, want) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// The hashes that a round compares are the pair hashes, for any lengths of ids.
func TestPairsOfARound(t *testing.T) {
	in := input(nil)
	in.Policy.Quotas.LeasesMax = 2
	for length := 1; length <= match.MaxIDBytes; length += 31 {
		p := provider(strings.Repeat("p", length))
		p.LeasesActive, p.Allow = int64(len(in.Providers)%2), nil
		in.Providers = append(in.Providers, p)
	}
	for length := 1; length <= match.MaxIDBytes; length += 5 {
		for i := range 1 + length%7 {
			j := job(strings.Repeat(string(rune('a'+i)), length), match.AI)
			j.Units = 0
			in.Jobs = append(in.Jobs, j)
		}
	}
	hashes := match.HashesOf(&in)
	if len(hashes) < len(in.Jobs)*len(in.Providers)/2 {
		t.Fatalf("%d hashes for %d jobs and %d providers: too few to tell", len(hashes), len(in.Jobs), len(in.Providers))
	}
	for pair, got := range hashes {
		sum := in.Seed().Pair(pair[0], pair[1])
		if want := binary.BigEndian.Uint64(sum[:]); got != want {
			t.Errorf("ids of %d and %d bytes: %016x, want %016x", len(pair[0]), len(pair[1]), got, want)
		}
	}
}
