package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
)

// Limits of the page of a job.
const (
	maxTimeline = 500 // events
	maxNodes    = 60  // boxes of a graph; larger ones are collapsed by type
	maxIndent   = 50  // levels of a JSON text that is indented
	maxUpstream = 200 // jobs that are read for the graph of a job outside a workflow
)

type jobView struct {
	gq.Job
	Explain  gq.Explanation
	Estimate estimate
	Attempts []attempt
	Timeline []gq.Event
	Older    int // events that are not shown
	Graph    *graph
	Flow     *gq.Workflow
	Shown    string // the part that is shown: payload, result or checkpoint
	Text     string // of that part
	Cut      bool   // it is longer
	Hidden   bool   // the visitor may not see it
	Actions  jobActions
	Replay   gq.JobID // zero if there is none that is known
}

// Key is the key that the job was submitted with. That of a replay is only the id of the other job.
func (view jobView) Key() string {
	if name := view.Spec.Key.Name; name != view.Spec.ReplayOf.String() {
		return name
	}
	return ""
}

// jobActions says which actions the page offers.
type jobActions struct{ Cancel, Replay, Run, Reschedule, Priority, Purge bool }

// Any reports whether there is one.
func (a jobActions) Any() bool { return a != jobActions{} }

// attempt is one lease of a job, from its events.
type attempt struct {
	Number         int
	Worker         string
	Claimed, Start time.Time
	End            time.Time
	Outcome        gq.EventType
	Failure        *gq.Failure
	Reason         string
}

// Took is how long the attempt ran.
func (a attempt) Took() time.Duration {
	from := a.Start
	if from.IsZero() {
		from = a.Claimed
	}
	if a.End.IsZero() || from.IsZero() {
		return 0
	}
	return a.End.Sub(from)
}

func readID(text string) (id gq.JobID, err error) {
	if err = id.UnmarshalText([]byte(text)); err == nil && id.IsZero() {
		err = &gq.InvalidError{Faults: []gq.Fault{{Field: "id", Problem: "is missing"}}}
	}
	return id, err
}

func (d *Dashboard) job(v *visit) error {
	id, err := readID(v.r.PathValue("id"))
	if err != nil {
		return gq.ErrNotFound.Errorf("%.64q is not the id of a job", v.r.PathValue("id"))
	}
	view := jobView{}
	shown := v.r.URL.Query().Get("show")
	parts, ok := map[string]gq.Parts{"": 0, "payload": gq.WithPayload, "result": gq.WithResult, "checkpoint": gq.WithCheckpoint}[shown]
	if !ok {
		shown = ""
	}
	if view.Job, err = d.queue.Get(v.ctx, id, 0); err != nil {
		return err
	}
	if parts != 0 {
		view.Shown = shown
		if view.Hidden = !v.who.may(Payloads, view.Spec.Queue); !view.Hidden {
			if view.Job, err = d.queue.Get(v.ctx, id, parts); err != nil {
				return err
			}
			view.readPart()
		}
	}
	if view.Explain, err = d.queue.Explain(v.ctx, id); err != nil {
		return err
	}
	events := view.Explain.Timeline
	view.Attempts = attempts(events)
	view.Timeline = events
	if len(events) > maxTimeline {
		view.Older, view.Timeline = len(events)-maxTimeline, events[len(events)-maxTimeline:]
	}
	view.Timeline = slices.Clone(view.Timeline)
	slices.Reverse(view.Timeline)
	if view.Estimate, err = v.estimate(&view.Job, &view.Explain); err != nil {
		return err
	}
	if err := v.graphOf(&view); err != nil {
		return err
	}
	view.Actions = v.jobActions(&view.Job)
	if !view.State.Live() {
		found, err := v.replaysOf([]gq.Job{view.Job})
		if err != nil {
			return err
		}
		view.Replay = found[id]
		view.Actions.Replay = view.Actions.Replay && view.Replay.IsZero()
	}
	v.watch = "job:" + id.String()
	return v.show("job", "Job "+short(id), view)
}

// readPart prepares the text of the part that the visitor asked for.
func (view *jobView) readPart() {
	data, isJSON := view.Spec.Payload.Data, view.Spec.Payload.IsJSON()
	switch view.Shown {
	case "result":
		data, isJSON = view.Result, json.Valid(view.Result)
	case "checkpoint":
		data, isJSON = view.Checkpoint, json.Valid(view.Checkpoint)
	}
	var pretty bytes.Buffer
	if isJSON && len(data) <= maxText && depth(data) <= maxIndent && json.Indent(&pretty, data, "", "  ") == nil {
		data = pretty.Bytes()
	}
	if len(data) > maxText {
		data, view.Cut = data[:whole(data, maxText)], true
	}
	view.Text = printable(string(data))
}

// depth returns how deeply the arrays and objects of a JSON text are nested. Indentation makes a deeply
// nested text very much longer.
func depth(data []byte) (deepest int) {
	now, quoted, escaped := 0, false, false
	for _, c := range data {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '[' || c == '{':
			now++
			deepest = max(deepest, now)
		case c == ']' || c == '}':
			now--
		}
	}
	return deepest
}

// attempts finds the leases of a job in its events, newest first.
func attempts(events []gq.Event) (list []attempt) {
	var open *attempt
	end := func(e *gq.Event) {
		if open == nil {
			return
		}
		open.End, open.Outcome, open.Failure, open.Reason = e.Time, e.Type, e.Failure, e.Reason
		open = nil
	}
	for i := range events {
		e := &events[i]
		switch e.Type {
		case gq.EventClaimed, gq.EventStarted:
			if open == nil || open.Worker != e.Worker && e.Type == gq.EventClaimed {
				list = append(list, attempt{Worker: e.Worker, Claimed: e.Time})
				open = &list[len(list)-1]
			}
			if e.Type == gq.EventStarted {
				open.Start, open.Number = e.Time, e.Attempt
			}
		case gq.EventCompleted, gq.EventFailed, gq.EventRetrying, gq.EventDeadLettered, gq.EventCancelled, gq.EventScheduled:
			end(e)
		}
	}
	slices.Reverse(list)
	return list[:min(len(list), 100)]
}

func (v *visit) jobActions(j *gq.Job) (a jobActions) {
	queue := j.Spec.Queue
	waiting := j.State.Live() && !j.State.Status.Held()
	if v.who.may(Submit, queue) {
		a.Cancel = j.State.Live() && !j.State.Cancellation.Requested()
		a.Replay = !j.State.Live()
		later := j.State.Status == gq.StatusDelayed || j.State.Status == gq.StatusRetrying
		a.Run, a.Reschedule, a.Priority = later, later || j.State.Status == gq.StatusScheduled, waiting
	}
	a.Purge = !j.State.Live() && v.who.may(Admin, queue)
	return a
}

func (d *Dashboard) actOnJob(v *visit) error {
	id, err := readID(v.r.PathValue("id"))
	if err != nil {
		return err
	}
	action, target, page := v.r.PathValue("action"), "job "+id.String(), "jobs/"+id.String()
	form := v.r.PostForm
	done := ""
	switch action {
	case "cancel":
		reason := clean(form.Get("reason"), gq.MaxReasonBytes/2)
		if reason != "" {
			reason = ": " + strings.ToValidUTF8(reason, "?")
		}
		var state gq.State
		state, err = d.queue.Cancel(v.ctx, id, v.reason("cancelled")+reason)
		if done = "cancelled"; state.Live() {
			done = "requested"
		}
	case "replay":
		var replay gq.SubmitResult
		replay, err = d.queue.Replay(v.ctx, id)
		if done, page = "replayed", "jobs/"+replay.ID().String(); replay.Existing {
			done = "replayed-before"
		}
	case "run":
		_, err = d.queue.Reschedule(v.ctx, id, time.Time{})
		done = "run"
	case "reschedule":
		at, ok := parseTime(clean(form.Get("at"), 64))
		if !ok {
			return &gq.InvalidError{Faults: []gq.Fault{{Field: "time", Problem: fmt.Sprintf("%.64q is not a time such as 2026-01-31T14:30", form.Get("at"))}}}
		}
		var state gq.State
		state, err = d.queue.Reschedule(v.ctx, id, at)
		if done = "rescheduled"; err == nil && state.ID != id {
			done, page = "put-off", "jobs/"+state.ID.String()
		}
	case "priority":
		var p gq.Priority
		if err := p.UnmarshalText([]byte(form.Get("priority"))); err != nil {
			return err
		}
		_, err = d.queue.UpdateMetadata(v.ctx, id, gq.MetadataPatch{Priority: p})
		done = "priority"
	case "purge":
		err = d.queue.Purge(v.ctx, id)
		done, page = "purged", "jobs"
	default:
		return v.notHere()
	}
	if v.audit(action, target, err) != nil {
		return err
	}
	return v.done(page, done)
}

// graphOf adds the graph of the jobs around a job.
func (v *visit) graphOf(view *jobView) error {
	if !view.Spec.Workflow.IsZero() {
		flow, err := v.d.queue.Workflow(v.ctx, view.Spec.Workflow)
		switch {
		case errors.Is(err, gq.ErrNotFound) || errors.Is(err, gq.ErrDenied):
			return nil
		case err != nil:
			return err
		}
		view.Flow = &flow
		view.Graph = drawWorkflow(&flow, view.State.ID)
		return nil
	}
	if len(view.Spec.DependsOn) == 0 {
		return nil
	}
	jobs, more, err := v.upstream(&view.Job)
	if err != nil {
		return err
	}
	view.Graph = drawJobs(jobs, view.State.ID)
	view.Graph.More = more
	return nil
}

// upstream reads the jobs that a job depends on, directly and indirectly.
func (v *visit) upstream(job *gq.Job) (jobs []gq.Job, more bool, err error) {
	seen := map[gq.JobID]bool{job.State.ID: true}
	jobs = []gq.Job{*job}
	for i := 0; i < len(jobs); i++ {
		for _, dependency := range jobs[i].Spec.DependsOn {
			if seen[dependency.Job] {
				continue
			}
			if len(seen) > maxUpstream {
				return jobs, true, nil
			}
			seen[dependency.Job] = true
			other, err := v.d.queue.Get(v.ctx, dependency.Job, 0)
			switch {
			case errors.Is(err, gq.ErrNotFound) || errors.Is(err, gq.ErrDenied):
				continue
			case err != nil:
				return nil, false, err
			}
			jobs = append(jobs, other)
		}
	}
	return jobs, false, nil
}
