package dashboard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
)

// Limits of actions on many jobs.
const (
	maxBulkPages = 20              // calls to find the jobs of a filter that no call of the queue selects
	countTime    = 8 * time.Second // to count the jobs of a filter
	typedFrom    = 1000            // jobs from which the visitor types their number
	bulkStep     = 8 * time.Second // that a part of an action takes; between two parts a page says how far it has come
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
	More   bool   // there are more than Count
	Typed  bool   // the visitor types the number to confirm
	Wrong  bool   // and has typed another one
	Going  bool   // a part of the action is done
	Done   int64  // jobs so far
	Next   string // cursor from which the action goes on
	Idle   bool   // the last part changed nothing
}

// Share is the part of the jobs that the action has changed.
func (b bulkView) Share() float64 { return min(1, float64(b.Done)/float64(max(1, b.Count))) }

// bulk first shows what an action would do, and does it when the visitor confirms, part by part.
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
	view := bulkView{Filter: f, Action: allowed[i], Done: wholeNumber(v.r.PostForm.Get("so_far")), Next: v.r.PostForm.Get("next")}
	view.Count = wholeNumber(v.r.PostForm.Get("count"))
	confirmed, going := v.r.PostForm.Get("confirm") != "", v.r.PostForm.Get("going") != ""
	if !confirmed || !going {
		said := view.Count
		if view.Count, view.More, err = v.countFor(f, view.Action, q); err != nil {
			return err
		}
		view.Typed = view.More || view.Count >= typedFrom
		typed := v.r.PostForm.Get("typed")
		refused := view.Typed && (said == 0 || wholeNumber(typed) != said)
		if !confirmed || refused {
			view.Wrong = typed != ""
			return v.show("bulk", view.Action.Label, view)
		}
	}
	n, done, more, err := v.bulkPart(&view, q)
	if v.audit(view.Action.Name+" many", fmt.Sprintf("%d jobs of %s", n, f.Values().Encode()), err) != nil {
		return err
	}
	view.Done += int64(n)
	if more {
		view.Going, view.Idle = true, n == 0
		return v.show("bulk", view.Action.Label, view)
	}
	next := f.Values()
	next.Set("done", done)
	next.Set("n", strconv.FormatInt(view.Done, 10))
	return v.redirect("jobs?" + next.Encode())
}

// wholeNumber reads a number, with or without separators; 0 if there is none.
func wholeNumber(text string) int64 {
	digits := strings.Map(func(r rune) rune {
		if r < '0' || r > '9' {
			return -1
		}
		return r
	}, text)
	n, _ := strconv.ParseInt(digits, 10, 64) // 0 is none
	return n
}

// countFor counts the jobs that an action would change.
func (v *visit) countFor(f jobFilter, action bulkAction, q gq.Query) (n int64, more bool, err error) {
	if !f.Scans() {
		return v.count(action, q)
	}
	jobs, more, err := v.scan(f, action, q)
	return int64(len(jobs)), more, err
}

// bulkPart does as much of an action as a part takes, and reports whether there is more to do.
func (v *visit) bulkPart(view *bulkView, q gq.Query) (n int, done string, more bool, err error) {
	if view.Filter.Scans() {
		n, done, err = v.applyEach(view.Filter, view.Action, q)
		return n, done, false, err
	}
	if view.Action.Name == "replay" {
		return v.replayPart(view, q)
	}
	ctx, cancel := context.WithTimeout(v.ctx, v.d.bulkStep)
	defer cancel()
	if view.Action.Name == "cancel" {
		var report gq.CancelReport
		report, err = v.d.queue.CancelWhere(ctx, q, v.reason("cancelled"))
		n, done = report.Cancelled+report.Requested, "bulk-cancel"
	} else {
		n, err = v.d.queue.PurgeWhere(ctx, q)
		done = "bulk-purge"
	}
	if late := kindOf(err) == gq.KindTimeout || errors.Is(err, context.DeadlineExceeded); late && v.ctx.Err() == nil {
		return n, done, true, nil // a server stops earlier, so that its report arrives
	}
	return n, done, false, err
}

// replayPart submits jobs again. It continues where the last part ended, because these jobs still match the filter.
func (v *visit) replayPart(view *bulkView, q gq.Query) (n int, done string, more bool, err error) {
	q.Cursor = view.Next
	for began := time.Now(); ; {
		report, err := v.d.queue.ReplayWhere(v.ctx, q)
		n += len(report.Jobs)
		if err != nil || report.Next == "" {
			return n, "bulk-replay", false, err
		}
		if q.Cursor, view.Next = report.Next, report.Next; time.Since(began) >= v.d.bulkStep {
			return n, "bulk-replay", true, nil
		}
	}
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

// count counts the jobs that an action would change, as far as the time allows.
func (v *visit) count(action bulkAction, q gq.Query) (n int64, more bool, err error) {
	q = action.limit(q)
	for began := time.Now(); ; {
		some, err := v.d.queue.CountWhere(v.ctx, q)
		if err != nil {
			return 0, false, err
		}
		n += some.Jobs
		if some.Next == "" {
			return n, false, nil
		}
		if q.Cursor = some.Next; time.Since(began) >= countTime {
			return n, true, nil
		}
	}
}

// scan finds the jobs of a filter by key, and by correlation id among a limited number of the newest.
func (v *visit) scan(f jobFilter, action bulkAction, q gq.Query) (jobs []gq.Job, more bool, err error) {
	q = action.limit(q)
	known := make(map[gq.JobID]bool)
	if f.Find != "" && utf8.RuneCountInString(f.Find) <= gq.MaxKeyRunes {
		page, err := v.byKey(f, q)
		if err != nil {
			return nil, false, err
		}
		jobs = page.Jobs
		for i := range jobs {
			known[jobs[i].State.ID] = true
		}
	}
	q.Limit = maxListed
	for range maxBulkPages {
		page, err := v.d.queue.List(v.ctx, q)
		if err != nil {
			return nil, false, err
		}
		for i := range page.Jobs {
			if f.picked(&page.Jobs[i]) && !known[page.Jobs[i].State.ID] {
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
