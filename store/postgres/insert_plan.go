package postgres

import (
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// plan decides about groups one after the other. Each decision rests on what was read
// from the database and on the earlier decisions.
type plan struct {
	ids     *idKey
	now     time.Time
	numbers []int64                      // sequence numbers, one for each job
	taken   map[gq.JobID]bool            // ids in use; nil if the INSERT will detect duplicates
	states  map[gq.JobID]gq.State        // existing jobs that others refer to
	made    map[gq.JobID]int             // jobs of this plan, by index in insertions; nil if nothing refers to them
	keys    map[gq.IdempotencyKey]holder // by scope and name
	queues  map[string]gq.Queue
	live    map[string]int64
	crowded map[string]bool // new queues beyond the limit on queues
	book    *turnBook
	assumed bool // keys were not looked for, because they are expected to be new
	doubted bool // with its keys looked for, a refused group might be accepted

	// Only for jobs that refer to others.
	found     map[gq.JobID]*row                      // existing jobs, locked
	record    func(r *row, s gq.State, e []gq.Event) // writes a change of one of them
	followers map[gq.JobID]int                       // jobs that wait for a job that may be replaced, in the database
	recorded  map[gq.IdempotencyKey]bool             // keys that have a row, free or not
	heirs     map[gq.JobID]gq.JobID                  // replaced jobs and those that took their places

	insertions []insertion    // to be written
	rows       []row          // memory for the rows of insertions
	events     []gq.Event     // memory for the events of insertions
	answers    []store.Placed // memory for the answers of placeOne
	policies   policies
}

// holder is the job that holds an idempotency key.
type holder struct {
	job         gq.JobID
	seq         int64 // 0 for a job of this plan
	fingerprint uint64
	expires     time.Time
	while       gq.While
}

// insertion is a job to insert.
type insertion struct {
	spec   *gq.Spec
	row    *row
	events []gq.Event
	awaits []gq.Dependency // on parents that have not ended
	until  time.Time       // when its key becomes free
	saved  []byte          // the checkpoint that it carries on from; nil if there is none
}

// member is a job of a group while place decides about the group.
type member struct {
	existing gq.JobID // the job that holds its key; zero if the member is new
	same     bool     // both have the same fingerprint
	deps     []gq.Dependency
	given    []gq.Dependency // deps as the caller named them

	notBefore time.Time // of a new job that a collision makes wait
	replaces  *gq.State // the job that its spec names
	carryOn   *store.CarryOn

	// Set only for a new job.
	id       gq.JobID
	native   bool // the number can be computed from the id: see idKey
	sequence uint64
}

// place decides about one group. A refused group leaves no trace in the plan.
func (p *plan) place(g store.Group) store.Inserted {
	out := p.decide(g)
	if out.Err != nil && p.assumed && slices.ContainsFunc(g.Jobs, func(s gq.Spec) bool { return s.Key.Name != "" || s.OrderKey != "" }) {
		p.doubted = true
	}
	return out
}

func (p *plan) decide(g store.Group) store.Inserted {
	if err := p.guardQueues(g); err != nil {
		return store.Inserted{Err: err}
	}
	if p.states == nil && len(g.Jobs) == 1 && !g.Jobs[0].ID.IsZero() {
		return p.placeOne(&g.Jobs[0], g.Mint)
	}
	if g.Mint {
		g = p.mint(g)
	}
	if p.states == nil {
		if p.taken == nil {
			p.taken = make(map[gq.JobID]bool)
		}
		p.keys, p.states, p.live = make(map[gq.IdempotencyKey]holder), make(map[gq.JobID]gq.State), make(map[string]int64)
		p.made = make(map[gq.JobID]int)
	}
	members, keys, staged, err := p.identify(&g)
	if err != nil {
		return store.Inserted{Err: err}
	}
	if err := store.CheckRunTimes(g, p.now, func(i int) bool { return !members[i].existing.IsZero() }); err != nil {
		return store.Inserted{Err: err}
	}
	info, err := p.relate(g, members)
	if err != nil {
		return store.Inserted{Err: err}
	}
	if err := p.checkFollowers(&g, members, staged, info); err != nil {
		return store.Inserted{Err: err}
	}
	if err := p.guard(g, members, staged); err != nil {
		return store.Inserted{Err: err}
	}
	p.settle(staged, &g)
	maps.Copy(p.keys, keys)
	for i := range members { // numbered in the order given, submitted parents first
		members[i].id, members[i].native, members[i].sequence = g.Jobs[i].ID, g.Mint, uint64(p.numbers[i])
		members[i].carryOn = g.CarryOn
	}
	for i := range staged {
		if staged[i].named {
			members[staged[i].member].replaces = &staged[i].next
		}
	}
	p.numbers = p.numbers[len(members):]
	for _, i := range info.Order {
		if members[i].existing.IsZero() {
			p.submit(&g.Jobs[i], members[i], info.Depth[i])
		}
	}
	out := store.Inserted{Jobs: make([]store.Placed, len(g.Jobs))}
	for i, m := range members {
		if m.existing.IsZero() {
			out.Jobs[i] = store.Placed{State: p.stateOf(g.Jobs[i].ID), Replaces: g.Jobs[i].Replaces}
		} else {
			out.Jobs[i] = store.Placed{State: p.stateOf(m.existing).At(p.now), Existing: true, Same: m.same}
		}
	}
	return out
}

// placeOne is place for a job without a key, dependencies or queue limits.
func (p *plan) placeOne(spec *gq.Spec, mint bool) store.Inserted {
	if !mint && p.taken[spec.ID] {
		return store.Inserted{Err: fmt.Errorf("job %s: %w", spec.ID, gq.ErrDuplicateID)}
	}
	if err := machine.CheckRunAt(spec, p.now); err != nil {
		return store.Inserted{Err: err}
	}
	m := member{id: spec.ID, native: mint, sequence: uint64(p.numbers[0])}
	if mint {
		m.id = p.ids.id(p.numbers[0], spec.ID)
	}
	p.numbers = p.numbers[1:]
	p.submit(spec, m, 1)
	n := len(p.answers)
	p.answers = append(p.answers, store.Placed{State: p.insertions[len(p.insertions)-1].row.state})
	return store.Inserted{Jobs: p.answers[n : n+1 : n+1]}
}

// mint returns a copy of a group in which ids computed from the sequence numbers replace
// the caller's ids, also in dependencies within the group.
func (p *plan) mint(g store.Group) store.Group {
	jobs := slices.Clone(g.Jobs)
	minted := make(map[gq.JobID]gq.JobID, len(jobs))
	for i := range jobs {
		id := p.ids.id(p.numbers[i], jobs[i].ID)
		minted[jobs[i].ID], jobs[i].ID = id, id
	}
	for i := range jobs {
		jobs[i].DependsOn = slices.Clone(jobs[i].DependsOn)
		for k, d := range jobs[i].DependsOn {
			if id, ok := minted[d.Job]; ok {
				jobs[i].DependsOn[k].Job = id
			}
		}
	}
	return store.Group{Jobs: jobs, Mint: true, Authorize: g.Authorize, CarryOn: g.CarryOn}
}

// alone is the graph of one job without dependencies, whose spec has been checked.
var alone = machine.GraphInfo{Depth: []int{1}, Order: []int{0}}

// relate checks the dependencies among the new jobs of a group.
func (p *plan) relate(g store.Group, members []member) (machine.GraphInfo, error) {
	if len(members) == 1 && len(members[0].deps) == 0 && !g.Jobs[0].ID.IsZero() {
		return alone, nil
	}
	nodes := make([]machine.Node, len(g.Jobs))
	for i, m := range members {
		nodes[i] = machine.Node{ID: g.Jobs[i].ID, Priority: g.Jobs[i].Metadata.Priority, Dependencies: m.deps, Named: m.given, Final: !g.Jobs[i].Workflow.IsZero()}
		if !m.existing.IsZero() {
			// A placeholder keeps the indexes in faults right. No job depends on
			// its id.
			nodes[i] = machine.Node{ID: machine.NewJobID(random())}
		}
	}
	return machine.CheckGraph(nodes, func(id gq.JobID) (machine.Ancestor, bool) {
		s, ok := p.state(id)
		return machine.Ancestor{Depth: s.Depth, Priority: s.Priority()}, ok
	})
}

// guard refuses a group that would exceed the maximum depth of a queue.
func (p *plan) guard(g store.Group, members []member, staged []staging) error {
	var more map[string]int64
	for i, m := range members {
		name := g.Jobs[i].Queue
		q, ok := p.queues[name]
		if !ok || q.MaxDepth == 0 || !m.existing.IsZero() {
			continue
		}
		if more == nil {
			more = make(map[string]int64)
			for k := range staged { // a replaced job frees its place
				if staged[k].replaces {
					more[p.queueOf(staged[k].id)]--
				}
			}
		}
		more[name]++
		if p.live[name]+more[name] > int64(q.MaxDepth) {
			return fmt.Errorf("queue %s has %d of at most %d live jobs: %w", name, p.live[name], q.MaxDepth, gq.ErrQueueFull)
		}
	}
	return nil
}

// eventsOfInsert is how many events a new job has, unless it ends at once.
const eventsOfInsert = 2

// submit gives a job its first state. The jobs that it depends on must have theirs.
func (p *plan) submit(spec *gq.Spec, m member, depth int) {
	b := machine.Submission{
		ID: m.id, Sequence: m.sequence, Policy: p.policies.of(spec.Policy), Own: spec.Metadata.Priority,
		Depth: depth, RunAt: store.RunAt(spec, m.notBefore, p.now), Gate: spec.Gate, Trace: machine.TraceParent(spec), Origin: machine.Origin(spec),
		Replaces: m.replaces, CarriesOn: m.carryOn != nil,
	}
	if n := len(p.events); cap(p.events)-n >= eventsOfInsert {
		p.events = p.events[:n+eventsOfInsert]
		b.Events = p.events[n : n : n+eventsOfInsert]
	}
	for _, d := range m.deps {
		if d.Kind == machine.DependencyOrder {
			b.After = d.Job
			b.Waits++
			continue
		}
		b.Inherited = p.stateOf(d.Job).Priority().Inherit(b.Inherited)
		switch {
		case !d.Kind.Waits():
		case d.Kind == gq.DependencyAfterAny:
			b.AnyOpen = true
		default:
			b.Waits++
		}
	}
	b.Turn = p.book.next(spec.Queue, b.Priority(), spec.FairKey)
	if len(p.rows) == cap(p.rows) {
		p.rows = make([]row, 0, 1) // earlier rows must not move: insertions point to them
	}
	p.rows = append(p.rows, row{queue: spec.Queue, fair: spec.FairKey, parsed: spec, reported: p.reports(spec.Queue), native: m.native})
	made := insertion{spec: spec, row: &p.rows[len(p.rows)-1]}
	if m.carryOn != nil {
		made.saved = m.carryOn.Checkpoint
	}
	if spec.Key.Name != "" {
		made.until = machine.KeyUntil(spec, b.RunAt, p.now)
	}
	state := &made.row.state
	*state, made.events = machine.Submit(b, p.now)
	for _, d := range m.deps {
		parent := p.stateOf(d.Job)
		if parent.Live() {
			if machine.Waits(d.Kind) {
				made.awaits = append(made.awaits, d)
			}
			continue
		}
		next, events, _ := machine.DependencyEnded(*state, machine.EndedDependency{ // never refuses
			Kind: d.Kind, Status: parent.Status, Priority: parent.Priority(),
		}, p.now)
		*state, made.events = next, append(made.events, events...)
	}
	if state.Status != gq.StatusPending {
		made.awaits = nil // it no longer waits for any parent
	}
	if p.taken != nil && p.states == nil {
		p.taken[m.id] = true
	}
	if p.states != nil {
		p.made[m.id] = len(p.insertions)
		if len(p.queues) > 0 && state.Live() {
			p.live[spec.Queue]++
		}
	}
	p.insertions = append(p.insertions, made)
}

// state returns that of a job that exists or that this plan inserts.
func (p *plan) state(id gq.JobID) (gq.State, bool) {
	if i, ok := p.made[id]; ok {
		return p.insertions[i].row.state, true
	}
	s, ok := p.states[id]
	return s, ok
}

// stateOf is state for a job that is known to exist.
func (p *plan) stateOf(id gq.JobID) gq.State {
	s, _ := p.state(id)
	return s
}

// reports tells whether the reporting views show the jobs of a queue.
func (p *plan) reports(queue string) bool {
	return queue == matchingQueue || len(p.queues) > 0 && reported(p.queues[queue])
}

func random() (b [16]byte) {
	_, _ = rand.Read(b[:]) // never fails
	return b
}
