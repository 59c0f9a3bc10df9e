package engine

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"sync"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// source generates ids and jitter.
type source struct {
	mu    *sync.Mutex
	from  rand.Source // guarded by mu
	given bool        // by the program
}

func newSource(from rand.Source) source {
	given := from != nil
	if !given {
		from = &buffered{}
	}
	return source{mu: new(sync.Mutex), from: from, given: given}
}

// mint reports whether the store may assign ids of its own. A program that provides the random
// numbers, such as a simulation, gets the same ids from the same numbers on every store.
func (s source) mint() bool { return !s.given }

// jobID returns a new id.
func (s source) jobID() gq.JobID { return machine.NewJobID(s.bytes()) }

// bytes returns random bytes.
func (s source) bytes() (b [16]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	binary.BigEndian.PutUint64(b[:8], s.from.Uint64())
	binary.BigEndian.PutUint64(b[8:], s.from.Uint64())
	return b
}

// unit returns a uniform random number in [0,1).
func (s source) unit() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.from.Uint64()>>11) / (1 << 53)
}

// buffered reads crypto/rand in blocks.
type buffered struct {
	bytes [1024]byte
	left  int
}

func (b *buffered) Uint64() uint64 {
	if b.left == 0 {
		_, _ = crand.Read(b.bytes[:]) // never fails: the program crashes instead
		b.left = len(b.bytes)
	}
	at := len(b.bytes) - b.left
	n := binary.BigEndian.Uint64(b.bytes[at:])
	clear(b.bytes[at : at+8])
	b.left -= 8
	return n
}

// draw returns the random input of a retry delay. It is drawn once per call, because functions
// passed to a store must be pure.
func (e *Engine) draw() machine.Draw {
	return e.config.Draw(e.random.unit())
}
