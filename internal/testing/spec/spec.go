// Package spec ties tests to the requirements they pin.
//
// Every requirement of the project has an id such as Q-59 and one line in
// catalogue.tsv. A test that would fail if the requirement were broken says so
// with [Covers], and docs/conformance.md lists what those calls recorded during
// a real run. The document is worth no more than these calls are honest, so an
// id belongs only where breaking the requirement breaks the test.
package spec

import (
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Requirement is one row of the catalogue.
type Requirement struct {
	ID        string
	Layer     Layer
	Statement string // one line, in the project's own words
}

// Document returns the family the requirement belongs to: the part of its id
// before the dash.
func (r Requirement) Document() Document {
	family, _, _ := strings.Cut(r.ID, "-")
	return Document(family)
}

// A Document is a family of requirements, named by the letter its ids start
// with.
type Document string

// The families, in the order in which they are reported.
const (
	Semantics Document = "Q"
	JobModel  Document = "J"
	Scheduler Document = "S"
	Matching  Document = "M"
	TaskQueue Document = "T"
)

// Documents returns every family in reporting order.
func Documents() []Document {
	return []Document{Semantics, JobModel, Scheduler, Matching, TaskQueue}
}

// Title names the family for a reader.
func (d Document) Title() string {
	switch d {
	case Semantics:
		return "Queue semantics"
	case JobModel:
		return "Job model"
	case Scheduler:
		return "Scheduler API"
	case Matching:
		return "Matching"
	case TaskQueue:
		return "Task queue"
	default:
		return string(d)
	}
}

// A Layer is the lowest part of the system in which a requirement can be
// proved.
type Layer string

// The layers, from the inside out. The last three stand for whole faces whose
// requirements have not been divided further.
const (
	LayerDomain    Layer = "domain"    // pure functions on values
	LayerStore     Layer = "store"     // the store contract, run on every store
	LayerPostgres  Layer = "postgres"  // the PostgreSQL store alone
	LayerEngine    Layer = "engine"    // the verbs, timers and sweeps above a store
	LayerWorker    Layer = "worker"    // the runtime around handlers
	LayerServer    Layer = "server"    // a network face
	LayerDocs      Layer = "docs"      // a statement the documentation must make
	LayerScheduler Layer = "scheduler" // the scheduler HTTP API
	LayerMatching  Layer = "matching"  // the matching engine and its face
	LayerTaskQueue Layer = "taskqueue" // the task queue service and its designs
)

// Layers returns every layer in reporting order.
func Layers() []Layer {
	return []Layer{
		LayerDomain, LayerStore, LayerPostgres, LayerEngine, LayerWorker,
		LayerServer, LayerDocs, LayerScheduler, LayerMatching, LayerTaskQueue,
	}
}

//go:embed catalogue.tsv
var catalogueText string

// catalogue parses the embedded file once. A damaged catalogue is a mistake in
// the source tree, so it panics; TestCatalogue reports it by line.
var catalogue = sync.OnceValue(func() index {
	rows, err := parse(catalogueText)
	if err != nil {
		panic("spec: " + err.Error())
	}
	byID := make(map[string]Requirement, len(rows))
	for _, r := range rows {
		byID[r.ID] = r
	}
	return index{rows: rows, byID: byID}
})

type index struct {
	rows []Requirement
	byID map[string]Requirement
}

// All returns the catalogue in its own order: by document, then by number.
func All() []Requirement { return slices.Clone(catalogue().rows) }

// Lookup returns the requirement with that id. The error tells a malformed id
// from one that does not exist.
func Lookup(id string) (Requirement, error) {
	if !idPattern.MatchString(id) {
		return Requirement{}, fmt.Errorf("malformed requirement id %q: want a letter of Q J S M T, a dash and a number, as in Q-07", id)
	}
	r, ok := catalogue().byID[id]
	if !ok {
		return Requirement{}, fmt.Errorf("no requirement %s in the catalogue", id)
	}
	return r, nil
}

// idPattern admits exactly one spelling of each number: two digits below a
// hundred, three from there on.
var idPattern = regexp.MustCompile(`^[QJSMT]-(0[1-9]|[1-9][0-9]|[1-9][0-9]{2})$`)

// parse reads tab-separated rows of id, layer and statement. Lines that start with #
// are comments. It rejects rows out of order, so that a merge cannot hide a duplicate.
func parse(text string) ([]Requirement, error) {
	var rows []Requirement
	last := position{family: -1}
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, "#") {
			continue
		}
		cells := strings.Split(line, "\t")
		if len(cells) != 3 {
			return nil, fmt.Errorf("catalogue line %d: %d cells, want id, layer and statement", i+1, len(cells))
		}
		r := Requirement{ID: cells[0], Layer: Layer(cells[1]), Statement: cells[2]}
		switch {
		case !idPattern.MatchString(r.ID):
			return nil, fmt.Errorf("catalogue line %d: malformed id %q", i+1, r.ID)
		case !slices.Contains(Layers(), r.Layer):
			return nil, fmt.Errorf("catalogue line %d: %s has the unknown layer %q", i+1, r.ID, r.Layer)
		case r.Statement == "" || strings.TrimSpace(r.Statement) != r.Statement:
			return nil, fmt.Errorf("catalogue line %d: %s has an empty or padded statement", i+1, r.ID)
		}
		here := positionOf(r.ID)
		if !last.before(here) {
			return nil, fmt.Errorf("catalogue line %d: %s is a duplicate or out of order", i+1, r.ID)
		}
		last = here
		rows = append(rows, r)
	}
	return rows, nil
}

// Compare orders ids as the catalogue does: by document, then by number.
func Compare(a, b string) int {
	pa, pb := positionOf(a), positionOf(b)
	switch {
	case pa.before(pb):
		return -1
	case pb.before(pa):
		return +1
	default:
		return strings.Compare(a, b)
	}
}

// A position is an id as two numbers that order it.
type position struct{ family, number int }

func (p position) before(q position) bool {
	if p.family != q.family {
		return p.family < q.family
	}
	return p.number < q.number
}

func positionOf(id string) position {
	family, digits, _ := strings.Cut(id, "-")
	number, err := strconv.Atoi(digits)
	if err != nil {
		number = 0
	}
	return position{slices.Index(Documents(), Document(family)), number}
}
