package storetest

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// documents writes some documents and reads them all.
func (m *model) documents(r *rapid.T) {
	var docs []store.Doc
	conflict := false
	for _, name := range rapid.Permutation([]string{"a", "b", "ab"}).Draw(r, "names")[:pick(r, "documents", 1, 2, 2)] {
		d := store.Doc{Kind: pick(r, "kind", "k", "ka"), Name: name}
		current := m.docs[[2]string{d.Kind, d.Name}]
		d.Version = current.Version
		if chance(r, "another version", 6) {
			d.Version = pick(r, "version", 0, 1, 2, m.version, m.version+1)
		}
		if d.Version == 0 || !chance(r, "delete", 4) {
			d.Data = pick(r, "data", []byte("1"), []byte(""), []byte("22"))
		}
		conflict = conflict || d.Version != current.Version
		docs = append(docs, d)
	}
	versions, err := m.s.PutDocs(m.Context(), docs)
	if conflict {
		if !errors.Is(err, gq.ErrConflict) {
			m.Fatalf("PutDocs %+v: %v, want %v", docs, err, gq.ErrConflict)
		}
		m.happened("document conflict")
	} else {
		m.ok("PutDocs", err)
		m.written(docs, versions)
	}
	m.readDocs()
}

// written records documents in the model.
func (m *model) written(docs []store.Doc, versions []uint64) {
	before := m.version
	for i, d := range docs {
		key := [2]string{d.Kind, d.Name}
		if d.Data == nil {
			delete(m.docs, key)
			m.happened("document deleted")
			continue
		}
		if d.Version = versions[i]; d.Version <= before {
			m.Fatalf("document %s/%s has version %d, an earlier one %d", d.Kind, d.Name, d.Version, before)
		}
		m.version = max(m.version, d.Version)
		m.docs[key] = d
		m.happened("document written")
	}
}

// readDocs compares all documents.
func (m *model) readDocs() {
	for _, kind := range []string{"k", "ka"} {
		var want []store.Doc
		for _, d := range m.docs {
			if d.Kind == kind {
				want = append(want, d)
			}
		}
		slices.SortFunc(want, func(a, b store.Doc) int { return cmp.Compare(a.Name, b.Name) })
		after := ""
		for _, d := range append(want, store.Doc{}) { // then no more
			got, err := m.s.Docs(m.Context(), kind, after, 1)
			m.ok("Docs", err)
			if d.Kind == "" && len(got) == 0 {
				break
			}
			if len(got) != 1 || got[0].Kind != d.Kind || got[0].Name != d.Name || got[0].Version != d.Version ||
				got[0].Data == nil || !bytes.Equal(got[0].Data, d.Data) {
				m.Fatalf("after %q comes %+v, want %+v", after, got, d)
			}
			after = d.Name
		}
	}
}
