package match

import (
	"crypto/sha256"
	"encoding"
	"encoding/binary"
	"hash"
	"sync"
)

// pairs computes the first 8 bytes of the pair hashes of [Seed.Pair], one provider after
// another. In a round with scarce slots this is most of the work, and much of that is
// padding these short texts and encoding the digests. All texts of a provider have the
// same ending, so it is padded once.
type pairs struct {
	seed   string
	ending []byte // common to all texts of the provider
	text   []byte // the last text, padded to whole blocks
	length int    // length of the job id in it
	digest digest // nil if its state does not reveal the digest
	state  []byte // buffer
}

// digest is a hash whose state can be read.
type digest interface {
	hash.Hash
	encoding.BinaryAppender
}

func newPairs(s Seed) pairs {
	p := pairs{seed: s.String()}
	if stateIsDigest() {
		p.digest = sha256.New().(digest)
	}
	return p
}

// of prepares for pairs with a provider.
func (p *pairs) of(provider string) {
	p.ending = append(append(p.ending[:0], '|'), provider...)
	p.ending = append(append(p.ending, '|'), p.seed...)
	p.length = -1
}

// first returns the first 8 bytes of the hash of a job with the provider.
func (p *pairs) first(job string) uint64 {
	if len(job) != p.length {
		p.length = len(job)
		p.text = appendPadding(append(append(p.text[:0], job...), p.ending...))
	}
	copy(p.text, job)
	if p.digest == nil {
		sum := sha256.Sum256(p.text[:p.length+len(p.ending)])
		return binary.BigEndian.Uint64(sum[:])
	}
	p.digest.Reset()
	p.digest.Write(p.text)
	p.state, _ = p.digest.AppendBinary(p.state[:0]) // cannot fail: stateIsDigest tried it
	return binary.BigEndian.Uint64(p.state[stateAt:])
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
