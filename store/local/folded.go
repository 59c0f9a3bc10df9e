package local

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Claimable jobs of a pack that are still in their first state are folded: the first of them
// is in the table and says how many follow it. Those differ from it only in the number and the
// id, so that no other job is served between them, and time changes all of them at once. What
// follows a job is unfolded before the job changes, and a job is unfolded before it changes
// itself. So a queue of equal jobs takes little more memory than the random bits of their ids,
// and those only up to keptIDs: the rest are read from the packs on disk.

// keptIDs is for how many folded jobs the table keeps the random bits of the ids, 8 bytes each.
const keptIDs = 1 << 20

// folds finds the packs that have folded jobs.
type folds struct {
	packs []*pack // by first number; some have none left
	empty int     // those that have none
	ids   int     // random bits kept in packs
	most  int     // keptIDs
}

// find returns the pack and the job that a folded job follows, or nil.
func (f *folds) find(seq uint64) (*pack, *job) {
	at, found := slices.BinarySearchFunc(f.packs, seq, func(p *pack, seq uint64) int {
		if p.first > seq {
			return 1
		}
		if p.first < seq {
			return -1
		}
		return 0
	})
	if found || at == 0 { // the first job of a pack follows none
		return nil, nil
	}
	p := f.packs[at-1]
	for _, j := range p.heads {
		if seq > j.seq && seq-j.seq <= uint64(j.rest) {
			return p, j
		}
	}
	return nil, nil
}

// add adds a pack, which has a folded job now. Packs mostly come in the order of their numbers.
func (f *folds) add(p *pack) {
	at := len(f.packs)
	for at > 0 && f.packs[at-1].first > p.first {
		at--
	}
	f.packs = slices.Insert(f.packs, at, p)
}

// drop forgets a pack that has no folded job any more. Packs mostly go in the order of their
// numbers.
func (f *folds) drop(p *pack) {
	if f.forget(p); f.packs[0] == p {
		f.packs[0], f.packs = nil, f.packs[1:]
		for len(f.packs) > 0 && len(f.packs[0].heads) == 0 {
			f.packs[0], f.packs = nil, f.packs[1:]
			f.empty--
		}
		return
	}
	if f.empty++; f.empty > 64 && f.empty > len(f.packs)/2 {
		f.packs = slices.DeleteFunc(f.packs, func(p *pack) bool { return len(p.heads) == 0 })
		f.empty = 0
	}
}

// keep decides whether a pack that is on disk keeps the random bits of its jobs' ids.
func (f *folds) keep(p *pack) {
	switch {
	case p.kept || p.random == nil:
	case len(p.heads) == 0 || f.ids+len(p.random) > f.most && !p.gone:
		p.random = nil
	default:
		p.kept = true
		f.ids += len(p.random)
	}
}

func (f *folds) forget(p *pack) {
	if p.kept {
		p.kept = false
		f.ids -= len(p.random)
	}
	if !p.open {
		p.random = nil
	}
}

// foldable reports whether the next job of the pack may follow a job.
func (j *job) foldable() bool {
	return j.status == gq.StatusScheduled && j.ready && j.open == nil && j.limit == nil && j.pack() != nil
}

// fold lets the next job of a pack follow the one before it.
func (t *table) fold(p *pack, j *job) {
	if j.rest == 0 {
		if len(p.heads) == 0 {
			t.folds.add(p)
		}
		p.insert(j)
	}
	j.rest++
	q := j.bucket.queue
	q.counts[gq.StatusScheduled]++
	q.list(gq.StatusScheduled, j.seq+uint64(j.rest))
	t.ready++
}

// insert adds a job that others follow.
func (p *pack) insert(j *job) {
	at := len(p.heads)
	for at > 0 && p.heads[at-1].seq > j.seq {
		at--
	}
	p.heads = slices.Insert(p.heads, at, j)
}

// unfold returns the job with a number, which is live, and gives it a place of its own in the
// table if it was folded.
func (t *table) unfold(seq uint64) *job {
	if j := t.jobs.at(seq); j != nil {
		return j
	}
	p, head := t.folds.find(seq)
	if p == nil {
		return nil
	}
	j := t.successor(p, head, seq)
	t.enter(j, j.key)
	t.toDue.set(j, dueAt(t.firstOf(j)))
	return j
}

// successor makes a job out of a folded one, which takes over those that follow it. It has no
// place in the table yet.
func (t *table) successor(p *pack, head *job, seq uint64) *job {
	j := &job{seq: seq, bucket: head.bucket, cost: head.cost, toRun: noTimer, toDue: noTimer, record: head.record, status: gq.StatusScheduled}
	j.id = t.jobs.key.Restore(seq, t.random(p)[seq-p.first])
	end := head.seq + uint64(head.rest)
	head.rest, j.rest = int32(seq-head.seq-1), int32(end-seq)
	t.ready -= int64(j.rest) + 1 // enter counts them again
	at := slices.Index(p.heads, head)
	switch {
	case head.rest > 0 && j.rest > 0:
		p.heads = slices.Insert(p.heads, at+1, j)
	case j.rest > 0:
		p.heads[at] = j
	case head.rest == 0:
		p.heads = slices.Delete(p.heads, at, at+1)
		if len(p.heads) == 0 {
			t.folds.drop(p)
		}
	}
	j.key = machine.Order(t.firstOf(j))
	t.jobs.add(j)
	return j
}

// passOn lets the job that follows j take its places in the table. What j does next concerns
// nobody else.
func (t *table) passOn(j *job) {
	if j.rest == 0 {
		return
	}
	p := j.record.pack
	next := t.successor(p, j, j.seq+1)
	t.ready += int64(next.rest) + 1
	t.ready--
	next.ready, next.shown, j.ready, j.shown = true, true, false, false
	t.toDue.replace(j, next)
	j.bucket.ready.replace(j, next)
	j.bucket.class.fix(j.bucket)
}

// firstOf returns the first state of a job. It is valid until the next call.
func (t *table) firstOf(j *job) *gq.State {
	if t.firstRecord != j.record {
		var err error
		if _, t.first, err = decodeRecord(j.record.encoded, j.seq, t.intern); err != nil {
			panic(fmt.Sprintf("local: record of live job %d: %v", j.seq, err))
		}
		t.firstRecord = j.record
	}
	t.first.ID, t.first.Sequence = j.id, j.seq
	return &t.first
}

// random returns the random bits of the ids of a pack's jobs. The caller is the writer.
func (t *table) random(p *pack) []uint64 {
	if p.random == nil {
		random := t.readRandom(p)
		p.random, p.kept = random, true
		t.folds.ids += len(random)
	}
	return p.random
}

// mustRandom is readRandom for the writer. If the pack cannot be read, the store fails.
func (s *Store) mustRandom(p *pack) []uint64 {
	random, err := s.readRandom(p.first)
	if err != nil {
		s.fail(err)
		return make([]uint64, p.jobs)
	}
	return random
}

// readRandom reads the random bits of a pack from disk.
func (s *Store) readRandom(first uint64) (random []uint64, err error) {
	key := numberKey(prefixPack, first)
	err = s.see(key, func(value []byte) error {
		p, err := decodePack(key, value)
		random = p.numbers()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("record %q: %w", key, corrupt(err))
	}
	return random, nil
}

// get returns the job with an id, live or ended in a commit that is not durable yet. The
// caller is the writer.
func (t *table) get(id gq.JobID) *job {
	if j := t.jobs.get(id); j != nil {
		return j
	}
	seq := t.jobs.key.Number(id)
	if p, _ := t.folds.find(seq); p != nil && t.random(p)[seq-p.first] == store.IDRandom(id) {
		return t.unfold(seq)
	}
	return nil
}

// folded reports whether a number is that of a folded job.
func (t *table) folded(seq uint64) bool {
	p, _ := t.folds.find(seq)
	return p != nil
}

// folded reads a folded job for a reader. It returns ErrNotFound if there is none with the id.
func (s *Store) folded(id gq.JobID) (header, gq.State, error) {
	seq := s.table.jobs.key.Number(id)
	p, head := s.table.folds.find(seq)
	if p == nil {
		return header{}, gq.State{}, gq.ErrNotFound
	}
	h, state, err := s.readFolded(p, head, seq)
	if err == nil && state.ID != id {
		err = gq.ErrNotFound
	}
	return h, state, err
}

// readFolded decodes a folded job for a reader.
func (s *Store) readFolded(p *pack, head *job, seq uint64) (header, gq.State, error) {
	random := p.random
	if random == nil {
		s.awaitDisk()
		var err error
		if random, err = s.readRandom(p.first); err != nil {
			return header{}, gq.State{}, err
		}
	}
	h, state, err := decodeRecord(head.record.encoded, seq, alone)
	state.ID = s.table.jobs.key.Restore(seq, random[seq-p.first])
	return h, state, err
}

// readLive reads the live job with a number for a reader.
func (s *Store) readLive(seq uint64) (header, gq.State, error) {
	if j := s.table.jobs.at(seq); j != nil {
		return j.read()
	}
	p, head := s.table.folds.find(seq)
	if p == nil {
		return header{}, gq.State{}, errors.New("the job is in a list and not in the table") // a defect
	}
	return s.readFolded(p, head, seq)
}
