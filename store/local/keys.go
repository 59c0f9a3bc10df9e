package local

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// The key space. The first byte names the kind of record; numbers are big-endian, so
// that keys sort numerically. docs/storage.md also has the formats of the values.
//
// A job's records are keyed by its sequence number, not its id: numbers only grow, so
// new records go to the end of the key space and old ones are removed in ranges. The number
// follows from the id, except for ids from elsewhere, which have a record.
const (
	prefixMeta       = 'a' // a name              → store-wide value
	prefixQueue      = 'b' // b queue             → configuration
	prefixBucket     = 'c' // c bucket              → queue, type, required capabilities
	prefixCounts     = 'd' // d queue             → finished jobs by status
	prefixSpec       = 'e' // e seq               → spec with payload
	prefixLive       = 'f' // f seq               → state of a live job
	prefixDone       = 'g' // g queue status seq  → state of a finished job
	prefixID         = 'h' // h id                → seq, for ids not made here
	prefixResult     = 'i' // i seq               → result
	prefixCheckpoint = 'j' // j seq               → checkpoint
	prefixMetadata   = 'k' // k seq               → metadata, once changed
	prefixKey        = 'l' // l hash              → idempotency key
	prefixLease      = 'm' // m lease id          → seq, for ids not made here
	prefixEdge       = 'n' // n parent child kind → kind of dependency
	prefixEnded      = 'o' // o parent            → how it ended, while dependents have yet to be updated
	prefixEvents     = 'p' // p event             → the events of one commit
	prefixHistory    = 'q' // q seq               → events that outlived the log
	prefixDoc        = 'r' // r kind 0 name       → version and data of a document
	prefixPool       = 's' // s name              → configuration of a pool
	prefixPace       = 't' // t queue             → state of its rate limit and its turns
	prefixTold       = 'u' // u id                → during an import: the newest event record of a job
	prefixOwed       = 'v' // v queue key         → until when a limit key owes units of its rate
	prefixOwnKey     = 'w' // w queue key         → limits of one limit key
	prefixKept       = 'x' // x until seq         → id of a finished job with a retention of its own
	prefixRetry      = 'z' // z time random       → idempotency key that only makes a submission repeatable
	prefixPack       = 'y' // y seq               → first states of new jobs, from this one on
)

func numberKey(prefix byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefix}, n)
}

// tableNumbers is how many bits of the numbers in one table may differ.
const tableNumbers = 20

// tableEnd returns the key before which a table that begins with this key must end. A table
// has records of one kind, and its numbered records have similar numbers. Otherwise a table
// with new records and tombstones of old ones would overlap all tables between them, and
// Pebble would merge them all.
func tableEnd(first []byte) []byte {
	if len(first) == 0 {
		return nil
	}
	switch first[0] {
	case prefixSpec, prefixLive, prefixResult, prefixCheckpoint, prefixMetadata, prefixEvents, prefixHistory, prefixPack:
		if len(first) < 9 {
			break
		}
		if last := binary.BigEndian.Uint64(first[1:]) | (1<<tableNumbers - 1); last < math.MaxUint64 {
			return numberKey(first[0], last+1)
		}
	}
	return []byte{first[0] + 1}
}

func smallKey(prefix byte, n uint32) []byte {
	return binary.BigEndian.AppendUint32([]byte{prefix}, n)
}

func appendNumberKey(b []byte, prefix byte, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, prefix), n)
}

// doneKey locates a finished job: lists walk a queue and status by sequence.
type doneKey struct {
	queue  uint32
	status gq.Status
	seq    uint64
}

const doneKeySize = 1 + 4 + 1 + 8

func (k doneKey) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint32(append(b, prefixDone), k.queue)
	return binary.BigEndian.AppendUint64(append(b, byte(k.status)), k.seq)
}

func parseDoneKey(b []byte) (k doneKey, ok bool) {
	if len(b) != doneKeySize || b[0] != prefixDone {
		return k, false
	}
	return doneKey{binary.BigEndian.Uint32(b[1:]), gq.Status(b[5]), binary.BigEndian.Uint64(b[6:])}, true
}

func idKey(id gq.JobID) []byte { return append([]byte{prefixID}, id[:]...) }

func leaseKey(id gq.LeaseID) []byte { return append([]byte{prefixLease}, id...) }

func edgeKey(parent, child uint64, kind gq.DependencyKind) []byte {
	return append(binary.BigEndian.AppendUint64(numberKey(prefixEdge, parent), child), byte(kind))
}

// setEdge records a dependency. The value repeats the kind, so that damage is noticed.
func (tx *txn) setEdge(parent, child uint64, kind gq.DependencyKind) {
	tx.set(edgeKey(parent, child, kind), []byte{byte(kind)})
}

// retriesFrom returns the first of the keys for retries that clients have drawn lately, if their
// clocks are right.
func retriesFrom(now int64) gq.JobID {
	at := time.Unix(0, max(now-2*int64(machine.RetryWindow), 0))
	number, _ := machine.RetryNumber(gq.IdempotencyKey{Scope: machine.RetryScope, Name: machine.RetryName(at, [10]byte{}, 0)})
	return gq.JobID(number)
}

// checkEdge reports whether a record of a dependency is one that setEdge writes.
func checkEdge(key, value []byte) error {
	if len(key) != edgeKeyBytes || len(value) != 1 || value[0] != key[edgeKeyBytes-1] {
		return gq.ErrCorrupt
	}
	return nil
}

const edgeKeyBytes = 1 + 8 + 8 + 1

// keyID is the record key of an idempotency key: its kind and 16 bytes.
type keyID [17]byte

// bytes returns what tells apart the keys of a kind.
func (k keyID) bytes() gq.JobID { return gq.JobID(k[1:]) }

// keyOf identifies a key. 128 bits of SHA-256 do not collide. The names of keys for retries are
// 128 bits themselves, which are ordered by time.
func keyOf(k *gq.IdempotencyKey) keyID {
	if number, ok := machine.RetryNumber(*k); ok {
		return keyID(append([]byte{prefixRetry}, number[:]...))
	}
	b := make([]byte, 0, 128)
	b = binary.BigEndian.AppendUint64(b, uint64(len(k.Scope)))
	b = append(append(b, k.Scope...), k.Name...)
	sum := sha256.Sum256(b)
	return keyID(append([]byte{prefixKey}, sum[:16]...))
}
