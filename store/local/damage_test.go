package local

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// damages are what can happen to a file. Each returns nil if it cannot happen to
// this one.
var damages = []struct {
	name string
	do   func(content []byte, at int) []byte
}{
	{"a flipped bit", func(c []byte, at int) []byte {
		c[at] ^= 1 << (at % 8)
		return c
	}},
	{"zeros", func(c []byte, at int) []byte {
		clear(c[at:min(at+64, len(c))])
		return c
	}},
	{"noise", func(c []byte, at int) []byte {
		for i := at; i < min(at+64, len(c)); i++ {
			c[i] = byte(i*7 + at)
		}
		return c
	}},
	{"a lost end", func(c []byte, at int) []byte { return c[:at] }},
	{"an appended end", func(c []byte, at int) []byte { return append(c, c[at:]...) }},
}

// TestDamagedFiles damages every file of a store in many places. Whatever can
// still be read is right, all else is reported as damaged, and nobody panics.
func TestDamagedFiles(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	f := newFixture(t)
	places := 24
	if raceEnabled {
		places = 4
	}
	lastCommit := int(f.ends[len(f.ends)-2])
	for name, content := range f.files {
		t.Run(name, func(t *testing.T) {
			for _, damage := range damages {
				for range min(places, len(content)) {
					at := rng.IntN(len(content))
					damaged := damage.do(slices.Clone(content), at)
					if bytes.Equal(damaged, content) {
						continue
					}
					torn := name == f.log && (len(damaged) < len(content) || at+64 > lastCommit)
					f.tryDamaged(t, name, fmt.Sprintf("%s at %d of %d", damage.name, at, len(content)), damaged, torn)
				}
			}
		})
	}
}

// tryDamaged opens the store with one file changed and looks at it. torn says
// that the change is one that a power cut can make to a log.
func (f *fixture) tryDamaged(t *testing.T, name, what string, content []byte, torn bool) {
	t.Helper()
	fs := f.disk(t)
	put(t, fs, name, content)
	f.tryOpen(t, fs, what+" in "+name, torn)
}

func (f *fixture) tryOpen(t *testing.T, fs vfs.FS, what string, torn bool) {
	t.Helper()
	s, err := f.open(fs)
	if err != nil {
		if !errors.Is(err, gq.ErrCorrupt) && !errors.Is(err, gq.ErrFormat) {
			t.Errorf("%s: Open: %v", what, err)
		}
		return
	}
	seen := f.asks.look(s)
	_ = s.Close() // it may tell of the damage
	diff := seen.differs(f.stages[len(f.stages)-1])
	if diff == "" {
		return
	}
	// What is left of a log is what was there at some moment.
	if torn && slices.ContainsFunc(f.stages, func(stage portrait) bool { return seen.differs(stage) == "" }) {
		return
	}
	t.Errorf("%s: wrong data: %s", what, diff)
}

// TestMissingFiles takes every file of a store away.
func TestMissingFiles(t *testing.T) {
	f := newFixture(t)
	for name := range f.files {
		if name == f.log {
			continue // no file knows of it yet: it could as well never have been
		}
		fs := f.disk(t)
		if err := fs.Remove("db/" + name); err != nil {
			t.Fatal(err)
		}
		f.tryOpen(t, fs, "without "+name, false)
	}
}
