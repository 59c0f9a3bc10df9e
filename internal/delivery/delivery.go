package delivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/webhook"
)

// Document kinds. A delivery has one of the last three and moves between them in one
// commit.
const (
	kindSettings = "webhook"
	kindDue      = "webhook.due"  // outstanding
	kindDone     = "webhook.done" // delivered
	kindDead     = "webhook.dead" // given up
)

// State is the state of a delivery.
type State string

// The states of deliveries.
const (
	Pending   State = "pending"
	Delivered State = "delivered"
	Dead      State = "dead"
)

var kinds = []struct {
	state State
	kind  string
}{{Pending, kindDue}, {Dead, kindDead}, {Delivered, kindDone}}

func (s State) valid() bool { return s == Pending || s == Delivered || s == Dead }

// Delivery notifies a callback URL that its job has ended.
type Delivery struct {
	ID        string       `json:"id"` // the Webhook-Id
	Job       gq.JobID     `json:"job"`
	Queue     string       `json:"queue"`
	Type      gq.EventType `json:"type"`
	URL       string       `json:"url"`
	CreatedAt time.Time    `json:"created_at"`
	Attempts  int          `json:"attempts"` // made or in progress
	NextAt    time.Time    `json:"next_at,omitzero"`
	LastAt    time.Time    `json:"last_at,omitzero"`     // end of the last attempt
	Status    int          `json:"last_status,omitzero"` // HTTP status of the last response
	Reason    string       `json:"reason,omitzero"`      // why it has not succeeded
	State     State        `json:"state"`
}

// record is the stored form of a delivery.
type record struct {
	Delivery
	Seq   uint64          `json:"seq"`            // sequence number of the event
	Until time.Time       `json:"until,omitzero"` // one process owns the delivery until then
	Body  json.RawMessage `json:"body"`

	TraceParent string `json:"traceparent,omitempty"` // sent as a header
}

// nameOf returns the document name of a delivery; names sort by age.
func nameOf(seq uint64) string { return fmt.Sprintf("%020d", seq) }

func idOf(job gq.JobID, seq uint64) string { return fmt.Sprintf("msg_%s.%d", job, seq) }

// seqOf returns the event's sequence number in a delivery id.
func seqOf(id string) (uint64, bool) {
	_, text, ok := strings.Cut(id, ".")
	seq, err := strconv.ParseUint(text, 10, 64)
	return seq, ok && err == nil
}

func (r *record) doc(kind string, version uint64) (store.Doc, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return store.Doc{}, fmt.Errorf("encode delivery %s: %w", r.ID, err)
	}
	return store.Doc{Kind: kind, Name: nameOf(r.Seq), Version: version, Data: data}, nil
}

func readRecord(d *store.Doc) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(d.Data, r); err != nil {
		return nil, fmt.Errorf("delivery %s: %w: %w", d.Name, gq.ErrCorrupt, err)
	}
	return r, nil
}

// settings is the document of the cursor or of the secret.
type settings struct {
	After  uint64 `json:"after,omitzero"`
	Secret string `json:"secret,omitzero"`
}

const (
	cursorName = "cursor"
	secretName = "secret"
)

// setting reads a settings document. If there is none, it stores what first returns.
func (h *Hooks) setting(ctx context.Context, name string, first func() (settings, error)) (settings, uint64, error) {
	for {
		doc, err := h.store.Doc(ctx, kindSettings, name)
		if err == nil {
			var s settings
			if err := json.Unmarshal(doc.Data, &s); err != nil {
				return s, 0, fmt.Errorf("webhook %s: %w: %w", name, gq.ErrCorrupt, err)
			}
			return s, doc.Version, nil
		}
		if !errors.Is(err, gq.ErrNotFound) {
			return settings{}, 0, err
		}
		s, err := first()
		if err != nil {
			return s, 0, err
		}
		data, err := json.Marshal(s)
		if err != nil {
			return s, 0, err
		}
		versions, err := h.store.PutDocs(ctx, []store.Doc{{Kind: kindSettings, Name: name, Data: data}})
		if errors.Is(err, gq.ErrConflict) {
			continue // another process created it first
		}
		if err != nil {
			return s, 0, err
		}
		return s, versions[0], nil
	}
}

// cursor returns the position up to which the log was read. A new cursor starts at the
// log's end.
func (h *Hooks) cursor(ctx context.Context) (after, version uint64, err error) {
	s, version, err := h.setting(ctx, cursorName, func() (settings, error) {
		last, err := h.engine.LastEvent(ctx)
		return settings{After: last}, err
	})
	return s.After, version, err
}

func cursorDoc(after, version uint64) (store.Doc, error) {
	data, err := json.Marshal(settings{After: after})
	return store.Doc{Kind: kindSettings, Name: cursorName, Version: version, Data: data}, err
}

// Secret returns the secret that signs deliveries: the configured one, or one generated
// for this store.
func (h *Hooks) Secret(ctx context.Context) (webhook.Secret, error) {
	if h.options.Secret != nil {
		return h.options.Secret, nil
	}
	s, _, err := h.setting(ctx, secretName, func() (settings, error) { return settings{Secret: webhook.NewSecret().Text()}, nil })
	if err != nil {
		return nil, err
	}
	return webhook.ParseSecret(s.Secret)
}

// Page is a page of deliveries.
type Page struct {
	Deliveries []Delivery
	Next       string // cursor of the next page, "" on the last
}

// List returns a page of deliveries: outstanding ones first, then those given up, then
// delivered ones; or only those in one state. A limit of 0 means 50, the maximum is 1000.
func (h *Hooks) List(ctx context.Context, state State, cursor string, limit int) (Page, error) {
	if limit == 0 {
		limit = store.DefaultPage
	}
	in, after, _ := strings.Cut(cursor, ":")
	var faults []gq.Fault
	if limit < 1 || limit > store.MaxPage {
		faults = append(faults, gq.Fault{Field: "limit", Problem: fmt.Sprintf("%d is not between 1 and %d", limit, store.MaxPage)})
	}
	if state != "" && !state.valid() {
		faults = append(faults, gq.Fault{Field: "state", Problem: fmt.Sprintf("%.64q is not one of pending, dead, delivered", string(state))})
	}
	if cursor != "" && !State(in).valid() {
		faults = append(faults, gq.Fault{Field: "cursor", Problem: "is not one that was given out"})
	}
	if len(faults) > 0 {
		return Page{}, fmt.Errorf("list deliveries: %w", &gq.InvalidError{Faults: faults})
	}
	begun := cursor == ""
	page := Page{Deliveries: []Delivery{}}
	for _, k := range kinds {
		if !begun && string(k.state) != in || state != "" && state != k.state {
			continue
		}
		begun = true
		docs, err := h.store.Docs(ctx, k.kind, after, limit-len(page.Deliveries))
		if err != nil {
			return Page{}, fmt.Errorf("list deliveries: %w", err)
		}
		after = ""
		for i := range docs {
			r, err := readRecord(&docs[i])
			if err != nil {
				return Page{}, err
			}
			page.Deliveries = append(page.Deliveries, r.Delivery)
		}
		if len(page.Deliveries) == limit {
			page.Next = string(k.state) + ":" + docs[len(docs)-1].Name
			return page, nil
		}
	}
	return page, nil
}

// Get returns a delivery in any state.
func (h *Hooks) Get(ctx context.Context, id string) (Delivery, error) {
	if seq, ok := seqOf(id); ok {
		for _, k := range kinds {
			doc, err := h.store.Doc(ctx, k.kind, nameOf(seq))
			if errors.Is(err, gq.ErrNotFound) {
				continue
			}
			if err != nil {
				return Delivery{}, fmt.Errorf("delivery %.80q: %w", id, err)
			}
			r, err := readRecord(&doc)
			if err != nil {
				return Delivery{}, err
			}
			if r.ID == id {
				return r.Delivery, nil
			}
		}
	}
	return Delivery{}, gq.ErrNotFound.Errorf("delivery %.80q not found", id)
}

// Retry sends a dead delivery again, with the same id and the full number of attempts. In
// any other state the error is [gq.ErrIllegalMove].
func (h *Hooks) Retry(ctx context.Context, id string) (Delivery, error) {
	fail := func(err error) (Delivery, error) {
		return Delivery{}, fmt.Errorf("retry delivery %.80q: %w", id, err)
	}
	d, err := h.Get(ctx, id)
	switch {
	case err != nil:
		return fail(err)
	case d.State != Dead:
		return fail(fmt.Errorf("it is %s: %w", d.State, gq.ErrIllegalMove))
	}
	seq, _ := seqOf(id)
	doc, err := h.store.Doc(ctx, kindDead, nameOf(seq))
	if err != nil {
		return fail(err)
	}
	r, err := readRecord(&doc)
	if err != nil {
		return fail(err)
	}
	r.State, r.Attempts, r.NextAt, r.Until, r.Reason = Pending, 0, time.Now().UTC(), time.Time{}, ""
	due, err := r.doc(kindDue, 0)
	if err != nil {
		return Delivery{}, err
	}
	doc.Data = nil
	versions, err := h.store.PutDocs(ctx, []store.Doc{due, doc})
	if err != nil {
		return fail(err)
	}
	h.add(r, versions[0])
	return r.Delivery, nil
}
