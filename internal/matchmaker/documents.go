package matchmaker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker/ledger"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Document kinds. Names are provider ids, or numbers that sort.
const (
	kindState     = "matching"          // the head, the settings, the beacon
	kindProvider  = "matching.provider" // the profile of a provider
	kindLedger    = "matching.ledger"   // its ledger account
	kindHeartbeat = "matching.beat"     // its last heartbeat
	kindClaim     = "matching.claim"    // a completion that its sink has not accepted yet
	kindRuling    = "matching.ruling"   // a ruling that its sink has not accepted yet
	kindSink      = "matching.sink"     // which process delivers to a sink, and how far it is

	nameHead       = "head"
	nameSettings   = "settings"
	nameConfigured = "configured" // settings of the servers, in force until they are changed
	nameBeacon     = "beacon"
)

// posted is the document of a posted beacon.
type posted struct {
	match.Beacon
	At int64 `json:"at,omitzero"` // when it was posted; 0 in documents of earlier versions
}

// head is the document that every round changes.
type head struct {
	Round   uint64     `json:"round"`   // the last recorded round
	Base    uint64     `json:"base"`    // the last round that recorded all providers
	Matches int64      `json:"matches"` // assignments so far
	Seed    match.Seed `json:"seed"`    // of the last round
	Under   int64      `json:"under"`   // assignments under that seed
	Writer  string     `json:"writer"`  // the process that wrote this: the records of rounds build on each other

	Rulings uint64 `json:"rulings,omitzero"` // recorded for a sink so far
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

// find reads a document into a value; the version is 0 if there is none.
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

// each calls f with every document of a kind.
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

// draft is what one commit writes together with the head.
type draft struct {
	docs    []store.Doc
	written []func(version uint64) // called with each new version; may be nil
	updates []store.Update
	events  []gq.Event
	head    func(*head) // changes the head; nil leaves it
	err     error
}

func (t *draft) put(kind, name string, version uint64, content any, written func(version uint64)) {
	made, err := doc(kind, name, version, content)
	t.err = errors.Join(t.err, err)
	t.add(made, written)
}

// remove deletes a document, if there is one.
func (t *draft) remove(kind, name string, version uint64) {
	if version > 0 {
		t.add(store.Doc{Kind: kind, Name: name, Version: version}, nil)
	}
}

// putStatement writes the new statement of an account.
func (t *draft) putStatement(a *ledger.Account, s *ledger.Statement) {
	t.put(kindLedger, a.Provider, a.Version, s, func(v uint64) { a.Written(s, v) })
}

// tell adds an event of a provider to the log of the queue.
func (t *draft) tell(queue string, typ gq.EventType, provider, reason string, amount int64) {
	sum := sha256.Sum256([]byte("gq.provider|" + provider))
	id := gq.JobID(sum[:16])
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80 // no job has an id of version 8
	t.events = append(t.events, gq.Event{
		Queue: queue, Job: id, Type: typ, Worker: provider, Reason: machine.Truncate(reason, gq.MaxReasonBytes), CostUnits: amount,
	})
}

// tellStatus tells that a provider has another status, and why if there is a reason.
func (t *draft) tellStatus(queue, provider, status, reason string) {
	if reason != "" {
		status += ": " + reason
	}
	t.tell(queue, gq.EventProviderStatus, provider, status, 0)
}

func (t *draft) add(made store.Doc, written func(version uint64)) {
	t.docs, t.written = append(t.docs, made), append(t.written, written)
}

// commit writes a draft and the head. If another node was faster, it writes nothing and
// the state here is stale. The caller holds mu.
func (d *Dispatcher) commit(ctx context.Context, t *draft, next head) ([]gq.State, error) {
	if t.head != nil {
		t.head(&next)
	}
	next.Writer = d.process
	t.put(kindState, nameHead, d.headVersion, next, func(v uint64) { d.head, d.headVersion = next, v })
	if t.err != nil {
		return nil, t.err
	}
	done, err := d.change.Change(ctx, store.Change{Docs: t.docs, Updates: t.updates, Events: t.events})
	if err != nil {
		d.stale = true // also if the outcome of the commit is unknown
		return nil, err
	}
	for i, written := range t.written {
		if written != nil {
			written(done.Versions[i])
		}
	}
	return done.States, nil
}
