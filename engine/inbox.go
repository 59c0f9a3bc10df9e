package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

// RequestReader decodes the request of a submission that SQL wrote. queuePolicy returns the
// policy of a queue.
type RequestReader func(request []byte, queuePolicy func(queue string) (gq.Policy, error)) (gq.Spec, error)

// inboxBatch is how many submissions one commit takes in.
const inboxBatch = 500

// takeInWaiting takes in the submissions that wait in the inbox of the store, which are those that
// applications wrote in their own transactions. It returns how many it took in or refused.
// Run calls it when the store reports some.
func (e *Engine) takeInWaiting(ctx context.Context) (store.TakenIn, error) {
	var all store.TakenIn
	inbox, ok := e.store.(store.Inbox)
	for ok {
		some, err := e.takeIn(ctx, inbox, nil)
		all.Taken, all.Refused = all.Taken+some.Taken, all.Refused+some.Refused
		if err != nil {
			return all, fmt.Errorf("take in submissions: %w", err)
		}
		ok = some.Taken >= inboxBatch // more if some of them took two rounds
	}
	return all, nil
}

// TakeIn takes in the submissions that wait in the inbox of a store on which no engine runs.
func TakeIn(ctx context.Context, s store.Store, o Options) (store.TakenIn, error) {
	e, err := New(s, o)
	if err != nil {
		return store.TakenIn{}, err
	}
	return e.takeInWaiting(ctx)
}

// takeIn takes in the submissions with these ids, or those that wait. One call at a time: each
// holds a connection while it may need another one.
func (e *Engine) takeIn(ctx context.Context, inbox store.Inbox, ids []gq.JobID) (store.TakenIn, error) {
	ctx = hold(ctx, &e.takingIn)
	defer e.takingIn.Unlock()
	taken, err := inbox.TakeIn(ctx, ids, inboxBatch, e.readSubmission)
	e.counters.takenIn.Add(uint64(taken.Taken - taken.Refused))
	e.counters.turnedDown.Add(uint64(taken.Refused))
	if taken.Refused > 0 {
		e.log.Warn("submissions refused after their transactions; see gq inbox list", "event", "inbox_refused", "submissions", taken.Refused)
	}
	return taken, err
}

// readSubmission returns the jobs of a submission. Those that a Go program wrote went through
// accept before.
func (e *Engine) readSubmission(ctx context.Context, s *store.Submission) (store.Group, error) {
	if s.Exists {
		return store.Group{}, e.repeatedWorkflow(ctx, s)
	}
	if s.Request == nil {
		return store.Group{Jobs: s.Jobs}, nil
	}
	if e.options.ReadRequest == nil {
		return store.Group{}, errors.New("this engine has no reader for submissions from SQL")
	}
	spec, err := e.options.ReadRequest(s.Request, func(queue string) (gq.Policy, error) {
		return e.queues.policy(ctx, e.store, queue)
	})
	if err != nil {
		return store.Group{}, err
	}
	err = e.acceptOne(ctx, &spec, nil)
	spec.ID = s.IDs[0]
	return store.Group{Jobs: []gq.Spec{spec}}, err
}

// repeatedWorkflow returns nil if a submission repeats that of a workflow that exists.
func (e *Engine) repeatedWorkflow(ctx context.Context, s *store.Submission) error {
	for _, doc := range s.Docs {
		stored, err := e.store.Doc(ctx, doc.Kind, doc.Name)
		if err != nil {
			return err
		}
		var repeat, first flowRecord
		if err := errors.Join(json.Unmarshal(doc.Data, &repeat), json.Unmarshal(stored.Data, &first)); err != nil {
			return gq.ErrInvalid.Errorf("%v", err)
		}
		if id, _ := workflowOf(doc.Name); repeat.Fingerprint != first.Fingerprint {
			return gq.ErrInvalid.Errorf("workflow %s: %v", id, gq.ErrKeyReused)
		}
	}
	return nil
}

// workflowDoc returns the record of a workflow, also if the workflow has yet to be taken in.
func (e *Engine) workflowDoc(ctx context.Context, id gq.WorkflowID) (store.Doc, error) {
	doc, err := e.store.Doc(ctx, kindWorkflow, docName(id))
	if !errors.Is(err, gq.ErrNotFound) {
		return doc, err
	}
	inbox, ok := e.store.(store.Inbox)
	for waiting := ok; waiting; {
		where, err := inbox.Whereabouts(ctx, gq.JobID(id))
		switch {
		case errors.Is(err, gq.ErrNotFound):
		case err != nil:
			return doc, err
		case where.Problem != "":
			return doc, &refusedSubmission{gq.JobID(id), where.Problem}
		}
		if waiting = where.Waiting; waiting {
			if _, err := e.takeIn(ctx, inbox, []gq.JobID{gq.JobID(id)}); err != nil {
				return doc, err
			}
		}
	}
	return e.store.Doc(ctx, kindWorkflow, docName(id)) // which may have been taken in meanwhile
}

// serveInbox takes in submissions whenever woken is, until the context ends.
func (e *Engine) serveInbox(ctx context.Context, woken <-chan struct{}) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for pause := e.options.Sweep; ; {
		select {
		case <-ctx.Done():
			return
		case <-woken:
		case <-retry.C:
		}
		_, err := e.takeInWaiting(ctx)
		if err == nil || ctx.Err() != nil {
			pause = e.options.Sweep
			continue
		}
		e.log.Warn("inbox", "error", err)
		retry.Reset(pause)
		pause = min(2*pause, time.Minute)
	}
}

// startInbox serves the inbox of the store, if it has one, until the context ends. It returns
// the function to call when submissions wait, and one that waits for the end.
func (e *Engine) startInbox(ctx context.Context) (wakeUp, wait func()) {
	if _, ok := e.store.(store.Inbox); !ok {
		return func() {}, func() {}
	}
	woken, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		e.serveInbox(ctx, woken)
	}()
	return func() { wake.Up(woken) }, func() { <-ended }
}

// submittedAs finds the job of an id that the store does not know, because the job waits in the
// inbox or did until a moment ago. It takes the job in. A submission with the key of an older
// job is that job.
func (e *Engine) submittedAs(ctx context.Context, id gq.JobID) (gq.JobID, error) {
	inbox, ok := e.store.(store.Inbox)
	if !ok {
		return id, gq.ErrNotFound
	}
	for {
		where, err := inbox.Whereabouts(ctx, id)
		switch {
		case err != nil:
			return id, err
		case where.Problem != "":
			return id, &refusedSubmission{id, where.Problem}
		case !where.Waiting:
			return where.Job, nil
		}
		if _, err := e.takeIn(ctx, inbox, []gq.JobID{id}); err != nil {
			return id, err
		}
	}
}

// refusedSubmission is the [gq.ErrNotFound] of a job whose submission was refused.
type refusedSubmission struct {
	job     gq.JobID
	problem string
}

func (r *refusedSubmission) Error() string {
	return fmt.Sprintf("job %s does not exist: it was refused after its transaction had committed: %s", r.job, r.problem)
}

func (r *refusedSubmission) Unwrap() error { return gq.ErrNotFound }

// arrived calls do with the id of a job, and again if the job had yet to be taken in.
func arrived[T any](ctx context.Context, e *Engine, id gq.JobID, do func(id gq.JobID) (T, error)) (T, error) {
	out, err := do(id)
	if !errors.Is(err, gq.ErrNotFound) {
		return out, err
	}
	job, err := e.submittedAs(ctx, id)
	if err != nil {
		return out, err
	}
	return do(job)
}

// Inbox counts the submissions that wait to be taken in and those that were refused, and lists
// up to limit of the refused ones. A limit of 0 is 50. A store without an inbox has none.
func (e *Engine) Inbox(ctx context.Context, cursor string, limit int) (gq.Inbox, error) {
	page := gq.Query{Limit: limit}
	err := store.CheckQuery(&page)
	after, problem := store.ParseCursor(cursor)
	if faults := append(errs.FaultsOf(err), errs.FaultsOf(problem)...); len(faults) > 0 {
		return gq.Inbox{}, fmt.Errorf("read inbox: %w", &gq.InvalidError{Faults: faults})
	}
	inbox, ok := e.store.(store.Inbox)
	if !ok {
		return gq.Inbox{}, nil
	}
	out, err := inbox.Refused(ctx, after, page.Limit)
	if err != nil {
		return gq.Inbox{}, fmt.Errorf("read inbox: %w", err)
	}
	return out, nil
}

// RetryRefused makes refused submissions wait again.
func (e *Engine) RetryRefused(ctx context.Context, which gq.RefusedSelection) (int, error) {
	if err := checkRefused(which); err != nil {
		return 0, fmt.Errorf("retry refused submissions: %w", err)
	}
	inbox, ok := e.store.(store.Inbox)
	if !ok {
		return 0, nil
	}
	return inbox.RetryRefused(ctx, which)
}

// DiscardRefused deletes refused submissions.
func (e *Engine) DiscardRefused(ctx context.Context, which gq.RefusedSelection) (int, error) {
	if err := checkRefused(which); err != nil {
		return 0, fmt.Errorf("discard refused submissions: %w", err)
	}
	inbox, ok := e.store.(store.Inbox)
	if !ok {
		return 0, nil
	}
	return inbox.DiscardRefused(ctx, which)
}

// checkRefused refuses a selection of nothing, which could be meant as everything.
func checkRefused(which gq.RefusedSelection) error {
	problem := ""
	switch {
	case which.All && len(which.Jobs) > 0:
		problem = "must be empty together with all"
	case !which.All && len(which.Jobs) == 0:
		problem = "is empty; name submissions by their job ids, or choose all"
	case len(which.Jobs) > store.MaxPage:
		problem = fmt.Sprintf("has %d ids; at most %d", len(which.Jobs), store.MaxPage)
	default:
		return nil
	}
	return &gq.InvalidError{Faults: []gq.Fault{{Field: "job_ids", Problem: problem}}}
}
