package gqtest

import (
	"fmt"
	"html"
	"strings"

	"github.com/gopherqueue/gq"
)

// dependencyWords describes each kind of dependency in a drawing.
var dependencyWords = map[gq.DependencyKind]string{
	gq.DependencyAfter:    "after",
	gq.DependencyAfterAny: "after any of",
	gq.DependencyChain:    "next after",
	gq.DependencyFanOut:   "spawned by",
	gq.DependencyFanIn:    "after the end of",
}

// Graph draws all jobs as text, one line per job in order of submission: its number, type and
// status, and the jobs that it depends on.
//
//	#1 fetch COMPLETED
//	#2 fetch RUNNING
//	#3 merge PENDING after #1 #2
func (q *Queue) Graph() string {
	q.t.Helper()
	jobs := q.jobs(0)
	numbers := numbered(jobs)
	var text strings.Builder
	for i := range jobs {
		fmt.Fprintf(&text, "#%d %s %s", i+1, jobs[i].Spec.Type, jobs[i].State.Status)
		var last gq.DependencyKind
		for _, d := range jobs[i].Spec.DependsOn {
			if d.Kind != last {
				fmt.Fprintf(&text, " %s", dependencyWords[d.Kind])
				last = d.Kind
			}
			if n, ok := numbers[d.Job]; ok {
				fmt.Fprintf(&text, " #%d", n)
			} else {
				fmt.Fprintf(&text, " %s", d.Job) // no longer kept
			}
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// numbered returns the number of each job in a drawing.
func numbered(jobs []gq.Job) map[gq.JobID]int {
	numbers := make(map[gq.JobID]int, len(jobs))
	for i := range jobs {
		numbers[jobs[i].State.ID] = i + 1
	}
	return numbers
}

// Sizes in a drawing, in pixels.
const (
	boxWidth, boxHeight = 200, 44
	gapX, gapY          = 60, 16
	margin              = 12
)

// GraphSVG draws all jobs as an SVG image: a box for each job, to the right of the jobs that it
// depends on, with an arrow from each of them.
func (q *Queue) GraphSVG() string {
	q.t.Helper()
	jobs := q.jobs(0)
	numbers := numbered(jobs)
	type point struct{ x, y int }
	at := make([]point, len(jobs)) // upper left corners
	rows := make(map[int]int)      // boxes so far, by column
	var width, height int
	for i := range jobs {
		column := jobs[i].State.Depth - 1
		at[i] = point{margin + column*(boxWidth+gapX), margin + rows[column]*(boxHeight+gapY)}
		rows[column]++
		width, height = max(width, at[i].x+boxWidth+margin), max(height, at[i].y+boxHeight+margin)
	}
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	svg.WriteString(`<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0,0 L8,4 L0,8 z"/></marker></defs>` + "\n")
	for i := range jobs {
		for _, d := range jobs[i].Spec.DependsOn {
			n, ok := numbers[d.Job]
			if !ok {
				continue // no longer kept
			}
			from := at[n-1]
			fmt.Fprintf(&svg, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="black" marker-end="url(#arrow)"><title>%s</title></line>`+"\n",
				from.x+boxWidth, from.y+boxHeight/2, at[i].x, at[i].y+boxHeight/2, dependencyWords[d.Kind])
		}
	}
	for i := range jobs {
		fmt.Fprintf(&svg, `<rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="%s" stroke="black"/>`+"\n",
			at[i].x, at[i].y, boxWidth, boxHeight, fill(jobs[i].State.Status))
		fmt.Fprintf(&svg, `<text x="%d" y="%d">#%d %s</text><text x="%d" y="%d">%s</text>`+"\n",
			at[i].x+8, at[i].y+18, i+1, html.EscapeString(jobs[i].Spec.Type), at[i].x+8, at[i].y+36, jobs[i].State.Status)
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

// fill returns the colour of a box.
func fill(s gq.Status) string {
	switch {
	case s == gq.StatusCompleted:
		return "#cfe8cf"
	case s.Terminal():
		return "#f3cfcf"
	default:
		return "#ffffff"
	}
}
