package gq

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// dependencyWords describes each kind of dependency in a picture.
var dependencyWords = [...]string{
	DependencyAfter: "after", DependencyAfterAny: "after any of", DependencyChain: "next after", DependencyFanOut: "spawned by", DependencyFanIn: "after the end of",
}

// maxDrawn is the number of dependencies of one job that a picture names.
const maxDrawn = 20

// Text draws the workflow, one line for each job: its name, type and status, and the jobs that
// it depends on.
//
//	charge order.charge COMPLETED
//	pack order.pack RUNNING after charge
//	notify email.send PENDING after the end of charge pack
func (w *Workflow) Text() string {
	names := w.names()
	var text strings.Builder
	for i := range w.Jobs {
		j := &w.Jobs[i]
		fmt.Fprintf(&text, "%s %s", j.Ref, j.label())
		var last DependencyKind
		for k, d := range j.Job.Spec.DependsOn {
			if k == maxDrawn {
				fmt.Fprintf(&text, " and %d more", len(j.Job.Spec.DependsOn)-maxDrawn)
				break
			}
			if d.Kind != last {
				fmt.Fprintf(&text, " %s", dependencyWords[d.Kind])
				last = d.Kind
			}
			if n, ok := names[d.Job]; ok {
				fmt.Fprintf(&text, " %s", w.Jobs[n].Ref)
			} else {
				fmt.Fprintf(&text, " %s", d.Job) // another job, or no longer kept
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// label is the type and status of a job.
func (j *WorkflowJob) label() string {
	if j.Job.State.ID.IsZero() {
		return "(removed)"
	}
	return j.Job.Spec.Type + " " + j.status()
}

func (j *WorkflowJob) status() string {
	s := &j.Job.State
	if s.Status == StatusPending && s.Gate == GateSignal {
		return "PENDING (waits for a signal)"
	}
	return s.Status.String()
}

// names returns the index of each job.
func (w *Workflow) names() map[JobID]int {
	names := make(map[JobID]int, len(w.Jobs))
	for i := range w.Jobs {
		names[w.Jobs[i].ID] = i
	}
	return names
}

// Sizes in a picture, in pixels.
const (
	boxWidth, boxHeight = 200, 44
	gapX, gapY          = 60, 16
	margin              = 12
)

// SVG draws the workflow as an SVG image: a box for each job, to the right of the jobs that it
// depends on, with an arrow from each of them.
func (w *Workflow) SVG() string {
	names := w.names()
	type point struct{ x, y int }
	at := make([]point, len(w.Jobs)) // upper left corners
	rows := make(map[int]int)        // boxes so far, by column
	var width, height int
	for i := range w.Jobs {
		column := max(w.Jobs[i].Job.State.Depth-1, 0)
		at[i] = point{margin + column*(boxWidth+gapX), margin + rows[column]*(boxHeight+gapY)}
		rows[column]++
		width, height = max(width, at[i].x+boxWidth+margin), max(height, at[i].y+boxHeight+margin)
	}
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	svg.WriteString(`<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>` + "\n")
	for i := range w.Jobs {
		for _, d := range w.Jobs[i].Job.Spec.DependsOn {
			n, ok := names[d.Job]
			if !ok {
				continue // another job, or no longer kept
			}
			from := at[n]
			fmt.Fprintf(&svg, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="black" marker-end="url(#arrow)"><title>%s</title></line>`+"\n",
				from.x+boxWidth, from.y+boxHeight/2, at[i].x, at[i].y+boxHeight/2, dependencyWords[d.Kind])
		}
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		fmt.Fprintf(&svg, `<g><title>%s %s</title><rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="%s" stroke="black"/>`+"\n",
			html.EscapeString(j.Ref), html.EscapeString(j.label()), at[i].x, at[i].y, boxWidth, boxHeight, fill(j.Job.State.Status))
		fmt.Fprintf(&svg, `<text x="%d" y="%d">%s</text><text x="%d" y="%d">%s</text></g>`+"\n",
			at[i].x+8, at[i].y+18, html.EscapeString(fit(j.Ref+" "+j.Job.Spec.Type)), at[i].x+8, at[i].y+36, fit(j.status()))
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

// fit shortens a text that would not fit into a box. The title of the box has the whole text.
func fit(text string) string {
	const most = (boxWidth - 16) * 10
	width, end := 0, 0 // in tenths of a pixel; end of the text that fits with the ellipsis
	for i, r := range text {
		switch {
		case r > 0x7f:
			width += 140
		case r >= 'A' && r <= 'Z', strings.ContainsRune("mw@%&", r):
			width += 105
		default:
			width += 75
		}
		if width <= most-140 {
			end = i + utf8.RuneLen(r)
		}
		if width > most {
			return text[:end] + "…"
		}
	}
	return text
}

// fill returns the colour of a box.
func fill(s Status) string {
	switch {
	case s == StatusCompleted:
		return "#cfe8cf"
	case s.Terminal():
		return "#f3cfcf"
	default:
		return "#ffffff"
	}
}
