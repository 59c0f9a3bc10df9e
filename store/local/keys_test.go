package local

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// TestTablesDoNotSpan writes tombstones of old jobs and records of new ones, as a store with
// a long queue does, and looks at the tables.
func TestTablesDoNotSpan(t *testing.T) {
	cache := newCache(1)
	defer cache.Unref()
	options := databaseOptions(vfs.NewMem(), cache)
	options.DisableAutomaticCompactions, options.Logger = true, silent{}
	db, err := pebble.Open("db", options)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close() //nolint:errcheck // in memory
	const old, recent = 7, 3 << tableNumbers
	b := db.NewBatch()
	for n := range uint64(10) {
		for _, err := range []error{
			b.Delete(numberKey(prefixLive, old+n), nil),
			b.Set(numberKey(prefixLive, recent+n), []byte("state"), nil),
			b.Set(numberKey(prefixSpec, recent+n), []byte("spec"), nil),
			b.Set(idKey(gq.JobID{byte(n)}), []byte("key"), nil),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := b.DeleteRange(numberKey(prefixSpec, old), numberKey(prefixSpec, old+10), nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(pebble.Sync); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	levels, err := db.SSTables()
	if err != nil {
		t.Fatal(err)
	}
	type table struct {
		kind        byte
		first, last uint64
	}
	var got []table
	for _, f := range slices.Concat(levels...) {
		first, last := f.Smallest.UserKey, f.Largest.UserKey
		if first[0] != last[0] {
			t.Errorf("one table has records from %q to %q", first, last)
		}
		if first[0] != prefixID {
			got = append(got, table{first[0], binary.BigEndian.Uint64(first[1:]), binary.BigEndian.Uint64(last[1:])})
		}
	}
	slices.SortFunc(got, func(a, b table) int {
		return slices.Compare([]uint64{uint64(a.kind), a.first}, []uint64{uint64(b.kind), b.first})
	})
	want := []table{
		{prefixSpec, old, old + 10}, // the end of a range
		{prefixSpec, recent, recent + 9},
		{prefixLive, old, old + 9},
		{prefixLive, recent, recent + 9},
	}
	if !slices.Equal(got, want) {
		t.Errorf("tables %v, want %v", got, want)
	}
}
