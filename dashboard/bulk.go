package dashboard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// Limits of actions on many jobs.
const (
	maxCounted  = 20     // calls to count the jobs of a filter by scanning
	maxReplayed = 10_000 // jobs that one action submits again
)

func faultsOf(err error) []gq.Fault { return errs.FaultsOf(err) }

// bulkAction is an action on all jobs of a filter.
type bulkAction struct{ Name, Label string }

// Verb is the label without a number.
func (a bulkAction) Verb() string { return strings.TrimSuffix(a.Label, " all") }

// bulkActions lists what can be done with the jobs that a filter selects.
func (v *visit) bulkActions(f jobFilter, q gq.Query) (list []bulkAction) {
	if !f.Any() {
		return nil // nobody means all jobs
	}
	live, over := len(q.Statuses) == 0, len(q.Statuses) > 0
	for _, s := range q.Statuses {
		live = live || !s.Terminal()
		over = over && s.Terminal()
	}
	if live && v.who.may(Submit, f.Queue) {
		list = append(list, bulkAction{"cancel", "Cancel all"})
	}
	if over && v.who.may(Submit, f.Queue) {
		list = append(list, bulkAction{"replay", "Replay all"})
	}
	if over && v.who.may(Admin, f.Queue) {
		list = append(list, bulkAction{"purge", "Remove all"})
	}
	return list
}

type bulkView struct {
	Filter jobFilter
	Action bulkAction
	Count  int64
	More   bool // there are more than Count
}

// bulk first shows what an action would do, and does it when the visitor confirms.
func (d *Dashboard) bulk(v *visit) error {
	f := readFilter(v.r.PostForm)
	f.Cursor = ""
	q, err := f.query()
	if err != nil {
		return err
	}
	q.Limit = 0
	allowed := v.bulkActions(f, q)
	i := slices.IndexFunc(allowed, func(a bulkAction) bool { return a.Name == v.r.PostForm.Get("action") })
	if i < 0 {
		return gq.ErrDenied.Errorf("this is not possible for the jobs of this filter, or you may not do it")
	}
	action := allowed[i]
	if v.r.PostForm.Get("confirm") == "" {
		view := bulkView{Filter: f, Action: action}
		if f.Scans() {
			jobs, more, err := v.scan(f, action, q)
			if err != nil {
				return err
			}
			view.Count, view.More = int64(len(jobs)), more
		} else if view.Count, view.More, err = v.count(action, q); err != nil {
			return err
		}
		return v.show("bulk", action.Label, view)
	}
	n, done := 0, ""
	if f.Scans() {
		n, done, err = v.applyEach(f, action, q)
	} else {
		n, done, err = v.apply(action, q)
	}
	if v.audit(action.Name+" many", fmt.Sprintf("%d jobs of %s", n, f.Values().Encode()), err) != nil {
		return err
	}
	next := f.Values()
	next.Set("done", done)
	next.Set("n", strconv.Itoa(n))
	return v.redirect("jobs?" + next.Encode())
}

// backFromBulk leads from the address of a confirmation to the jobs of its filter: the browser was told to load it
// again, or the session had ended.
func (d *Dashboard) backFromBulk(v *visit) error {
	return v.redirect("jobs?" + readFilter(v.r.URL.Query()).Values().Encode())
}

// limit leaves the jobs out that an action does not change.
func (a bulkAction) limit(q gq.Query) gq.Query {
	if a.Name == "cancel" && len(q.Statuses) == 0 {
		q.Statuses = slices.Concat(groups["waiting"], groups["active"])
	}
	return q
}

// count counts the jobs that an action would change, as far as a limited number of calls can.
func (v *visit) count(action bulkAction, q gq.Query) (n int64, more bool, err error) {
	q = action.limit(q)
	for range maxCounted {
		some, err := v.d.queue.CountWhere(v.ctx, q)
		if err != nil {
			return 0, false, err
		}
		n += some.Jobs
		if some.Next == "" {
			return n, false, nil
		}
		q.Cursor = some.Next
	}
	return n, true, nil
}

func (v *visit) apply(action bulkAction, q gq.Query) (n int, done string, err error) {
	switch action.Name {
	case "cancel":
		report, err := v.d.queue.CancelWhere(v.ctx, q, v.reason("cancelled"))
		return report.Cancelled + report.Requested, "bulk-cancel", err
	case "purge":
		n, err := v.d.queue.PurgeWhere(v.ctx, q)
		return n, "bulk-purge", err
	default:
		done = "bulk-replay"
		for n < maxReplayed {
			report, err := v.d.queue.ReplayWhere(v.ctx, q)
			n += len(report.Jobs)
			if err != nil || report.Next == "" {
				return n, done, err
			}
			q.Cursor = report.Next
		}
		return n, "bulk-more", nil
	}
}

// scan finds the jobs of a filter by key or correlation id among a limited number of the newest.
func (v *visit) scan(f jobFilter, action bulkAction, q gq.Query) (jobs []gq.Job, more bool, err error) {
	q = action.limit(q)
	q.Limit = 1000
	for range maxCounted {
		page, err := v.d.queue.List(v.ctx, q)
		if err != nil {
			return nil, false, err
		}
		for i := range page.Jobs {
			if f.picked(&page.Jobs[i]) {
				jobs = append(jobs, page.Jobs[i])
			}
		}
		if q.Cursor = page.Next; page.Next == "" {
			return jobs, false, nil
		}
	}
	return jobs, true, nil
}

// applyEach does an action with each job of a filter that no call of the queue selects.
func (v *visit) applyEach(f jobFilter, action bulkAction, q gq.Query) (n int, done string, err error) {
	jobs, more, err := v.scan(f, action, q)
	if err != nil {
		return 0, "", err
	}
	done = "bulk-" + action.Name
	if action.Name == "replay" {
		if more {
			done = "bulk-more"
		}
		n, err = v.replayAll(jobs, false)
		return n, done, err
	}
	for i := range jobs {
		id := jobs[i].State.ID
		if action.Name == "cancel" {
			_, err = v.d.queue.Cancel(v.ctx, id, v.reason("cancelled"))
		} else {
			err = v.d.queue.Purge(v.ctx, id)
		}
		switch kindOf(err) {
		case gq.KindConflict, gq.KindNotFound: // it has ended or gone meanwhile
			continue
		}
		if err != nil {
			return n, done, err
		}
		n++
	}
	return n, done, nil
}

// reason is what the history of a job says about an action of the visitor.
func (v *visit) reason(verb string) string {
	return fmt.Sprintf("%s in the dashboard by %s", verb, v.who.Name)
}
