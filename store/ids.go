package store

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"github.com/gopherqueue/gq"
)

// IDKey makes job ids from which the number of the job can be computed, so that a store needs no
// index of ids. Of the 122 free bits of a UUID the last 58 are random. The others are the number,
// encrypted with the random bits and a secret of the store. The store keeps the random bits with
// the job, and every lookup compares the whole id. So a number that is assigned twice, because
// a restored store lost the first assignment, never leads to the wrong job.
type IDKey struct{ block cipher.Block }

// IDSecretSize is the length of the secret of an [IDKey].
const IDSecretSize = 16

// NewIDKey makes a key from a secret of [IDSecretSize] random bytes.
func NewIDKey(secret []byte) (*IDKey, error) {
	if len(secret) != IDSecretSize {
		return nil, fmt.Errorf("the secret of job ids has %d bytes instead of %d: %w", len(secret), IDSecretSize, gq.ErrCorrupt)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("the secret of job ids: %w: %w", gq.ErrCorrupt, err)
	}
	return &IDKey{block}, nil
}

const randomBits = 58

// ID returns the id of the job with a number. It takes the random bits from another id.
func (k *IDKey) ID(number uint64, random gq.JobID) gq.JobID {
	return k.Restore(number, IDRandom(random))
}

// Restore returns the id of the job with a number and random bits.
func (k *IDKey) Restore(number, random uint64) (id gq.JobID) {
	n := number ^ k.mask(random)
	const version, variant = 4 << 12, 1 << 63
	binary.BigEndian.PutUint64(id[:8], n>>16<<16|version|n>>4&0xfff)
	binary.BigEndian.PutUint64(id[8:], variant|n&0xf<<randomBits|random)
	return id
}

// Number returns the number of the job with an id that this key has made. For other ids it is
// meaningless.
func (k *IDKey) Number(id gq.JobID) uint64 {
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	return (hi>>16<<16 | hi&0xfff<<4 | lo>>randomBits&0xf) ^ k.mask(IDRandom(id))
}

// IDRandom returns the random bits of an id.
func IDRandom(id gq.JobID) uint64 {
	return binary.BigEndian.Uint64(id[8:]) & (1<<randomBits - 1)
}

// IsIDRandom reports whether a number has no more bits than those of [IDRandom].
func IsIDRandom(random uint64) bool { return random>>randomBits == 0 }

func (k *IDKey) mask(random uint64) uint64 {
	b := make([]byte, aes.BlockSize)
	binary.BigEndian.PutUint64(b, random)
	k.block.Encrypt(b, b)
	return binary.BigEndian.Uint64(b)
}
