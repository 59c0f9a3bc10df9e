package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

const (
	forgetEvery = time.Hour // how often the records of old workflows are checked
	forgetPage  = 50        // records that one sweep checks
)

// forgetting is how far the check of old workflows is.
type forgetting struct {
	mu    sync.Mutex
	after string    // name of the last record that was checked; empty if the next check is at the first
	next  time.Time // when the next check begins
}

// forgetWorkflows deletes the records of workflows whose jobs retention has removed. A record is as old as
// its first jobs, so only those that are older than the shortest retention are read.
func (e *Engine) forgetWorkflows(ctx context.Context, r *SweepReport) error {
	if _, ok := e.store.(store.Changer); !ok {
		return nil // no workflows
	}
	f := &e.forgetting
	f.mu.Lock()
	defer f.mu.Unlock()
	now := e.Now()
	if now.Before(f.next) {
		return nil
	}
	if f.after == "" {
		f.after = docName(machine.NewWorkflowID(now.Add(-e.config.Retention.Shortest()), [16]byte{}))
	}
	docs, err := e.store.Docs(ctx, kindWorkflow, f.after, forgetPage)
	if err != nil {
		return fmt.Errorf("forget workflows: %w", err)
	}
	var gone []store.Doc
	for _, doc := range docs {
		none, err := e.hasNoJobs(ctx, &doc)
		if err != nil {
			return fmt.Errorf("forget workflows: %w", err)
		}
		if none {
			gone = append(gone, store.Doc{Kind: doc.Kind, Name: doc.Name, Version: doc.Version})
		}
	}
	if len(gone) > 0 {
		// A conflict means that another engine was first.
		if _, err := e.store.PutDocs(ctx, gone); err != nil && !errors.Is(err, gq.ErrConflict) {
			return fmt.Errorf("forget workflows: %w", err)
		}
	}
	if len(docs) < forgetPage {
		f.after, f.next = "", now.Add(forgetEvery)
		return nil
	}
	f.after = docs[len(docs)-1].Name
	r.More = true
	return nil
}

// hasNoJobs reports whether the store has none of the jobs of a record.
func (e *Engine) hasNoJobs(ctx context.Context, doc *store.Doc) (bool, error) {
	var r flowRecord
	if err := json.Unmarshal(doc.Data, &r); err != nil {
		e.log.Warn("a workflow's record cannot be read", "document", doc.Name, "error", err)
		return false, nil
	}
	for to := len(r.Jobs); to > 0; to -= store.MaxPage { // the last ones end last
		some := r.Jobs[max(to-store.MaxPage, 0):to]
		refs := make([]store.Ref, len(some))
		for i := range some {
			refs[i].Job = some[i].ID
		}
		found, err := e.store.Get(ctx, refs, 0)
		if err != nil {
			return false, err
		}
		for i := range found {
			if !errors.Is(found[i].Err, gq.ErrNotFound) {
				return false, nil
			}
		}
	}
	return true, nil
}
