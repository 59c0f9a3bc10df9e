package postgres

import (
	"crypto/sha256"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// idKey makes the ids of jobs from their numbers, which contain the day.
type idKey struct {
	*store.IDKey
	hash []byte // SHA-256 of the key
}

func newIDKey(secret []byte) (*idKey, error) {
	key, err := store.NewIDKey(secret)
	hash := sha256.Sum256(secret)
	return &idKey{key, hash[:]}, err
}

// maxDay is the end of the days of all numbers.
const maxDay = 1 << 20

// id is the id of the job with a number. It takes the random bits from another id.
func (k *idKey) id(seq int64, random gq.JobID) gq.JobID { return k.ID(uint64(seq), random) }

// number is the number of the job with an id that this database has made. For other ids
// it is meaningless, and usually 0.
func (k *idKey) number(id gq.JobID) int64 {
	n := k.Number(id)
	if n>>dayBits >= maxDay {
		return 0
	}
	return int64(n)
}
