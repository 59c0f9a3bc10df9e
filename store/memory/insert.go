package memory

import (
	"context"
	"fmt"
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

// keyOf returns the idempotency key of a job without its fingerprint.
func keyOf(s *gq.Spec) gq.IdempotencyKey {
	return gq.IdempotencyKey{Scope: s.Key.Scope, Name: s.Key.Name}
}

// insert adds a group. Members whose key is taken resolve to the job that has it.
func (s *Store) insert(g store.Group, now time.Time) ([]store.Placed, error) {
	if err := store.CheckGroup(g, s.config.Limits); err != nil {
		return nil, err
	}
	placed := make([]store.Placed, len(g.Jobs))
	owners := make([]gq.JobID, len(g.Jobs)) // of the keys that are taken
	aliases := make(map[gq.JobID]gq.JobID)  // members that resolve to other jobs
	first := make(map[gq.IdempotencyKey]*gq.Spec)
	var fresh []gq.Spec
	for i := range g.Jobs {
		spec := &g.Jobs[i]
		key := keyOf(spec)
		use, used := s.keys[key]
		member := first[key]
		switch {
		case key.Name == "":
		case used && now.Before(use.until):
			owners[i], placed[i].Same = use.job.spec.ID, use.fingerprint == spec.Key.Fingerprint
		case member != nil:
			owners[i], placed[i].Same = member.ID, member.Key.Fingerprint == spec.Key.Fingerprint
		default:
			first[key] = spec
		}
		if placed[i].Existing = !owners[i].IsZero(); placed[i].Existing {
			aliases[spec.ID] = owners[i]
		} else {
			fresh = append(fresh, store.CopySpec(*spec))
		}
	}
	for i := range fresh {
		for k := range fresh[i].DependsOn {
			if to, ok := aliases[fresh[i].DependsOn[k].Job]; ok {
				fresh[i].DependsOn[k].Job = to
			}
		}
	}
	jobs, err := s.create(fresh, now)
	if err != nil {
		return nil, err
	}
	for i := range placed {
		if placed[i].Existing {
			placed[i].State = s.jobs[owners[i]].state.At(now)
		} else {
			placed[i].State, jobs = jobs[0].state, jobs[1:]
		}
	}
	return placed, nil
}

// create adds jobs whose keys are free, all or none. It keeps the specs.
func (s *Store) create(specs []gq.Spec, now time.Time) ([]*job, error) {
	graph, err := s.check(specs, now)
	if err != nil {
		return nil, err
	}
	member := make(map[gq.JobID]int, len(specs))
	for i := range specs {
		member[specs[i].ID] = i
	}
	jobs := make([]*job, len(specs))
	for i := range specs {
		j := &job{spec: specs[i], metadata: store.CopySpec(specs[i]).Metadata}
		jobs[i] = j
		s.sequence++
		b := machine.Submission{
			ID: j.spec.ID, Sequence: s.sequence, Policy: &j.spec.Policy, Own: j.spec.Metadata.Priority,
			Depth: graph.Depth[i], RunAt: machine.FirstRun(&j.spec, now),
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
		b.Turn = s.turn(&j.spec, b.Own.Inherit(b.Inherited))
		if _, ok := s.queues[j.spec.Queue]; !ok {
			s.queues[j.spec.Queue] = machine.NewQueue(j.spec.Queue)
		}
		state, events := machine.Submit(b, now)
		j.state = state
		s.jobs[state.ID] = j
		s.submitted.add(j)
		s.list(j)
		s.record(j, gq.State{}, events, now)
		if key := keyOf(&j.spec); key.Name != "" {
			s.keys[key] = keyUse{j, j.spec.Key.Fingerprint, now.Add(j.spec.Policy.IdempotencyWindow)}
		}
	}
	for _, j := range jobs {
		for _, d := range j.spec.DependsOn {
			s.depend(j, d)
		}
	}
	return jobs, nil
}

// check returns why a group of new jobs cannot be added, or the properties of its graph.
func (s *Store) check(specs []gq.Spec, now time.Time) (graph machine.GraphInfo, err error) {
	nodes := make([]machine.Node, len(specs))
	for i := range specs {
		nodes[i] = machine.Node{ID: specs[i].ID, Priority: specs[i].Metadata.Priority, Dependencies: specs[i].DependsOn}
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
	return graph, s.room(specs)
}

// room returns an error if a queue would exceed its depth, or if there would be too many
// queues.
func (s *Store) room(specs []gq.Spec) error {
	added := make(map[string]int)
	unknown := 0
	for i := range specs {
		queue := specs[i].Queue
		if _, ok := s.queues[queue]; !ok && added[queue] == 0 {
			if unknown++; len(s.queues)+unknown > gq.MaxQueues {
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
