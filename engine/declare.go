package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// kindDeclared is the kind of the documents with the last declaration of each queue.
const kindDeclared = "queue.declared"

// DeclareQueue configures a queue at program start and returns the resulting configuration. It
// creates the queue if it does not exist. Otherwise it changes a setting only if that still has
// the value of the last declaration, so changes by an operator, such as a pause or a limit,
// stay; so do single settings of the policy. A zero policy is the default one.
//
// The error is [gq.ErrInvalid], and nothing changes, if the result would not be valid together with
// what an operator has set, or if this declaration and another one have replaced each other
// again and again within an hour.
func (e *Engine) DeclareQueue(ctx context.Context, q gq.Queue) (gq.Queue, error) {
	for {
		out, err := e.declareQueue(ctx, q)
		if err == nil || !errors.Is(err, gq.ErrConflict) {
			return out, err
		}
	}
}

func (e *Engine) declareQueue(ctx context.Context, q gq.Queue) (out gq.Queue, err error) {
	if q.Policy == (gq.Policy{}) {
		q.Policy = e.queues.standard
	}
	refused := func(err error) (gq.Queue, error) {
		return gq.Queue{}, fmt.Errorf("declare queue %.80q: %w", q.Name, err)
	}
	if err := machine.CheckQueue(q); err != nil {
		return refused(err)
	}
	q.UpdatedAt = time.Time{}
	var said declaration
	before := machine.NewQueue(q.Name)
	e.fillQueue(&before)
	doc, err := e.store.Doc(ctx, kindDeclared, q.Name)
	switch {
	case errors.Is(err, gq.ErrNotFound):
		doc = store.Doc{Kind: kindDeclared, Name: q.Name}
	case err != nil:
		return refused(err)
	default:
		if err := json.Unmarshal(doc.Data, &said); err != nil {
			return refused(fmt.Errorf("the last declaration: %w: %w", gq.ErrCorrupt, err))
		}
		before = said.Queue
	}
	out, found, err := e.findQueue(ctx, q.Name)
	if err != nil {
		return refused(err)
	}
	if out.UpdatedAt.IsZero() { // not configured, or deleted since its last declaration
		before = out
		before.Name = q.Name
	}
	if q != said.Queue {
		if err := said.follow(q, e.Now()); err != nil {
			return refused(err)
		}
	}
	if err := machine.CheckQueue(declared(out, before, q)); err != nil {
		return refused(fmt.Errorf("it contradicts what an operator has set, which stays: %w", err))
	}
	if !found || declared(out, before, q) != out {
		if out, err = e.ChangeQueue(ctx, q.Name, func(now *gq.Queue) { *now = declared(*now, before, q) }); err != nil {
			return gq.Queue{}, err
		}
	}
	data, err := json.Marshal(said)
	if err != nil {
		return refused(err)
	}
	if string(data) != string(doc.Data) {
		doc.Data = data
		if _, err := e.store.PutDocs(ctx, []store.Doc{doc}); err != nil {
			return refused(err)
		}
	}
	return out, nil
}

// declared applies the settings of next that still have the value of before, each by itself.
func declared(now, before, next gq.Queue) gq.Queue {
	name, updated := now.Name, now.UpdatedAt
	declare(reflect.ValueOf(&now).Elem(), reflect.ValueOf(before), reflect.ValueOf(next))
	now.Name, now.UpdatedAt = name, updated
	return now
}

func declare(now, before, next reflect.Value) {
	for i := range now.NumField() {
		switch field := now.Field(i); {
		case field.Type() == reflect.TypeFor[gq.Policy]():
			declare(field, before.Field(i), next.Field(i))
		case field.Equal(before.Field(i)):
			field.Set(next.Field(i))
		}
	}
}

// declaration is the content of a document: what was declared last, and what before that.
type declaration struct {
	Queue  gq.Queue    `json:"queue"`
	Before *gq.Queue   `json:"before,omitempty"`
	Back   []time.Time `json:"back,omitempty"` // when a declaration restored the one before the last
}

const (
	declareWithin = time.Hour // two programs that declare different settings meet within this time
	declareBack   = 2         // how often a declaration may be restored within it, as a rollback does
)

// follow records a new declaration. It refuses one that has alternated with another: two programs
// declare the same queue differently, and each would undo what the other did.
func (d *declaration) follow(q gq.Queue, now time.Time) error {
	if d.Queue.Name == "" {
		*d = declaration{Queue: q}
		return nil
	}
	if d.Before == nil || q != *d.Before {
		last := d.Queue
		*d = declaration{Queue: q, Before: &last}
		return nil
	}
	d.Back = slices.DeleteFunc(d.Back, func(t time.Time) bool { return now.Sub(t) >= declareWithin })
	if len(d.Back) >= declareBack {
		return &gq.InvalidError{Faults: contradictions("", reflect.ValueOf(q), reflect.ValueOf(d.Queue), d.Back[0].Add(declareWithin))}
	}
	last := d.Queue
	d.Queue, d.Before, d.Back = q, &last, append(d.Back, now)
	return nil
}

// contradictions names the settings in which two declarations differ.
func contradictions(at string, here, there reflect.Value, until time.Time) (faults []gq.Fault) {
	for i := range here.NumField() {
		a, b, name := here.Field(i), there.Field(i), at+fieldName(here.Type().Field(i).Name)
		switch {
		case a.Equal(b):
		case a.Type() == reflect.TypeFor[gq.Policy]():
			faults = append(faults, contradictions(name+".", a, b, until)...)
		default:
			faults = append(faults, gq.Fault{Field: name, Problem: fmt.Sprintf(
				"%v is declared here and %v by another program, and they have alternated; declare it alike in both, leave it to the operator in one of them, or try again after %s",
				a, b, until.UTC().Format(time.RFC3339))})
		}
	}
	return faults
}

// fieldName returns the name that APIs use for a field.
func fieldName(name string) string {
	var b strings.Builder
	for i, r := range name {
		upper := unicode.IsUpper(r)
		if upper && i > 0 && !unicode.IsUpper(rune(name[i-1])) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
