// Package sha256batch computes the SHA-256 digests of many short texts that differ only in
// how they begin. Where the processor can, it hashes 16 texts at a
// time; otherwise it uses crypto/sha256, with the same results.
package sha256batch

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"hash"
	"sync"
)

// Hasher hashes texts with a common ending. The zero value is not valid; use [New].
type Hasher struct {
	ending []byte
	text   []byte // the last text that was hashed alone, padded to whole blocks
	length int    // of the beginning in it, -1 for none
	digest digest // nil if its state does not reveal the digest
	state  []byte // buffer
	batch  *batch // nil if the processor cannot hash many texts at a time
}

// digest is a hash whose state can be read.
type digest interface {
	hash.Hash
	encoding.BinaryAppender
}

// New returns a hasher for texts with an empty ending.
func New() *Hasher {
	h := &Hasher{length: -1, batch: newBatch()}
	if stateIsDigest() {
		h.digest = sha256.New().(digest)
	}
	return h
}

// SetEnding sets how all texts end, as the concatenation of parts.
func (h *Hasher) SetEnding(parts ...string) {
	h.ending = h.ending[:0]
	for _, part := range parts {
		h.ending = append(h.ending, part...)
	}
	h.length = -1
	if h.batch != nil {
		h.batch.length = -1
	}
}

// Sum64 sets into[i], for each i in which, to the first 8 bytes of the digest of the text
// that begins with beginnings[i], in big-endian order. It is fastest if many of these in a
// row have the same length, and the call before had most of them in the same places.
func (h *Hasher) Sum64(into []uint64, beginnings []string, which []int32) {
	for position := 0; len(which) > 0; position++ {
		n := 0
		if h.batch != nil {
			n = h.batch.hash(position, beginnings, which, h.ending)
			for element, i := range which[:n] {
				into[i] = h.batch.sum64(element)
			}
		}
		if n == 0 {
			into[which[0]] = h.alone(beginnings[which[0]])
			n = 1
		}
		which = which[n:]
	}
}

// Sum256 sets into[i], for each i in which, to the digest of the text that begins with
// beginnings[i].
func (h *Hasher) Sum256(into [][sha256.Size]byte, beginnings []string, which []int32) {
	for position := 0; len(which) > 0; position++ {
		n := 0
		if h.batch != nil {
			n = h.batch.hash(position, beginnings, which, h.ending)
			for element, i := range which[:n] {
				into[i] = h.batch.sum256(element)
			}
		}
		if n == 0 {
			into[which[0]] = sha256.Sum256(append([]byte(beginnings[which[0]]), h.ending...))
			n = 1
		}
		which = which[n:]
	}
}

// Spare returns how many texts can be added to n of the same length without taking longer.
func (h *Hasher) Spare(n int) int {
	if h.batch == nil {
		return 0
	}
	return (n+width-1)/width*width - n
}

// alone hashes one text. Much of the time for a short text goes to padding it and encoding
// its digest, so the text is padded once for all beginnings of the same length.
func (h *Hasher) alone(beginning string) uint64 {
	if len(beginning) != h.length {
		h.length = len(beginning)
		h.text = appendPadding(append(append(h.text[:0], beginning...), h.ending...))
	}
	copy(h.text, beginning)
	if h.digest == nil {
		sum := sha256.Sum256(h.text[:h.length+len(h.ending)])
		return binary.BigEndian.Uint64(sum[:])
	}
	h.digest.Reset()
	h.digest.Write(h.text)
	h.state, _ = h.digest.AppendBinary(h.state[:0]) // cannot fail: stateIsDigest tried it
	return binary.BigEndian.Uint64(h.state[stateAt:])
}

// appendPadding pads a text to whole blocks as SHA-256 does: a bit, zeros, and the length
// in bits.
func appendPadding(text []byte) []byte {
	bits := uint64(len(text)) * 8
	text = append(text, 0x80)
	for len(text)%sha256.BlockSize != sha256.BlockSize-8 {
		text = append(text, 0)
	}
	return binary.BigEndian.AppendUint64(text, bits)
}

// stateAt is the offset of the state in the encoded form of a digest.
const stateAt = 4

// stateIsDigest reports whether the encoded state after a padded text has the text's
// digest at stateAt. The standard library does so, but does not promise it.
var stateIsDigest = sync.OnceValue(func() bool {
	const text = "AICF"
	h, ok := sha256.New().(digest)
	if !ok {
		return false
	}
	h.Write(appendPadding([]byte(text)))
	state, err := h.AppendBinary(nil)
	return err == nil && len(state) >= stateAt+sha256.Size && [sha256.Size]byte(state[stateAt:]) == sha256.Sum256([]byte(text))
})
