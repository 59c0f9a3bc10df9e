package gqtest

import (
	"fmt"

	"github.com/gopherqueue/gq"
)

// Graph draws all jobs as text, one line per job in order of submission: its number, type and
// status, and the jobs that it depends on.
//
//	#1 fetch COMPLETED
//	#2 fetch RUNNING
//	#3 merge PENDING after #1 #2
func (q *Queue) Graph() string {
	q.t.Helper()
	return q.drawing().Text()
}

// GraphSVG draws all jobs as an SVG image: a box for each job, to the right of the jobs that it
// depends on, with an arrow from each of them.
func (q *Queue) GraphSVG() string {
	q.t.Helper()
	return q.drawing().SVG()
}

// drawing returns all jobs as if they were one workflow, each named by its number.
func (q *Queue) drawing() *gq.Workflow {
	q.t.Helper()
	w := new(gq.Workflow)
	for i, j := range q.jobs(0) {
		w.Jobs = append(w.Jobs, gq.WorkflowJob{Ref: fmt.Sprintf("#%d", i+1), ID: j.State.ID, Job: j})
	}
	return w
}
