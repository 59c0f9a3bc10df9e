package local

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/race"
)

// spoils make values that no record of a store can have.
var spoils = map[string]func([]byte) []byte{
	"nothing":       func([]byte) []byte { return nil },
	"noise":         func(v []byte) []byte { return slices.Repeat([]byte{0xff}, max(len(v), 3)) },
	"half of it":    func(v []byte) []byte { return v[:len(v)/2] },
	"all but a bit": func(v []byte) []byte { return v[:len(v)-1] },
	"one byte more": func(v []byte) []byte { return append(slices.Clone(v), 0xff) },
}

// TestUndecodableRecords corrupts records of every kind. Calls that need one of them
// must report the damage; everything else must be right.
func TestUndecodableRecords(t *testing.T) {
	race.Spare(t)
	f := newFixture(t).crashed()
	kinds := map[byte][]pebbleRecord{}
	for _, r := range records(t, f.disk(t)) {
		kinds[r.key[0]] = append(kinds[r.key[0]], r)
	}
	// Only a dependency with very many dependents has this record for longer than a
	// moment.
	kinds[prefixEnded] = []pebbleRecord{{numberKey(prefixEnded, 1), []byte{byte(gq.StatusCompleted), byte(gq.PriorityNormal)}}}
	for kind := byte(prefixMeta); kind <= prefixRetry; kind++ {
		switch kind {
		case prefixTold, prefixOwed, prefixOwnKey, prefixKept: // the fixture has none
			continue
		}
		if kind == prefixResult || kind == prefixCheckpoint || kind == prefixDoc {
			continue // any bytes are valid
		}
		t.Run(string(kind), func(t *testing.T) {
			if len(kinds[kind]) == 0 {
				t.Fatal("the fixture has no such record")
			}
			noticed := 0
			some := sample(kinds[kind])
			if kind == prefixID {
				some = kinds[kind] // those of live jobs are not read
			}
			for _, r := range some {
				for spoil, change := range spoils {
					if spoil == "noise" && (kind == prefixKey || kind == prefixRetry || kind == prefixLease) {
						continue // numbers only: every value is valid
					}
					if f.trySpoiled(t, r.key, change(r.value), fmt.Sprintf("%s in record %q", spoil, r.key)) {
						noticed++
					}
				}
			}
			if noticed == 0 {
				t.Error("nobody noticed a spoiled record of this kind")
			}
		})
	}
}

// trySpoiled changes a record and reads the store. It reports whether the damage was
// noticed.
func (f *fixture) trySpoiled(t *testing.T, key, value []byte, what string) (noticed bool) {
	t.Helper()
	fs := f.disk(t)
	change(t, fs, func(db *pebble.DB) error { return db.Set(key, value, pebble.Sync) })
	s, err := f.open(fs)
	if err != nil {
		if !errors.Is(err, gq.ErrCorrupt) && !errors.Is(err, gq.ErrFormat) {
			t.Errorf("%s: Open: %v", what, err)
		}
		if name := fmt.Sprintf("%q", key); !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the error does not name %s: %v", what, name, err)
		}
		return true
	}
	seen := f.asks.look(s)
	if diff := seen.differs(f.stages[len(f.stages)-1]); diff != "" {
		t.Errorf("%s: wrong data: %s", what, diff)
	}
	for _, answer := range seen {
		if err, failed := answer.(error); failed && !errors.Is(err, gq.ErrNotFound) {
			noticed = true
		}
	}
	if err := s.failure(); err != nil && noticed {
		t.Errorf("%s: the store failed as a whole: %v", what, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("%s: close: %v", what, err)
	}
	return noticed
}

// TestForeignKeys adds records under keys that no store writes. Nothing may panic.
func TestForeignKeys(t *testing.T) {
	race.Spare(t)
	f := newFixture(t).crashed()
	values := map[byte][]byte{}
	for _, r := range records(t, f.disk(t)) {
		values[r.key[0]] = r.value
	}
	for kind := byte(prefixMeta); kind <= prefixRetry; kind++ {
		for _, rest := range []string{"", "\x00", "\x00\x00\x00\x00", "\xff\xff\xff\xff", strings.Repeat("\x00", 8), strings.Repeat("\xff", 7), strings.Repeat("\xff", 40)} {
			key := append([]byte{kind}, rest...)
			fs := f.disk(t)
			change(t, fs, func(db *pebble.DB) error { return db.Set(key, values[kind], pebble.Sync) })
			s, err := f.open(fs)
			if err != nil {
				if !errors.Is(err, gq.ErrCorrupt) && !errors.Is(err, gq.ErrFormat) {
					t.Errorf("with a record %q: %v", key, err)
				}
				continue
			}
			for question, answer := range f.asks.look(s) {
				if err, failed := answer.(error); failed && !errors.Is(err, gq.ErrNotFound) && !errors.Is(err, gq.ErrCorrupt) {
					t.Errorf("with a record %q: %s: %v", key, question, err)
				}
			}
			_ = s.Close()
		}
	}
}

type pebbleRecord struct{ key, value []byte }

// records reads all records of a store.
func records(t *testing.T, fs vfs.FS) (all []pebbleRecord) {
	t.Helper()
	change(t, fs, func(db *pebble.DB) error {
		it, err := db.NewIter(nil)
		if err != nil {
			return err
		}
		for ok := it.First(); ok; ok = it.Next() {
			all = append(all, pebbleRecord{slices.Clone(it.Key()), slices.Clone(it.Value())})
		}
		return it.Close()
	})
	return all
}

// sample returns the first, the last and a middle record.
func sample(records []pebbleRecord) []pebbleRecord {
	if len(records) < 3 {
		return records
	}
	if race.Share() {
		return records[:1]
	}
	return []pebbleRecord{records[0], records[len(records)/2], records[len(records)-1]}
}

// change opens the database of a store without the store.
func change(t *testing.T, fs vfs.FS, do func(*pebble.DB) error) {
	t.Helper()
	cache := pebble.NewCache(1 << 20)
	defer cache.Unref()
	options := databaseOptions(fs, cache)
	options.Logger = silent{}
	db, err := pebble.Open("db", options)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(do(db), db.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestLongNumbers: a number not in its shortest form was not written by this store.
func TestLongNumbers(t *testing.T) {
	s := fuzzState()
	record := encodeRecord(nil, header{lastEvent: 9, bucket: 2, cost: 5}, &s)
	var w eventWriter
	w.add(&gq.Event{Job: s.ID, Type: gq.EventSubmitted, Status: gq.StatusPending}, "mail", 1, 4)
	events := w.encode(nil, fuzzTime)
	const head = 1 + 8 // version and time
	decodeJob := func(b []byte) error { _, _, err := decodeRecord(b, 7, alone); return err }
	decodeLog := func(b []byte) error { return decodeEvents(b, 100, func(*storedEvent) bool { return true }) }
	for _, c := range []struct {
		name   string
		raw    []byte
		at     int
		decode func([]byte) error
	}{
		{"last event", record, 0, decodeJob},
		{"bucket", record, 1, decodeJob},
		{"cost", record, 2, decodeJob},
		{"number of events", events, head, decodeLog},
		{"queue", events, head + 1 + 1 + 16, decodeLog},
		{"previous event", events, head + 1 + 1 + 16 + 1, decodeLog},
	} {
		if err := c.decode(c.raw); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		long := slices.Concat(c.raw[:c.at], []byte{c.raw[c.at] | 0x80, 0}, c.raw[c.at+1:])
		if err := c.decode(long); !errors.Is(err, gq.ErrCorrupt) {
			t.Errorf("%s in two bytes is read: %v", c.name, err)
		}
	}
}

// Events of one commit tell the types of their jobs, also if these take turns.
func TestTypesThatTakeTurns(t *testing.T) {
	types := []string{"a", "b", "b", "a", "b"}
	var w eventWriter
	for i, typ := range types {
		w.add(&gq.Event{Job: numberedID(1 + i), Type: gq.EventSubmitted, Status: gq.StatusScheduled}, typ, 1, 0)
	}
	var got []string
	if err := decodeEvents(w.encode(nil, fixtureStart), 1, func(e *storedEvent) bool {
		got = append(got, e.JobType)
		return true
	}); err != nil || !slices.Equal(got, types) {
		t.Errorf("types %q, %v; want %q", got, err, types)
	}
}
