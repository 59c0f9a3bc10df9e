//go:build !purego

package sha256batch

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"

	"golang.org/x/sys/cpu"
)

const (
	width     = 16 // texts that are hashed at a time
	few       = 2  // hashing this many one after another is as fast, or nearly
	maxGroups = 64 // whose vectors are kept, 64 KiB with beginnings of one block
)

// vector has one word of each text. It fills an AVX-512 register.
type vector [width]uint32

// batch hashes many texts at a time. The blocks after the one in which the beginnings end
// are the same in all texts, so their message schedules are computed once. Often the same
// beginnings are hashed with one ending after another, so groups of them stay in their
// vectors.
type batch struct {
	length int          // of the beginnings that the rest is prepared for, -1 for none
	text   []byte       // a text with zeros for its beginning, padded
	common [][16]uint32 // the words of its blocks that hold part of the beginning
	tail   []byte       // the blocks after these
	shared [][64]uint32 // and their schedules
	groups []*group     // by position in a call
	state  [8]vector    // after the last block of the texts that were hashed last
}

// group has the beginnings of some texts, as blocks that are zero after them.
type group struct {
	beginnings [width]string
	length     int
	blocks     [][16]vector
}

// newBatch returns nil if the processor lacks the instructions.
func newBatch() *batch {
	if !cpu.X86.HasAVX512F {
		return nil
	}
	return &batch{length: -1}
}

// hash hashes the first texts of which whose beginnings have the same length, and returns
// how many: 0 if hashing them one after another is as fast. They are the group with this
// position in the call. [batch.sum64] and [batch.sum256] return their digests.
func (b *batch) hash(position int, beginnings []string, which []int32, ending []byte) int {
	length, n := len(beginnings[which[0]]), 1
	for n < min(width, len(which)) && len(beginnings[which[n]]) == length {
		n++
	}
	if n <= few {
		return 0
	}
	if b.length != length {
		b.prepare(length, ending)
	}
	g := b.group(position % maxGroups)
	for element, i := range which[:n] {
		if g.beginnings[element] != beginnings[i] {
			g.enter(element, beginnings[i])
		}
	}
	b.state = initial
	for i := range g.blocks {
		ownBlock(&b.state, &g.blocks[i], &b.common[i], &constants)
	}
	for i := range b.shared {
		sharedBlock(&b.state, &b.shared[i])
	}
	return n
}

// sum64 returns the first 8 bytes of a digest.
func (b *batch) sum64(element int) uint64 {
	return uint64(b.state[0][element])<<32 | uint64(b.state[1][element])
}

// sum256 returns a digest.
func (b *batch) sum256(element int) (sum [sha256.Size]byte) {
	for i := range b.state {
		binary.BigEndian.PutUint32(sum[i*4:], b.state[i][element])
	}
	return sum
}

// prepare sets everything that depends on the ending and the length of the beginnings.
func (b *batch) prepare(length int, ending []byte) {
	b.length = length
	b.text = append(b.text[:0], make([]byte, length)...)
	b.text = appendPadding(append(b.text, ending...))
	own := (length + sha256.BlockSize - 1) / sha256.BlockSize
	b.common = slices.Grow(b.common[:0], own)[:own]
	for block := range b.common {
		for word := range b.common[block] {
			b.common[block][word] = binary.BigEndian.Uint32(b.text[block*sha256.BlockSize+word*4:])
		}
	}
	if tail := b.text[own*sha256.BlockSize:]; !bytes.Equal(tail, b.tail) {
		b.tail = append(b.tail[:0], tail...)
		b.shared = b.shared[:0]
		for ; len(tail) > 0; tail = tail[sha256.BlockSize:] {
			b.shared = append(b.shared, schedule(tail))
		}
	}
}

// group returns a group for beginnings of the present length.
func (b *batch) group(position int) *group {
	for len(b.groups) <= position {
		b.groups = append(b.groups, new(group))
	}
	g := b.groups[position]
	if g.length != b.length {
		g.length, g.beginnings = b.length, [width]string{}
		g.blocks = slices.Grow(g.blocks[:0], len(b.common))[:len(b.common)]
		clear(g.blocks)
	}
	return g
}

// enter writes a beginning into one element of the vectors.
func (g *group) enter(element int, beginning string) {
	g.beginnings[element] = beginning
	for at := 0; at < len(beginning); at += 4 {
		var word [4]byte
		copy(word[:], beginning[at:])
		g.blocks[at/sha256.BlockSize][at/4%16][element] = binary.BigEndian.Uint32(word[:])
	}
}

// schedule returns the words of a block, extended to all rounds, plus the constants.
func schedule(block []byte) (w [64]uint32) {
	for i := range 16 {
		w[i] = binary.BigEndian.Uint32(block[i*4:])
	}
	for i := 16; i < 64; i++ {
		x, y := w[i-15], w[i-2]
		w[i] = w[i-16] + w[i-7] +
			(bits.RotateLeft32(x, -7) ^ bits.RotateLeft32(x, -18) ^ x>>3) +
			(bits.RotateLeft32(y, -17) ^ bits.RotateLeft32(y, -19) ^ y>>10)
	}
	for i := range w {
		w[i] += constants[i]
	}
	return w
}

// ownBlock adds a block that differs between the texts to the state: their own words,
// joined with the ones they have in common.
//
//go:noescape
func ownBlock(state *[8]vector, words *[16]vector, common *[16]uint32, constants *[64]uint32)

// sharedBlock adds a block that is the same in all texts to the state.
//
//go:noescape
func sharedBlock(state *[8]vector, schedule *[64]uint32)

// initial is the state before the first block.
var initial = func() (state [8]vector) {
	for i, word := range [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {
		for element := range width {
			state[i][element] = word
		}
	}
	return state
}()

// constants has one word for each round.
var constants = [64]uint32{
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
}
