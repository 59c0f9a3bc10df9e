package engine

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// CountWhere counts the jobs that a query selects. By queue and status alone the answer is exact
// and immediate; otherwise a call scans up to [MaxScan] jobs, and CountReport.Next continues it.
func (e *Engine) CountWhere(ctx context.Context, q gq.Query) (report gq.CountReport, err error) {
	if !q.Picks() && q.CreatedAfter.IsZero() && q.CreatedBefore.IsZero() && q.Cursor == "" {
		return e.countByStatus(ctx, q)
	}
	q.Limit = store.MaxPage
	for range MaxScan / store.MaxPage {
		page, err := e.List(ctx, q)
		if err != nil {
			return gq.CountReport{}, fmt.Errorf("count jobs: %w", err)
		}
		report.Jobs += int64(len(page.Jobs))
		if report.Next = page.Next; page.Next == "" || q.Picks() { // which scans MaxScan jobs by itself
			break
		}
		q.Cursor = page.Next
	}
	return report, nil
}

// countByStatus reads the counts that the store keeps.
func (e *Engine) countByStatus(ctx context.Context, q gq.Query) (report gq.CountReport, err error) {
	if err := store.CheckQuery(&q); err != nil {
		return report, fmt.Errorf("count jobs: %w", err)
	}
	var queues []string
	if q.Queue != "" {
		queues = []string{q.Queue}
	}
	counts, err := e.Counts(ctx, queues...)
	if err != nil {
		return report, err
	}
	wanted := [len(gq.Count{}.By)]bool{}
	for _, s := range q.Statuses {
		wanted[s] = true
	}
	for _, c := range counts {
		for s, n := range c.By {
			if len(q.Statuses) == 0 || wanted[s] {
				report.Jobs += n
			}
		}
	}
	return report, nil
}

// replayStep is the number of jobs that ReplayWhere reads with their payloads at once.
const replayStep = 50

// ReplayWhere submits finished jobs that a query selects again, oldest first, as [Engine.Replay]
// does with one. A call replays up to Query.Limit jobs, and ReplayReport.Next continues it:
// pass it as the cursor of the next call. Jobs that were submitted after the first call, such as
// the new ones, are not selected. The query must name at least one status, and only terminal
// ones. A job that was replayed before is not replayed again; the report counts it. A job whose
// place another one took, by an edit for example, is left out. A job that cannot be submitted, for
// example because its queue is full, does not stop the others; the report counts it.
func (e *Engine) ReplayWhere(ctx context.Context, q gq.Query) (report gq.ReplayReport, err error) {
	fail := func(err error) (gq.ReplayReport, error) { return report, fmt.Errorf("replay many: %w", err) }
	if err := checkFinished(q, "replayed"); err != nil {
		return fail(err)
	}
	if q.Limit == 0 {
		q.Limit = replayPage
	}
	last, err := e.replayBound(ctx, &q)
	if err != nil {
		return fail(err)
	}
	q.OldestFirst = true
	page, err := e.List(ctx, q)
	if err != nil {
		return fail(err)
	}
	jobs, more := page.Jobs, page.Next != ""
	for i := range jobs {
		if jobs[i].State.Sequence > last {
			jobs, more = jobs[:i], false
			break
		}
	}
	for len(jobs) > 0 {
		n := min(len(jobs), replayStep)
		if err := e.replayAll(ctx, jobs[:n], &report); err != nil {
			return fail(err)
		}
		jobs = jobs[n:]
	}
	if more {
		report.Next = replayCursor(last, page.Next)
	}
	return report, nil
}

const replayPage = 500 // jobs of a call of ReplayWhere that sets no limit

// replayBound returns the number of the last job that a series of calls may select, and takes it
// off the query's cursor. The first call sets it.
func (e *Engine) replayBound(ctx context.Context, q *gq.Query) (uint64, error) {
	if q.Cursor != "" {
		raw, err := base64.RawURLEncoding.DecodeString(q.Cursor)
		if err != nil || len(raw) < 9 {
			return 0, &gq.InvalidError{Faults: []gq.Fault{{Field: "cursor", Problem: "is not one that a replay has returned"}}}
		}
		q.Cursor = string(raw[8:])
		return binary.BigEndian.Uint64(raw), nil
	}
	newest, err := e.store.List(ctx, gq.Query{Limit: 1})
	if err != nil || len(newest.Jobs) == 0 {
		return 0, err
	}
	return newest.Jobs[0].State.Sequence, nil
}

// replayCursor is the cursor of a page with the bound of its series.
func replayCursor(last uint64, next string) string {
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint64(nil, last), next...))
}

// replayAll replays jobs in one commit.
func (e *Engine) replayAll(ctx context.Context, jobs []gq.Job, report *gq.ReplayReport) error {
	refs := make([]store.Ref, len(jobs))
	for i := range jobs {
		refs[i] = store.Ref{Job: jobs[i].State.ID}
	}
	found, err := e.store.Get(ctx, refs, gq.WithPayload)
	if err != nil {
		return err
	}
	groups := make([]store.Group, 0, len(found))
	var from []gq.JobID
	refuse := func(id gq.JobID, err error) {
		if report.Refused++; report.Problem == "" {
			report.Problem = fmt.Sprintf("replay %s: %v", id, err)
		}
	}
	for i := range found {
		if found[i].Err != nil {
			continue // removed meanwhile
		}
		if !found[i].State.ReplacedBy.IsZero() {
			continue // another job does its work
		}
		spec, err := replayed(ctx, &found[i].Job), replayable(&found[i].Job)
		if err == nil {
			err = e.fill(ctx, &spec, nil)
		}
		if err != nil {
			refuse(found[i].State.ID, err)
			continue
		}
		groups, from = append(groups, store.Group{Jobs: []gq.Spec{spec}, Mint: e.random.mint()}), append(from, found[i].State.ID)
	}
	if len(groups) == 0 {
		return nil
	}
	placed, err := e.store.Insert(ctx, groups)
	if err != nil {
		return err
	}
	for i := range placed {
		if placed[i].Err != nil {
			refuse(from[i], placed[i].Err)
			continue
		}
		if placed[i].Jobs[0].Existing {
			report.Existing++
			continue
		}
		report.Jobs = append(report.Jobs, placed[i].Jobs[0].State.ID)
	}
	return nil
}
