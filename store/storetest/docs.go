package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var docCases = []Case{
	{
		Name:   "Docs/Version",
		Clause: "a document is written only under the version that its caller has read; 0 says that there must be none",
		run:    docVersion,
	},
	{
		Name:   "Docs/Atomic",
		Clause: "the documents of a call are written all or not at all, and the error names the one that has changed",
		run:    docAtomic,
	},
	{
		Name:   "Docs/Again",
		Clause: "a document that is deleted and made again has a version that nobody has seen",
		run:    docAgain,
	},
	{
		Name:   "Docs/Kind",
		Clause: "a name is unique within its kind only",
		run:    docKinds,
	},
	{
		Name:   "Docs/Data",
		Clause: "data is kept as it is, empty included, and belongs to whoever got it",
		run:    docData,
	},
	{
		Name:   "Docs/Pages",
		Clause: "documents are listed by name, each once, however long the pages and whatever changes between them",
		run:    docPages,
	},
	{
		Name:   "Docs/Find",
		Clause: "documents are found by many names at once, all as of one moment; names without a document are left out",
		run:    docFind,
	},
	{
		Name:   "Docs/Invalid",
		Clause: "documents that cannot be are ErrInvalid, with every fault, and nothing is written",
		run:    docInvalid,
	},
	{
		Name:   "Docs/Concurrent",
		Clause: "of many writers who have read the same version one succeeds",
		run:    docConcurrent,
	},
	{
		Name:    "Docs/Reopen",
		Clause:  "documents and their versions survive a restart, and no version is given again after it",
		Reopens: true,
		run:     docReopen,
	},
}

func doc(kind, name string, version uint64, data string) store.Doc {
	return store.Doc{Kind: kind, Name: name, Version: version, Data: []byte(data)}
}

// putDocs writes documents, which must succeed, and returns their versions.
func (e *env) putDocs(docs ...store.Doc) []uint64 {
	e.Helper()
	versions, err := e.store().PutDocs(e.Context(), docs)
	e.check("PutDocs", err)
	if len(versions) != len(docs) {
		e.Fatalf("PutDocs returned %d versions for %d documents", len(versions), len(docs))
	}
	for i, v := range versions {
		if (v == 0) != (docs[i].Data == nil) {
			e.Fatalf("PutDocs gave document %s/%s version %d", docs[i].Kind, docs[i].Name, v)
		}
	}
	return versions
}

// refuseDocs writes documents and expects a conflict for the named one.
func (e *env) refuseDocs(what, name string, docs ...store.Doc) {
	e.Helper()
	_, err := e.store().PutDocs(e.Context(), docs)
	e.is(what, err, gq.ErrConflict)
	if err != nil && !strings.Contains(err.Error(), name) {
		e.Errorf("%s: the error does not name %s: %v", what, name, err)
	}
}

// reads fails unless the document has the given content.
func (e *env) reads(want store.Doc) {
	e.Helper()
	got, err := e.store().Doc(e.Context(), want.Kind, want.Name)
	e.check("Doc", err)
	e.equal("the document", got, want)
}

func (e *env) noDoc(what, kind, name string) {
	e.Helper()
	got, err := e.store().Doc(e.Context(), kind, name)
	if err == nil {
		e.Errorf("%s: document %s/%s is there: %+v", what, kind, name, got)
		return
	}
	e.is(what, err, gq.ErrNotFound)
}

// docs lists the documents of a kind in small pages.
func (e *env) docs(kind string, limit int) (all []store.Doc) {
	e.Helper()
	after := ""
	for range 1000 {
		page, err := e.store().Docs(e.Context(), kind, after, limit)
		e.check("Docs", err)
		if len(page) > limit {
			e.Fatalf("Docs returned %d documents, more than the limit of %d", len(page), limit)
		}
		all = append(all, page...)
		if len(page) < limit {
			return all
		}
		after = page[len(page)-1].Name
	}
	e.Fatalf("Docs never came to an end")
	return nil
}

func docVersion(e *env) {
	e.noDoc("before it was written", "schedule", "nightly")
	e.refuseDocs("an update of a document there is none of", "schedule/nightly", doc("schedule", "nightly", 1, "x"))
	e.noDoc("after a refusal", "schedule", "nightly")

	first := e.putDocs(doc("schedule", "nightly", 0, "one"))[0]
	e.reads(doc("schedule", "nightly", first, "one"))
	e.refuseDocs("a second first version", "schedule/nightly", doc("schedule", "nightly", 0, "other"))

	second := e.putDocs(doc("schedule", "nightly", first, "two"))[0]
	if second <= first {
		e.Errorf("version %d follows %d", second, first)
	}
	for _, version := range []uint64{0, first, second + 1, 1 << 62} {
		e.refuseDocs("an update under another version", "schedule/nightly", doc("schedule", "nightly", version, "other"))
	}
	e.refuseDocs("a deletion under another version", "schedule/nightly", store.Doc{Kind: "schedule", Name: "nightly", Version: first})
	e.reads(doc("schedule", "nightly", second, "two"))

	e.putDocs(store.Doc{Kind: "schedule", Name: "nightly", Version: second})
	e.noDoc("after it was deleted", "schedule", "nightly")
	e.refuseDocs("a second deletion", "schedule/nightly", store.Doc{Kind: "schedule", Name: "nightly", Version: second})
}

func docAtomic(e *env) {
	v := e.putDocs(doc("k", "a", 0, "1"), doc("k", "b", 0, "1"), doc("k", "c", 0, "1"))
	before := e.docs("k", 10)
	e.refuseDocs("one stale document of four", "k/c",
		doc("k", "a", v[0], "2"), store.Doc{Kind: "k", Name: "b", Version: v[1]}, doc("k", "d", 0, "2"), doc("k", "c", v[1], "2"))
	e.equal("the documents after a refusal", e.docs("k", 10), before)
	e.noDoc("of a refused call", "k", "d")
	next := e.putDocs(doc("k", "a", v[0], "2"), store.Doc{Kind: "k", Name: "b", Version: v[1]}, doc("k", "d", 0, "2"), doc("k", "c", v[2], "2"))
	e.equal("the documents", e.docs("k", 10), []store.Doc{doc("k", "a", next[0], "2"), doc("k", "c", next[3], "2"), doc("k", "d", next[2], "2")})
	if got := e.putDocs(); len(got) != 0 {
		e.Errorf("a call without documents has the versions %v", got)
	}
}

func docAgain(e *env) {
	seen := make(map[uint64]bool)
	for round := range 4 {
		v := e.putDocs(doc("k", "a", 0, "1"))[0]
		w := e.putDocs(doc("k", "a", v, "2"))[0]
		for _, version := range []uint64{v, w} {
			if seen[version] {
				e.Errorf("round %d: version %d was given before", round, version)
			}
			seen[version] = true
		}
		e.putDocs(store.Doc{Kind: "k", Name: "a", Version: w})
		e.refuseDocs("an update of what was deleted", "k/a", doc("k", "a", w, "3"))
	}
}

func docKinds(e *env) {
	a := e.putDocs(doc("a", "b", 0, "1"), doc("a", "bc", 0, "2"))
	b := e.putDocs(doc("ab", "c", 0, "3"), doc("ab", "b", 0, "4"))
	e.equal("the documents of kind a", e.docs("a", 10), []store.Doc{doc("a", "b", a[0], "1"), doc("a", "bc", a[1], "2")})
	e.equal("the documents of kind ab", e.docs("ab", 10), []store.Doc{doc("ab", "b", b[1], "4"), doc("ab", "c", b[0], "3")})
	e.noDoc("of another kind", "b", "b")
	if got := e.docs("abc", 10); len(got) != 0 {
		e.Errorf("a kind without documents has %+v", got)
	}
	e.putDocs(store.Doc{Kind: "a", Name: "b", Version: a[0]})
	e.reads(doc("ab", "b", b[1], "4"))
}

func docData(e *env) {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	for i, data := range [][]byte{{}, all, []byte(strings.Repeat("\xff", store.MaxDocBytes))} {
		d := store.Doc{Kind: "k", Name: fmt.Sprint(i), Data: slices.Clone(data)}
		version := e.putDocs(d)[0]
		clear(d.Data)
		for range 2 { // the second time after overwriting the first result
			got, err := e.store().Doc(e.Context(), "k", d.Name)
			e.check("Doc", err)
			if got.Data == nil || !slices.Equal(got.Data, data) || got.Version != version {
				e.Fatalf("%d bytes read as %d bytes (nil: %t) of version %d", len(data), len(got.Data), got.Data == nil, got.Version)
			}
			clear(got.Data)
			page, err := e.store().Docs(e.Context(), "k", "", 10)
			e.check("Docs", err)
			if len(page) != i+1 || page[i].Data == nil || !slices.Equal(page[i].Data, data) {
				e.Fatalf("document %d of a list of %d is not what was written", i, len(page))
			}
			clear(page[i].Data)
		}
	}
	long := doc("k", strings.Repeat("n", gq.MaxNameBytes), 0, "x")
	long.Version = e.putDocs(long)[0]
	e.reads(long)
}

func docPages(e *env) {
	names := []string{"a", "a b", "ab", "b", "ba", "ä", "z", "Z", "0", "~", "日本"}
	want := slices.Sorted(slices.Values(names))
	versions := make(map[string]uint64)
	for _, name := range names {
		versions[name] = e.putDocs(doc("k", name, 0, name))[0]
	}
	e.putDocs(doc("j", "a", 0, ""), doc("l", "a", 0, ""))
	for _, limit := range []int{1, 2, 3, 10, 11, 12, store.MaxPage} {
		var got []string
		for _, d := range e.docs("k", limit) {
			got = append(got, d.Name)
			e.equal("a listed document", d, doc("k", d.Name, versions[d.Name], d.Name))
		}
		if !slices.Equal(got, want) {
			e.Errorf("in pages of %d the names are %q, want %q", limit, got, want)
		}
	}
	page, err := e.store().Docs(e.Context(), "k", "", 0)
	e.check("Docs", err)
	if len(page) != len(names) {
		e.Errorf("a page of the default size has %d of %d documents", len(page), len(names))
	}
	// A page may begin after a name that does not exist.
	e.putDocs(store.Doc{Kind: "k", Name: "b", Version: versions["b"]})
	page, err = e.store().Docs(e.Context(), "k", "b", 1)
	e.check("Docs", err)
	e.equal("the page after a deleted name", page, []store.Doc{doc("k", "ba", versions["ba"], "ba")})
}

func docInvalid(e *env) {
	version := e.putDocs(doc("k", "a", 0, "1"))[0]
	for _, test := range []struct {
		field string
		docs  []store.Doc
	}{
		{"docs[0].kind", []store.Doc{doc("", "a", 0, "x")}},
		{"docs[0].name", []store.Doc{doc("k", "", 0, "x")}},
		{"docs[0].name", []store.Doc{doc("k", "a\x00b", 0, "x")}},
		{"docs[0].kind", []store.Doc{doc("k\n", "b", 0, "x")}},
		{"docs[0].name", []store.Doc{doc("k", "\xff", 0, "x")}},
		{"docs[1].name", []store.Doc{doc("k", "b", 0, "x"), doc("k", strings.Repeat("n", gq.MaxNameBytes+1), 0, "x")}},
		{"docs[1].data", []store.Doc{doc("k", "b", 0, "x"), doc("k", "c", 0, strings.Repeat("x", store.MaxDocBytes+1))}},
		{"docs[1].name", []store.Doc{doc("k", "b", 0, "x"), doc("k", "b", 0, "y")}},
		{"docs[0].version", []store.Doc{{Kind: "k", Name: "b"}}},
		{"docs", make([]store.Doc, store.MaxDocs+1)},
	} {
		_, err := e.store().PutDocs(e.Context(), test.docs)
		e.is("a call with a bad "+test.field, err, gq.ErrInvalid)
		if got := fields(err); !slices.Contains(got, test.field) {
			e.Errorf("a call with a bad %s: the error names %q", test.field, got)
		}
	}
	_, err := e.store().PutDocs(e.Context(), []store.Doc{doc("", "", 0, ""), {Kind: "k"}})
	if got, want := fields(err), []string{"docs[0].kind", "docs[0].name", "docs[1].name", "docs[1].version"}; !slices.Equal(got, want) {
		e.Errorf("the error names %q, want %q", got, want)
	}
	_, err = e.store().Doc(e.Context(), "k", "")
	e.is("Doc without a name", err, gq.ErrInvalid)
	for _, limit := range []int{-1, store.MaxPage + 1} {
		_, err = e.store().Docs(e.Context(), "k", "", limit)
		e.is(fmt.Sprintf("Docs with a limit of %d", limit), err, gq.ErrInvalid)
	}
	_, err = e.store().Docs(e.Context(), "", "", 1)
	e.is("Docs without a kind", err, gq.ErrInvalid)
	e.equal("the documents after refused calls", e.docs("k", 10), []store.Doc{doc("k", "a", version, "1")})
}

func docConcurrent(e *env) {
	version := e.putDocs(doc("k", "a", 0, "0"))[0]
	for round := range 5 {
		var (
			wait sync.WaitGroup
			mu   sync.Mutex
			won  []uint64
		)
		for i := range 10 {
			wait.Go(func() {
				got, err := e.s.PutDocs(e.Context(), []store.Doc{doc("k", "a", version, fmt.Sprint(i))})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, got...)
				} else {
					e.is("PutDocs", err, gq.ErrConflict)
				}
			})
		}
		wait.Wait()
		if len(won) != 1 {
			e.Fatalf("round %d: %d of 10 writers of one version succeeded, want 1", round, len(won))
		}
		got, err := e.s.Doc(e.Context(), "k", "a")
		e.check("Doc", err)
		if version = won[0]; got.Version != version {
			e.Errorf("round %d: the document has version %d, its writer got %d", round, got.Version, version)
		}
	}
}

func docReopen(e *env) {
	a := e.putDocs(doc("k", "a", 0, "1"), doc("k", "b", 0, ""), doc("k", "c", 0, "3"))
	last := e.putDocs(doc("k", "c", a[2], "4"))[0]
	e.putDocs(store.Doc{Kind: "k", Name: "c", Version: last})
	before := e.docs("k", 10)
	for range 2 {
		e.reopen()
		e.equal("the documents after a restart", e.docs("k", 10), before)
		e.reads(doc("k", "a", a[0], "1"))
		e.noDoc("deleted before the restart", "k", "c")
	}
	if v := e.putDocs(doc("k", "c", 0, "5"))[0]; v <= last {
		e.Errorf("after a restart version %d follows %d", v, last)
	}
	e.refuseDocs("a version from before the restart", "k/c", doc("k", "c", last, "6"))
}
