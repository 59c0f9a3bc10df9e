package local

// sequenceIndex finds values by the sequence number of a job. Numbers are dense, so it
// is an array in pieces, which are added and removed as needed.
type sequenceIndex[T any] struct{ pieces map[uint64]*piece[T] }

const pieceSize = 256

type piece[T any] struct {
	values [pieceSize]T
	used   int
}

// get returns the zero value if there is none.
func (s *sequenceIndex[T]) get(seq uint64) (value T) {
	if p := s.pieces[seq/pieceSize]; p != nil {
		value = p.values[seq%pieceSize]
	}
	return value
}

// add adds a value under a number that has none.
func (s *sequenceIndex[T]) add(seq uint64, value T) {
	p := s.pieces[seq/pieceSize]
	if p == nil {
		if s.pieces == nil {
			s.pieces = map[uint64]*piece[T]{}
		}
		p = new(piece[T])
		s.pieces[seq/pieceSize] = p
	}
	p.values[seq%pieceSize] = value
	p.used++
}

// remove removes the value of a number that has one.
func (s *sequenceIndex[T]) remove(seq uint64) {
	p := s.pieces[seq/pieceSize]
	var none T
	p.values[seq%pieceSize] = none
	if p.used--; p.used == 0 {
		delete(s.pieces, seq/pieceSize)
	}
}
