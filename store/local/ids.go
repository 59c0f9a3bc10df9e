package local

import (
	"encoding/binary"

	"github.com/gopherqueue/gq"
)

// ids finds jobs by id. It is a hash table of pointers only, since each job has its id:
// about 14 bytes per job, where a map takes 40.
type ids struct {
	slots []*job // a power of two, open addressing with linear probing
	count int
}

func (t *ids) home(id *gq.JobID) int {
	h := mix(binary.LittleEndian.Uint64(id[:]) ^ binary.LittleEndian.Uint64(id[8:]))
	return int(h) & (len(t.slots) - 1)
}

func (t *ids) get(id gq.JobID) *job {
	if t.count == 0 {
		return nil
	}
	for i := t.home(&id); ; i = (i + 1) & (len(t.slots) - 1) {
		if j := t.slots[i]; j == nil || j.id == id {
			return j
		}
	}
}

// add adds a job whose id must not be present.
func (t *ids) add(j *job) {
	if t.count >= len(t.slots)*3/4 {
		t.resize(max(64, 2*len(t.slots)))
	}
	t.put(j)
	t.count++
}

func (t *ids) put(j *job) {
	i := t.home(&j.id)
	for t.slots[i] != nil {
		i = (i + 1) & (len(t.slots) - 1)
	}
	t.slots[i] = j
}

func (t *ids) resize(size int) {
	old := t.slots
	t.slots = make([]*job, size)
	for _, j := range old {
		if j != nil {
			t.put(j)
		}
	}
}

// remove removes a job, which must be present, and closes the gap.
func (t *ids) remove(j *job) {
	mask := len(t.slots) - 1
	gap := t.home(&j.id)
	for t.slots[gap] != j {
		gap = (gap + 1) & mask
	}
	t.count--
	for i := (gap + 1) & mask; t.slots[i] != nil; i = (i + 1) & mask {
		// A job behind the gap may move into it, unless its home slot lies between the
		// gap and the job.
		if home := t.home(&t.slots[i].id); (i-home)&mask >= (i-gap)&mask {
			t.slots[gap] = t.slots[i]
			gap = i
		}
	}
	t.slots[gap] = nil
	if len(t.slots) > 4096 && t.count < len(t.slots)/8 {
		t.resize(len(t.slots) / 2)
	}
}
