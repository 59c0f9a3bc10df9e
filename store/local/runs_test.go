package local

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// logged opens a store and returns what it logs.
func (f *fixture) logged(fs vfs.FS) (*Store, string, error) {
	var log bytes.Buffer
	s, err := open("db", Options{fs: fs, Config: f.config, Log: slog.New(slog.NewTextHandler(&log, nil))})
	return s, log.String(), err
}

func tablesIn(t *testing.T, fs vfs.FS) (names []string) {
	t.Helper()
	all, err := fs.List("db")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if strings.HasSuffix(name, tablesSuffix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A table of another store, or of another copy of the same store, is refused by its name, whether or
// not the store was closed.
func TestTablesOfAnotherStore(t *testing.T) {
	f, other := newFixture(t), newFixture(t)
	copied := func() *vfs.MemFS { // the same store, which goes on by itself
		fs := f.disk(t)
		s, err := f.open(fs)
		if err != nil {
			t.Fatal(err)
		}
		b := &builder{t: t, s: s, f: &fixture{}, ids: 200}
		b.insert(func(*gq.Spec) {})
		b.flush()
		if err := errors.Join(s.db.Compact(t.Context(), []byte{0}, []byte{255}, false), s.Close()); err != nil {
			t.Fatal(err)
		}
		return fs
	}
	mine, twin := copied(), copied()
	for what, c := range map[string]struct{ here, there vfs.FS }{
		"another store": {f.crashed().disk(t), other.disk(t)},
		"another copy":  {mine, twin},
	} {
		here, there := tablesIn(t, c.here), tablesIn(t, c.there)
		if len(here) == 0 || !slices.Equal(here, there) {
			t.Fatalf("%s: the stores have the tables %v and %v", what, here, there)
		}
		noticed := 0
		for _, name := range here {
			was := get(t, c.here, name)
			put(t, c.here, name, get(t, c.there, name))
			for range 2 { // a refusal changes nothing
				_ = c.here.Remove("db/" + inventoryFile)
				_, err := f.open(c.here)
				named := strings.Contains(fmt.Sprint(err), name+" is a table of another store") && strings.Contains(fmt.Sprint(err), "gq restore")
				if !errors.Is(err, gq.ErrCorrupt) || len(was) == len(get(t, c.here, name)) && !named { // Pebble notices other sizes
					t.Errorf("with %s of %s: %v", name, what, err)
				}
				if named {
					noticed++
				}
			}
			put(t, c.here, name, was)
		}
		if noticed == 0 {
			t.Errorf("%s: no table had the same size", what)
		}
		s, err := f.open(c.here)
		if err != nil {
			t.Fatalf("%s: with its own tables: %v", what, err)
		}
		_ = s.Close()
	}
}

// A store of an earlier version has neither the file nor names in its tables. It opens without a word
// and is protected from then on.
func TestTablesWithoutRuns(t *testing.T) {
	f := newFixture(t).crashed()
	fs := f.disk(t)
	change(t, fs, func(db *pebble.DB) error { return db.Compact(t.Context(), []byte{0}, []byte{255}, false) })
	if err := fs.Remove("db/" + tablesFile); err != nil {
		t.Fatal(err)
	}
	was := tablesIn(t, fs)
	for range 3 {
		s, log, err := f.logged(fs)
		if err != nil || strings.Contains(log, tablesFile) {
			t.Fatalf("%v, logged %s", err, log)
		}
		if diff := f.asks.look(s).differs(f.stages[len(f.stages)-1]); diff != "" {
			t.Errorf("wrong data: %s", diff)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_ = fs.Remove("db/" + inventoryFile)
	runs, err := (&Store{dir: "db", disk: newGuard(fs, "db", 0, func(error) {})}).readRuns()
	if err != nil || len(runs) != 4 || runOf(runs, 1) != noRun || !slices.Contains(tablesIn(t, fs), was[0]) {
		t.Errorf("the runs are %v, %v; the tables are %v and were %v", runs, err, tablesIn(t, fs), was)
	}
}

// Without the file, or with a damaged one, a killed store opens and says so. The same is true of SYNCED,
// and of that of another store.
func TestLostProofIsLogged(t *testing.T) {
	f := newFixture(t).crashed()
	foreign := newFixture(t).files[syncedFile]
	for what, c := range map[string]struct {
		file    string
		content []byte // nil removes the file
		log     string
	}{
		"no TABLES":      {tablesFile, nil, "which tables belong to this store is missing or damaged"},
		"damaged TABLES": {tablesFile, []byte("x"), "which tables belong to this store is missing or damaged"},
		"no SYNCED":      {syncedFile, nil, "how far the logs were synced is missing"},
		"another SYNCED": {syncedFile, foreign, "how far the logs were synced is of another store"},
		"everything":     {"", nil, ""},
	} {
		fs := f.disk(t)
		if c.content != nil {
			put(t, fs, c.file, c.content)
		} else if c.file != "" {
			if err := fs.Remove("db/" + c.file); err != nil {
				t.Fatal(err)
			}
		}
		s, log, err := f.logged(fs)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		_ = s.Close()
		if c.log == "" && strings.Contains(log, "record of") || !strings.Contains(log, c.log) {
			t.Errorf("%s: logged %q", what, log)
		}
	}
}

// A damaged table is told in one sentence, with what to do.
func TestDamagedTableIsToldOnce(t *testing.T) {
	f := newFixture(t)
	fs := f.disk(t)
	for _, name := range tablesIn(t, fs) {
		content := get(t, fs, name)
		for i := 0; i < len(content)/2; i += 50 {
			content[i] ^= 0x55
		}
		put(t, fs, name, content)
	}
	_, err := f.open(fs)
	if text := fmt.Sprint(err); !errors.Is(err, gq.ErrCorrupt) || strings.Contains(text, "\n") || strings.Contains(text, "carrier") ||
		!strings.Contains(text, ".sst: stored data is damaged") || !strings.Contains(text, "gq restore") || strings.Count(text, "checksum mismatch") != 1 {
		t.Errorf("Open: %s", text)
	}
}

// After a clean stop the inventory proves more than SYNCED, but a damaged one is told like a missing
// one.
func TestDamagedSyncedIsToldAfterACleanStop(t *testing.T) {
	f := newFixture(t)
	for what, content := range map[string][]byte{"empty": {}, "cut": f.files[syncedFile][:5], "garbage": []byte("garbage")} {
		fs := f.disk(t)
		put(t, fs, syncedFile, content)
		s, log, err := f.logged(fs)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		_ = s.Close()
		if !strings.Contains(log, "how far the logs were synced is damaged") {
			t.Errorf("%s: logged %q", what, log)
		}
	}
}
