package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// changesOthers reports whether inserting a job may change another one.
func changesOthers(spec *gq.Spec) bool {
	return spec.Unique.OnCollision == gq.Replace || spec.Unique.OnCollision == gq.Debounced || !spec.Replaces.IsZero()
}

// staging is a change of an existing job that comes with a group.
type staging struct {
	id       gq.JobID
	next     gq.State
	events   []gq.Event
	replaces bool // the member takes its place; otherwise it is postponed
	named    bool // by the member's spec, not found by its key
	member   int
}

// identify finds the jobs of a group that already exist by their keys, and redirects
// dependencies to them. It returns the keys that the new jobs will hold, and the changes of
// existing jobs that they bring.
func (p *plan) identify(g *store.Group) (members []member, keys map[gq.IdempotencyKey]holder, staged []staging, err error) {
	members = make([]member, len(g.Jobs))
	var existing map[gq.JobID]gq.JobID
	stands := func(id, to gq.JobID) {
		if existing == nil {
			existing = make(map[gq.JobID]gq.JobID)
		}
		existing[id] = to
	}
	for i := range g.Jobs {
		spec := &g.Jobs[i]
		c, replaces := machine.Collision{Insert: true}, spec.Replaces
		if spec.Key.Name != "" {
			key := store.KeyOf(spec)
			if h, ok := keys[key]; ok { // an earlier member
				members[i] = member{existing: h.job, same: spec.Unique.While != 0 || h.fingerprint == spec.Key.Fingerprint}
				stands(spec.ID, h.job)
				continue
			}
			h, taken := p.keys[key]
			if taken {
				c = machine.Collide(machine.KeyHolder{State: p.stateOf(h.job), Fingerprint: h.fingerprint, While: h.while, Until: h.expires}, spec, p.now)
			}
			if c.Err != nil {
				return nil, nil, nil, c.Err
			}
			if len(c.Events) > 0 {
				if err := g.Authorized(p.queueOf(h.job)); err != nil {
					return nil, nil, nil, err
				}
				staged = append(staged, staging{id: h.job, next: c.Next, events: c.Events, member: i})
			}
			if !c.Insert {
				members[i] = member{existing: h.job, same: c.Same}
				stands(spec.ID, h.job)
				continue
			}
			if c.Replace {
				replaces = h.job
			}
			members[i].notBefore = c.NotBefore
			if keys == nil {
				keys = make(map[gq.IdempotencyKey]holder, 1)
			}
			keys[key] = holder{
				job: spec.ID, fingerprint: spec.Key.Fingerprint, while: spec.Unique.While,
				expires: machine.KeyUntil(spec, store.RunAt(spec, c.NotBefore, p.now), p.now),
			}
		}
		if !replaces.IsZero() {
			named := !spec.Replaces.IsZero()
			change, err := p.takePlace(g, i, replaces, staged)
			if err != nil {
				return nil, nil, nil, err
			}
			change.named = named
			staged = append(staged, change)
			stands(replaces, spec.ID)
		}
		if _, made := p.made[spec.ID]; made || p.taken[spec.ID] {
			return nil, nil, nil, fmt.Errorf("job %s: %w", spec.ID, gq.ErrDuplicateID)
		}
	}
	specs := g.Jobs // the caller's
	for i := range specs {
		if deps, changed := store.Renamed(specs[i].DependsOn, existing); changed { // a job that it names was never made
			if &g.Jobs[0] == &specs[0] {
				g.Jobs = slices.Clone(specs)
			}
			g.Jobs[i].DependsOn = deps
		}
		members[i].given = specs[i].DependsOn
		for _, d := range specs[i].DependsOn {
			if d.Job, err = p.standing(d.Job, existing); err != nil {
				return nil, nil, nil, err
			}
			members[i].deps = append(members[i].deps, d)
		}
	}
	return members, p.followTails(g, members, keys), staged, nil
}

// takePlace decides about a member that replaces a job. It may replace the member's spec by one
// that names the job.
func (p *plan) takePlace(g *store.Group, member int, id gq.JobID, staged []staging) (staging, error) {
	old, ok := p.state(id)
	if !ok {
		return staging{}, fmt.Errorf("replace job %s: %w", id, gq.ErrNotFound)
	}
	if slices.ContainsFunc(staged, func(s staging) bool { return s.id == id }) {
		return staging{}, store.ReplacedTwice(id)
	}
	if err := g.Authorized(p.queueOf(id)); err != nil {
		return staging{}, err
	}
	if err := p.replaceable(id); err != nil {
		return staging{}, err
	}
	if g.Jobs[member].Replaces != id {
		g.Jobs = slices.Clone(g.Jobs) // the specs are the caller's
		g.Jobs[member].Replaces = id
	}
	next, events, err := g.Replace(old, g.Jobs[member].ID, p.now)
	return staging{id: id, next: next, events: events, replaces: true, member: member}, err
}

// insertion returns a job of this plan, nil if it is not one.
func (p *plan) insertion(id gq.JobID) *insertion {
	if i, ok := p.made[id]; ok {
		return &p.insertions[i]
	}
	return nil
}

// queueOf returns the queue of a job that exists or that this plan inserts.
func (p *plan) queueOf(id gq.JobID) string {
	if r := p.found[id]; r != nil {
		return r.queue
	}
	return p.insertion(id).row.queue
}

// checkFollowers refuses to replace a job whose dependents cannot follow.
func (p *plan) checkFollowers(g *store.Group, members []member, staged []staging, info machine.GraphInfo) error {
	for i := range staged {
		s := &staged[i]
		if !s.replaces {
			continue
		}
		followers := p.followers[s.id]
		for k := range p.insertions {
			if slices.ContainsFunc(p.insertions[k].awaits, func(d gq.Dependency) bool { return p.heirOf(d.Job) == s.id }) {
				followers++
			}
		}
		var waiting gq.JobID
		if followers > 0 {
			old, err := p.specOf(s.id)
			if err != nil {
				return err
			}
			waiting = machine.NewDependency(members[s.member].deps,
				func(id gq.JobID) bool {
					return slices.ContainsFunc(old.DependsOn, func(d gq.Dependency) bool {
						last, _ := p.standing(d.Job, nil)
						return last == id || d.Job == id
					})
				},
				func(id gq.JobID) bool {
					if k := slices.IndexFunc(g.Jobs, func(s gq.Spec) bool { return s.ID == id }); k >= 0 {
						return len(members[k].deps) > 0
					}
					return p.stateOf(id).Status == gq.StatusPending
				})
		}
		if err := machine.CheckFollowers(&s.next, followers, info.Depth[s.member], waiting); err != nil {
			return err
		}
	}
	return nil
}

// settle makes the changes that come with a group.
func (p *plan) settle(staged []staging, g *store.Group) {
	for i := range staged {
		s := &staged[i]
		queue := p.queueOf(s.id)
		if made := p.insertion(s.id); made != nil {
			made.row.state, made.events = s.next, append(slices.Clip(made.events), s.events...)
			if s.replaces {
				made.awaits = nil
			}
		} else {
			p.record(p.found[s.id], s.next, s.events)
			p.states[s.id] = s.next
		}
		if !s.replaces {
			continue
		}
		p.live[queue]--
		by := g.Jobs[s.member].ID
		p.followers[by] = p.followers[s.id]
		if p.heirs == nil {
			p.heirs = make(map[gq.JobID]gq.JobID)
		}
		p.heirs[s.id] = by
	}
}

// heirOf returns the job that stands for one that may have been replaced in this plan.
func (p *plan) heirOf(id gq.JobID) gq.JobID {
	for {
		by, ok := p.heirs[id]
		if !ok {
			return id
		}
		id = by
	}
}

// standing returns the job that a dependency is about: the existing job that a member resolves to,
// and the last job that took the place of a replaced one.
func (p *plan) standing(id gq.JobID, existing map[gq.JobID]gq.JobID) (gq.JobID, error) {
	return store.Standing(id, func(id gq.JobID) (gq.JobID, error) {
		next, ok := existing[id]
		if !ok {
			next = p.stateOf(id).ReplacedBy
		}
		return next, nil
	})
}

// moveEdges makes the dependents of replaced jobs wait for the jobs that took their places.
func (p *plan) moveEdges(batch *pgx.Batch) {
	var from, to []int64
	for old := range p.heirs {
		if p.found[old] != nil && p.followers[old] > 0 {
			from, to = append(from, int64(p.states[old].Sequence)), append(to, int64(p.stateOf(p.heirOf(old)).Sequence))
		}
	}
	if len(from) == 0 {
		return
	}
	batch.Queue(`
		UPDATE gq.edge AS e SET parent = n.heir
		FROM (SELECT unnest($1::bigint[]) AS parent, unnest($2::bigint[]) AS heir) AS n
		WHERE e.parent = ANY (ARRAY [n.parent])`,
		from, to)
}

// countFollowers counts the jobs that wait for those that the new jobs may replace, each up to
// one more than may follow.
func (tx *txn) countFollowers(ctx context.Context, p *plan, jobs []*gq.Spec) (map[gq.JobID]int, error) {
	seqs := make(map[int64]gq.JobID)
	add := func(id gq.JobID) {
		if r := p.found[id]; r != nil && r.state.Live() && !r.state.Status.Held() {
			seqs[int64(r.state.Sequence)] = id
		}
	}
	for _, spec := range jobs {
		add(spec.Replaces)
		if spec.Unique.OnCollision == gq.Replace {
			add(p.keys[store.KeyOf(spec)].job)
		}
	}
	counts := make(map[gq.JobID]int, len(seqs))
	if len(seqs) == 0 {
		return counts, nil
	}
	numbers := make([]int64, 0, len(seqs))
	for seq := range seqs {
		numbers = append(numbers, seq)
	}
	rows, err := tx.Query(ctx, `
		SELECT n.seq, (SELECT count(*) FROM (SELECT FROM gq.edge WHERE parent = n.seq LIMIT $2) AS e)
		FROM unnest($1::bigint[]) AS n (seq)`,
		numbers, gq.MaxFollowers+1)
	if err != nil {
		return nil, err
	}
	var seq int64
	var count int
	_, err = pgx.ForEachRow(rows, []any{&seq, &count}, func() error {
		counts[seqs[seq]] = count
		return nil
	})
	return counts, err
}
