//go:build !purego

package sha256batch

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"

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
	length   int          // of the beginnings that the rest is prepared for, -1 for none
	prepared int          // how often it was prepared
	text     []byte       // a text without its beginning, padded
	own      int          // number of blocks that hold part of a beginning
	mixed    uint32       // the word in which a beginning ends, without the beginning
	tail     []byte       // the blocks after these
	shared   [][64]uint32 // and their schedules
	groups   []*group     // by position in a call
	state    [8]vector
}

// group has the blocks of some texts that hold part of their beginnings.
type group struct {
	beginnings [width]string
	length     int // of the beginnings
	prepared   int // the preparation that the words after the beginnings are from
	blocks     [][16]vector
}

// newBatch returns nil if the processor lacks the instructions.
func newBatch() *batch {
	if !cpu.X86.HasAVX512F {
		return nil
	}
	return &batch{length: -1}
}

// sum64 hashes the first texts of which whose beginnings have the same length, and returns
// how many: 0 if hashing them one after another is as fast. They are the group with this
// position in the call.
func (b *batch) sum64(position int, into []uint64, beginnings []string, which []int32, ending []byte) int {
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
			g.beginnings[element] = beginnings[i]
			g.enter(element, b.mixed)
		}
	}
	b.state = initial
	for i := range g.blocks {
		ownBlock(&b.state, &g.blocks[i], &constants)
	}
	for i := range b.shared {
		sharedBlock(&b.state, &b.shared[i])
	}
	for element, i := range which[:n] {
		into[i] = uint64(b.state[0][element])<<32 | uint64(b.state[1][element])
	}
	return n
}

// prepare sets everything that depends on the ending and the length of the beginnings.
func (b *batch) prepare(length int, ending []byte) {
	b.length = length
	b.prepared++
	b.text = b.text[:0]
	for range length {
		b.text = append(b.text, 0)
	}
	b.text = appendPadding(append(b.text, ending...))
	b.own = (length + sha256.BlockSize - 1) / sha256.BlockSize
	b.mixed = 0
	if length/4 < b.own*16 {
		b.mixed = binary.BigEndian.Uint32(b.text[length/4*4:])
	}
	if tail := b.text[b.own*sha256.BlockSize:]; !bytes.Equal(tail, b.tail) {
		b.tail = append(b.tail[:0], tail...)
		b.shared = b.shared[:0]
		for ; len(tail) > 0; tail = tail[sha256.BlockSize:] {
			b.shared = append(b.shared, schedule(tail))
		}
	}
}

// group returns a group that is prepared for the present ending and length.
func (b *batch) group(position int) *group {
	for len(b.groups) <= position {
		b.groups = append(b.groups, new(group))
	}
	g := b.groups[position]
	if g.prepared == b.prepared {
		return g
	}
	g.prepared = b.prepared
	if g.length != b.length {
		g.length, g.beginnings = b.length, [width]string{}
		for len(g.blocks) < b.own {
			g.blocks = append(g.blocks, [16]vector{})
		}
		g.blocks = g.blocks[:b.own]
	}
	first := b.length / 4
	if b.length%4 > 0 {
		for element := range g.beginnings {
			g.enterEnd(element, b.mixed)
		}
		first++
	}
	for word := first; word < b.own*16; word++ {
		v, w := &g.blocks[word/16][word%16], binary.BigEndian.Uint32(b.text[word*4:])
		for element := range v {
			v[element] = w
		}
	}
	return g
}

// enter writes a beginning into one element of the vectors.
func (g *group) enter(element int, mixed uint32) {
	rest := g.beginnings[element]
	for block := range g.blocks {
		words := &g.blocks[block]
		for word := range words {
			if len(rest) < 4 {
				g.enterEnd(element, mixed)
				return
			}
			words[word][element] = uint32(rest[0])<<24 | uint32(rest[1])<<16 | uint32(rest[2])<<8 | uint32(rest[3])
			rest = rest[4:]
		}
	}
}

// enterEnd writes the word in which a beginning ends, with up to three bytes of it.
func (g *group) enterEnd(element int, mixed uint32) {
	at := g.length / 4
	if end := g.beginnings[element]; len(end) == g.length {
		for i, c := range []byte(end[at*4:]) {
			mixed |= uint32(c) << (24 - 8*i)
		}
	}
	g.blocks[at/16][at%16][element] = mixed
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

// ownBlock adds a block that differs between the texts to the state.
//
//go:noescape
func ownBlock(state *[8]vector, words *[16]vector, constants *[64]uint32)

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
