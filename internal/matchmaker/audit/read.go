package audit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

func readRecord(ctx context.Context, s store.Documents, n uint64) (rec record, err error) {
	found, err := s.Doc(ctx, kindRound, Name(n))
	if errors.Is(err, gq.ErrNotFound) {
		err = gq.ErrNotFound.Errorf("no record: it has not run yet, or is older than the horizon")
	}
	if err != nil {
		return rec, fmt.Errorf("round %d: %w", n, err)
	}
	return recordOf(ctx, s, found)
}

// recordOf decodes a record from its first document and reads the others.
func recordOf(ctx context.Context, s store.Documents, first store.Doc) (rec record, err error) {
	var n uint64
	if _, err := fmt.Sscanf(first.Name, "%d", &n); err != nil {
		return rec, fmt.Errorf("document %s/%s: %w", kindRound, first.Name, gq.ErrCorrupt)
	}
	data := first.Data
	for i := 1; len(data) == i*partBytes; i++ {
		more, err := s.Doc(ctx, kindMore, partName(n, i))
		if errors.Is(err, gq.ErrNotFound) {
			break // the record ends with a full document
		}
		if err != nil {
			return rec, fmt.Errorf("round %d: %w", n, err)
		}
		data = append(data, more.Data...)
	}
	return rec, unpack(data, &rec)
}

// Read returns a round, or [gq.ErrNotFound] if it is older than the horizon.
func Read(ctx context.Context, s store.Documents, n uint64) (Round, error) {
	rec, err := readRecord(ctx, s, n)
	if err != nil {
		return Round{}, err
	}
	if rec.Input.Providers, err = providersOf(ctx, s, &rec); err != nil {
		return Round{}, fmt.Errorf("providers of round %d: %w", n, err)
	}
	return rec.round(), nil
}

// ReadRequesters returns the time of a round and the requester of each job that it
// assigned.
func ReadRequesters(ctx context.Context, s store.Documents, n uint64) (now int64, requesters []string, err error) {
	rec, err := readRecord(ctx, s, n)
	if err != nil {
		return 0, nil, err
	}
	byJob := make(map[string]string, len(rec.Input.Jobs))
	for _, j := range rec.Input.Jobs {
		byJob[j.ID] = j.Requester
	}
	for _, a := range rec.Assignments {
		requesters = append(requesters, byJob[a.Job])
	}
	return rec.Input.Now, requesters, nil
}

// providersOf reassembles the providers of a record.
func providersOf(ctx context.Context, s store.Documents, rec *record) ([]match.Provider, error) {
	base := *rec
	var err error
	if rec.Base != rec.Round {
		if base, err = readRecord(ctx, s, rec.Base); err != nil {
			return nil, err
		}
	}
	var packed []byte
	for i := range base.Parts {
		part, err := s.Doc(ctx, kindSupply, partName(base.Round, i))
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
			if delta, err = readRecord(ctx, s, n); err != nil {
				return nil, err
			}
		}
		delta.apply(members)
	}
	return slices.SortedFunc(maps.Values(members), func(a, b match.Provider) int { return strings.Compare(a.ID, b.ID) }), nil
}

// Forget deletes records of rounds before a Unix time: one run of records that build on
// each other, or a part of it. It reports whether there may be more.
func Forget(ctx context.Context, s store.Documents, before int64) (more bool, err error) {
	parts, err := s.Docs(ctx, kindSupply, "", store.DefaultPage)
	if err != nil || len(parts) == 0 {
		return false, err
	}
	first := parts[0].Name[:20]
	i := slices.IndexFunc(parts, func(p store.Doc) bool { return p.Name[:20] != first })
	if i < 0 {
		return false, nil
	}
	var second uint64
	if _, err := fmt.Sscanf(parts[i].Name[:20], "%d", &second); err != nil {
		return false, fmt.Errorf("document %s/%s: %w", kindSupply, parts[i].Name, gq.ErrCorrupt)
	}
	next, err := readRecord(ctx, s, second)
	if err != nil || next.Input.Now > before {
		return false, err
	}
	var old []store.Doc
	all := true // old includes everything that builds on the first
	for _, v := range []struct {
		kind string
		most int
	}{{kindMore, 20}, {kindRound, 200}} {
		found, err := s.Docs(ctx, v.kind, "", v.most)
		if err != nil {
			return true, err
		}
		gone := slices.DeleteFunc(slices.Clone(found), func(r store.Doc) bool { return r.Name >= Name(second) })
		all = all && (len(gone) < len(found) || len(gone) == 0)
		old = append(old, gone...)
	}
	if all {
		old = append(old, parts[:i]...)
	}
	for k := range old {
		old[k].Data = nil
	}
	_, err = s.PutDocs(ctx, old)
	return true, err
}
