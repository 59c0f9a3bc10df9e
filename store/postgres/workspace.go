package postgres

import (
	"slices"

	"github.com/gopherqueue/gq"
)

// workspace is memory that insert transactions reuse. Without it, garbage would be most of
// the cost of a submission in this process. Nothing in it outlives its transaction.
type workspace struct {
	insertions []insertion
	rows       []row      // of insertions
	events     []gq.Event // of insertions
	written    []*row
	ready      rowArrays
	states     []byte
	bodies     []byte
	log        []byte
	used       int // the most jobs that a plan had since the last forget
}

// plan returns an empty plan with room for n jobs.
func (w *workspace) plan(n int, ids *idKey) *plan {
	w.insertions, w.rows = slices.Grow(w.insertions[:0], n), slices.Grow(w.rows[:0], n)
	w.events, w.written = slices.Grow(w.events[:0], eventsOfInsert*n), slices.Grow(w.written[:0], n)
	w.log = slices.Grow(w.log[:0], eventGuess*eventsOfInsert*n)
	w.used = max(w.used, n)
	return &plan{ids: ids, insertions: w.insertions, rows: w.rows, events: w.events}
}

// bodyGuess estimates the size of a body in bytes.
const bodyGuess = 256

// body encodes the body of a job; n jobs, with this one, remain to be encoded.
func (w *workspace) body(spec *gq.Spec, n int) ([]byte, error) {
	if cap(w.bodies)-len(w.bodies) < bodyGuess {
		w.bodies = make([]byte, 0, bodyGuess*n)
	}
	body, err := appendBody(w.bodies[len(w.bodies):], spec)
	if len(body) <= cap(w.bodies)-len(w.bodies) {
		w.bodies = w.bodies[:len(w.bodies)+len(body)]
	}
	return slices.Clip(body), err
}

// forget drops the references to the caller's data and to everything derived from it.
func (w *workspace) forget() {
	clear(w.insertions[:w.used])
	clear(w.rows[:w.used])
	clear(w.events[:eventsOfInsert*w.used])
	clear(w.written[:w.used])
	w.ready.forget()
	w.used = 0
}
