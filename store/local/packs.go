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
	first  uint64
	jobs   int
	left   int      // those that have not ended
	random []uint64 // random bits of the ids; nil if they must be read from disk
	heads  []*job   // those that folded jobs follow, in order: see folded.go
	open   bool     // it belongs to the open commit, which may add jobs
	gone   bool     // its jobs have records of their own
	kept   bool     // random is counted in folds.ids
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
	last    *job // the last of its jobs that is not folded
}

// takes reports whether a job continues the run.
func (r *run) takes(h *header, s *gq.State) bool {
	if s.Sequence != r.pack.first+uint64(r.pack.jobs) || r.pack.jobs == packMost || *h != r.header {
		return false
	}
	r.state.ID, r.state.Sequence = s.ID, s.Sequence
	return *s == r.state
}

// join adds a new job to a pack of this commit.
func (tx *txn) join(h header, s *gq.State) *run {
	n := len(tx.runs)
	if n == 0 || !tx.runs[n-1].takes(&h, s) {
		tx.scratch = encodeRecord(tx.scratch[:0], h, s)
		start := newRecord(tx.scratch)
		start.pack = &pack{first: s.Sequence, open: true}
		tx.runs = append(tx.runs, run{start, h, *s, nil})
		n++
	}
	r := &tx.runs[n-1]
	r.pack.random = append(r.pack.random, store.IDRandom(s.ID))
	r.pack.jobs++
	r.pack.left++
	tx.joined++
	return r
}

// sealPacks writes the packs of this commit. The records of jobs that have changed in the same
// commit come after those of new jobs.
func (tx *txn) sealPacks() {
	for i := range tx.runs {
		r := &tx.runs[i]
		p := r.pack
		p.open = false
		tx.here().packs = append(tx.here().packs, p)
		if p.jobs < packLeast || p.thin() {
			tx.writeAlone(r)
		} else {
			tx.writePack(r)
		}
		*r = run{}
	}
	tx.runs, tx.joined = tx.runs[:0], 0
}

// writeAlone gives each job of a pack a record of its own.
func (tx *txn) writeAlone(r *run) {
	p := r.pack
	p.gone = true
	for i, random := range p.random {
		seq := p.first + uint64(i)
		tx.name = appendNumberKey(tx.name[:0], prefixLive, seq)
		switch j := tx.t.jobs.at(seq); {
		case j != nil && j.status.Terminal():
			tx.remove(tx.name)
		case j == nil || j.open == nil && j.record == r.record:
			must(tx.parts[partNew].Set(tx.name, r.of(tx.t.jobs.key.Restore(seq, random), &tx.scratch), nil))
		}
	}
}

func (tx *txn) writePack(r *run) {
	p := r.pack
	tx.scratch = binary.AppendUvarint(tx.scratch[:0], uint64(p.jobs))
	for i, random := range p.random {
		tx.scratch = binary.BigEndian.AppendUint64(tx.scratch, random)
		seq := p.first + uint64(i)
		if j := tx.t.jobs.at(seq); j != nil && j.status.Terminal() {
			tx.put(prefixLive, seq, packEnded)
		}
	}
	tx.scratch = append(tx.scratch, r.encoded...)
	tx.put(prefixPack, p.first, tx.scratch)
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
	for seq := p.first; seq < past && p.left > 0; seq++ {
		switch j := tx.t.jobs.at(seq); {
		case j == nil && tx.t.folded(seq):
			tx.put(prefixLive, seq, p.heads[0].record.of(tx.t.jobs.key.Restore(seq, tx.t.random(p)[seq-p.first]), &tx.spell))
		case j == nil || j.status.Terminal():
			continue
		case j.open != nil:
			tx.spell = encodeRecord(tx.spell[:0], j.open.header, &j.open.state)
			tx.put(prefixLive, seq, tx.spell)
		default:
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

// numbers returns the random bits as numbers.
func (p *packRecord) numbers() []uint64 {
	out := make([]uint64, p.jobs())
	for i := range out {
		out[i] = binary.BigEndian.Uint64(p.random[8*i:])
	}
	return out
}

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
	last   *job // the last job of the pack that is not folded
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
		r.s.table.folds.keep(r.pack)
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
	r.pack, r.start, r.next, r.last = &pack{first: r.raw.first, jobs: n, left: n, random: r.raw.numbers()}, newRecord(r.raw.start), r.raw.first, nil
	r.start.pack = r.pack
	r.more = r.it.Next()
	return nil
}

// adopt recovers a job in its first state.
func (r *packReader) adopt(seq uint64) (err error) {
	if r.last != nil && r.last.seq+uint64(r.last.rest)+1 == seq && r.last.foldable() {
		if r.s.table.lastJob = max(r.s.table.lastJob, seq); r.s.table.folded(seq) {
			return fmt.Errorf("record %q: job %d is there twice: %w", numberKey(prefixPack, r.raw.first), seq, gq.ErrCorrupt)
		}
		r.last.bucket.jobs++
		r.s.table.fold(r.pack, r.last)
		return nil
	}
	r.state.ID, r.state.Sequence = r.raw.id(r.s.table.jobs.key, seq), seq
	if r.last, err = r.s.adopt(r.header, &r.state, r.start, nil); err != nil {
		return fmt.Errorf("record %q: %w", numberKey(prefixPack, r.raw.first), err)
	}
	return nil
}
