package dashboard

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gopherqueue/gq"
)

// Limits of the pages of workflows.
const (
	workflowsPerPage = 20
	shownSteps       = 100 // jobs of a workflow on a page of the table
)

type workflowRow struct {
	gq.Workflow
	By map[gq.Status]int
}

// Over is the number of jobs that have ended.
func (r workflowRow) Over() (n int) {
	for s, k := range r.By {
		if s.Terminal() || s == 0 {
			n += k
		}
	}
	return n
}

// Share is the part of the jobs that has ended.
func (r workflowRow) Share() float64 {
	if len(r.Jobs) == 0 {
		return 0
	}
	return float64(r.Over()) / float64(len(r.Jobs))
}

func rowOf(w gq.Workflow) workflowRow {
	r := workflowRow{Workflow: w, By: make(map[gq.Status]int)}
	for i := range w.Jobs {
		r.By[w.Jobs[i].Job.State.Status]++
	}
	return r
}

type workflowsView struct {
	Rows     []workflowRow
	Status   string
	Next     string
	First    bool
	Statuses []gq.WorkflowStatus
}

func (d *Dashboard) workflows(v *visit) error {
	q := v.r.URL.Query()
	view := workflowsView{Status: clean(q.Get("status"), 32), First: q.Get("cursor") == ""}
	for s := gq.WorkflowRunning; s.Valid(); s++ {
		view.Statuses = append(view.Statuses, s)
	}
	ask := gq.WorkflowQuery{Cursor: q.Get("cursor"), Limit: workflowsPerPage}
	if view.Status != "" {
		var s gq.WorkflowStatus
		if err := s.UnmarshalText([]byte(strings.ToUpper(view.Status))); err != nil {
			return err
		}
		ask.Statuses = []gq.WorkflowStatus{s}
	}
	page, err := d.queue.Workflows(v.ctx, ask)
	if err != nil {
		return err
	}
	view.Next = page.Next
	for _, w := range page.Workflows {
		view.Rows = append(view.Rows, rowOf(w))
	}
	v.watch = "all"
	return v.show("workflows", "Workflows", view)
}

type workflowView struct {
	workflowRow
	Graph   *graph
	Steps   []gq.WorkflowJob // of a page
	Type    string           // of those; "" is any
	Found   int              // jobs of that type
	From    int              // number of the first on the page
	Next    int              // where the next page begins; 0 is nowhere
	Signals []gq.WorkflowJob
	Change  bool // the visitor may cancel, retry and signal it
}

func (d *Dashboard) workflow(v *visit) error {
	var id gq.WorkflowID
	if err := id.UnmarshalText([]byte(v.r.PathValue("id"))); err != nil || id.IsZero() {
		return gq.ErrNotFound.Errorf("%.64q is not the id of a workflow", v.r.PathValue("id"))
	}
	found, err := d.queue.Workflow(v.ctx, id)
	if err != nil {
		return err
	}
	view := workflowView{workflowRow: rowOf(found)}
	view.readSteps(v.r.URL.Query())
	view.Graph = drawWorkflow(&found, gq.JobID{})
	view.Change = true
	for i := range found.Jobs {
		j := &found.Jobs[i]
		if s := &j.Job.State; s.Status == gq.StatusPending && s.Gate == gq.GateSignal && len(view.Signals) < 20 {
			view.Signals = append(view.Signals, *j)
		}
		view.Change = view.Change && (j.Job.State.ID.IsZero() || v.who.may(Submit, j.Job.Spec.Queue))
	}
	v.watch = "all"
	title := found.Name
	if title == "" {
		title = found.ID.String()[:8]
	}
	return v.show("workflow", "Workflow "+oneLine(title), view)
}

// readSteps selects the jobs of a page of the table.
func (view *workflowView) readSteps(q url.Values) {
	view.Type = clean(q.Get("type"), gq.MaxNameBytes)
	steps := slices.Clone(view.Jobs)
	if view.Type != "" {
		steps = slices.DeleteFunc(steps, func(j gq.WorkflowJob) bool { return j.Job.Spec.Type != view.Type })
	}
	view.Found = len(steps)
	if from, err := strconv.Atoi(q.Get("from")); err == nil && from > 0 {
		view.From = min(from, view.Found)
	}
	end := min(view.From+shownSteps, view.Found)
	if view.Steps = steps[view.From:end]; end < view.Found {
		view.Next = end
	}
}

func (d *Dashboard) actOnWorkflow(v *visit) error {
	var id gq.WorkflowID
	if err := id.UnmarshalText([]byte(v.r.PathValue("id"))); err != nil {
		return err
	}
	action, done := v.r.PathValue("action"), ""
	var err error
	switch action {
	case "cancel":
		_, err = d.queue.CancelWorkflow(v.ctx, id, v.reason("cancelled"))
		done = "flow-cancel"
	case "retry":
		_, err = d.queue.RetryWorkflow(v.ctx, id)
		done = "flow-retry"
	case "signal":
		value := strings.TrimSpace(v.r.PostForm.Get("value"))
		if value == "" {
			value = "null"
		}
		_, err = d.queue.Signal(v.ctx, id, v.r.PostForm.Get("name"), json.RawMessage(value))
		done = "signalled"
	default:
		return v.notHere()
	}
	if v.audit(action, "workflow "+id.String(), err) != nil {
		return err
	}
	return v.done("workflows/"+id.String(), done)
}
