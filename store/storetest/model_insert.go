package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

func (m *model) insert(r *rapid.T) {
	var groups []store.Group
	var spoiled []bool
	for range pick(r, "groups", 1, 1, 2) {
		g := rapid.Custom(m.drawGroup).Draw(r, "group")
		g.Mint = !g.spoiled && m.mintable(g.Group) && chance(r, "mint", 2)
		groups, spoiled = append(groups, g.Group), append(spoiled, g.spoiled)
	}
	m.submitAll(groups, spoiled)
}

// insertAlike submits many jobs that begin alike, whose ids the store makes.
func (m *model) insertAlike(r *rapid.T) {
	spec := m.spec(r, []gq.JobID{m.id()}, 0)
	spec.Key, spec.Unique, spec.DependsOn, spec.OrderKey = gq.IdempotencyKey{}, gq.UniqueRule{}, nil, ""
	spec = spec.WithDefaults()
	groups := make([]store.Group, pick(r, "jobs", 4, 5, 9, 17))
	for i := range groups {
		s := spec
		s.ID = m.id()
		groups[i] = store.Group{Jobs: []gq.Spec{s}, Mint: true}
	}
	m.happened("jobs alike")
	m.submit(groups)
}

// mintable reports whether the model can tell which ids of a group the store replaces.
func (m *model) mintable(g store.Group) bool {
	return !slices.ContainsFunc(g.Jobs, func(s gq.Spec) bool {
		return m.jobs[s.ID] != nil || s.ID.IsZero() || len(g.Jobs) > 1 && s.Key.Name != ""
	})
}

// minted replaces the ids of a group that was inserted by those that the store has made.
func minted(g store.Group, p *plan, answer store.Inserted) store.Group {
	made := make(map[gq.JobID]gq.JobID)
	g.Jobs = slices.Clone(g.Jobs)
	for i := range g.Jobs {
		if p.made(i) {
			made[g.Jobs[i].ID] = answer.Jobs[i].State.ID
			g.Jobs[i].ID = answer.Jobs[i].State.ID
		}
	}
	for i := range g.Jobs {
		g.Jobs[i].DependsOn = slices.Clone(g.Jobs[i].DependsOn)
		for k, d := range g.Jobs[i].DependsOn {
			if id, ok := made[d.Job]; ok {
				g.Jobs[i].DependsOn[k].Job = id
			}
		}
	}
	return g
}

func (m *model) submit(groups []store.Group) { m.submitAll(groups, make([]bool, len(groups))) }

func (m *model) submitAll(groups []store.Group, spoiled []bool) {
	answers, err := m.s.Insert(m.Context(), groups)
	m.ok("Insert", err)
	if len(answers) != len(groups) {
		m.Fatalf("Insert answered %d of %d groups", len(answers), len(groups))
	}
	for i, g := range groups {
		plan := m.plan(g, spoiled[i])
		if g.Mint && answers[i].Err == nil && len(answers[i].Jobs) == len(g.Jobs) {
			g = minted(g, plan, answers[i])
		}
		m.judge(g, plan, answers[i])
	}
}

// plan is the expected result of a group.
type plan struct {
	refusals []error     // it must be refused with one of them
	unsure   bool        // the contract leaves it open: a refusal is allowed too
	owners   []*modelJob // owner of each job's key; nil for a new job
	inGroup  []int       // index of the earlier member with the same key, or -1
	alias    map[gq.JobID]gq.JobID

	replaces  map[int]*modelJob // by member: the job whose place it takes
	postpones map[int]time.Time // by member: the run time that its owner gets
	notBefore map[int]time.Time // by member: of its own run time
}

// made reports whether a member becomes a job.
func (p *plan) made(i int) bool { return p.owners[i] == nil && p.inGroup[i] < 0 }

func (p *plan) refuse(err error) {
	if !slices.Contains(p.refusals, err) {
		p.refusals = append(p.refusals, err)
	}
}

func (m *model) plan(g store.Group, spoiled bool) *plan {
	p := &plan{owners: make([]*modelJob, len(g.Jobs)), inGroup: make([]int, len(g.Jobs)), alias: make(map[gq.JobID]gq.JobID)}
	p.replaces, p.postpones, p.notBefore = make(map[int]*modelJob), make(map[int]time.Time), make(map[int]time.Time)
	if spoiled {
		p.refuse(gq.ErrInvalid)
		return p
	}
	for i, s := range g.Jobs {
		p.inGroup[i] = -1
		if s.Key.Name == "" {
			continue
		}
		if s.Unique.While != 0 {
			m.planUnique(g, p, i)
			continue
		}
		owner := m.keys[[2]string{s.Key.Scope, s.Key.Name}]
		first := slices.IndexFunc(g.Jobs[:i], func(o gq.Spec) bool { return o.Key.Name == s.Key.Name && o.Key.Scope == s.Key.Scope })
		switch {
		case owner != nil && m.now.Before(owner.key):
			p.owners[i] = owner
			p.alias[s.ID] = owner.spec.ID
		case first >= 0:
			p.inGroup[i] = first
			p.alias[s.ID] = g.Jobs[first].ID
		case owner != nil:
			m.happened("key free again")
		}
	}
	m.planIDs(g, p)
	m.planGraph(g, p)
	m.planRoom(g, p)
	return p
}

func (m *model) planIDs(g store.Group, p *plan) {
	for i, s := range g.Jobs {
		_, taken := m.jobs[s.ID]
		twice := slices.ContainsFunc(g.Jobs[:i], func(o gq.Spec) bool { return o.ID == s.ID })
		switch {
		case !taken && !twice:
		case !p.made(i) || twice:
			p.unsure = true // the id of a job that is not inserted may be checked or not
			if twice && p.made(i) && p.made(slices.IndexFunc(g.Jobs, func(o gq.Spec) bool { return o.ID == s.ID })) {
				p.refuse(gq.ErrDuplicateID)
				p.refuse(gq.ErrInvalid)
			}
		default:
			p.refuse(gq.ErrDuplicateID)
		}
	}
}

// planGraph checks the dependencies of a group.
func (m *model) planGraph(g store.Group, p *plan) {
	after := make(map[gq.JobID][]gq.JobID)
	for i, s := range g.Jobs {
		fault := func() {
			if p.made(i) {
				p.refuse(gq.ErrInvalid)
			} else {
				p.unsure = true
			}
		}
		seen := make(map[string]bool)
		for _, d := range s.DependsOn {
			to := m.meant(d.Job, p)
			_, exists := m.jobs[to]
			inside := slices.ContainsFunc(g.Jobs, func(o gq.Spec) bool { return o.ID == to })
			what := fmt.Sprint(to, d.Kind == gq.DependencyFanOut)
			switch {
			case d.Job == s.ID || to == s.ID || !exists && !inside:
				fault()
			case seen[what] && len(p.alias) > 0:
				p.unsure = true // two may be the same job only because of a key
			case seen[what]:
				fault()
			}
			seen[what] = true
			if inside && !exists {
				after[s.ID] = append(after[s.ID], to)
			}
		}
		if p.made(i) && circular(after, s.ID, s.ID, len(g.Jobs)) {
			m.happened("cycle")
			p.refuse(gq.ErrInvalid)
		}
	}
	for i, s := range g.Jobs {
		if circular(after, s.ID, s.ID, len(g.Jobs)) {
			if p.made(i) {
				p.refuse(gq.ErrInvalid)
			} else {
				p.unsure = true
			}
		}
	}
}

// circular reports whether a path of at most so many steps leads from one job to another.
func circular(after map[gq.JobID][]gq.JobID, from, to gq.JobID, steps int) bool {
	if steps == 0 {
		return false
	}
	return slices.ContainsFunc(after[from], func(next gq.JobID) bool { return next == to || circular(after, next, to, steps-1) })
}

func (m *model) planRoom(g store.Group, p *plan) {
	added := make(map[string]int)
	for i, s := range g.Jobs {
		if p.made(i) {
			added[s.Queue]++
		}
	}
	for _, old := range p.replaces {
		if added[old.spec.Queue] > 0 {
			added[old.spec.Queue]--
		}
	}
	for queue, n := range added {
		most := m.queues[queue].MaxDepth
		if most == 0 {
			continue
		}
		for _, j := range m.jobs {
			if j.spec.Queue == queue && !j.terminal() {
				n++
				p.unsure = p.unsure || len(m.reachable(j)) > 1 // it may be about to end
			}
		}
		if n > most {
			p.refuse(gq.ErrQueueFull)
		}
	}
}

// judge compares a result with the plan and adds the jobs to the model.
func (m *model) judge(g store.Group, p *plan, answer store.Inserted) {
	if answer.Err != nil {
		if !slices.ContainsFunc(p.refusals, func(want error) bool { return errors.Is(answer.Err, want) }) && !p.unsure {
			m.Fatalf("Insert of %s was refused: %v; want %v", describe(g), answer.Err, p.refusals)
		}
		for err, name := range map[error]string{gq.ErrDuplicateID: "duplicate id", gq.ErrQueueFull: "queue full", gq.ErrInvalid: "invalid", gq.ErrNotUnique: "not unique"} {
			if errors.Is(answer.Err, err) {
				m.happened(name)
			}
		}
		return
	}
	if len(p.refusals) > 0 && !p.unsure {
		m.Fatalf("Insert of %s was accepted, want it refused: %v", describe(g), p.refusals)
	}
	if len(answer.Jobs) != len(g.Jobs) {
		m.Fatalf("Insert placed %d of %d jobs", len(answer.Jobs), len(g.Jobs))
	}
	m.make(g, p, answer)
	var read []reading
	for i, placed := range answer.Jobs {
		s := g.Jobs[i]
		j, same := m.jobs[s.ID], false
		if owner := p.owners[i]; owner != nil {
			j, same = owner, s.Unique.While != 0 || owner.spec.Key.Fingerprint == s.Key.Fingerprint
		} else if first := p.inGroup[i]; first >= 0 {
			j, same = m.jobs[g.Jobs[first].ID], s.Unique.While != 0 || g.Jobs[first].Key.Fingerprint == s.Key.Fingerprint
		}
		if placed.Existing == p.made(i) || placed.Same != same {
			m.Fatalf("Insert of %s: job %d is existing %t, same %t; want %t, %t", describe(g), i, placed.Existing, placed.Same, !p.made(i), same)
		}
		read = append(read, reading{j, placed.State})
		if !p.made(i) {
			m.happened(map[bool]string{true: "key taken, same", false: "key taken, different"}[same])
		}
	}
	m.compare("the answer of Insert", read)
}

// make adds the jobs of a group to the model.
func (m *model) make(g store.Group, p *plan, answer store.Inserted) {
	var made []*modelJob
	for i, s := range g.Jobs {
		if !p.made(i) {
			continue
		}
		if old := p.replaces[i]; old != nil {
			s.Replaces = old.spec.ID
		}
		j := &modelJob{spec: s, metadata: s.Metadata}
		at := m.now.Add(s.Delay)
		if s.RunAt.After(at) {
			at = s.RunAt
		}
		if p.notBefore[i].After(at) {
			at = p.notBefore[i]
		}
		j.s = gq.State{
			ID: s.ID, Policy: &j.spec.Policy, Own: s.Metadata.Priority, Bound: s.Policy.MaxAttempts,
			CreatedAt: m.now, RunAt: at, Sequence: answer.Jobs[i].State.Sequence, Depth: 1,
			Turn: answer.Jobs[i].State.Turn, TraceParent: s.Attributes[gq.AttributeTraceParent],
		}
		if s.Key.Name != "" {
			j.key = keyEnd(&s, at, m.now)
			m.keys[[2]string{s.Key.Scope, s.Key.Name}] = j
		}
		m.jobs[s.ID] = j
		made = append(made, j)
		if _, ok := m.queues[s.Queue]; !ok {
			m.queues[s.Queue] = machine.NewQueue(s.Queue)
		}
	}
	m.settleUnique(g, p)
	m.numbered(made)
	m.lineUp(made)
	for _, j := range made {
		for _, d := range j.spec.DependsOn {
			to := m.meant(d.Job, p)
			if d.Kind != gq.DependencyFanOut {
				j.edges = append(j.edges, modelEdge{parent: m.jobs[to], kind: d.Kind})
			}
		}
	}
	// Inherited priorities and depths are stable after at most one round for each job.
	for range made {
		for _, j := range made {
			for _, d := range j.spec.DependsOn {
				parent := m.jobs[m.meant(d.Job, p)]
				j.s.Inherited = urgent(j.s.Inherited, parent.priority())
				j.s.Depth = max(j.s.Depth, parent.s.Depth+1)
			}
		}
	}
	m.takesTurns(made)
	for _, j := range made {
		j.s.Gate = j.spec.Gate
		j.become(gq.StatusPending, nil, m.now)
		j.proceed(m.now)
	}
}

// meant returns the job that a dependency is about.
func (m *model) meant(id gq.JobID, p *plan) gq.JobID {
	for {
		next, ok := p.alias[id]
		if j := m.jobs[id]; !ok && j != nil {
			next = j.s.ReplacedBy
		}
		if next.IsZero() || next == id { // the id of an existing job may be submitted again with its key
			return id
		}
		id = next
	}
}

// numbered checks the sequence numbers of new jobs: larger than all earlier ones, and
// ascending unless a job of the group comes before one of its dependencies.
func (m *model) numbered(made []*modelJob) {
	before := m.sequence
	forward := true
	for i, j := range made {
		for _, d := range j.spec.DependsOn {
			forward = forward && !slices.ContainsFunc(made[i:], func(o *modelJob) bool { return o.spec.ID == d.Job })
		}
	}
	for i, j := range made {
		n := j.s.Sequence
		if n <= before || forward && i > 0 && n <= made[i-1].s.Sequence {
			m.Fatalf("job %d of a group has sequence %d, an earlier job %d", i, n, max(before, made[max(i-1, 0)].s.Sequence))
		}
		m.sequence = max(m.sequence, n)
	}
}

func describe(g store.Group) string {
	var text strings.Builder
	for i, s := range g.Jobs {
		fmt.Fprintf(&text, "\n\t%d: %s queue %s %s key %v run at %v delay %v depends on %v under %v",
			i, s.ID, s.Queue, s.Metadata.Priority, s.Key, s.RunAt, s.Delay, s.DependsOn, unusual(s.Policy))
	}
	return text.String()
}

// unusual lists the fields in which a policy differs from the default.
func unusual(p gq.Policy) (fields []string) {
	got, usual := reflect.ValueOf(p), reflect.ValueOf(machine.DefaultPolicy())
	for i := range got.NumField() {
		if !got.Field(i).Equal(usual.Field(i)) {
			fields = append(fields, fmt.Sprintf("%s: %v", got.Type().Field(i).Name, got.Field(i)))
		}
	}
	return fields
}
