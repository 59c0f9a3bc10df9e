package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Cancel ends a job at once if it is not running. The worker of a running job learns of the
// request at once if it uses package worker, and otherwise with its next heartbeat. The job becomes CANCELLED when the worker stops, when its
// lease ends or, if the policy says that a cancel wins, when it reports any outcome.
// [gq.State.Cancellation] has the times of these steps. Cancelling twice changes nothing. For
// a job that finished otherwise the error is [gq.ErrIllegalMove].
func (e *Engine) Cancel(ctx context.Context, id gq.JobID, reason string) (gq.State, error) {
	state, err := arrived(ctx, e, id, func(id gq.JobID) (gq.State, error) {
		updated, err := e.store.Update(ctx, authorizeUpdates(ctx, []store.Update{cancelling(id, reason)}))
		if err != nil {
			return gq.State{}, err
		}
		return updated[0].State, updated[0].Err
	})
	if err != nil {
		return gq.State{}, jobError("cancel", id, err)
	}
	return state, nil
}

// CancelRequests calls f with running jobs that somebody has asked to stop, through whichever
// process, until stop returns. f must return at once and must not call the engine. These are
// hints: a heartbeat tells what is true. A store that reports no changes gives none.
func (e *Engine) CancelRequests(f func(jobs []gq.JobID)) (stop func()) {
	n, ok := e.store.(store.Notifier)
	if !ok {
		return func() {}
	}
	return n.Notify(false, func(n store.News) {
		if len(n.Cancels) > 0 {
			f(n.Cancels)
		}
	})
}

func cancelling(id gq.JobID, reason string) store.Update {
	return store.Update{
		Ref: store.Ref{Job: id},
		Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Cancel(s, reason, now)
		},
	}
}

// cancelPage is the number of jobs per commit of CancelWhere.
const cancelPage = 500

// CancelWhere cancels every live job that a query selects, one page at a time. It ignores the
// cursor and the limit of the query. After an error the report has the counts so far, and
// repeating the call continues.
func (e *Engine) CancelWhere(ctx context.Context, q gq.Query, reason string) (report gq.CancelReport, err error) {
	statuses := q.Statuses
	if len(statuses) == 0 {
		statuses = enum.All[gq.Status]()
	}
	q.Statuses = nil
	for _, s := range statuses {
		if !s.Terminal() {
			q.Statuses = append(q.Statuses, s)
		}
	}
	if len(q.Statuses) == 0 {
		return report, nil
	}
	q.Cursor, q.Limit = "", cancelPage
	for {
		page, err := e.List(ctx, q)
		if err != nil {
			return report, fmt.Errorf("cancel many: %w", err)
		}
		if err := e.cancelAll(ctx, page.Jobs, reason, &report); err != nil {
			return report, fmt.Errorf("cancel many: %w", err)
		}
		if page.Next == "" {
			return report, nil
		}
		q.Cursor = page.Next
	}
}

func (e *Engine) cancelAll(ctx context.Context, jobs []gq.Job, reason string, report *gq.CancelReport) error {
	if len(jobs) == 0 {
		return nil
	}
	updates := make([]store.Update, len(jobs))
	for i := range jobs {
		updates[i] = cancelling(jobs[i].State.ID, reason)
	}
	// A page that has begun is told whole: what was done by a call that is cut short counts.
	updated, err := e.store.Update(context.WithoutCancel(ctx), updates)
	if err != nil {
		return err
	}
	for i := range updated {
		switch u := &updated[i]; {
		case errors.Is(u.Err, gq.ErrIllegalMove) || errors.Is(u.Err, gq.ErrNotFound):
			report.Finished++
		case u.Err != nil:
			return u.Err
		case !u.Changed:
		case u.State.Status.Terminal():
			report.Cancelled++
		default:
			report.Requested++
		}
	}
	return nil
}
