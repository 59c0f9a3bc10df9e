package postgres

import (
	"slices"

	"github.com/gopherqueue/gq"
)

// workspace is memory in which one transaction after the other inserts jobs. Most of
// what a submission costs a client would otherwise be the garbage it leaves. Nothing
// in it outlives its transaction.
type workspace struct {
	insertions []insertion
	rows       []row      // of the inserts
	events     []gq.Event // likewise
	written    []*row
	ready      rowArrays
	states     []byte
	bodies     []byte
	log        []byte
	used       int // jobs there was room for, at most, since it was cleared
}

// plan makes room for a plan of n jobs.
func (w *workspace) plan(n int, ids *idKey) *plan {
	w.insertions, w.rows = slices.Grow(w.insertions[:0], n), slices.Grow(w.rows[:0], n)
	w.events, w.written = slices.Grow(w.events[:0], eventsOfInsert*n), slices.Grow(w.written[:0], n)
	w.log = slices.Grow(w.log[:0], eventGuess*eventsOfInsert*n)
	w.used = max(w.used, n)
	return &plan{ids: ids, insertions: w.insertions, rows: w.rows, events: w.events}
}

// bodyGuess is how many bytes a body has.
const bodyGuess = 256

// body encodes the body of a job, the first of n.
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

// forget lets go of everything that the caller gave and of what became of it.
func (w *workspace) forget() {
	clear(w.insertions[:w.used])
	clear(w.rows[:w.used])
	clear(w.events[:eventsOfInsert*w.used])
	clear(w.written[:w.used])
	w.ready.forget()
	w.used = 0
}
