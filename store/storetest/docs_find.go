package storetest

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

func docFind(e *env) {
	s, ctx := e.store(), e.Context()
	if docs, err := s.FindDocs(ctx, nil); err != nil || len(docs) != 0 {
		e.Errorf("FindDocs without names returned %v, %v", docs, err)
	}
	versions := e.putDocs(doc("a", "1", 0, "a1"), doc("a", "2", 0, ""), doc("b", "1", 0, "b1"))
	docs, err := s.FindDocs(ctx, []store.DocName{{Kind: "b", Name: "1"}, {Kind: "b", Name: "2"}, {Kind: "a", Name: "2"}, {Kind: "none", Name: "1"}})
	e.check("FindDocs", err)
	found := map[store.DocName]store.Doc{}
	for _, d := range docs {
		found[store.DocName{Kind: d.Kind, Name: d.Name}] = d
	}
	one, two := found[store.DocName{Kind: "b", Name: "1"}], found[store.DocName{Kind: "a", Name: "2"}]
	if len(docs) != 2 || one.Version != versions[2] || string(one.Data) != "b1" || two.Version != versions[1] || two.Data == nil || len(two.Data) != 0 {
		e.Errorf("FindDocs returned %+v", docs)
	}
	if _, err := s.FindDocs(ctx, []store.DocName{{Kind: "", Name: "1"}}); !errors.Is(err, gq.ErrInvalid) {
		e.Errorf("FindDocs of a document without a kind: %v", err)
	}
	if _, err := s.FindDocs(ctx, make([]store.DocName, store.MaxPage+1)); !errors.Is(err, gq.ErrInvalid) {
		e.Errorf("FindDocs of too many: %v", err)
	}

	// Two documents are always written together, so no reader sees them differ.
	const writes = 30
	pair := []store.DocName{{Kind: "pair", Name: "1"}, {Kind: "pair", Name: "2"}}
	var done atomic.Bool
	finished := make(chan error, 1)
	go func() {
		defer done.Store(true)
		last := make([]uint64, 2)
		for i := range writes {
			data := fmt.Sprint(i)
			next, err := s.PutDocs(ctx, []store.Doc{doc("pair", "1", last[0], data), doc("pair", "2", last[1], data)})
			if err != nil {
				finished <- err
				return
			}
			last = next
		}
		finished <- nil
	}()
	for !done.Load() {
		docs, err := s.FindDocs(ctx, pair)
		e.check("FindDocs", err)
		if len(docs) == 1 || len(docs) == 2 && string(docs[0].Data) != string(docs[1].Data) {
			e.Fatalf("FindDocs saw half of a commit: %+v", docs)
		}
	}
	e.check("PutDocs", <-finished)
}
