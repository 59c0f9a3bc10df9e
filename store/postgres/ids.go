package postgres

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"

	"github.com/gopherqueue/gq"
)

// idKey makes job ids from which the number of the job can be computed, so that no index
// of ids is needed. Of the 122 free bits of a UUID the last 58 are random. The others are
// the number, encrypted with the random bits and the key of the database. The row keeps
// the random bits, and every lookup compares the id. So a number that is assigned twice,
// because a failover lost the first assignment, never leads to the wrong job.
type idKey struct{ block cipher.Block }

func newIDKey(secret []byte) (*idKey, error) {
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, fmt.Errorf("the key in gq.id_key: %w: %w", gq.ErrCorrupt, err)
	}
	return &idKey{block}, nil
}

const (
	randomBits = 58
	maxDay     = 1 << 20 // all numbers are of earlier days
)

func (k *idKey) mask(random uint64) uint64 {
	b := make([]byte, aes.BlockSize)
	binary.BigEndian.PutUint64(b, random)
	k.block.Encrypt(b, b)
	return binary.BigEndian.Uint64(b)
}

// id is the id of the job with a number. It takes the random bits from another id.
func (k *idKey) id(seq int64, random gq.JobID) (id gq.JobID) {
	bits := randomOf(random)
	n := uint64(seq) ^ k.mask(bits)
	const version, variant = 4 << 12, 1 << 63
	binary.BigEndian.PutUint64(id[:8], n>>16<<16|version|n>>4&0xfff)
	binary.BigEndian.PutUint64(id[8:], variant|n&0xf<<randomBits|bits)
	return id
}

// number is the number of the job with an id that this database has made. For other ids
// it is meaningless, and usually 0.
func (k *idKey) number(id gq.JobID) int64 {
	hi, lo := binary.BigEndian.Uint64(id[:8]), binary.BigEndian.Uint64(id[8:])
	n := hi>>16<<16 | hi&0xfff<<4 | lo>>randomBits&0xf
	n ^= k.mask(randomOf(id))
	if n>>dayBits >= maxDay {
		return 0
	}
	return int64(n)
}

func randomOf(id gq.JobID) uint64 {
	return binary.BigEndian.Uint64(id[8:]) & (1<<randomBits - 1)
}
