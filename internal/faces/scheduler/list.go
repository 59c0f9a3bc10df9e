package scheduler

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
)

// readQuery reads a query that may have the known parameters and no others, each
// once.
func (c *call) readQuery(known []parameter) error {
	if c.r.URL.RawQuery == "" {
		return nil
	}
	var err error
	if c.query, err = url.ParseQuery(c.r.URL.RawQuery); err != nil {
		return problem(CodeInvalidRequest, "query: is not well-formed")
	}
	var wrong faults
	for name, given := range c.query {
		switch {
		case !slices.ContainsFunc(known, func(p parameter) bool { return p.name == name }):
			wrong.add(strings.ToValidUTF8(name[:min(len(name), 64)], "?"), "is not a parameter here; %s", among(known))
		case len(given) > 1:
			wrong.add(name, "is given twice")
		}
	}
	return wrong.err()
}

func among(known []parameter) string {
	if len(known) == 0 {
		return "there is none"
	}
	names := make([]string, len(known))
	for i := range known {
		names[i] = known[i].name
	}
	return "there are " + strings.Join(names, ", ")
}

// parameters are those of a query, with what is wrong with their values.
type parameters struct {
	values url.Values
	wrong  faults
	face   *Face
}

func (f *Face) parameters(c *call) *parameters { return &parameters{values: c.query, face: f} }

func (p *parameters) err() error { return p.wrong.err() }

func (p *parameters) value(name string) string { return p.values.Get(name) }

func (p *parameters) addon() string {
	if !p.values.Has("addon_id") {
		return ""
	}
	name := p.value("addon_id")
	return addonID(&name, &p.wrong)
}

func (p *parameters) limit() int {
	if !p.values.Has("limit") {
		return listLimit
	}
	n, err := strconv.Atoi(p.value("limit"))
	if most := listLimitMax; err != nil || n < 1 || n > most {
		p.wrong.add("limit", "%.64q is not a number from 1 to %d", p.value("limit"), most)
	}
	return n
}

func (p *parameters) instant(name string) time.Time {
	if !p.values.Has(name) {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, p.value(name))
	if err != nil {
		p.wrong.add(name, `%.64q is not an instant such as "2030-01-31T12:00:00Z"`, p.value(name))
	}
	return t.UTC()
}

func (p *parameters) state() string {
	if !p.values.Has("state") {
		return ""
	}
	name := p.value("state")
	if statusesOf(name) == nil {
		p.wrong.add("state", "%.64q is not %s", name, oneOf(jobStateNames()))
	}
	return name
}

type listAnswer struct {
	Jobs       []*JobIntent `json:"jobs" doc:"Newest first."`
	NextCursor *string      `json:"next_cursor"`
}

// listRounds bounds how often a page is filled up whose jobs were of another
// state. What is found by then is the page.
const listRounds = 50

// ours reports whether a queue is an addon: one that shares the pool, whose jobs the
// snapshot counts. Other interfaces have theirs.
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

func (f *Face) list(c *call) (reply, error) {
	p := f.parameters(c)
	state, limit := p.state(), p.limit()
	q := gq.Query{
		Queue: p.addon(), Statuses: statusesOf(state), Cursor: p.value("cursor"),
		CreatedAfter: p.instant("created_after"), CreatedBefore: p.instant("created_before"),
	}
	if err := p.err(); err != nil {
		return reply{}, err
	}
	ctx := c.r.Context()
	if err := f.engine.CatchUp(ctx); err != nil {
		return reply{}, err
	}
	var found []gq.Job
	known := map[string]bool{}
	next := ""
	for range listRounds {
		q.Limit = limit - len(found)
		page, err := f.engine.List(ctx, q)
		if err != nil {
			return reply{}, err
		}
		for i := range page.Jobs {
			if ours, err := f.ours(ctx, page.Jobs[i].Spec.Queue, known); err != nil {
				return reply{}, err
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
		return reply{}, err
	}
	out := listAnswer{Jobs: []*JobIntent{}, NextCursor: text(next)}
	for i := range found {
		if job, kept := full[found[i].State.ID]; kept {
			job.State = found[i].State // of the moment at which it was listed
			out.Jobs = append(out.Jobs, intentOf(&job))
		}
	}
	return ok(out)
}

// addonJobs lists jobs of addons. Those of other faces are passed over, as far as
// listRounds reaches: a page may have fewer jobs than its limit, and more follow as
// long as there is a next one.
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
