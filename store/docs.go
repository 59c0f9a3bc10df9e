package store

import (
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// Doc is a document: a small record beside the jobs, such as a schedule, a token
// or the description of a provider. A store knows its name and version and
// nothing of what it says.
type Doc struct {
	Kind    string // what sort of thing it describes, such as "schedule"
	Name    string // unique within its kind
	Version uint64 // of what was read; to be written, 0 says that there must be none yet
	Data    []byte // never nil where it was read; nil deletes
}

// DocName names a document.
type DocName struct{ Kind, Name string }

// Limits of documents. Kinds and names have 1 to [gq.MaxNameBytes] bytes, valid
// UTF-8 without control characters.
const (
	MaxDocs      = 1000     // documents of one call
	MaxDocBytes  = 1 << 20  // the data of one
	MaxDocsBytes = 64 << 20 // the data of one call
)

// CheckDocs reports everything that is wrong with documents that are to be
// written, before a store takes any lock.
func CheckDocs(docs []Doc) error {
	var faults []gq.Fault
	add := func(field, format string, args ...any) {
		faults = append(faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if len(docs) > MaxDocs {
		add("docs", "%d documents are more than %d", len(docs), MaxDocs)
		return &gq.InvalidError{Faults: faults}
	}
	size := 0
	first := make(map[[2]string]int, len(docs))
	for i := range docs {
		d, at := &docs[i], fmt.Sprintf("docs[%d]", i)
		faults = append(faults, errs.FaultsOf(machine.CheckName(at+".kind", d.Kind))...)
		faults = append(faults, errs.FaultsOf(machine.CheckName(at+".name", d.Name))...)
		size += len(d.Data)
		if len(d.Data) > MaxDocBytes {
			add(at+".data", "%d bytes are more than %d", len(d.Data), MaxDocBytes)
		}
		if d.Data == nil && d.Version == 0 {
			add(at+".version", "what must not exist cannot be deleted")
		}
		if k, twice := first[[2]string{d.Kind, d.Name}]; twice {
			add(at+".name", "is the document of docs[%d] again", k)
			continue
		}
		first[[2]string{d.Kind, d.Name}] = i
	}
	if size > MaxDocsBytes {
		add("docs", "%d bytes of data together are more than %d", size, MaxDocsBytes)
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// CheckDocPage reports everything that is wrong with a question for documents,
// and fills in the limit.
func CheckDocPage(kind, after string, limit int) (int, error) {
	faults := errs.FaultsOf(machine.CheckName("kind", kind))
	if after != "" {
		faults = append(faults, errs.FaultsOf(machine.CheckName("after", after))...)
	}
	if limit == 0 {
		limit = DefaultPage
	}
	if limit < 1 || limit > MaxPage {
		faults = append(faults, gq.Fault{Field: "limit", Problem: fmt.Sprintf("%d is not between 1 and %d", limit, MaxPage)})
	}
	if len(faults) > 0 {
		return 0, &gq.InvalidError{Faults: faults}
	}
	return limit, nil
}

// CheckDocName reports everything that is wrong with the name of a document.
func CheckDocName(kind, name string) error {
	faults := append(errs.FaultsOf(machine.CheckName("kind", kind)), errs.FaultsOf(machine.CheckName("name", name))...)
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// CheckDocNames reports everything that is wrong with a list of names.
func CheckDocNames(names []DocName) error {
	if len(names) > MaxPage {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "names", Problem: fmt.Sprintf("%d documents are more than %d", len(names), MaxPage)}}}
	}
	var faults []gq.Fault
	for i, n := range names {
		at := fmt.Sprintf("names[%d]", i)
		faults = append(faults, errs.FaultsOf(machine.CheckName(at+".kind", n.Kind))...)
		faults = append(faults, errs.FaultsOf(machine.CheckName(at+".name", n.Name))...)
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// Conflict is the error of a document that does not have the version a caller
// has read; there is 0 for none.
func (d Doc) Conflict(current uint64) error {
	return fmt.Errorf("document %s/%s has version %d, not %d: %w", d.Kind, d.Name, current, d.Version, gq.ErrConflict)
}

// This document exists once any job has asked for a callback. Until it exists, finished
// jobs need not be checked for callbacks. It is written before the first job with a
// callback.
const (
	KindCallbacks = "callbacks"
	NameCallbacks = "used"
)
