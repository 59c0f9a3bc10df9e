package machine

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gopherqueue/gq"
)

// Node is a new job of a graph.
type Node struct {
	ID           gq.JobID
	Priority     gq.Priority // its own; zero counts as Normal
	Dependencies []gq.Dependency
	Named        []gq.Dependency // the first of Dependencies as the caller named them, if jobs that stand for others are in their place
	Final        bool            // a final job of a workflow, which may wait for all others; stores, which cannot tell, set it for all jobs of workflows
}

// Ancestor is an existing job that a graph depends on.
type Ancestor struct {
	Depth    int         // length of the longest chain that ends with it
	Priority gq.Priority // effective
}

// GraphInfo has the depth and priority of each job of a group, by index, and their order.
type GraphInfo struct {
	Depth    []int         // length of the longest chain that ends with the job; 1 without dependencies
	Priority []gq.Priority // the most urgent of its own and those of its dependencies
	Order    []int         // indexes, each job after its dependencies, otherwise as given
}

// maxGraphFaults is the maximum number of reported faults. A group can have millions of wrong
// references.
const maxGraphFaults = 1000

// CheckGraph checks the dependencies of jobs that are submitted together, in any order, against
// each other and against existing jobs; existing can be nil if there are none. It reports all
// faults at once (beyond the thousandth only their number): missing and repeated ids, unknown
// kinds and priorities, references to the job itself, to the same job twice or to an unknown
// job, too many dependencies, a chain that is too deep, and a cycle. It names one of several
// cycles, and the first job of a chain that is too deep.
//
// A job can name another one twice if one of the two dependencies is FAN_OUT, because a job can
// wait for the job that spawned it. FAN_OUT counts for cycles, depth and priority like any other
// dependency. [DependencyOrder] counts only for cycles.
//
// The work is linear in jobs and dependencies. CheckGraph calls existing once per id.
func CheckGraph(nodes []Node, existing func(gq.JobID) (Ancestor, bool)) (GraphInfo, error) {
	g := graph{
		nodes:    nodes,
		existing: existing,
		known:    make(map[gq.JobID]*member, len(nodes)),
		inner:    make([][]int, len(nodes)),
		info: GraphInfo{
			Depth:    make([]int, len(nodes)),
			Priority: make([]gq.Priority, len(nodes)),
			Order:    make([]int, 0, len(nodes)),
		},
	}
	g.identify()
	for i := range nodes {
		g.resolve(i)
	}
	g.sort()
	for _, i := range g.info.Order {
		g.measure(i)
	}
	if err := g.err(); err != nil {
		return GraphInfo{}, err
	}
	return g.info, nil
}

// member is a job that the group contains or refers to.
type member struct {
	index    int // in the group, or -1
	found    bool
	ancestor Ancestor // if it already exists
	waits    naming   // by the last job of the group that waits for it
	spawned  naming   // by the last job of the group that it spawned
}

// naming is how a job of the group names another one.
type naming struct {
	by int      // its index plus one
	as gq.JobID // the job for which the other one stands, or that itself
}

type graph struct {
	nodes    []Node
	existing func(gq.JobID) (Ancestor, bool)
	known    map[gq.JobID]*member
	inner    [][]int // dependencies within the group, by index
	info     GraphInfo
	faults   []gq.Fault
	unsaid   int // faults beyond maxGraphFaults
}

func (g *graph) fault(i int, field, format string, args ...any) {
	if len(g.faults) == maxGraphFaults {
		g.unsaid++
		return
	}
	if len(g.nodes) > 1 {
		field = "jobs[" + strconv.Itoa(i) + "]." + field
	}
	g.add(field, format, args...)
}

func (g *graph) add(field, format string, args ...any) {
	g.faults = append(g.faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
}

func (g *graph) err() error {
	if g.unsaid > 0 {
		g.add("jobs", "and %d faults more", g.unsaid)
	}
	if len(g.faults) == 0 {
		return nil
	}
	return &gq.InvalidError{Faults: g.faults}
}

// identify records the ids of the group.
func (g *graph) identify() {
	if len(g.nodes) > gq.MaxGroupJobs {
		g.add("jobs", "%d jobs are more than %d", len(g.nodes), gq.MaxGroupJobs)
	}
	for i, n := range g.nodes {
		switch first, taken := g.known[n.ID]; {
		case n.ID.IsZero():
			g.fault(i, "id", "is missing")
		case taken:
			g.fault(i, "id", "%s is the id of jobs[%d] as well", n.ID, first.index)
		default:
			g.known[n.ID] = &member{index: i, found: true}
		}
		if n.Priority != 0 && !n.Priority.Valid() {
			g.fault(i, "priority", "must be one of CRITICAL, HIGH, NORMAL, LOW, BULK")
		}
	}
}

// lookup returns the member with an id.
func (g *graph) lookup(id gq.JobID) *member {
	m, ok := g.known[id]
	if !ok {
		m = &member{index: -1}
		if g.existing != nil {
			m.ancestor, m.found = g.existing(id)
		}
		g.known[id] = m
	}
	return m
}

// resolve checks the dependencies of one job and records those within the group.
func (g *graph) resolve(i int) {
	n := g.nodes[i]
	most, count := gq.MaxDependencies, countDependencies(n.Dependencies)
	if n.Final {
		most = gq.MaxGroupJobs
	}
	if count > most {
		g.fault(i, "depends_on", "%d dependencies are more than %d", count, most)
	}
	for at, d := range n.Dependencies {
		field := func(name string) string { return "depends_on[" + strconv.Itoa(at) + "]." + name }
		if !d.Kind.Valid() && d.Kind != DependencyOrder {
			g.fault(i, field("kind"), "must be one of AFTER, AFTER_ANY, CHAIN, FAN_OUT, FAN_IN")
		}
		if d.Job.IsZero() {
			g.fault(i, field("job"), "is missing")
			continue
		}
		if d.Job == n.ID {
			g.fault(i, field("job"), "%s depends on itself", d.Job)
			continue
		}
		m := g.lookup(d.Job)
		seen := &m.waits
		switch d.Kind {
		case gq.DependencyFanOut:
			seen = &m.spawned
		case DependencyOrder:
			seen = new(naming) // beside any other dependency on that job
		}
		now := naming{i + 1, d.Job}
		if at < len(n.Named) {
			now.as = n.Named[at].Job
		}
		switch {
		case *seen == now:
			g.fault(i, field("job"), "%s is named twice", now.as)
		case seen.by == now.by:
			g.fault(i, field("job"), "%s is named twice, because it stands for %s; name it once", d.Job, standsFor(d.Job, seen.as, now.as))
		case !m.found && now.as != d.Job:
			g.fault(i, field("job"), "%s was replaced by %s, which does not exist any more; leave this dependency out", now.as, d.Job)
		case !m.found:
			g.fault(i, field("job"), "%s does not exist", d.Job)
		case m.index >= 0:
			g.inner[i] = append(g.inner[i], m.index)
		}
		*seen = now
	}
}

// standsFor lists the other jobs by which a job is named.
func standsFor(id, first, second gq.JobID) string {
	switch id {
	case first:
		return second.String()
	case second:
		return first.String()
	}
	return first.String() + " and " + second.String()
}

// sort orders the group so that each job comes after its dependencies. It walks depth first with
// an explicit stack, because a chain can have ten thousand jobs.
func (g *graph) sort() {
	type visit struct{ node, next int }
	var (
		path   []visit // from the job the walk started at to the one it is at
		opened = make([]bool, len(g.nodes))
		closed = make([]bool, len(g.nodes))
		cyclic bool
	)
	for root := range g.nodes {
		if opened[root] {
			continue
		}
		opened[root] = true
		path = append(path[:0], visit{node: root})
		for len(path) > 0 {
			at := &path[len(path)-1]
			if at.next == len(g.inner[at.node]) {
				closed[at.node] = true
				g.info.Order = append(g.info.Order, at.node)
				path = path[:len(path)-1]
				continue
			}
			next := g.inner[at.node][at.next]
			at.next++
			switch {
			case !opened[next]:
				opened[next] = true
				path = append(path, visit{node: next})
			case !closed[next] && !cyclic:
				cyclic = true
				start := len(path) - 1
				for path[start].node != next {
					start--
				}
				ring := make([]int, 0, len(path)-start)
				for _, v := range path[start:] {
					ring = append(ring, v.node)
				}
				g.fault(next, "depends_on", "is a cycle: %s%s", g.ring(ring), g.orderIn(ring))
			}
		}
	}
}

// ring formats a cycle, which ends where it began.
func (g *graph) ring(nodes []int) string {
	const shown = 20
	var b strings.Builder
	for n, i := range nodes {
		if n == shown && len(nodes) > shown+1 {
			fmt.Fprintf(&b, "%d more → ", len(nodes)-shown)
			break
		}
		fmt.Fprintf(&b, "jobs[%d] %s → ", i, g.nodes[i].ID)
	}
	fmt.Fprintf(&b, "jobs[%d]", nodes[0])
	return b.String()
}

// orderIn explains a cycle that an order key is part of.
func (g *graph) orderIn(ring []int) string {
	for k, i := range ring {
		deps := g.nodes[i].Dependencies
		if n := len(deps); n > 0 && deps[n-1].Kind == DependencyOrder && deps[n-1].Job == g.nodes[ring[(k+1)%len(ring)]].ID {
			return fmt.Sprintf("; jobs[%d] waits because an earlier job has the same order_key: list jobs after those that they depend on", i)
		}
	}
	return ""
}

// measure computes the depth and priority of a job after its dependencies. In a cycle one
// dependency has none yet, so the depth is a lower bound.
func (g *graph) measure(i int) {
	inside, outside := 0, 0 // depth of the deepest dependency in the group and of those that exist
	priority := g.nodes[i].Priority
	if !priority.Valid() {
		priority = gq.PriorityNormal
	}
	for _, d := range g.nodes[i].Dependencies {
		m := g.known[d.Job]
		switch {
		case m == nil || !m.found || m.index == i || d.Kind == DependencyOrder:
		case m.index >= 0:
			inside = max(inside, g.info.Depth[m.index])
			priority = priority.Inherit(g.info.Priority[m.index])
		default:
			outside = max(outside, m.ancestor.Depth, 1)
			priority = priority.Inherit(m.ancestor.Priority)
		}
	}
	depth := 1 + max(inside, outside)
	if depth > gq.MaxDepth && inside <= gq.MaxDepth { // else the fault lies further up
		g.fault(i, "depends_on", "makes a chain of %d jobs, more than %d", depth, gq.MaxDepth)
	}
	g.info.Depth[i], g.info.Priority[i] = depth, priority
}
