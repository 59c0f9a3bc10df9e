package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// WorkflowCounts is the number of workflows by status.
type WorkflowCounts struct {
	By      [gq.WorkflowCancelled + 1]int // indexed by status
	Signals int                           // jobs that wait for a signal, with all dependencies ended
}

const (
	countPage    = 50      // records that one step of a count reads
	maxKnownEnds = 100_000 // ended workflows whose jobs are not read again
)

// flowCount is how far the count of workflows is.
type flowCount struct {
	mu    sync.Mutex
	after string // name of the last record that was counted; empty at the beginning
	pass  int
	sum   WorkflowCounts // of this pass
	last  WorkflowCounts // of the last complete one
	ready bool           // there is one
	ended map[string]endedFlow
}

// endedFlow is a workflow that has ended. Retrying it changes its record.
type endedFlow struct {
	version uint64
	status  gq.WorkflowStatus
	pass    int // in which it was last seen
}

// CountWorkflows counts the workflows of the store by status, for about as long as the time
// limit allows. The next call goes on from there. It returns the counts of the last complete pass;
// ok is false before there is one.
func (e *Engine) CountWorkflows(ctx context.Context, limit time.Duration) (counts WorkflowCounts, ok bool, err error) {
	f := &e.flows
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended == nil {
		f.ended = make(map[string]endedFlow)
	}
	for began := time.Now(); ; {
		docs, err := e.store.Docs(ctx, kindWorkflow, f.after, countPage)
		if err != nil {
			return f.last, f.ready, fmt.Errorf("count workflows: %w", err)
		}
		for i := range docs {
			if err := e.countWorkflow(ctx, f, &docs[i]); err != nil {
				return f.last, f.ready, fmt.Errorf("count workflows: %w", err)
			}
			f.after = docs[i].Name
		}
		if len(docs) < countPage {
			f.complete()
			return f.last, true, nil
		}
		if time.Since(began) >= limit {
			return f.last, f.ready, nil
		}
	}
}

// complete ends a pass.
func (f *flowCount) complete() {
	maps.DeleteFunc(f.ended, func(_ string, w endedFlow) bool { return w.pass != f.pass })
	f.last, f.ready = f.sum, true
	f.sum, f.after = WorkflowCounts{}, ""
	f.pass++
}

func (e *Engine) countWorkflow(ctx context.Context, f *flowCount, doc *store.Doc) error {
	if known, ok := f.ended[doc.Name]; ok && known.version == doc.Version {
		known.pass = f.pass
		f.ended[doc.Name] = known
		f.sum.By[known.status]++
		return nil
	}
	id, ok := workflowOf(doc.Name)
	var r flowRecord
	if err := json.Unmarshal(doc.Data, &r); err != nil || !ok {
		return nil // Workflows reports it
	}
	w, err := e.load(ctx, id, &r)
	if errors.Is(err, gq.ErrNotFound) { // retention has removed its jobs
		return nil
	}
	if err != nil {
		return err
	}
	f.sum.By[w.Status]++
	if w.Status.Ended() {
		if len(f.ended) < maxKnownEnds {
			f.ended[doc.Name] = endedFlow{doc.Version, w.Status, f.pass}
		}
		return nil
	}
	for i := range w.Jobs {
		if s := &w.Jobs[i].Job.State; s.Gate == gq.GateSignal && s.Status == gq.StatusPending && !s.ScheduledAt.IsZero() {
			f.sum.Signals++
		}
	}
	return nil
}
