package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

func (n *naive) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	now, err := n.begin(ctx, true)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	answers := make([]store.Inserted, len(groups))
	for i, g := range groups {
		answers[i] = n.insert(g, now)
	}
	return own(n, answers), nil
}

func (n *naive) insert(g store.Group, now time.Time) (answer store.Inserted) {
	if err := store.CheckGroup(g, n.cfg.Limits); err != nil {
		if n.bug != halfGroups || len(g.Jobs) < 2 || machine.CheckSpec(&g.Jobs[0], n.cfg.Limits) != nil {
			return store.Inserted{Err: err}
		}
		n.insert(store.One(g.Jobs[0]), now)
		return store.Inserted{Err: err}
	}
	for i := range g.Jobs {
		if faults := store.CheckKeyTime(&g.Jobs[i], n.cfg.Retention, ""); len(faults) > 0 {
			return store.Inserted{Err: &gq.InvalidError{Faults: faults}}
		}
	}
	// The owner of each member's key: an earlier job, or an earlier member.
	owner := make([]gq.JobID, len(g.Jobs))
	placed := make([]store.Placed, len(g.Jobs))
	mine := make(map[gq.IdempotencyKey]int)
	alias := make(map[gq.JobID]gq.JobID)
	extra := make(map[gq.JobID]naiveExtra) // by new job
	changed := make(map[gq.JobID]naiveChange)
	for i, s := range g.Jobs {
		c, replaces := machine.Collision{Insert: true}, s.Replaces
		if key := n.keyOf(s); key.Name != "" {
			if first, ok := mine[key]; ok {
				owner[i] = g.Jobs[first].ID
				placed[i] = store.Placed{Existing: true, Same: s.Unique.While != 0 || g.Jobs[first].Key.Fingerprint == s.Key.Fingerprint}
			} else if k, ok := n.data.keys[key]; ok {
				if c = n.collide(k, &s, now); c.Err != nil {
					return store.Inserted{Err: c.Err}
				}
				if len(c.Events) > 0 {
					if err := g.Authorized(n.data.jobs[k.job].spec.Queue); err != nil {
						return store.Inserted{Err: err}
					}
					changed[k.job] = naiveChange{c.Next, c.Events}
				}
				if !c.Insert {
					owner[i] = k.job
					placed[i] = store.Placed{Existing: true, Same: c.Same}
				}
				if c.Replace {
					replaces = k.job
				}
			}
			if owner[i].IsZero() {
				mine[key] = i
			}
		}
		if owner[i].IsZero() {
			extra[s.ID] = naiveExtra{replaces, !s.Replaces.IsZero(), g.CarryOn, c.NotBefore, s.DependsOn}
			if replaces.IsZero() {
				continue
			}
			next, err := n.displace(&g, replaces, s.ID, changed, now)
			if err != nil {
				return store.Inserted{Err: err}
			}
			changed[replaces] = next
			if alias[replaces] = s.ID; n.bug != replacesUntold {
				placed[i].Replaces = replaces
			}
			continue
		}
		if n.bug != ignoresAliases {
			alias[s.ID] = owner[i]
		}
		if n.bug == sameIsSame {
			placed[i].Same = true
		}
	}
	var specs []gq.Spec
	for i, s := range g.Jobs {
		if !owner[i].IsZero() {
			continue
		}
		s.Replaces = extra[s.ID].replaces
		s.DependsOn = slices.Clone(s.DependsOn)
		for k, d := range s.DependsOn {
			var err error
			if s.DependsOn[k].Job, err = n.standing(d.Job, alias); err != nil {
				return store.Inserted{Err: err}
			}
		}
		specs = append(specs, s)
	}
	states, err := n.create(specs, extra, changed, now)
	if err != nil {
		return store.Inserted{Err: err}
	}
	for i := range g.Jobs {
		if owner[i].IsZero() {
			placed[i].State, states = states[0], states[1:]
		} else {
			placed[i].State = n.view(n.data.jobs[owner[i]].state, now)
		}
	}
	return store.Inserted{Jobs: placed}
}

// standing returns the job that a dependency is about: the existing job that a member resolves to,
// and the last job that took the place of a replaced one.
func (n *naive) standing(id gq.JobID, alias map[gq.JobID]gq.JobID) (gq.JobID, error) {
	return store.Standing(id, func(id gq.JobID) (gq.JobID, error) {
		next, ok := alias[id]
		if j := n.data.jobs[id]; !ok && j != nil && n.bug != namesReplaced {
			next = j.state.ReplacedBy
		}
		return next, nil
	})
}

func (n *naive) keyOf(s gq.Spec) gq.IdempotencyKey {
	key := gq.IdempotencyKey{Scope: s.Key.Scope, Name: s.Key.Name}
	if n.bug == keysWithoutScope {
		key.Scope = ""
	}
	if n.bug == keysJoined {
		key = gq.IdempotencyKey{Name: key.Scope + key.Name}
		if s.Key.Name == "" {
			key.Name = ""
		}
	}
	return key
}

// create inserts jobs whose key is free, or that have none.
func (n *naive) create(specs []gq.Spec, extra map[gq.JobID]naiveExtra, changed map[gq.JobID]naiveChange, now time.Time) ([]gq.State, error) {
	for _, s := range specs {
		taken, ok := n.data.jobs[s.ID]
		if ok && n.bug != overwrites && (n.bug != finishedIDsFree || taken.state.Live()) {
			return nil, fmt.Errorf("naive: %s: %w", s.ID, gq.ErrDuplicateID)
		}
	}
	if err := store.CheckRunTimes(store.Group{Jobs: specs}, now, func(int) bool { return n.bug == promisesTooLate }); err != nil {
		return nil, err
	}
	after := n.line(specs)
	nodes := make([]machine.Node, len(specs))
	for i, s := range specs {
		nodes[i] = machine.Node{ID: s.ID, Priority: s.Metadata.Priority, Dependencies: store.Ordered(s.DependsOn, after[i]), Named: extra[s.ID].given, Final: !s.Workflow.IsZero()}
	}
	info, err := machine.CheckGraph(nodes, func(id gq.JobID) (machine.Ancestor, bool) {
		j, ok := n.data.jobs[id]
		if !ok {
			return machine.Ancestor{Depth: 1}, n.bug == toleratesUnknown
		}
		if n.bug == forgetsDepth {
			return machine.Ancestor{Depth: 1, Priority: j.state.Priority()}, true
		}
		return machine.Ancestor{Depth: j.state.Depth, Priority: j.state.Priority()}, true
	})
	if err != nil {
		return nil, err
	}
	if err := n.room(specs); err != nil {
		return nil, err
	}
	followers := make(map[gq.JobID][]telling)
	for i, s := range specs {
		if old := n.data.jobs[s.Replaces]; old != nil {
			waiting := machine.NewDependency(nodes[i].Dependencies,
				func(id gq.JobID) bool {
					return slices.ContainsFunc(old.spec.DependsOn, func(d gq.Dependency) bool { return d.Job == id })
				},
				func(id gq.JobID) bool {
					if k := slices.IndexFunc(nodes, func(n machine.Node) bool { return n.ID == id }); k >= 0 {
						return len(nodes[k].Dependencies) > 0
					}
					return n.data.jobs[id] != nil && n.data.jobs[id].state.Status == gq.StatusPending && n.bug != waitsInACircle
				})
			if err := machine.CheckFollowers(&old.state, len(old.waiting), info.Depth[i], waiting); err != nil {
				return nil, err
			}
		}
	}
	for id, c := range changed {
		old := n.data.jobs[id]
		if c.next.Status == gq.StatusCancelled && n.bug != leavesFollowers {
			followers[c.next.ReplacedBy], old.waiting = old.waiting, nil
		}
		if c.next.Status != gq.StatusCancelled || n.bug != keepsReplaced {
			n.write(old, c.next, c.events, now)
		}
	}
	index := make(map[gq.JobID]int)
	for i, s := range specs {
		index[s.ID] = i
	}
	states := make([]gq.State, len(specs))
	jobs := make([]*naiveJob, len(specs))
	for i, s := range specs {
		n.data.sequence++
		b := machine.Submission{
			ID: s.ID, Sequence: n.data.sequence, Policy: &s.Policy, Own: s.Metadata.Priority, Depth: info.Depth[i], RunAt: store.RunAt(&s, extra[s.ID].notBefore, now), Gate: s.Gate, After: after[i],
			Trace: machine.TraceParent(&s), CarriesOn: extra[s.ID].carryOn != nil,
		}
		if extra[s.ID].named && n.bug != restartsDeadlines {
			b.Replaces = &n.data.jobs[s.Replaces].state
			if n.bug == replacedLevelEnds {
				old := *b.Replaces
				old.Inherited, b.Replaces = 0, &old
			}
		}
		if !b.After.IsZero() {
			b.Waits++
		}
		for _, d := range s.DependsOn {
			if k, inside := index[d.Job]; inside {
				b.Inherited = b.Inherited.Inherit(info.Priority[k])
			} else if parent, ok := n.data.jobs[d.Job]; ok {
				b.Inherited = b.Inherited.Inherit(parent.state.Priority())
			}
			switch {
			case d.Kind == gq.DependencyAfterAny:
				b.AnyOpen = true
			case d.Kind.Waits():
				b.Waits++
			}
		}
		switch {
		case n.bug == forgetsInherited:
			b.Inherited = 0
		case n.bug == inheritsOwn && b.Inherited.Valid():
			b.Inherited = info.Priority[i]
		}
		s.Payload.Data, s.Metadata.Tags = n.payload(s.Payload), maps.Clone(s.Metadata.Tags)
		jobs[i] = &naiveJob{spec: s, metadata: s.Metadata, waiting: followers[s.ID]}
		if carry := extra[s.ID].carryOn; carry != nil && n.bug != losesCheckpoint {
			jobs[i].checkpoint = slices.Clone(carry.Checkpoint)
		}
		b.Turn = n.turn(&s, b.Priority())
		state, events := machine.Submit(b, now)
		n.data.jobs[s.ID] = jobs[i]
		n.write(jobs[i], state, events, now)
		if s.Key.Name != "" {
			n.data.keys[n.keyOf(s)] = naiveKey{s.ID, s.Key.Fingerprint, s.Unique.While, machine.KeyUntil(&s, b.RunAt, now)}
		}
		if _, ok := n.data.queues[s.Queue]; !ok {
			n.data.queues[s.Queue] = machine.NewQueue(s.Queue)
		}
	}
	for i, s := range specs {
		for _, d := range store.Ordered(s.DependsOn, after[i]) {
			n.depend(s.ID, d)
		}
		states[i] = jobs[i].state
	}
	if n.habit&tellsInTheSameCommit != 0 {
		n.tell(len(n.data.telling), now)
		for i := range states {
			states[i] = jobs[i].state
		}
	}
	return states, nil
}

// depend notes that a job waits for another, or must be updated at once.
func (n *naive) depend(child gq.JobID, d gq.Dependency) {
	parent, ok := n.data.jobs[d.Job]
	if !ok {
		return
	}
	w := telling{child: child, ended: machine.EndedDependency{Kind: d.Kind}}
	if parent.state.Live() {
		parent.waiting = append(parent.waiting, w)
		return
	}
	if n.bug == endedIsTooLate {
		return
	}
	w.ended.Status, w.ended.Priority = parent.state.Status, parent.state.Priority()
	n.data.telling = append(n.data.telling, w)
}

func (n *naive) payload(p gq.Payload) []byte {
	switch {
	case n.bug == borrowsMemory:
		return p.Data
	case n.bug == trimsPayload && p.ContentType == gq.JSON:
		return []byte(string([]rune(string(p.Data))))[:max(0, len(p.Data)-1)]
	}
	return slices.Clone(p.Data)
}

// room returns an error if a queue would exceed its limit.
func (n *naive) room(specs []gq.Spec) error {
	added := make(map[string]int)
	for _, s := range specs {
		added[s.Queue]++
	}
	for _, s := range specs {
		if old := n.data.jobs[s.Replaces]; old != nil && added[old.spec.Queue] > 0 {
			added[old.spec.Queue]--
		}
	}
	for queue, more := range added {
		limit := n.data.queues[queue].MaxDepth
		if n.bug == depthCountsGroups {
			more = 1
		}
		if n.bug == depthOffByOne {
			more--
		}
		live := 0
		for _, j := range n.data.jobs {
			if j.spec.Queue == queue && (j.state.Live() || n.bug == depthCountsFinished) {
				live++
			}
		}
		if limit > 0 && live+more > limit {
			return fmt.Errorf("naive: queue %s: %w", queue, gq.ErrQueueFull)
		}
	}
	return nil
}
