package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/machine"
)

// jobs prints a list of jobs.
func (s screen) jobs(jobs []gq.Job) {
	rows := make([][]cell, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		note := ""
		switch {
		case j.State.Status == gq.StatusRunning && j.State.Lease != nil:
			note = j.State.Lease.Worker
		case j.State.Failure != nil && j.State.Status != gq.StatusCompleted:
			note = failureText(j.State.Failure)
		}
		rows[i] = []cell{
			text(j.State.ID.String()), statusCell(j.State.Status), text(clean(j.Spec.Queue)), text(oneLine(j.Spec.Type, 40)),
			text(j.State.Priority().String()), text(fmt.Sprintf("%d/%d", j.State.Attempt, j.State.Bound)),
			text(ago(j.State.CreatedAt)), text(oneLine(note, 60)),
		}
	}
	s.table([]string{"ID", "STATE", "QUEUE", "TYPE", "PRIORITY", "ATTEMPT", "SUBMITTED", "NOTE"}, rows)
}

// job prints everything known about a job.
func (s screen) job(j *gq.Job) {
	st := &j.State
	var after []string
	for _, d := range j.Spec.DependsOn {
		after = append(after, fmt.Sprintf("%s (%s)", d.Job, d.Kind))
	}
	priority := st.Own.String()
	if st.Priority() != st.Own {
		priority = fmt.Sprintf("%s (asked for %s)", st.Priority(), st.Own)
	}
	s.pairs(
		[2]string{"id", st.ID.String()},
		[2]string{"type", clean(j.Spec.Type)},
		[2]string{"queue", clean(j.Spec.Queue)},
		[2]string{"state", s.status(st.Status, 0) + s.aside(st.Detail.String())},
		[2]string{"reason", clean(st.Reason)},
		[2]string{"failure", clean(s.failure(st.Failure))},
		[2]string{"priority", priority},
		[2]string{"attempt", fmt.Sprintf("%d of %d", st.Attempt, st.Bound)},
		[2]string{"progress", s.progress(st)},
		[2]string{"submitted", instant(st.CreatedAt)},
		[2]string{"runs from", s.runAt(st)},
		[2]string{"started", instant(st.StartedAt)},
		[2]string{"ended", instant(st.CompletedAt)},
		[2]string{"lease", s.lease(st)},
		[2]string{"cancel", s.cancellation(st.Cancellation)},
		[2]string{"after", strings.Join(after, ", ")},
		[2]string{"tags", tagsText(j.Metadata.Tags)},
		[2]string{"correlation", clean(j.Metadata.CorrelationID)},
		[2]string{"callback", clean(j.Metadata.CallbackURL)},
		[2]string{"key", clean(machine.ShownKey(&j.Spec).Name)},
		[2]string{"unique", uniqueText(&j.Spec.Unique)},
		[2]string{"replay of", idText(j.Spec.ReplayOf)},
		[2]string{"limit key", clean(j.Spec.LimitKey)},
		[2]string{"weight", weightText(j.Spec.Weight)},
		[2]string{"order key", clean(j.Spec.OrderKey)},
		[2]string{"ordered after", idText(st.OrderedAfter)},
		[2]string{"replaces", idText(j.Spec.Replaces)},
		[2]string{"replaced by", idText(st.ReplacedBy)},
		[2]string{"payload", preview(j.Spec.Payload.Data, j.Spec.Payload.ContentType)},
		[2]string{"result", preview(j.Result, "")},
		[2]string{"checkpoint", preview(j.Checkpoint, "")},
	)
}

func (s screen) aside(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}

func (s screen) failure(f *gq.Failure) string {
	if f == nil || *f == (gq.Failure{}) {
		return ""
	}
	return f.Category.String() + ": " + failureText(f)
}

func (s screen) progress(st *gq.State) string {
	if !st.Attempting() || st.Progress == 0 && st.Note == "" {
		return ""
	}
	return strings.TrimSpace(fmt.Sprintf("%.0f %% %s", 100*st.Progress, clean(st.Note)))
}

func (s screen) runAt(st *gq.State) string {
	if st.Status != gq.StatusDelayed && st.Status != gq.StatusRetrying {
		return ""
	}
	return instant(st.RunAt)
}

func (s screen) lease(st *gq.State) string {
	l := st.Lease
	if l == nil || !st.Attempting() {
		return ""
	}
	text := fmt.Sprintf("version %d, %s, of %s", l.Version, l.State, clean(l.Worker))
	if l.State == gq.LeaseActive {
		text += ", expires " + instant(l.ExpiresAt)
	}
	return text
}

func (s screen) cancellation(c gq.Cancellation) string {
	if !c.Requested() {
		return ""
	}
	text := "requested " + ago(c.RequestedAt)
	if !c.DeliveredAt.IsZero() {
		text += ", told to the worker " + ago(c.DeliveredAt)
	}
	if !c.HonouredAt.IsZero() {
		text += ", honoured " + ago(c.HonouredAt)
	}
	return text + s.aside(clean(c.Reason))
}

func tagsText(tags map[string]string) string {
	parts := make([]string, 0, len(tags))
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		parts = append(parts, clean(k+"="+tags[k]))
	}
	return strings.Join(parts, ", ")
}

// uniqueText describes the rule of a unique job.
func uniqueText(u *gq.UniqueRule) string {
	if u.IsZero() {
		return ""
	}
	text := "while " + u.While.String()
	switch u.While {
	case gq.UntilDone:
		text = "until done"
	case gq.ForPeriod:
		text = "for " + u.Period.String()
	}
	if len(u.Fields) > 0 {
		text += ", by " + clean(strings.Join(u.Fields, ", "))
	}
	return text + ", on collision " + u.OnCollision.String()
}

func idText(id gq.JobID) string {
	if id.IsZero() {
		return ""
	}
	return id.String()
}

// preview returns the beginning of a payload or result.
func preview(data []byte, contentType string) string {
	switch {
	case len(data) == 0:
		return ""
	case utf8.Valid(data) && (json.Valid(data) || strings.HasPrefix(contentType, "text/")):
		return oneLine(string(data), 200)
	default:
		return quantity.Of(len(data), "byte") + screen{}.aside(contentType)
	}
}

// timeline prints the history of a job.
func (s screen) timeline(events []gq.Event) {
	rows := make([][]cell, len(events))
	for i := range events {
		e := &events[i]
		rows[i] = []cell{
			{e.Time.UTC().Format("2006-01-02T15:04:05.000Z"), faint},
			text(e.Type.String()), statusCell(e.Status),
			number(e.Attempt), text(oneLine(eventNote(e), 120)),
		}
	}
	s.table([]string{"TIME", "EVENT", "STATE", "ATTEMPT", "NOTE"}, rows)
}

// eventNote returns what an event says besides its type, in words.
func eventNote(e *gq.Event) string {
	var notes []string
	if e.Type == gq.EventProviderSlashed {
		notes = append(notes, fmt.Sprintf("%d of its stake", e.CostUnits))
	} else if e.Worker != "" && !e.Type.OfProvider() {
		notes = append(notes, fmt.Sprintf("%s, lease version %d", e.Worker, e.Version))
	}
	if e.Type == gq.EventProgress {
		notes = append(notes, strings.TrimSpace(fmt.Sprintf("%.0f%% %s", 100*e.Progress, e.Note)))
	}
	if e.Failure != nil && *e.Failure != (gq.Failure{}) {
		notes = append(notes, failureText(e.Failure))
	}
	if e.Reason != "" {
		notes = append(notes, e.Reason)
	}
	if !e.Until.IsZero() && (e.Type == gq.EventRetrying || e.Type == gq.EventDelayed || e.Type == gq.EventUpdated) {
		notes = append(notes, "until "+e.Until.UTC().Format(time.RFC3339))
	}
	return strings.Join(notes, "; ")
}

// explanation prints why a job is not running.
func (s screen) explanation(x *gq.Explanation) {
	s.line("%s  %s", s.status(x.Status, 0), s.paint(bold, flat(clean(x.Summary))))
	s.reason(&x.Reason)
	for i := range x.Also {
		s.line("then: %s", flat(clean(x.Also[i].Summary)))
		s.reason(&x.Also[i])
	}
	if len(x.Timeline) > 0 {
		s.line("")
		s.timeline(x.Timeline)
	}
}

func (s screen) reason(r *gq.Reason) {
	if r.Remedy != "" {
		s.line("  %s", flat(clean(r.Remedy)))
	}
	if !r.Until.IsZero() {
		s.line("  until %s", instant(r.Until))
	}
	for _, j := range r.Jobs {
		kind := ""
		if j.Kind.Valid() {
			kind = " " + j.Kind.String()
		}
		s.line("  %s %s%s%s", j.Job, s.status(j.Status, 0), kind, s.aside(clean(j.Worker)))
	}
	if r.More > 0 {
		s.line("  and %d more", r.More)
	}
}
