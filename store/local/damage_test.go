package local

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/race"
)

// damages are kinds of damage to 64 bytes of a file, or to its end.
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

// TestDamagedFiles damages every file of a store in many places. What can still be read
// must be right, everything else must be reported as damaged, and nothing may panic.
func TestDamagedFiles(t *testing.T) {
	race.Spare(t)
	if testing.Short() {
		t.Skip("opens hundreds of damaged stores")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const places = 12
	closed := newFixture(t)
	for _, c := range []struct {
		name    string
		fixture *fixture
	}{{"closed", closed}, {"crashed", closed.crashed()}} {
		for name, content := range c.fixture.files {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				for _, damage := range damages {
					for range min(places, len(content)) {
						at := rng.IntN(len(content))
						damaged := damage.do(slices.Clone(content), at)
						if !bytes.Equal(damaged, content) {
							c.fixture.tryDamaged(t, name, fmt.Sprintf("%s at %d of %d", damage.name, at, len(content)), damaged)
						}
					}
				}
			})
		}
	}
}

// tryDamaged opens the store with one file changed and reads it.
func (f *fixture) tryDamaged(t *testing.T, name, what string, content []byte) {
	t.Helper()
	fs := f.disk(t)
	put(t, fs, name, content)
	s, err := f.open(fs)
	if err != nil {
		if !errors.Is(err, gq.ErrCorrupt) && !errors.Is(err, gq.ErrFormat) {
			t.Errorf("%s in %s: Open: %v", what, name, err)
		}
		return
	}
	seen := f.asks.look(s)
	_ = s.Close() // it may report the damage
	if diff := seen.differs(f.stages[len(f.stages)-1]); diff != "" {
		t.Errorf("%s in %s: wrong data: %s", what, name, diff)
	}
}

// TestMissingFiles removes each file of a closed store in turn. Only files that the
// store can recreate may be missing.
func TestMissingFiles(t *testing.T) {
	f := newFixture(t)
	for name := range f.files {
		fs := f.disk(t)
		if err := fs.Remove("db/" + name); err != nil {
			t.Fatal(err)
		}
		s, err := f.open(fs)
		if name == "LOCK" || name == inventoryFile || name == syncedFile {
			if err != nil {
				t.Errorf("without %s: %v", name, err)
				continue
			}
			if diff := f.asks.look(s).differs(f.stages[len(f.stages)-1]); diff != "" {
				t.Errorf("without %s: wrong data: %s", name, diff)
			}
			_ = s.Close()
			continue
		}
		if !errors.Is(err, gq.ErrCorrupt) && !errors.Is(err, gq.ErrFormat) {
			t.Errorf("without %s: %v", name, err)
		}
		if name != formatFile && !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
}

// TestStrayFiles adds unrelated files to the directory of a closed store, changes and
// removes them: the store ignores them.
func TestStrayFiles(t *testing.T) {
	f := newFixture(t)
	fs := f.disk(t)
	for i, step := range []func() error{
		func() error { put(t, fs, ".DS_Store", nil); return nil },
		func() error { return fs.MkdirAll("db/backup", 0o750) },
		func() error { put(t, fs, "serve.log", []byte("ready")); return nil },
		func() error { put(t, fs, "serve.log", []byte("stopped")); return nil },
		func() error { return fs.RemoveAll("db/backup") },
		func() error { return errors.Join(fs.Remove("db/serve.log"), fs.Remove("db/.DS_Store")) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		s, err := f.open(fs)
		if err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("step %d: close: %v", i, err)
		}
		if names, err := fs.List("db"); err != nil || !slices.Contains(names, inventoryFile) {
			t.Errorf("step %d: the closed store has no inventory: %v %v", i, names, err)
		}
	}
}

// TestMissingAfterCrash removes files of a store that was not closed.
func TestMissingAfterCrash(t *testing.T) {
	f := newFixture(t).crashed()
	for name := range f.files {
		fs := f.disk(t)
		if err := fs.Remove("db/" + name); err != nil {
			t.Fatal(err)
		}
		s, err := f.open(fs)
		if err != nil {
			if !errors.Is(err, gq.ErrCorrupt) && !errors.Is(err, gq.ErrFormat) {
				t.Errorf("without %s: %v", name, err)
			}
			continue
		}
		if diff := f.asks.look(s).differs(f.stages[len(f.stages)-1]); diff != "" {
			t.Errorf("without %s: wrong data: %s", name, diff)
		}
		_ = s.Close()
	}
}

// TestMissingDatabase: a store whose database is missing must not count as new.
func TestMissingDatabase(t *testing.T) {
	f := newFixture(t)
	for name := range f.files {
		if name != formatFile {
			delete(f.files, name)
		}
	}
	if _, err := f.open(f.disk(t)); !errors.Is(err, gq.ErrCorrupt) {
		t.Errorf("Open: %v", err)
	}
}

// TestRefusedDamageIsLeftAlone: an expert may still save damaged data, so refusing to
// open changes nothing.
func TestRefusedDamageIsLeftAlone(t *testing.T) {
	f := newFixture(t)
	for name, content := range f.files {
		if strings.HasSuffix(name, ".sst") || name == syncedFile || len(content) == 0 {
			continue // found when it is read, or unused while there is an inventory
		}
		fs := f.disk(t)
		put(t, fs, name, append(slices.Clone(content), 'x'))
		before := contents(t, fs)
		if _, err := f.open(fs); err == nil {
			t.Errorf("a changed %s went unnoticed", name)
		}
		for other, content := range contents(t, fs) {
			if !bytes.Equal(before[other], content) {
				t.Errorf("refusing a changed %s changed %s", name, other)
			}
			delete(before, other)
		}
		for other := range before {
			t.Errorf("refusing a changed %s removed %s", name, other)
		}
	}
}

// TestInventoryIsNotKept: a store that was opened and then lost power has no outdated
// inventory.
func TestInventoryIsNotKept(t *testing.T) {
	h := newCrashHarness(t, rand.Uint64(), false)
	h.close()
	for range 20 {
		h.open()
		h.cut()
		h.close()
	}
	if names, err := h.fs.List("db"); err != nil || !slices.Contains(names, inventoryFile) {
		t.Errorf("a closed store has no inventory: %v %v", names, err)
	}
}

// contents reads all files.
func contents(t *testing.T, fs vfs.FS) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	names, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name != "LOCK" {
			files[name] = get(t, fs, name)
		}
	}
	return files
}
