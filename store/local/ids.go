package local

import (
	"encoding/binary"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// ids finds jobs by id and by sequence number. The number of most jobs follows from the id;
// only jobs with an id from elsewhere are in a hash table. That has no pointers, which the
// garbage collector would scan: about 18 bytes per job, where a map takes 40. Probes compare
// hashes and visit a job only if its hash is equal.
type ids struct {
	key        *store.IDKey
	bySequence sequenceIndex[*job]
	slots      []idSlot // a power of two, open addressing with linear probing
	count      int      // jobs in slots
}

// idSlot is a job in the hash table. Sequence numbers start at 1; 0 is an empty slot.
type idSlot struct{ hash, low, high uint32 }

func (s idSlot) seq() uint64 { return uint64(s.high)<<32 | uint64(s.low) }

func hashID(id *gq.JobID) uint32 {
	return uint32(mix(binary.LittleEndian.Uint64(id[:]) ^ binary.LittleEndian.Uint64(id[8:])))
}

// at finds a job by sequence number.
func (t *ids) at(seq uint64) *job { return t.bySequence.get(seq) }

// isForeign reports whether an id is from elsewhere: the number of its job does not follow from
// it.
func (t *ids) isForeign(id gq.JobID, seq uint64) bool { return t.key.Number(id) != seq }

func (t *ids) get(id gq.JobID) *job {
	if j := t.at(t.key.Number(id)); j != nil && j.id == id {
		return j
	}
	if t.count == 0 {
		return nil
	}
	hash, mask := hashID(&id), uint32(len(t.slots)-1)
	for i := hash & mask; ; i = (i + 1) & mask {
		s := t.slots[i]
		if s.seq() == 0 {
			return nil
		}
		if s.hash == hash {
			if j := t.at(s.seq()); j.id == id {
				return j
			}
		}
	}
}

// add adds a job whose id and number must not be present.
func (t *ids) add(j *job) {
	t.bySequence.add(j.seq, j)
	if !j.foreign {
		return
	}
	if t.count >= len(t.slots)*3/4 {
		t.resize(max(64, 2*len(t.slots)))
	}
	t.put(idSlot{hashID(&j.id), uint32(j.seq), uint32(j.seq >> 32)})
	t.count++
}

func (t *ids) put(s idSlot) {
	mask := uint32(len(t.slots) - 1)
	i := s.hash & mask
	for t.slots[i].seq() != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = s
}

func (t *ids) resize(size int) {
	old := t.slots
	t.slots = make([]idSlot, size)
	for _, s := range old {
		if s.seq() != 0 {
			t.put(s)
		}
	}
}

// remove removes a job, which must be present, and closes the gap.
func (t *ids) remove(j *job) {
	t.bySequence.remove(j.seq)
	if !j.foreign {
		return
	}
	mask := uint32(len(t.slots) - 1)
	gap := hashID(&j.id) & mask
	for t.slots[gap].seq() != j.seq {
		gap = (gap + 1) & mask
	}
	t.count--
	for i := (gap + 1) & mask; t.slots[i].seq() != 0; i = (i + 1) & mask {
		// A job behind the gap may move into it, unless its home slot lies between the
		// gap and the job.
		if home := t.slots[i].hash & mask; (i-home)&mask >= (i-gap)&mask {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	t.slots[gap] = idSlot{}
	if len(t.slots) > 4096 && t.count < len(t.slots)/8 {
		t.resize(len(t.slots) / 2)
	}
}
