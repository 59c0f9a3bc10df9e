package simple

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Insert implements [store.Writer].
func (s *Store) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	now, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer s.end()
	answers := make([]store.Inserted, len(groups))
	for i := range groups {
		answers[i].Jobs, answers[i].Err = s.insert(groups[i], now)
	}
	store.OwnInserted(answers)
	return answers, nil
}

// arrival is a new job of a group.
type arrival struct {
	spec      gq.Spec
	given     []gq.Dependency // as the caller named them
	notBefore time.Time
	replaces  *job // nil if it replaces none
	named     bool // by its spec, not found by its key
	carryOn   *store.CarryOn
	after     gq.JobID // the job with the same order key that it waits for
}

// change is a job that a group changes: one that is replaced or postponed.
type change struct {
	next   gq.State
	events []gq.Event
}

// insert adds a group. Members whose key is taken resolve to the job that has it.
func (s *Store) insert(g store.Group, now time.Time) ([]store.Placed, error) {
	if err := store.CheckGroup(g, s.config.Limits); err != nil {
		return nil, err
	}
	for i := range g.Jobs {
		if faults := store.CheckKeyTime(&g.Jobs[i], s.config.Retention, ""); len(faults) > 0 {
			return nil, &gq.InvalidError{Faults: faults}
		}
	}
	placed := make([]store.Placed, len(g.Jobs))
	owners := make([]gq.JobID, len(g.Jobs)) // of the keys that are taken
	aliases := make(map[gq.JobID]gq.JobID)  // members that resolve to other jobs, and jobs that members replace
	first := make(map[gq.IdempotencyKey]*gq.Spec)
	changes := make(map[*job]change)
	var fresh []arrival
	for i := range g.Jobs {
		spec := &g.Jobs[i]
		c, holder := machine.Collision{Insert: true}, spec.Replaces
		if key := store.KeyOf(spec); key.Name != "" {
			if member := first[key]; member != nil {
				owners[i], placed[i].Same = member.ID, spec.Unique.While != 0 || member.Key.Fingerprint == spec.Key.Fingerprint
			} else if use, used := s.keys[key]; used {
				c = s.rules.collide(machine.KeyHolder{State: use.job.state, Fingerprint: use.fingerprint, While: use.while, Until: use.until}, spec, now)
				if c.Replace {
					holder = use.job.spec.ID
				}
				if owners[i], placed[i].Same = use.job.spec.ID, c.Same; c.Insert {
					owners[i] = gq.JobID{}
				}
				if len(c.Events) > 0 {
					if err := g.Authorized(use.job.spec.Queue); err != nil {
						return nil, err
					}
					changes[use.job] = change{c.Next, c.Events}
				}
			}
			if owners[i].IsZero() {
				first[key] = spec
			}
		}
		if c.Err != nil {
			return nil, c.Err
		}
		if placed[i].Existing = !owners[i].IsZero(); placed[i].Existing {
			aliases[spec.ID] = owners[i]
			continue
		}
		a := arrival{spec: store.CopySpec(*spec), notBefore: c.NotBefore, named: !spec.Replaces.IsZero(), carryOn: g.CarryOn}
		if a.spec.Replaces = holder; !holder.IsZero() {
			var err error
			if a.replaces, err = s.takePlace(&g, spec.ID, holder, changes, now); err != nil {
				return nil, err
			}
			aliases[holder], placed[i].Replaces = spec.ID, holder
		}
		fresh = append(fresh, a)
	}
	for i := range fresh {
		deps := fresh[i].spec.DependsOn
		fresh[i].given = slices.Clone(deps)
		for k := range deps {
			var err error
			if deps[k].Job, err = s.standing(deps[k].Job, aliases); err != nil {
				return nil, err
			}
		}
	}
	s.line(fresh)
	jobs, err := s.create(fresh, changes, now)
	if err != nil {
		return nil, err
	}
	for i := range placed {
		if placed[i].Existing {
			placed[i].State = s.rules.show(s.jobs[owners[i]].state, now)
		} else {
			placed[i].State, jobs = jobs[0].state, jobs[1:]
		}
	}
	return placed, nil
}

// standing returns the job that a dependency is about: the one that a member resolves to, and the
// last one that took the place of a replaced job.
func (s *Store) standing(id gq.JobID, aliases map[gq.JobID]gq.JobID) (gq.JobID, error) {
	return store.Standing(id, func(id gq.JobID) (gq.JobID, error) {
		next, ok := aliases[id]
		if j := s.jobs[id]; !ok && j != nil {
			next = j.state.ReplacedBy
		}
		return next, nil
	})
}

// takePlace notes that a new job replaces another one, and returns that one.
func (s *Store) takePlace(g *store.Group, by, id gq.JobID, changes map[*job]change, now time.Time) (*job, error) {
	old := s.jobs[id]
	if old == nil {
		return nil, fmt.Errorf("replace job %s: %w", id, gq.ErrNotFound)
	}
	if err := g.Authorized(old.spec.Queue); err != nil {
		return nil, err
	}
	if err := machine.CheckReplaced(&old.spec); err != nil {
		return nil, err
	}
	if _, twice := changes[old]; twice {
		return nil, store.ReplacedTwice(id)
	}
	next, events, err := g.Replace(old.state, by, now)
	changes[old] = change{next, events}
	return old, err
}

// create adds jobs whose keys are free and makes the changes that come with them, all or
// nothing. It keeps the specs.
func (s *Store) create(fresh []arrival, changes map[*job]change, now time.Time) ([]*job, error) {
	graph, err := s.check(fresh, now)
	if err != nil {
		return nil, err
	}
	member := make(map[gq.JobID]int, len(fresh))
	followers := make(map[int][]dependent)
	for i := range fresh {
		member[fresh[i].spec.ID] = i
		if old := fresh[i].replaces; old != nil {
			followers[i], old.dependents = old.dependents, nil
		}
	}
	for _, old := range slices.SortedFunc(maps.Keys(changes), bySequence) {
		s.write(old, changes[old].next, changes[old].events, now)
	}
	jobs := make([]*job, len(fresh))
	for i := range fresh {
		j := &job{spec: fresh[i].spec, dependents: followers[i]}
		j.metadata = store.CopySpec(j.spec).Metadata
		jobs[i] = j
		s.sequence++
		b := machine.Submission{
			ID: j.spec.ID, Sequence: s.sequence, Policy: &j.spec.Policy, Own: j.spec.Metadata.Priority,
			Depth: graph.Depth[i], RunAt: store.RunAt(&j.spec, fresh[i].notBefore, now), Gate: j.spec.Gate, After: fresh[i].after,
			Trace: machine.TraceParent(&j.spec), Origin: machine.Origin(&j.spec), CarriesOn: fresh[i].carryOn != nil,
		}
		if fresh[i].named {
			b.Replaces = &fresh[i].replaces.state
		}
		if b.CarriesOn {
			j.checkpoint = bytes.Clone(fresh[i].carryOn.Checkpoint)
		}
		if !b.After.IsZero() {
			b.Waits++
		}
		for _, d := range j.spec.DependsOn {
			if k, ok := member[d.Job]; ok {
				b.Inherited = b.Inherited.Inherit(graph.Priority[k])
			} else {
				b.Inherited = b.Inherited.Inherit(s.jobs[d.Job].state.Priority())
			}
			switch {
			case d.Kind == gq.DependencyAfterAny:
				b.AnyOpen = true
			case d.Kind.Waits():
				b.Waits++
			}
		}
		b.Turn = s.turn(&j.spec, b.Priority())
		if _, ok := s.queues[j.spec.Queue]; !ok {
			s.queues[j.spec.Queue] = machine.NewQueue(j.spec.Queue)
		}
		state, events := s.rules.submit(b, now)
		j.state = state
		s.jobs[state.ID] = j
		s.submitted.add(j)
		s.list(j)
		s.record(j, gq.State{}, events, now)
		if key := store.OrderKeyOf(&j.spec); key.Name != "" {
			s.tails[key] = j
			j.ahead = s.jobs[fresh[i].after]
		}
		if key := store.KeyOf(&j.spec); key.Name != "" {
			s.keys[key] = keyUse{j, j.spec.Key.Fingerprint, j.spec.Unique.While, machine.KeyUntil(&j.spec, b.RunAt, now)}
		}
	}
	for i, j := range jobs {
		for _, d := range fresh[i].dependencies() {
			s.depend(j, d)
		}
	}
	return jobs, nil
}

// check returns why a group of new jobs cannot be added, or the properties of its graph.
func (s *Store) check(fresh []arrival, now time.Time) (graph machine.GraphInfo, err error) {
	specs := make([]gq.Spec, len(fresh))
	nodes := make([]machine.Node, len(fresh))
	for i := range fresh {
		specs[i] = fresh[i].spec
		nodes[i] = machine.Node{ID: specs[i].ID, Priority: specs[i].Metadata.Priority, Dependencies: fresh[i].dependencies(), Named: fresh[i].given, Final: !specs[i].Workflow.IsZero()}
		if s.jobs[specs[i].ID] != nil {
			return graph, fmt.Errorf("job %s: %w", specs[i].ID, gq.ErrDuplicateID)
		}
	}
	if err := store.CheckRunTimes(store.Group{Jobs: specs}, now, func(int) bool { return false }); err != nil {
		return graph, err
	}
	graph, err = machine.CheckGraph(nodes, func(id gq.JobID) (machine.Ancestor, bool) {
		j := s.jobs[id]
		if j == nil {
			return machine.Ancestor{}, false
		}
		return machine.Ancestor{Depth: j.state.Depth, Priority: j.state.Priority()}, true
	})
	if err != nil {
		return graph, err
	}
	for i := range fresh {
		if old := fresh[i].replaces; old != nil {
			waiting := machine.NewDependency(fresh[i].dependencies(),
				func(id gq.JobID) bool {
					return slices.ContainsFunc(old.spec.DependsOn, func(d gq.Dependency) bool { return d.Job == id })
				},
				func(id gq.JobID) bool {
					if k := slices.IndexFunc(fresh, func(a arrival) bool { return a.spec.ID == id }); k >= 0 {
						return len(fresh[k].dependencies()) > 0
					}
					return s.jobs[id].state.Status == gq.StatusPending
				})
			if err := s.rules.followers(&old.state, len(old.dependents), graph.Depth[i], waiting); err != nil {
				return graph, err
			}
		}
	}
	return graph, s.room(fresh)
}

// room returns an error if a queue would exceed its depth, or if there would be too many
// queues.
func (s *Store) room(fresh []arrival) error {
	added := make(map[string]int)
	for i := range fresh {
		if old := fresh[i].replaces; old != nil {
			added[old.spec.Queue]--
		}
	}
	unknown := make(map[string]bool)
	for i := range fresh {
		queue := fresh[i].spec.Queue
		if _, ok := s.queues[queue]; !ok {
			if unknown[queue] = true; len(s.queues)+len(unknown) > gq.MaxQueues {
				return store.TooManyQueues(queue)
			}
		}
		added[queue]++
		if most := s.queues[queue].MaxDepth; most > 0 && s.live(queue)+added[queue] > most {
			return fmt.Errorf("queue %s: %w", queue, gq.ErrQueueFull)
		}
	}
	return nil
}

// live returns the number of live jobs of a queue.
func (s *Store) live(queue string) (n int) {
	if count := s.counts[queue]; count != nil {
		for status, jobs := range count.By {
			if !gq.Status(status).Terminal() {
				n += int(jobs)
			}
		}
	}
	return n
}

// depend makes a job wait for another one, or tells it that the other one has ended.
func (s *Store) depend(j *job, d gq.Dependency) {
	parent := s.jobs[d.Job]
	waits := dependent{j.spec.ID, machine.EndedDependency{Kind: d.Kind}}
	if parent.state.Live() {
		parent.dependents = append(parent.dependents, waits)
	} else {
		s.tell(waits, parent)
	}
}
