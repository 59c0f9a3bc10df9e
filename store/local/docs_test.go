package local

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Only calls that need a damaged record report it.
func TestDamagedDocument(t *testing.T) {
	ctx := context.Background()
	fs := vfs.NewMem()
	reopen := func() *Store {
		t.Helper()
		s, err := open("db", Options{fs: fs})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := reopen()
	versions, err := s.PutDocs(ctx, []store.Doc{
		{Kind: "k", Name: "a", Data: []byte("1")}, {Kind: "k", Name: "b", Data: []byte("2")},
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	if err := fs.Remove(fs.PathJoin("db", inventoryFile)); err != nil {
		t.Fatal(err)
	}
	change(t, fs, func(db *pebble.DB) error {
		return db.Set(docKey("k", "a"), []byte("short"), pebble.Sync)
	})
	s = reopen()
	_, docErr := s.Doc(ctx, "k", "a")
	_, docsErr := s.Docs(ctx, "k", "", 10)
	_, putErr := s.PutDocs(ctx, []store.Doc{{Kind: "k", Name: "a", Version: versions[0], Data: []byte("3")}})
	for call, err := range map[string]error{"Doc": docErr, "Docs": docsErr, "PutDocs": putErr} {
		if !errors.Is(err, gq.ErrCorrupt) {
			t.Errorf("%s of a spoiled document: %v", call, err)
		}
	}
	if d, err := s.Doc(ctx, "k", "b"); err != nil || string(d.Data) != "2" {
		t.Errorf("the other document: %+v, %v", d, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := fs.Remove(fs.PathJoin("db", inventoryFile)); err != nil {
		t.Fatal(err)
	}
	change(t, fs, func(db *pebble.DB) error { return db.Set(metaDocs, []byte("x"), pebble.Sync) })
	s = reopen()
	if _, err := s.PutDocs(ctx, []store.Doc{{Kind: "k", Name: "c", Data: []byte("3")}}); !errors.Is(err, gq.ErrCorrupt) {
		t.Errorf("PutDocs without the newest version: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func FuzzDecodeDoc(f *testing.F) {
	type document struct {
		version uint64
		data    []byte
	}
	seed(f, encodeDoc(7, []byte("data")), encodeDoc(1, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		law(t, b, func(b []byte) (d document, err error) {
			d.version, d.data, err = decodeDoc(b)
			return d, err
		}, func(d document) []byte { return encodeDoc(d.version, d.data) })
	})
}
