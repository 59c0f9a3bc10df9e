package local

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Jobs that are submitted one after the other in a commit mostly have the same first state,
// except for the id, of which only the random bits are not known. They share one record on
// disk, a pack:
//
//	uvarint  number of jobs
//	fixed 8  the random bits of each job's id
//	record   of the first job, with a zero id
//
// A job of a pack has a record of its own once its state has changed. When it has ended, that
// record says so, until the pack is dissolved: when all of its jobs have ended, or so few are
// left that records of their own take less space.

// pack is a run of jobs with consecutive numbers that share a record on disk.
type pack struct {
	first uint64
	jobs  int
	left  int  // those that have not ended
	open  bool // it belongs to the open commit, which may add jobs
	gone  bool // its jobs have records of their own
}

const (
	packLeast = 4    // fewer jobs have records of their own
	packMost  = 1024 // limits how much has to be written to dissolve a pack
)

// thin reports whether a pack is to be dissolved.
func (p *pack) thin() bool { return p.left*8 <= p.jobs }

// packEnded is the record of a job that ended before its pack was dissolved. No state is so
// short.
var packEnded = []byte{0}

// pack returns the pack that a live job belongs to, nil if there is none.
func (j *job) pack() *pack {
	if j.record == nil || j.record.pack == nil || j.record.pack.gone {
		return nil
	}
	return j.record.pack
}

// run is a pack of the open commit.
type run struct {
	*record // of its jobs in their first state
	header  header
	state   gq.State
	jobs    []*job
}

// join adds a new job to a pack. It reports whether it did; if not, the job needs a record of
// its own.
func (tx *txn) join(j *job, h header, s *gq.State) bool {
	if j.foreign || h.keys != nil {
		return false
	}
	n := len(tx.runs)
	if n == 0 || !tx.runs[n-1].takes(j, &h, s) {
		tx.startRun(j, h, s)
		n = len(tx.runs)
	}
	r := &tx.runs[n-1]
	r.jobs = append(r.jobs, j)
	r.pack.jobs++
	r.pack.left++
	j.record = r.record
	tx.joined++
	return true
}

// takes reports whether a job continues the run.
func (r *run) takes(j *job, h *header, s *gq.State) bool {
	if j.seq != r.pack.first+uint64(r.pack.jobs) || r.pack.jobs == packMost || *h != r.header {
		return false
	}
	r.state.ID, r.state.Sequence = s.ID, s.Sequence
	return *s == r.state
}

func (tx *txn) startRun(j *job, h header, s *gq.State) {
	tx.scratch = encodeRecord(tx.scratch[:0], h, s)
	start := newRecord(tx.scratch)
	start.pack = &pack{first: j.seq, open: true}
	if n := len(tx.runs); n < cap(tx.runs) {
		tx.runs = tx.runs[:n+1] // with the slice of an earlier commit
	} else {
		tx.runs = append(tx.runs, run{})
	}
	r := &tx.runs[len(tx.runs)-1]
	r.record, r.header, r.state = start, h, *s
}

// sealPacks writes the packs of this commit. Jobs that may have ended or changed in the same
// commit are no exception: their own records follow those of new jobs.
func (tx *txn) sealPacks() {
	for i := range tx.runs {
		r := &tx.runs[i]
		p := r.pack
		if p.open = false; p.jobs < packLeast || p.thin() {
			p.gone = true
			for _, j := range r.jobs {
				tx.name = appendNumberKey(tx.name[:0], prefixLive, j.seq)
				switch {
				case j.status.Terminal():
					tx.remove(tx.name)
				case j.open == nil && j.record == r.record:
					must(tx.parts[partNew].Set(tx.name, r.of(j.id, &tx.scratch), nil))
				}
			}
		} else {
			tx.scratch = binary.AppendUvarint(tx.scratch[:0], uint64(p.jobs))
			for _, j := range r.jobs {
				tx.scratch = binary.BigEndian.AppendUint64(tx.scratch, store.IDRandom(j.id))
				if j.status.Terminal() {
					tx.put(prefixLive, j.seq, packEnded)
				}
			}
			tx.put(prefixPack, p.first, append(tx.scratch, r.encoded...))
		}
		clear(r.jobs)
		*r = run{jobs: r.jobs[:0]}
	}
	tx.runs, tx.joined = tx.runs[:0], 0
}

// leave removes the live record of a job that has ended.
func (tx *txn) leave(j *job) {
	p := j.pack()
	if p == nil {
		tx.name = appendNumberKey(tx.name[:0], prefixLive, j.seq)
		tx.remove(tx.name)
		return
	}
	p.left--
	switch {
	case p.open: // sealPacks looks after it
	case p.thin():
		tx.dissolve(p)
	default:
		tx.put(prefixLive, j.seq, packEnded)
	}
}

// dissolve gives the jobs that are left records of their own.
func (tx *txn) dissolve(p *pack) {
	past := p.first + uint64(p.jobs)
	tx.removeRange(numberKey(prefixLive, p.first), numberKey(prefixLive, past))
	tx.remove(numberKey(prefixPack, p.first))
	for seq := p.first; p.left > 0 && seq < past; seq++ {
		j := tx.t.jobs.at(seq)
		if j == nil || j.status.Terminal() {
			continue
		}
		if j.open != nil {
			tx.spell = encodeRecord(tx.spell[:0], j.open.header, &j.open.state)
			tx.put(prefixLive, seq, tx.spell)
		} else {
			tx.put(prefixLive, seq, j.record.of(j.id, &tx.spell))
		}
		p.left--
	}
	p.gone = true
}

// packRecord is a decoded pack.
type packRecord struct {
	first  uint64
	random []byte // 8 bytes for each job
	start  []byte // the record of the first job, with a zero id
}

// decodePack reads the record of a pack. It is valid as long as the value.
func decodePack(key, value []byte) (p packRecord, err error) {
	n, size := uvarint(value)
	if len(key) != 9 || size == 0 || n < packLeast || n > packMost || uint64(len(value)-size) < 8*n {
		return p, fmt.Errorf("record %q: %w", key, gq.ErrCorrupt)
	}
	value = value[size:]
	p = packRecord{binary.BigEndian.Uint64(key[1:]), value[:8*n], value[8*n:]}
	for i := range n {
		if !store.IsIDRandom(binary.BigEndian.Uint64(p.random[8*i:])) {
			return p, fmt.Errorf("record %q: %w", key, gq.ErrCorrupt)
		}
	}
	return p, nil
}

func (p *packRecord) jobs() uint64 { return uint64(len(p.random) / 8) }

// id returns the id of the job with a number.
func (p *packRecord) id(key *store.IDKey, seq uint64) gq.JobID {
	return key.Restore(seq, binary.BigEndian.Uint64(p.random[8*(seq-p.first):]))
}

// has reports whether the pack has a job.
func (p *packRecord) has(seq uint64) bool { return seq-p.first < p.jobs() }

// packReader recovers the jobs of packs in the order of their numbers.
type packReader struct {
	s      *Store
	it     *pebble.Iterator
	more   bool // the iterator is at a pack
	raw    packRecord
	pack   *pack // nil if all jobs of raw have been visited
	start  *record
	header header
	state  gq.State
	next   uint64
}

// skipTo recovers the jobs before a number that no record of their own has been seen of. It
// returns the pack that has the number, which the caller looks after, or nil.
func (r *packReader) skipTo(seq uint64) (*pack, error) {
	for {
		if r.pack == nil {
			if !r.more || binary.BigEndian.Uint64(r.it.Key()[1:]) > seq {
				return nil, nil
			}
			if err := r.read(); err != nil {
				return nil, err
			}
		}
		for ; r.raw.has(r.next); r.next++ {
			if r.next == seq {
				r.next++
				return r.pack, nil
			}
			if err := r.adopt(r.next); err != nil {
				return nil, err
			}
		}
		r.pack = nil
	}
}

// read begins with the next pack.
func (r *packReader) read() (err error) {
	key := r.it.Key()
	value, err := r.it.ValueAndErr()
	if err != nil {
		return fmt.Errorf("record %q: %w", key, damaged(err))
	}
	if r.raw, err = decodePack(key, slices.Clone(value)); err != nil {
		return err
	}
	if r.raw.first < r.next {
		return fmt.Errorf("record %q: %w", key, gq.ErrCorrupt)
	}
	if r.header, r.state, err = decodeRecord(r.raw.start, r.raw.first, r.s.table.intern); err != nil {
		return fmt.Errorf("record %q: %w", key, err)
	}
	if !r.state.ID.IsZero() || !r.state.Live() || r.state.Status.Held() {
		return fmt.Errorf("record %q: first state: %w", key, gq.ErrCorrupt)
	}
	n := int(r.raw.jobs())
	r.pack, r.start, r.next = &pack{first: r.raw.first, jobs: n, left: n}, newRecord(r.raw.start), r.raw.first
	r.start.pack = r.pack
	r.more = r.it.Next()
	return nil
}

// adopt recovers a job in its first state.
func (r *packReader) adopt(seq uint64) error {
	r.state.ID, r.state.Sequence = r.raw.id(r.s.table.jobs.key, seq), seq
	if err := r.s.adopt(r.header, &r.state, r.start, nil); err != nil {
		return fmt.Errorf("record %q: %w", numberKey(prefixPack, r.raw.first), err)
	}
	return nil
}
