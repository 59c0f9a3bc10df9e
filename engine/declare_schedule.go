package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/store"
)

// kindDeclaredSchedule is the kind of the documents with the last declaration of each schedule.
const kindDeclaredSchedule = "schedule.declared"

// DeclareSchedule sets up a schedule at program start and returns the result. It creates the
// schedule if it does not exist. Otherwise it changes a setting only if that still has the value
// of the last declaration, so changes by an operator, such as a pause or other times, stay. The
// cron expression, the interval and the time zone count as one setting, and so does the template.
//
// The error is [gq.ErrInvalid], and nothing changes, if the result would not be valid together with
// what an operator has set, or if this declaration and another one have replaced each other
// again and again within an hour.
func (e *Engine) DeclareSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error) {
	for {
		out, err := e.declareSchedule(ctx, s)
		switch {
		case err == nil:
			return out, nil
		case !errors.Is(err, gq.ErrConflict):
			return gq.Schedule{}, fmt.Errorf("declare schedule %.80q: %w", s.Name, err)
		}
	}
}

func (e *Engine) declareSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error) {
	if _, ok := e.store.(store.Changer); !ok {
		return gq.Schedule{}, errNoSchedules
	}
	declared, faults, err := e.completeSchedule(ctx, s)
	if err != nil {
		return gq.Schedule{}, err
	}
	now, err := e.storeNow(ctx)
	if err != nil {
		return gq.Schedule{}, err
	}
	if _, err := e.newEntry(declared, faults, nil, now); err != nil { // by itself
		return gq.Schedule{}, err
	}
	doc, old, err := e.findSchedule(ctx, s.Name)
	if err != nil {
		return gq.Schedule{}, err
	}
	saidDoc, said, err := e.saidOf(ctx, s.Name)
	if err != nil {
		return gq.Schedule{}, err
	}
	result := declared
	if old != nil {
		before := gq.Schedule{Missed: gq.MissedOnce, Overlap: gq.OverlapAllow} // an operator made it
		if len(said.Schedule) > 0 {
			last, err := decodeSchedule(store.Doc{Name: s.Name, Data: said.Schedule})
			if err != nil {
				return gq.Schedule{}, fmt.Errorf("the last declaration: %w", err)
			}
			before = last.Schedule
		}
		result = mergeSchedule(old.Schedule, before, declared)
		if _, faults, err = e.completeSchedule(ctx, result); err != nil {
			return gq.Schedule{}, err
		}
	}
	next, err := e.newEntry(result, faults, old, now)
	if errs.KindOf(err) == gq.KindInvalid {
		return gq.Schedule{}, fmt.Errorf("it contradicts what an operator has set, which stays: %w", err)
	}
	if err != nil {
		return gq.Schedule{}, err
	}
	definition := declared
	definition.Next, definition.Last, definition.CreatedAt, definition.UpdatedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	definition.Fired, definition.Skipped, definition.LastError, definition.LastJob = 0, 0, "", gq.JobID{}
	data, err := encodeSchedule(&definition, nil)
	if err != nil {
		return gq.Schedule{}, err
	}
	if !bytes.Equal(data, said.Schedule) {
		if err := said.follow(data, now); err != nil {
			return gq.Schedule{}, err
		}
	}
	var docs []store.Doc
	if old == nil || !sameDefinition(&old.Schedule, &next.Schedule) {
		next.UpdatedAt = now
		data, err := encodeSchedule(&next.Schedule, next.fired)
		if err != nil {
			return gq.Schedule{}, err
		}
		docs = append(docs, store.Doc{Kind: kindSchedule, Name: s.Name, Version: doc.Version, Data: data})
	} else {
		next = *old
	}
	if data, err = json.Marshal(said); err != nil {
		return gq.Schedule{}, err
	}
	if !bytes.Equal(data, saidDoc.Data) {
		docs = append(docs, store.Doc{Kind: kindDeclaredSchedule, Name: s.Name, Version: saidDoc.Version, Data: data})
	}
	if len(docs) > 0 {
		if _, err := e.store.PutDocs(ctx, docs); err != nil {
			return gq.Schedule{}, err
		}
		e.announceSchedule(&next.Schedule)
	}
	return ownSchedule(next.Schedule), nil
}

// findSchedule reads a schedule; nil if it does not exist or cannot be decoded.
func (e *Engine) findSchedule(ctx context.Context, name string) (store.Doc, *entry, error) {
	doc, err := e.store.Doc(ctx, kindSchedule, name)
	if errors.Is(err, gq.ErrNotFound) {
		return doc, nil, nil
	}
	if err != nil {
		return doc, nil, err
	}
	old, _ := e.calendar.open(doc)
	return doc, old, nil
}

func (e *Engine) saidOf(ctx context.Context, name string) (doc store.Doc, said scheduleDeclaration, err error) {
	doc, err = e.store.Doc(ctx, kindDeclaredSchedule, name)
	if errors.Is(err, gq.ErrNotFound) {
		return store.Doc{}, said, nil
	}
	if err == nil {
		if err = json.Unmarshal(doc.Data, &said); err != nil {
			err = fmt.Errorf("the last declaration: %w: %w", gq.ErrCorrupt, err)
		}
	}
	return doc, said, err
}

// mergeSchedule applies the settings of next that still have the value of before.
func mergeSchedule(now, before, next gq.Schedule) gq.Schedule {
	out := now
	if now.Cron == before.Cron && now.Every == before.Every && now.TimeZone == before.TimeZone {
		out.Cron, out.Every, out.TimeZone = next.Cron, next.Every, next.TimeZone
	}
	if !next.Start.IsZero() && (before.Start.IsZero() || now.Start.Equal(before.Start)) {
		out.Start = next.Start
	}
	if now.End.Equal(before.End) {
		out.End = next.End
	}
	declareSetting(&out.Jitter, before.Jitter, next.Jitter)
	declareSetting(&out.Overlap, before.Overlap, next.Overlap)
	if now.Missed == before.Missed && now.MissedLimit == before.MissedLimit {
		out.Missed, out.MissedLimit = next.Missed, next.MissedLimit
	}
	declareSetting(&out.Paused, before.Paused, next.Paused)
	if sameTemplate(&now, &before) {
		out.Template = next.Template
	}
	return out
}

// declareSetting sets a value that has not changed.
func declareSetting[T comparable](now *T, before, next T) {
	if *now == before {
		*now = next
	}
}

func sameTemplate(a, b *gq.Schedule) bool {
	x, y := gq.Schedule{Template: a.Template}, gq.Schedule{Template: b.Template}
	return sameDefinition(&x, &y)
}

// sameDefinition compares all but what the queue sets.
func sameDefinition(a, b *gq.Schedule) bool {
	var data [2][]byte
	for i, s := range []*gq.Schedule{a, b} {
		one := gq.Schedule{
			Name: s.Name, Cron: s.Cron, Every: s.Every, TimeZone: s.TimeZone, Start: s.Start.UTC(), End: s.End.UTC(),
			Jitter: s.Jitter, Overlap: s.Overlap, Missed: s.Missed, MissedLimit: s.MissedLimit, Paused: s.Paused, Template: s.Template,
		}
		var err error
		if data[i], err = encodeSchedule(&one, nil); err != nil {
			return false
		}
	}
	return bytes.Equal(data[0], data[1])
}

// scheduleDeclaration is the content of a document, as [declaration] for queues.
type scheduleDeclaration struct {
	Schedule json.RawMessage `json:"schedule"`
	Before   json.RawMessage `json:"before,omitempty"`
	Back     []time.Time     `json:"back,omitempty"`
}

// follow records a new declaration. It refuses one that has alternated with another.
func (d *scheduleDeclaration) follow(s json.RawMessage, now time.Time) error {
	if d.Before == nil || !bytes.Equal(s, d.Before) {
		*d = scheduleDeclaration{Schedule: s, Before: d.Schedule}
		return nil
	}
	d.Back = slices.DeleteFunc(d.Back, func(t time.Time) bool { return now.Sub(t) >= declareWithin })
	if len(d.Back) >= declareBack {
		return &gq.InvalidError{Faults: differences(s, d.Schedule, d.Back[0].Add(declareWithin))}
	}
	d.Schedule, d.Before, d.Back = s, d.Schedule, append(d.Back, now)
	return nil
}

// differences names the settings in which two declarations differ.
func differences(here, there json.RawMessage, until time.Time) (faults []gq.Fault) {
	var a, b map[string]json.RawMessage
	if errors.Join(json.Unmarshal(here, &a), json.Unmarshal(there, &b)) != nil {
		return []gq.Fault{{Field: "schedule", Problem: "the declarations cannot be compared"}}
	}
	for _, name := range []string{"cron", "every", "time_zone", "start", "end", "jitter", "overlap", "missed", "missed_limit", "paused", "template", "queue_policy"} {
		if !bytes.Equal(a[name], b[name]) {
			faults = append(faults, gq.Fault{Field: name, Problem: fmt.Sprintf(
				"is declared differently by another program, and the two have alternated; declare it alike in both, leave it to the operator in one of them, or try again after %s",
				until.UTC().Format(time.RFC3339))})
		}
	}
	return faults
}
