package local

// sequenceIndex finds live jobs by sequence number. Numbers are dense, so it is an
// array in pieces, which are added and removed as needed.
type sequenceIndex struct{ pieces map[uint64]*piece }

const pieceSize = 256

type piece struct {
	jobs [pieceSize]*job
	used int
}

func (s *sequenceIndex) get(seq uint64) *job {
	if p := s.pieces[seq/pieceSize]; p != nil {
		return p.jobs[seq%pieceSize]
	}
	return nil
}

func (s *sequenceIndex) add(j *job) {
	p := s.pieces[j.seq/pieceSize]
	if p == nil {
		p = new(piece)
		s.pieces[j.seq/pieceSize] = p
	}
	p.jobs[j.seq%pieceSize] = j
	p.used++
}

func (s *sequenceIndex) remove(seq uint64) {
	p := s.pieces[seq/pieceSize]
	p.jobs[seq%pieceSize] = nil
	if p.used--; p.used == 0 {
		delete(s.pieces, seq/pieceSize)
	}
}
