package dashboard

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
)

// Sizes in a graph, in pixels.
const (
	nodeWidth, nodeHeight = 184, 42
	gapX, gapY            = 56, 14
	margin                = 10
)

// graph is a picture of jobs: boxes in columns, each to the right of what it depends on.
type graph struct {
	Width, Height int
	Nodes         []node
	Edges         []edge
	Collapsed     bool // boxes stand for several jobs
	Jobs          int
	More          bool // jobs are missing
}

// node is one job, or all jobs of one type in a column.
type node struct {
	X, Y   int
	Label  string // first line
	Detail string // second line
	Tone   string // look of the status; see statusLook
	Icon   string
	Path   string // within the dashboard; "" for a group
	Self   bool   // the job whose page it is
	Title  string
}

// Positions of what is in a box.
func (n node) TextX() int   { return n.X + 30 }
func (n node) LabelY() int  { return n.Y + 17 }
func (n node) DetailY() int { return n.Y + 33 }
func (n node) IconX() int   { return n.X + 9 }
func (n node) IconY() int   { return n.Y + 13 }
func (n node) Width() int   { return nodeWidth }
func (n node) Height() int  { return nodeHeight }

type edge struct{ X1, Y1, X2, Y2 int }

// Path is the curve of an edge.
func (e edge) Path() string {
	bend := (e.X2 - e.X1) / 2
	return fmt.Sprintf("M%d,%d C%d,%d %d,%d %d,%d", e.X1, e.Y1, e.X1+bend, e.Y1, e.X2-bend, e.Y2, e.X2-6, e.Y2)
}

// drawn is a job to draw.
type drawn struct {
	id        gq.JobID
	label     string
	kind      string // job type
	status    gq.Status
	gone      bool // removed by retention
	dependsOn []gq.JobID
}

func drawWorkflow(w *gq.Workflow, self gq.JobID) *graph {
	jobs := make([]drawn, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		jobs[i] = drawn{id: j.ID, label: j.Ref, kind: j.Job.Spec.Type, status: j.Job.State.Status, gone: j.Job.State.ID.IsZero(), dependsOn: dependencies(&j.Job)}
	}
	return draw(jobs, self, func(kind string) string {
		return "workflows/" + w.ID.String() + "?" + url.Values{"type": {kind}}.Encode() + "#steps"
	})
}

func drawJobs(list []gq.Job, self gq.JobID) *graph {
	jobs := make([]drawn, len(list))
	for i := range list {
		j := &list[i]
		jobs[i] = drawn{id: j.State.ID, label: short(j.State.ID), kind: j.Spec.Type, status: j.State.Status, dependsOn: dependencies(j)}
	}
	return draw(jobs, self, func(string) string { return "" })
}

func dependencies(j *gq.Job) (ids []gq.JobID) {
	for _, d := range j.Spec.DependsOn {
		ids = append(ids, d.Job)
	}
	return ids
}

// draw lays a graph out. If it has more than maxNodes jobs, those with the same type in a
// column become one box. list returns the path of a page that lists the jobs of a type; "" is none.
func draw(jobs []drawn, self gq.JobID, list func(kind string) string) *graph {
	g := &graph{Jobs: len(jobs)}
	column := columns(jobs)
	if g.Collapsed = len(jobs) > maxNodes; g.Collapsed {
		g.collapse(jobs, column, self, list)
	} else {
		g.place(jobs, column, self)
	}
	return g
}

// columns returns the length of the longest path to each job.
func columns(jobs []drawn) []int {
	at := make(map[gq.JobID]int, len(jobs))
	for i := range jobs {
		at[jobs[i].id] = i
	}
	column := make([]int, len(jobs))
	state := make([]uint8, len(jobs)) // 1 is in progress, 2 is done
	var visit func(i int) int
	visit = func(i int) int {
		if state[i] != 0 {
			return column[i]
		}
		state[i] = 1
		for _, id := range jobs[i].dependsOn {
			if k, ok := at[id]; ok && k != i {
				column[i] = max(column[i], visit(k)+1)
			}
		}
		state[i] = 2
		return column[i]
	}
	for i := range jobs {
		visit(i)
	}
	return column
}

// grid gives out places, column by column.
type grid struct {
	g    *graph
	rows map[int]int
}

func (p *grid) place(column int) (x, y int) {
	x, y = margin+column*(nodeWidth+gapX), margin+p.rows[column]*(nodeHeight+gapY)
	p.rows[column]++
	p.g.Width, p.g.Height = max(p.g.Width, x+nodeWidth+margin), max(p.g.Height, y+nodeHeight+margin)
	return x, y
}

func (g *graph) place(jobs []drawn, column []int, self gq.JobID) {
	p := grid{g, make(map[int]int)}
	at := make(map[gq.JobID]int, len(jobs))
	for i, j := range jobs {
		x, y := p.place(column[i])
		n := node{X: x, Y: y, Label: fit(j.label, 22), Path: "jobs/" + j.id.String(), Self: j.id == self}
		if j.gone {
			n.Detail, n.Tone, n.Icon, n.Path = "removed", "quiet", "bar", ""
		} else {
			n.Detail, n.Tone, n.Icon = fit(word(j.status)+" · "+j.kind, 25), tone(j.status), icon(j.status)
		}
		n.Title = printable(j.label) + ", " + printable(j.kind) + ", " + word(j.status)
		at[j.id] = i
		g.Nodes = append(g.Nodes, n)
	}
	for i, j := range jobs {
		for _, id := range j.dependsOn {
			if k, ok := at[id]; ok {
				g.connect(k, i)
			}
		}
	}
}

func (g *graph) connect(from, to int) {
	a, b := g.Nodes[from], g.Nodes[to]
	g.Edges = append(g.Edges, edge{a.X + nodeWidth, a.Y + nodeHeight/2, b.X, b.Y + nodeHeight/2})
}

// maxGroups is the number of boxes in a column of a collapsed graph.
const maxGroups = 20

// otherTypes is the box of the types that have none of their own.
const otherTypes = "other types"

// collapse draws one box for the jobs of a type in a column. The job whose page it is keeps a
// box of its own.
func (g *graph) collapse(jobs []drawn, column []int, self gq.JobID, list func(kind string) string) {
	type key struct {
		column int
		kind   string
		self   bool
	}
	type group struct {
		n        int
		statuses map[gq.Status]int
		node     int
		id       gq.JobID
	}
	groups := make(map[key]*group)
	var order []key
	kinds := make(map[int]int) // boxes by column
	of := make(map[gq.JobID]key, len(jobs))
	for i, j := range jobs {
		k := key{column[i], j.kind, j.id == self}
		if groups[k] == nil && kinds[column[i]] >= maxGroups && !k.self {
			k.kind = otherTypes
		}
		if groups[k] == nil {
			groups[k] = &group{statuses: make(map[gq.Status]int)}
			order = append(order, k)
			kinds[column[i]]++
		}
		groups[k].n++
		groups[k].id = j.id
		groups[k].statuses[j.status]++
		of[j.id] = k
	}
	slices.SortStableFunc(order, func(a, b key) int { return a.column - b.column })
	p := grid{g, make(map[int]int)}
	for _, k := range order {
		have := groups[k]
		worst := worstOf(have.statuses)
		x, y := p.place(k.column)
		n := node{X: x, Y: y, Label: fit(fmt.Sprintf("%s × %s", number(have.n), k.kind), 22), Self: k.self, Tone: tone(worst), Icon: icon(worst)}
		var parts []string
		for _, s := range slices.Sorted(maps.Keys(have.statuses)) {
			parts = append(parts, number(have.statuses[s])+" "+word(s))
		}
		n.Detail, n.Title = fit(strings.Join(parts, ", "), 25), printable(k.kind)+": "+strings.Join(parts, ", ")
		if k.self || have.n == 1 {
			n.Path = "jobs/" + have.id.String()
			n.Label = fit(k.kind, 22)
		}
		if n.Path == "" && k.kind != otherTypes {
			n.Path = list(k.kind)
		}
		have.node = len(g.Nodes)
		g.Nodes = append(g.Nodes, n)
	}
	drawnEdges := make(map[[2]int]bool)
	for _, j := range jobs {
		for _, id := range j.dependsOn {
			from, ok := of[id]
			if !ok {
				continue
			}
			pair := [2]int{groups[from].node, groups[of[j.id]].node}
			if pair[0] != pair[1] && !drawnEdges[pair] {
				drawnEdges[pair] = true
				g.connect(pair[0], pair[1])
			}
		}
	}
}

// worstOf returns the status of a group that needs attention most.
func worstOf(statuses map[gq.Status]int) gq.Status {
	for _, s := range []gq.Status{
		gq.StatusDeadLetter, gq.StatusFailed, gq.StatusRetrying, gq.StatusRunning, gq.StatusClaimed,
		gq.StatusScheduled, gq.StatusDelayed, gq.StatusPending, gq.StatusCancelled, gq.StatusCompleted,
	} {
		if statuses[s] > 0 {
			return s
		}
	}
	return gq.StatusPending
}

// fit cuts a label to the width of a box.
func fit(text string, most int) string {
	text = oneLine(text)
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
