package matchmaker

import (
	"bytes"
	"compress/flate"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// A round can be computed again from its record. Most of its input is providers,
// and most of them are as they were in the round before: a record has those that
// changed since the one before it, and every so often one begins anew with all of
// them.

// record is the document of a round.
type record struct {
	Round uint64      `json:"round"`
	Base  uint64      `json:"base"`  // the record with all providers that this one builds on; itself if it is one
	Parts int         `json:"parts"` // of the providers of a base
	Input match.Input `json:"input"` // providers: those that changed
	Gone  []string    `json:"gone,omitempty"`
	Order string      `json:"order"` // SHA-256 of the order, each id on a line

	Seed        match.Seed         `json:"seed"`
	Assignments []match.Assignment `json:"assignments"`
	Requeued    []string           `json:"requeued"`
	SetAside    []Aside            `json:"set_aside,omitempty"`
}

// ledger is what the records of this process build on.
type ledger struct {
	base  uint64
	begun int64 // when
	rows  map[string]row
}

// row is what of a provider differs from round to round.
type row struct {
	version                uint64 // of its document
	health, beat           int64
	cooldown               match.Cooldowns
	leases, units, quantum int64
}

func rowOf(p *match.Provider, version uint64) row {
	return row{version, p.Health, p.LastHeartbeatAt, p.CooldownUntil, p.LeasesActive, p.AIUnitsUsed, p.QuantumUnitsUsed}
}

// How far records build on each other.
const (
	maxDeltas   = 1000
	maxDeltaAge = 3600      // seconds
	partBytes   = 512 << 10 // of one document
)

// record adds the record of a round to what is written with it. version is that
// of a provider's document.
func (g *ledger) record(t *draft, in *match.Input, r *Round, next *head, version func(id string) uint64) {
	rec := record{
		Round: r.Number, Base: g.base, Input: *in, Order: orderDigest(r.Order),
		Seed: r.Seed, Assignments: r.Assignments, Requeued: r.Requeued, SetAside: r.SetAside,
	}
	whole := g.rows == nil || g.base == 0 || r.Number-g.base >= maxDeltas || in.Now-g.begun >= maxDeltaAge
	changes := make(map[string]row)
	var gone []string
	if whole {
		rec.Base, next.Base = r.Number, r.Number
		parts := split(pack(in.Providers, t))
		rec.Parts, rec.Input.Providers = len(parts), []match.Provider{}
		for i, part := range parts {
			t.raw(store.Doc{Kind: kindSupply, Name: partName(r.Number, i), Data: part}, nil)
		}
	} else {
		rec.Input.Providers = []match.Provider{}
		present := 0
		for i := range in.Providers {
			p := &in.Providers[i]
			was, known := g.rows[p.ID]
			if known {
				present++
			}
			if now := rowOf(p, version(p.ID)); !known || now != was {
				changes[p.ID] = now
				rec.Input.Providers = append(rec.Input.Providers, *p)
			}
		}
		if present < len(g.rows) {
			there := make(map[string]bool, len(in.Providers))
			for i := range in.Providers {
				there[in.Providers[i].ID] = true
			}
			for id := range g.rows {
				if !there[id] {
					gone = append(gone, id)
				}
			}
			slices.Sort(gone)
			rec.Gone = gone
		}
	}
	pieces := split(pack(rec, t))
	for i, piece := range pieces[1:] {
		t.raw(store.Doc{Kind: kindMore, Name: partName(r.Number, i+1), Data: piece}, nil)
	}
	t.raw(store.Doc{Kind: kindRound, Name: roundName(r.Number), Data: pieces[0]}, func(uint64) {
		if whole {
			g.base, g.begun, g.rows = r.Number, in.Now, make(map[string]row, len(in.Providers))
			for i := range in.Providers {
				p := &in.Providers[i]
				g.rows[p.ID] = rowOf(p, version(p.ID))
			}
			return
		}
		maps.Copy(g.rows, changes)
		for _, id := range gone {
			delete(g.rows, id)
		}
	})
}

func roundName(n uint64) string          { return fmt.Sprintf("%020d", n) }
func partName(n uint64, part int) string { return fmt.Sprintf("%020d.%04d", n, part) }

func orderDigest(order []string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(order, "\n"))))
}

// pack is a value as compressed JSON.
func pack(v any, t *draft) []byte {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.BestSpeed)
	if err == nil {
		err = json.NewEncoder(w).Encode(v)
	}
	if err == nil {
		err = w.Close()
	}
	t.err = errors.Join(t.err, err)
	return b.Bytes()
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

// split cuts data into documents, all of them but the last full.
func split(data []byte) (parts [][]byte) {
	for len(data) > partBytes {
		parts, data = append(parts, data[:partBytes]), data[partBytes:]
	}
	return append(parts, data)
}

func (d *Dispatcher) readRecord(ctx context.Context, n uint64) (rec record, err error) {
	found, err := d.store.Doc(ctx, kindRound, roundName(n))
	if errors.Is(err, gq.ErrNotFound) {
		err = because(gq.ErrNotFound, "there is no record of it: it was not held yet, or is older than the horizon")
	}
	if err != nil {
		return rec, fmt.Errorf("round %d: %w", n, err)
	}
	data := found.Data
	for i := 1; len(data) == i*partBytes; i++ {
		more, err := d.store.Doc(ctx, kindMore, partName(n, i))
		if errors.Is(err, gq.ErrNotFound) {
			break // it ends just there
		}
		if err != nil {
			return rec, fmt.Errorf("round %d: %w", n, err)
		}
		data = append(data, more.Data...)
	}
	return rec, unpack(data, &rec)
}

// Recorded is a round as it was recorded: all that it was decided on, and what
// it decided. The order is not recorded, but its digest is.
type Recorded struct {
	Round       uint64
	Input       match.Input
	Result      match.Result
	OrderDigest string
	SetAside    []Aside
}

// RoundRecord reads a round that assigned something. It is [gq.ErrNotFound] once
// it is past the horizon.
func (d *Dispatcher) RoundRecord(ctx context.Context, n uint64) (Recorded, error) {
	rec, err := d.readRecord(ctx, n)
	if err != nil {
		return Recorded{}, err
	}
	members, err := d.supplyOf(ctx, &rec)
	if err != nil {
		return Recorded{}, fmt.Errorf("providers of round %d: %w", n, err)
	}
	rec.Input.Providers = members
	return Recorded{
		Round: n, Input: rec.Input, OrderDigest: rec.Order, SetAside: rec.SetAside,
		Result: match.Result{Seed: rec.Seed, Assignments: rec.Assignments, Requeued: rec.Requeued},
	}, nil
}

// supplyOf puts the providers of a record together again.
func (d *Dispatcher) supplyOf(ctx context.Context, rec *record) ([]match.Provider, error) {
	base := *rec
	var err error
	if rec.Base != rec.Round {
		if base, err = d.readRecord(ctx, rec.Base); err != nil {
			return nil, err
		}
	}
	var packed []byte
	for i := range base.Parts {
		part, err := d.store.Doc(ctx, kindSupply, partName(base.Round, i))
		if err != nil {
			return nil, err
		}
		packed = append(packed, part.Data...)
	}
	var all []match.Provider
	if err := unpack(packed, &all); err != nil {
		return nil, err
	}
	members := make(map[string]match.Provider, len(all))
	for _, p := range all {
		members[p.ID] = p
	}
	for n := base.Round + 1; n <= rec.Round; n++ {
		delta := *rec
		if n < rec.Round {
			if delta, err = d.readRecord(ctx, n); err != nil {
				return nil, err
			}
		}
		for _, p := range delta.Input.Providers {
			members[p.ID] = p
		}
		for _, id := range delta.Gone {
			delete(members, id)
		}
	}
	all = all[:0]
	for _, p := range members {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b match.Provider) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// Check computes the round again and reports where it differs from its record,
// nil if nowhere.
func (r *Recorded) Check() error {
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

// forgetEvery is how often old rounds are looked for.
const forgetEvery = time.Minute

// forgetRounds drops records past the horizon, a run of them that build on each
// other at a time.
func (d *Dispatcher) forgetRounds(ctx context.Context, now time.Time) error {
	if now.Sub(d.forgot) < forgetEvery {
		return nil
	}
	d.forgot = now
	parts, err := d.store.Docs(ctx, kindSupply, "", store.DefaultPage)
	if err != nil || len(parts) == 0 {
		return err
	}
	first := parts[0].Name[:20]
	i := slices.IndexFunc(parts, func(p store.Doc) bool { return p.Name[:20] != first })
	if i < 0 {
		return nil
	}
	var second uint64
	if _, err := fmt.Sscanf(parts[i].Name[:20], "%d", &second); err != nil {
		return fmt.Errorf("document %s/%s: %w", kindSupply, parts[i].Name, gq.ErrCorrupt)
	}
	next, err := d.readRecord(ctx, second)
	if err != nil || next.Input.Now > now.Unix()-d.settings.TTL.GCHorizon {
		return err
	}
	d.forgot = time.Time{} // there may be more
	var old []store.Doc
	all := true // that are to go
	for _, v := range []struct {
		kind string
		most int
	}{{kindMore, 20}, {kindRound, 200}} {
		found, err := d.store.Docs(ctx, v.kind, "", v.most)
		if err != nil {
			return err
		}
		gone := slices.DeleteFunc(slices.Clone(found), func(r store.Doc) bool { return r.Name >= roundName(second) })
		all = all && (len(gone) < len(found) || len(gone) == 0)
		old = append(old, gone...)
	}
	if all { // then what they build on can go too
		old = append(old, parts[:i]...)
	}
	for k := range old {
		old[k].Data = nil
	}
	_, err = d.store.PutDocs(ctx, old)
	return err
}
