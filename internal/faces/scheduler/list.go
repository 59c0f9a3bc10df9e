package scheduler

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
)

// Query parameters. They are parsed as text, so that all faults are reported in one
// format.
type (
	listInput struct {
		State         *jobState `query:"state" doc:"Only in this state."`
		AddonID       *string   `query:"addon_id" doc:"Only of this addon."`
		CreatedAfter  *string   `query:"created_after" doc:"Not submitted before this instant." format:"date-time"`
		CreatedBefore *string   `query:"created_before" doc:"Submitted before this instant." format:"date-time"`
		pageInput
	}
	factsInput struct {
		AddonID *string `query:"addon_id" doc:"Only of this addon."`
		pageInput
	}
	pageInput struct {
		Limit  *limitText `query:"limit" doc:"Entries on the page; 50 unless told, at most 200."`
		Cursor string     `query:"cursor" doc:"next_cursor of the page before."`
	}
	jobState  string
	limitText string
)

func (p *pageInput) limit(wrong *faults) int {
	if p.Limit == nil {
		return listLimit
	}
	n, err := strconv.Atoi(string(*p.Limit))
	if err != nil || n < 1 || n > listLimitMax {
		wrong.add("limit", "%.64q is not a number from 1 to %d", string(*p.Limit), listLimitMax)
	}
	return n
}

// addonNamed returns the addon that a query names, or "".
func addonNamed(given *string, wrong *faults) string {
	if given == nil {
		return ""
	}
	return addonID(given, wrong)
}

func parseInstant(name string, given *string, wrong *faults) time.Time {
	if given == nil {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, *given)
	if err != nil {
		wrong.add(name, `%.64q is not an instant such as "2030-01-31T12:00:00Z"`, *given)
	}
	return t.UTC()
}

type listAnswer struct {
	Jobs       []*JobIntent `json:"jobs" doc:"Newest first."`
	NextCursor *string      `json:"next_cursor"`
}

// listRounds limits how many reads fill one page when many jobs do not match. The page
// then has what was found so far.
const listRounds = 50

// ours reports whether a queue is an addon: it shares the pool, and the snapshot counts
// its jobs. Other queues belong to other interfaces.
func (f *Face) ours(ctx context.Context, queue string, known map[string]bool) (bool, error) {
	is, ok := known[queue]
	if !ok {
		q, err := f.engine.Queue(ctx, queue)
		if err != nil && !errors.Is(err, gq.ErrNotFound) {
			return false, err
		}
		is = q.Pool == Pool
		known[queue] = is
	}
	return is, nil
}

func (f *Face) list(ctx context.Context, in *listInput, _ *httpx.None) (*httpx.Answer[listAnswer], error) {
	var wrong faults
	state := ""
	if in.State != nil {
		if state = string(*in.State); statusesOf(state) == nil {
			wrong.add("state", "%.64q is not %s", state, oneOf(jobStateNames()))
		}
	}
	limit := in.limit(&wrong)
	q := gq.Query{
		Queue: addonNamed(in.AddonID, &wrong), Statuses: statusesOf(state), Cursor: in.Cursor,
		CreatedAfter: parseInstant("created_after", in.CreatedAfter, &wrong), CreatedBefore: parseInstant("created_before", in.CreatedBefore, &wrong),
	}
	if err := wrong.err(); err != nil {
		return nil, err
	}
	if err := f.engine.CatchUp(ctx); err != nil {
		return nil, err
	}
	var found []gq.Job
	known := map[string]bool{}
	next := ""
	for range listRounds {
		q.Limit = limit - len(found)
		page, err := f.engine.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for i := range page.Jobs {
			if ours, err := f.ours(ctx, page.Jobs[i].Spec.Queue, known); err != nil {
				return nil, err
			} else if !ours {
				continue
			}
			if state == "" || stateOf(&page.Jobs[i].State) == state {
				found = append(found, page.Jobs[i])
			}
		}
		if next = page.Next; next == "" || len(found) == limit {
			break
		}
		q.Cursor = next
	}
	full, err := f.engine.Jobs(ctx, idsOf(found), gq.WithPayload)
	if err != nil {
		return nil, err
	}
	out := listAnswer{Jobs: []*JobIntent{}, NextCursor: text(next)}
	for i := range found {
		if job, kept := full[found[i].State.ID]; kept {
			job.State = found[i].State // the state when it was listed
			out.Jobs = append(out.Jobs, intentOf(&job))
		}
	}
	return httpx.OK(out), nil
}

// addonJobs lists jobs of addons and skips those of other faces, with at most listRounds
// reads. A page may have fewer jobs than its limit; more follow as long as there is a
// next cursor.
func (f *Face) addonJobs(ctx context.Context, q gq.Query) (out gq.Page, err error) {
	known := map[string]bool{}
	limit := q.Limit
	for range listRounds {
		q.Limit = limit - len(out.Jobs)
		page, err := f.engine.List(ctx, q)
		if err != nil {
			return out, err
		}
		for i := range page.Jobs {
			ours, err := f.ours(ctx, page.Jobs[i].Spec.Queue, known)
			if err != nil {
				return out, err
			}
			if ours {
				out.Jobs = append(out.Jobs, page.Jobs[i])
			}
		}
		if out.Next = page.Next; out.Next == "" || len(out.Jobs) == limit {
			break
		}
		q.Cursor = out.Next
	}
	return out, nil
}

func idsOf(jobs []gq.Job) []gq.JobID {
	ids := make([]gq.JobID, len(jobs))
	for i := range jobs {
		ids[i] = jobs[i].State.ID
	}
	return ids
}
