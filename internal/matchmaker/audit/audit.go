// Package audit records rounds, so that anyone can recompute them.
//
// Most of a round's input is providers, and most of those did not change since the
// previous round. A record therefore has only the providers that changed since the
// previous record; from time to time a new base record has all of them.
package audit

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker/backlog"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Document kinds.
const (
	kindRound  = "matching.round"  // the input and the result of a round
	kindMore   = "matching.more"   // the rest of a round that is too long for one document
	kindSupply = "matching.supply" // all providers of a base record
)

// Limits of a run of records that build on each other.
const (
	maxDeltas   = 1000
	maxDeltaAge = 3600      // seconds
	partBytes   = 512 << 10 // size of one document
)

// Round is a recorded round: its complete input and its result. The order itself is not
// recorded, only its digest.
type Round struct {
	Round       uint64
	Input       match.Input
	Result      match.Result
	OrderDigest string
	Unserved    []backlog.Unserved
}

// record is the stored form of a round.
type record struct {
	Round uint64      `json:"round"`
	Base  uint64      `json:"base"`  // the record with all providers that this one builds on; its own number if it is one
	Parts int         `json:"parts"` // number of documents with a base record's providers
	Input match.Input `json:"input"` // its providers are the changed ones only
	Gone  []string    `json:"gone,omitempty"`
	Order string      `json:"order"` // SHA-256 of the order, one id per line

	Seed        match.Seed         `json:"seed"`
	Assignments []match.Assignment `json:"assignments"`
	Requeued    []string           `json:"requeued"`
	Unserved    []backlog.Unserved `json:"set_aside,omitempty"`
}

// Log writes the records of one process, which build on each other. The zero value starts
// with a base record.
type Log struct {
	base  uint64
	begun int64 // time of the base record
	rows  map[string]row
}

// row has the parts of a provider that can differ between two rounds.
type row struct {
	version                uint64 // version of its document
	health, heartbeat      int64
	cooldown               match.Cooldowns
	leases, units, quantum int64
}

func rowOf(p *match.Provider, version uint64) row {
	return row{version, p.Health, p.LastHeartbeatAt, p.CooldownUntil, p.LeasesActive, p.AIUnitsUsed, p.QuantumUnitsUsed}
}

// Record returns the documents of a round and the number of the record that it builds on.
// The caller calls written after committing them. version returns the version of a
// provider's document.
func (l *Log) Record(r *Round, version func(id string) uint64) (docs []store.Doc, base uint64, written func(), err error) {
	rec := record{
		Round: r.Round, Base: l.base, Input: r.Input, Order: orderDigest(r.Result.Order),
		Seed: r.Result.Seed, Assignments: r.Result.Assignments, Requeued: r.Result.Requeued, Unserved: r.Unserved,
	}
	providers := r.Input.Providers
	rec.Input.Providers = []match.Provider{}
	if l.rows == nil || l.base == 0 || r.Round-l.base >= maxDeltas || r.Input.Now-l.begun >= maxDeltaAge {
		packed, err := pack(providers)
		if err != nil {
			return nil, 0, nil, err
		}
		parts := split(packed)
		rec.Base, rec.Parts = r.Round, len(parts)
		for i, part := range parts {
			docs = append(docs, store.Doc{Kind: kindSupply, Name: partName(r.Round, i), Data: part})
		}
		written = func() {
			l.base, l.begun, l.rows = r.Round, r.Input.Now, make(map[string]row, len(providers))
			for i := range providers {
				l.rows[providers[i].ID] = rowOf(&providers[i], version(providers[i].ID))
			}
		}
	} else {
		changed := make(map[string]row)
		present := make(map[string]bool, len(providers))
		for i := range providers {
			p := &providers[i]
			present[p.ID] = true
			was, known := l.rows[p.ID]
			if now := rowOf(p, version(p.ID)); !known || now != was {
				changed[p.ID] = now
				rec.Input.Providers = append(rec.Input.Providers, *p)
			}
		}
		for id := range l.rows {
			if !present[id] {
				rec.Gone = append(rec.Gone, id)
			}
		}
		slices.Sort(rec.Gone)
		written = func() {
			maps.Copy(l.rows, changed)
			for _, id := range rec.Gone {
				delete(l.rows, id)
			}
		}
	}
	packed, err := pack(rec)
	if err != nil {
		return nil, 0, nil, err
	}
	pieces := split(packed)
	docs = append(docs, store.Doc{Kind: kindRound, Name: Name(r.Round), Data: pieces[0]})
	for i, piece := range pieces[1:] {
		docs = append(docs, store.Doc{Kind: kindMore, Name: partName(r.Round, i+1), Data: piece})
	}
	return docs, rec.Base, written, nil
}

// Name returns the document name for a number; names sort like their numbers.
func Name(n uint64) string { return fmt.Sprintf("%020d", n) }

func partName(n uint64, part int) string { return fmt.Sprintf("%020d.%04d", n, part) }

func orderDigest(order []string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(order, "\n"))))
}

// pack returns a value as compressed JSON.
func pack(v any) ([]byte, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err == nil {
		err = json.NewEncoder(w).Encode(v)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("encode a record: %w", err)
	}
	return b.Bytes(), nil
}

func unpack(data []byte, into any) error {
	text, err := io.ReadAll(flate.NewReader(bytes.NewReader(data)))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("record: %w: %w", gq.ErrCorrupt, err)
	}
	return nil
}

// split cuts data into documents; all but the last are full.
func split(data []byte) [][]byte {
	parts := slices.Collect(slices.Chunk(data, partBytes))
	if len(parts) == 0 {
		return [][]byte{nil}
	}
	return parts
}

// Check recomputes the round and returns an error that says where it differs from its
// record.
func (r *Round) Check() error {
	got, err := match.Match(&r.Input)
	if err != nil {
		return fmt.Errorf("round %d: %w", r.Round, err)
	}
	switch {
	case got.Seed != r.Result.Seed:
		return fmt.Errorf("round %d: the seed is %s, and %s was recorded", r.Round, got.Seed, r.Result.Seed)
	case orderDigest(got.Order) != r.OrderDigest:
		return fmt.Errorf("round %d: providers were asked in another order than recorded", r.Round)
	case !slices.Equal(got.Assignments, r.Result.Assignments):
		return fmt.Errorf("round %d: the assignments are %v, and %v were recorded", r.Round, got.Assignments, r.Result.Assignments)
	case !slices.Equal(got.Requeued, r.Result.Requeued):
		return fmt.Errorf("round %d: %v were requeued, and %v were recorded", r.Round, got.Requeued, r.Result.Requeued)
	}
	r.Result.Order = got.Order
	return nil
}
