package matchmaker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Kinds of documents. Names are those of providers, or numbers that sort.
const (
	kindState    = "matching"          // the head, the settings, the beacon
	kindProvider = "matching.provider" // what a provider is
	kindBooks    = "matching.books"    // what it was given and how that went
	kindBeat     = "matching.beat"     // its last sign of life
	kindRound    = "matching.round"    // what a round was decided on, and what it decided
	kindMore     = "matching.more"     // the rest of a round that is too long for one document
	kindSupply   = "matching.supply"   // all providers of a round, for those that follow it
	kindSlash    = "matching.slash"    // a penalty
	kindClaim    = "matching.claim"    // a completion that is yet to be told

	nameHead       = "head"
	nameSettings   = "settings"
	nameConfigured = "configured" // the settings of servers, which count until others are put
	nameBeacon     = "beacon"
)

// head is what rounds count.
type head struct {
	Round   uint64     `json:"round"`   // the last one that was recorded
	Base    uint64     `json:"base"`    // the last one that recorded all providers
	Matches int64      `json:"matches"` // made so far
	Seed    match.Seed `json:"seed"`    // of the last round
	Under   int64      `json:"under"`   // assignments under that seed
	Slashes uint64     `json:"slashes"` // made so far
	Writer  string     `json:"writer"`  // who wrote this: the records of rounds build on each other
}

// profile is the document of a provider.
type profile struct {
	match.Provider        // what it says of itself; no counters
	Reason         string `json:"reason,omitzero"` // of its status
	RegisteredAt   int64  `json:"registered_at"`
	UpdatedAt      int64  `json:"updated_at"`
}

// books is the document of what a provider was given.
type books struct {
	match.Standing
	Open []entry `json:"open,omitempty"`
}

// entry is a lease that was given and whose end has not been entered.
type entry struct {
	Lease gq.LeaseID `json:"lease"`
	Job   gq.JobID   `json:"job"`
	Kind  match.Kind `json:"kind"`
	Units int64      `json:"units,omitzero"`
	Epoch int64      `json:"epoch_id"`
	At    int64      `json:"at"` // nanoseconds since 1970
	Place int64      `json:"n"`  // the match that it was
}

// beat is the document of a sign of life.
type beat struct {
	At int64 `json:"at"`
}

func doc(kind, name string, version uint64, content any) (store.Doc, error) {
	data, err := json.Marshal(content)
	if err != nil {
		return store.Doc{}, fmt.Errorf("encode document %s/%s: %w", kind, name, err)
	}
	return store.Doc{Kind: kind, Name: name, Version: version, Data: data}, nil
}

func read(d store.Doc, into any) error {
	if err := json.Unmarshal(d.Data, into); err != nil {
		return fmt.Errorf("document %s/%s: %w: %w", d.Kind, d.Name, gq.ErrCorrupt, err)
	}
	return nil
}

// find reads a document into a value; its version is 0 where there is none.
func (d *Dispatcher) find(ctx context.Context, kind, name string, into any) (version uint64, err error) {
	found, err := d.store.Doc(ctx, kind, name)
	switch {
	case errors.Is(err, gq.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return found.Version, read(found, into)
}

// each hands over all documents of a kind.
func (d *Dispatcher) each(ctx context.Context, kind string, f func(store.Doc) error) error {
	for after := ""; ; {
		docs, err := d.store.Docs(ctx, kind, after, store.MaxPage)
		if err != nil {
			return err
		}
		for _, found := range docs {
			if err := f(found); err != nil {
				return err
			}
			after = found.Name
		}
		if len(docs) < store.MaxPage {
			return nil
		}
	}
}

// draft gathers what is written together under the head.
type draft struct {
	docs    []store.Doc
	noted   []func(version uint64) // what to do with each new version
	updates []store.Update
	head    func(*head) // what changes about it; nil for nothing
	err     error
}

func (t *draft) put(kind, name string, version uint64, content any, noted func(version uint64)) {
	written, err := doc(kind, name, version, content)
	t.err = errors.Join(t.err, err)
	t.raw(written, noted)
}

func (t *draft) raw(written store.Doc, noted func(version uint64)) {
	t.docs, t.noted = append(t.docs, written), append(t.noted, noted)
}

// commit writes a draft and the head. Where someone was faster nothing is
// written, and what is known here is stale. The caller holds mu.
func (d *Dispatcher) commit(ctx context.Context, t *draft, next head) ([]gq.State, error) {
	if t.head != nil {
		t.head(&next)
	}
	next.Writer = d.id
	t.put(kindState, nameHead, d.headVersion, next, func(v uint64) { d.head, d.headVersion = next, v })
	if t.err != nil {
		return nil, t.err
	}
	done, err := d.change.Change(ctx, store.Change{Docs: t.docs, Updates: t.updates})
	if err != nil {
		d.stale = true // also where it is not known whether it happened
		return nil, err
	}
	for i, noted := range t.noted {
		if noted != nil {
			noted(done.Versions[i])
		}
	}
	return done.States, nil
}
