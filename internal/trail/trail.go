// Package trail keeps the audit trail: who changed what, when, through which API and with what
// outcome. It is kept in the store, so that all servers on it share one trail.
//
// [Trail.Engine] wraps the engine below the guard and records every call of an operator that
// changes something, whatever API it came through. Submissions, claims and reports of workers are
// not recorded: the event log has them. Calls that the guard refuses change nothing and are not
// recorded either, so that nobody without rights can fill the trail.
//
// An entry is written after its action and before the caller gets the answer: an action whose
// answer arrived is in the trail. If the process dies between the two commits, or the store fails
// at the second one, the action is done and its entry is missing; the second case is logged.
//
// Entries have no payloads, results, secrets or error texts.
package trail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/store"
)

// Limits of the trail.
const (
	MaxAge     = 90 * 24 * time.Hour // older entries are deleted
	MaxEntries = 100_000             // beyond which the oldest are deleted
	MaxPage    = 1000                // entries of a page
	MaxScan    = 10_000              // entries that are looked at for one page of a filter
	maxText    = 512                 // bytes of an object or a detail

	pruneEvery = time.Hour
	writeTime  = 10 * time.Second
	kind       = "audit" // of the documents
)

// Entry is one action.
type Entry struct {
	At      time.Time `json:"at"`
	By      string    `json:"by"`              // name of the token; everyone without access control
	Token   string    `json:"token,omitempty"` // id of the token
	Face    string    `json:"face,omitempty"`  // http, grpc or dashboard
	From    string    `json:"from,omitempty"`  // address of the caller
	Verb    string    `json:"verb"`            // such as pause or cancel
	Object  string    `json:"object"`          // such as queue mail
	Count   int64     `json:"count,omitempty"` // jobs that an action on many has changed
	Detail  string    `json:"detail,omitempty"`
	Outcome string    `json:"outcome"` // ok, or the kind of the error
}

// Query selects entries, newest first.
type Query struct {
	Since, Until time.Time // since is inclusive, until exclusive; zero is no bound
	By, Verb     string    // exact; empty is any
	Cursor       string    // Page.Next of the previous page
	Limit        int       // 0 is 50
}

// Page is a page of entries. It can have fewer than its limit, or none, without being the last.
type Page struct {
	Entries []Entry
	Next    string // cursor of the next page; empty on the last
}

// Trail is the audit trail of a store.
type Trail struct {
	docs store.Documents
	log  *slog.Logger
	now  func() time.Time

	mu      sync.Mutex
	next    *batch // gathers entries while another batch is written; guarded by mu
	writing sync.Mutex
}

// batch is entries that are written in one commit.
type batch struct {
	docs    []store.Doc
	reached bool // an action of an entry reached the store
	done    chan struct{}
	err     error // set before done is closed
}

// New returns the trail of a store. A nil clock is time.Now.
func New(docs store.Documents, log *slog.Logger, now func() time.Time) *Trail {
	if now == nil {
		now = time.Now
	}
	return &Trail{docs: docs, log: log, now: now}
}

// nameAt is the beginning of the names of the entries of an instant. Names sort newest first.
func nameAt(at time.Time) string { return fmt.Sprintf("%016x", uint64(math.MaxInt64-at.UnixNano())) }

// Record writes what the caller of a context did, after the action has ended with err. Calls that
// came through no API are the server's own and are not recorded.
func (t *Trail) Record(ctx context.Context, verb, object, detail string, count int64, err error) {
	i, unknown := access.From(ctx)
	if unknown != nil {
		return
	}
	via := access.ViaOf(ctx)
	if via.Face == "" {
		return
	}
	e := Entry{
		At: t.now().UTC(), By: i.Name, Token: i.Token, Face: via.Face, From: via.From,
		Verb: verb, Object: cut(object), Count: count, Detail: cut(detail), Outcome: outcome(err),
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	if err := t.write(ctx, e, errors.Is(err, gq.ErrUnavailable)); err != nil {
		t.log.ErrorContext(ctx, "an action is missing in the audit trail",
			"event", "audit_failed", "by", e.By, "verb", e.Verb, "object", e.Object, "outcome", e.Outcome, "error", err)
	}
}

func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "unknown"
	}
	return errs.KindOf(err).String()
}

func cut(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// write writes an entry. Entries that arrive while others are written share the next commit. If all of
// them are of actions that could not reach the store, it is tried once.
func (t *Trail) write(ctx context.Context, e Entry, unreached bool) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	doc := store.Doc{Kind: kind, Name: fmt.Sprintf("%s-%08x", nameAt(e.At), rand.Uint32()), Data: data}
	t.mu.Lock()
	b, first := t.next, false
	if b == nil || len(b.docs) == store.MaxDocs {
		b, first = &batch{done: make(chan struct{})}, true
		t.next = b
	}
	b.docs = append(b.docs, doc)
	b.reached = b.reached || !unreached
	t.mu.Unlock()
	if !first {
		<-b.done
		return b.err
	}
	t.writing.Lock()
	defer t.writing.Unlock()
	t.mu.Lock()
	if t.next == b {
		t.next = nil
	}
	t.mu.Unlock()
	if b.reached {
		ctx = store.Afresh(ctx)
	} else {
		ctx = store.Impatient(ctx)
	}
	_, b.err = t.docs.PutDocs(ctx, b.docs)
	close(b.done)
	return b.err
}

// Read returns a page of entries, newest first.
func (t *Trail) Read(ctx context.Context, q Query) (page Page, err error) {
	if err := check(&q); err != nil {
		return Page{}, fmt.Errorf("read audit trail: %w", err)
	}
	after := q.Cursor
	if after == "" && !q.Until.IsZero() {
		after = nameAt(q.Until) + "-~"
	}
	for looked := 0; looked < MaxScan; {
		docs, err := t.docs.Docs(ctx, kind, after, min(max(q.Limit+1, looked), MaxPage))
		if err != nil {
			return Page{}, fmt.Errorf("read audit trail: %w", err)
		}
		if len(docs) == 0 {
			return page, nil
		}
		for i := range docs {
			var e Entry
			if err := json.Unmarshal(docs[i].Data, &e); err != nil {
				return Page{}, fmt.Errorf("entry %.64q of the audit trail: %w: %w", docs[i].Name, gq.ErrCorrupt, err)
			}
			if e.At.Before(q.Since) {
				return page, nil
			}
			if q.By == "" || q.By == e.By || q.By == e.Token {
				if q.Verb == "" || q.Verb == e.Verb {
					if len(page.Entries) == q.Limit {
						page.Next = after
						return page, nil
					}
					page.Entries = append(page.Entries, e)
				}
			}
			after = docs[i].Name
		}
		looked += len(docs)
	}
	page.Next = after
	return page, nil
}

func check(q *Query) error {
	var faults []gq.Fault
	if q.Limit == 0 {
		q.Limit = 50
	}
	if q.Limit < 1 || q.Limit > MaxPage {
		faults = append(faults, gq.Fault{Field: "limit", Problem: fmt.Sprintf("%d is not between 1 and %d", q.Limit, MaxPage)})
	}
	if q.Cursor != "" {
		at, rest, ok := strings.Cut(q.Cursor, "-")
		_, err := strconv.ParseUint(at, 16, 64)
		if _, wrong := strconv.ParseUint(rest, 16, 32); !ok || err != nil || wrong != nil || len(at) != 16 || len(rest) != 8 {
			faults = append(faults, gq.Fault{Field: "cursor", Problem: "is not one that the audit trail has returned"})
		}
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// Run deletes old entries until the context ends.
func (t *Trail) Run(ctx context.Context) error {
	for {
		if err := t.Prune(ctx, MaxAge, MaxEntries); err != nil && ctx.Err() == nil {
			t.log.WarnContext(ctx, "old entries of the audit trail were not deleted", "event", "audit_prune", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pruneEvery):
		}
	}
}

// Prune deletes entries that are older than age, and the oldest beyond a number. Several servers may
// do so at the same time.
func (t *Trail) Prune(ctx context.Context, age time.Duration, most int) error {
	oldest := nameAt(t.now().Add(-age))
	for after, kept := "", 0; ; {
		docs, err := t.docs.Docs(ctx, kind, after, MaxPage)
		if err != nil || len(docs) == 0 {
			return err
		}
		after = docs[len(docs)-1].Name
		var old []store.Doc
		for _, d := range docs {
			if kept++; kept > most || d.Name > oldest {
				old = append(old, store.Doc{Kind: kind, Name: d.Name, Version: d.Version})
			}
		}
		if len(old) == 0 {
			continue
		}
		if _, err := t.docs.PutDocs(ctx, old); err != nil && !errors.Is(err, gq.ErrConflict) { // another server was faster
			return err
		}
	}
}
