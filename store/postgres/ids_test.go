package postgres

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestIDs makes ids from numbers. They are random UUIDs from which the number can be
// computed, and keep the random bits of the given id, so that making an id from itself
// changes nothing.
func TestIDs(t *testing.T) {
	key, err := newIDKey(bytes.Repeat([]byte{7}, 16))
	if err != nil {
		t.Fatal(err)
	}
	other, err := newIDKey(bytes.Repeat([]byte{8}, 16))
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[gq.JobID]bool)
	misled := 0
	const tries = 20_000
	for i := range tries {
		seq := int64(20_000)<<dayBits + rand.Int64N(1<<dayBits)
		if i%100 == 0 {
			seq = 1
		}
		from := machine.NewJobID(random())
		id := key.id(seq, from)
		if seen[id] || id[6]>>4 != 4 || id[8]>>6 != 2 {
			t.Fatalf("%s of job %d is not a new random UUID", id, seq)
		}
		seen[id] = true
		if got := key.number(id); got != seq {
			t.Fatalf("%s of job %d tells the number %d", id, seq, got)
		}
		if again := key.id(seq, id); again != id || store.IDRandom(id) != store.IDRandom(from) {
			t.Fatalf("made of itself, %s becomes %s", id, again)
		}
		if other.number(id) != 0 {
			misled++
		}
	}
	// With another key an id decrypts to a random number; one in 4,096 is valid.
	if misled > tries/1000 {
		t.Errorf("%d of %d ids mean something to another database", misled, tries)
	}
}

func TestBrokenKeyOfIDs(t *testing.T) {
	if _, err := newIDKey([]byte("short")); err == nil {
		t.Error("a key of 5 bytes is accepted")
	}
}

// TestBodies checks that a body splits into the parts it was made of.
func TestBodies(t *testing.T) {
	for _, size := range []int{0, 1, 63, 64, maxMoved, maxMoved + 1, 100_000} {
		spec := gq.Spec{ID: machine.NewJobID(random()), Type: "t"}.WithDefaults()
		spec.Payload.Data = bytes.Repeat([]byte{3}, size)
		body, err := appendBody(nil, &spec)
		if err != nil {
			t.Fatal(err)
		}
		payload, _, apart, err := splitBody(body)
		if err != nil || apart != (size > maxMoved) || !apart && !bytes.Equal(payload, spec.Payload.Data) {
			t.Errorf("a payload of %d bytes: apart %t, %d bytes, %v", size, apart, len(payload), err)
		}
		r := row{body: body, state: gq.State{ID: spec.ID}}
		if read, err := r.specOf(); err != nil || read.Type != "t" || read.ID != spec.ID || len(read.Payload.Data) > 0 {
			t.Errorf("the spec is read as %+v, %v", read, err)
		}
	}
	for _, broken := range []string{"", "\xff", "\x04a"} {
		if _, _, _, err := splitBody([]byte(broken)); err == nil {
			t.Errorf("a body %q is accepted", broken)
		}
	}
}
