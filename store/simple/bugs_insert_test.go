package simple

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var insertBugs = []bug{
	found("a refused group leaves its first member behind", "Insert/GroupAtomic", func(p *planted) {
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			answer := insert(g)
			if answer.Err != nil && len(g.Jobs) > 1 {
				insert(store.One(g.Jobs[0]))
			}
			return answer
		})
	}),
	found("a taken id is overwritten", "Insert/Duplicate", func(p *planted) {
		p.specs(func(s *gq.Spec) {
			if j := p.jobs[s.ID]; j != nil && s.Key.Name == "" {
				p.remove(j)
			}
		})
	}),
	found("the id of a finished job is free", "Insert/DuplicateFinishedID", func(p *planted) {
		p.specs(func(s *gq.Spec) {
			if j := p.jobs[s.ID]; j != nil && s.Key.Name == "" && !j.state.Live() {
				p.remove(j)
			}
		})
	}),
	found("a queue takes one job too many", "Insert/Depth", func(p *planted) {
		p.deeper(func(store.Group) int { return 1 })
	}),
	found("a group counts as one job against the depth", "Insert/Depth", func(p *planted) {
		p.deeper(func(g store.Group) int { return len(g.Jobs) - 1 })
	}),
	found("finished jobs count against the depth", "Insert/Depth", func(p *planted) {
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			counts := make(map[string]gq.Count)
			for name, c := range p.counts {
				counts[name] = *c
				c.By[gq.StatusScheduled] += c.By[gq.StatusCompleted] + c.By[gq.StatusCancelled] + c.By[gq.StatusFailed] + c.By[gq.StatusDeadLetter]
			}
			defer func() {
				for name, was := range counts {
					p.counts[name].By[gq.StatusScheduled] -= was.By[gq.StatusCompleted] + was.By[gq.StatusCancelled] + was.By[gq.StatusFailed] + was.By[gq.StatusDeadLetter]
				}
			}()
			return insert(g)
		})
	}),
	missed("the payload is the caller's memory", "Payload/Copied", func(p *planted) {
		p.placed(func(j *job, s *gq.Spec, _ *store.Placed) { j.spec.Payload.Data = s.Payload.Data })
	}),
	missed("JSON payloads lose their last byte", "Payload/Bytes", func(p *planted) {
		p.placed(func(j *job, s *gq.Spec, _ *store.Placed) {
			if n := len(s.Payload.Data); n > 0 && s.Payload.ContentType == gq.JSON {
				j.spec.Payload.Data = j.spec.Payload.Data[:n-1]
			}
		})
	}),
	missed("jobs are accepted that may not run before their lifetime is over", "Insert/RunTimeBeyondLife", func(p *planted) {
		p.specs(func(s *gq.Spec) {
			if !s.RunAt.IsZero() {
				s.Policy.Lifetime, s.Policy.RunLifetime = 0, 0
			}
		})
	}),
	missed("whoever may not change a job changes it", "Update/Unauthorized", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			u.Authorize = nil
			return update(u)
		})
	}),

	// Keys.
	found("a key never expires", "Keys/Window", func(p *planted) {
		p.keyed(func(use *keyUse, _ *job) { use.until = machine.Forever })
	}),
	found("a key is still taken at the end of its window", "Keys/Window", func(p *planted) {
		p.keyed(func(use *keyUse, _ *job) { use.until = use.until.Add(1) })
	}),
	found("keys have no scope", "Keys/Scope", func(p *planted) {
		p.disguised(func(s *gq.Spec) {
			if s.Key.Name != "" {
				s.Key.Scope = "any"
			}
		})
	}),
	found("scope and key are joined without a border", "Keys/Scope", func(p *planted) {
		p.disguised(func(s *gq.Spec) {
			if s.Key.Name != "" {
				s.Key.Scope, s.Key.Name = "any", s.Key.Scope+s.Key.Name
			}
		})
	}),
	missed("a key outlives its collected job", "Collect/Key", func(p *planted) {
		taken := make(map[gq.IdempotencyKey]bool)
		p.on.Collect = func(ctx context.Context, limit int) (int, time.Time, error) {
			for key := range p.keys {
				taken[key] = true
			}
			return p.Store.Collect(ctx, limit)
		}
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			for i := range g.Jobs {
				if taken[store.KeyOf(&g.Jobs[i])] {
					return store.Inserted{Err: gq.ErrNotUnique}
				}
			}
			return insert(g)
		})
	}),
	found("a different submission counts as the same", "Keys/Taken", func(p *planted) {
		p.answered(func(a *store.Placed) { a.Same = a.Same || a.Existing })
	}),
	found("a dependency on a member whose key is taken leads nowhere", "Keys/Dependency", func(p *planted) {
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			for _, member := range g.Jobs {
				if _, taken := p.keys[store.KeyOf(&member)]; taken {
					p.without(g, func(d gq.Dependency) bool { return d.Job == member.ID })
				}
			}
			return insert(g)
		})
	}),
	found("the rule of a unique job is not recorded", "Unique/Waiting Unique/Live Unique/Done Unique/Period", func(p *planted) {
		p.keyed(func(use *keyUse, j *job) {
			if use.while != 0 {
				use.while, use.until = 0, j.state.CreatedAt.Add(24*time.Hour)
			}
		})
	}),
	found("a submission that refuses collisions is answered with the existing job", "Unique/Refuse Replace/Held", func(p *planted) {
		p.collides(func(c *machine.Collision) {
			if c.Err != nil {
				*c = machine.Collision{Same: true}
			}
		})
	}),
	found("a debounced job keeps its time", "Unique/Debounce Unique/InCall", func(p *planted) {
		p.collides(func(c *machine.Collision) { c.Events = nil })
	}),
	found("a throttled job runs at once", "Unique/Throttle", func(p *planted) {
		p.collides(func(c *machine.Collision) { c.NotBefore = time.Time{} })
	}),

	// Replacing.
	missed("a submission is not told that it replaced a job", "Replace/Key", func(p *planted) {
		p.answered(func(a *store.Placed) { a.Replaces = gq.JobID{} })
	}),
	missed("the deadlines of a replaced job begin anew", "Replace/Deadlines", func(p *planted) {
		p.submits(func(b *machine.Submission) { b.Replaces = nil })
	}),
	missed("a job that takes the place of another one does not inherit what that one did", "Replace/Priority", func(p *planted) {
		p.submits(func(b *machine.Submission) {
			if b.Replaces != nil {
				old := *b.Replaces
				old.Inherited, b.Replaces = 0, &old
			}
		})
	}),
	missed("a job that was put off loses its checkpoint", "PutOff/Later", func(p *planted) {
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			if g.CarryOn != nil {
				carry := *g.CarryOn
				carry.Checkpoint, g.CarryOn = nil, &carry
			}
			return insert(g)
		})
	}),
	found("a job that is replaced stays", "Replace/Key Replace/Named Replace/Race Unique/InCall", func(p *planted) {
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			was, seq := p.states(), p.eventSeq
			answer := insert(g)
			for _, a := range answer.Jobs {
				if old := p.jobs[a.Replaces]; old != nil {
					p.replace(old, was[old])
					p.rewrites(seq, func(e *gq.Event) bool { return e.Job != a.Replaces })
				}
			}
			return answer
		})
	}),
	found("dependents stay with the job that is replaced", "Replace/Dependents", func(p *planted) {
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			earlier := p.states()
			answer := insert(g)
			for _, a := range answer.Jobs {
				if old, j := p.jobs[a.Replaces], p.jobs[a.State.ID]; old != nil {
					j.dependents = slices.DeleteFunc(j.dependents, func(d dependent) bool {
						_, moved := earlier[p.jobs[d.id]]
						if moved {
							p.tell(d, old)
						}
						return moved
					})
				}
			}
			return answer
		})
	}),
	found("a later dependency on a replaced job is about that one", "Replace/Late", func(p *planted) {
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			defer p.jobsWith(func(s *gq.State) { s.ReplacedBy = gq.JobID{} })()
			return insert(g)
		})
	}),
	missed("a job that a worker holds can be replaced", "Replace/Held", func(p *planted) {
		p.specs(func(s *gq.Spec) {
			if old := p.jobs[s.Replaces]; old != nil && old.state.Status.Held() {
				next := old.state
				next.Status, next.Lease = gq.StatusScheduled, nil
				p.replace(old, next)
			}
		})
	}),
	missed("a job may come to wait for itself through an order key", "Replace/Chain", func(p *planted) {
		p.rules.followers = func(old *gq.State, n, depth int, _ gq.JobID) error {
			return machine.CheckFollowers(old, n, depth, gq.JobID{})
		}
	}),

	// Dependencies and order keys.
	found("unknown dependencies are ignored", "Graph/Unknown", func(p *planted) {
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			p.without(g, func(d gq.Dependency) bool {
				return p.jobs[d.Job] == nil && !slices.ContainsFunc(g.Jobs, func(s gq.Spec) bool { return s.ID == d.Job })
			})
			return insert(g)
		})
	}),
	found("existing jobs have no depth", "Graph/Depth", func(p *planted) {
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			defer p.jobsWith(func(s *gq.State) { s.Depth = 1 })()
			return insert(g)
		})
	}),
	found("nothing is inherited", "Graph/Priority", func(p *planted) {
		p.submits(func(b *machine.Submission) { b.Inherited = 0 })
	}),
	found("a job inherits its own priority", "Graph/Priority", func(p *planted) {
		p.submits(func(b *machine.Submission) {
			if b.Inherited.Valid() {
				b.Inherited = b.Own
			}
		})
	}),
	found("jobs with the same order key run side by side", "StrictOrder/Retries", func(p *planted) {
		p.disguised(func(s *gq.Spec) { s.OrderKey = "" })
	}),
	found("an order key is one in all queues", "StrictOrder/Keys", func(p *planted) {
		p.specs(func(s *gq.Spec) {
			var last *job
			for _, j := range p.submitted.items {
				if s.OrderKey != "" && j.spec.OrderKey == s.OrderKey && j.state.Live() {
					last = j
				}
			}
			if p.tails[store.OrderKeyOf(s)] = last; last == nil {
				delete(p.tails, store.OrderKeyOf(s))
			}
		})
	}),
	found("a job whose predecessor is cancelled does not wait for the one before that", "StrictOrder/Skipped", func(p *planted) {
		p.before = func() {
			for _, j := range p.jobs {
				j.ahead = nil
			}
		}
	}),
	found("dependents of a finished job wait for ever", "Depend/Ended", func(p *planted) {
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			n := len(p.dependents)
			defer func() { p.dependents = p.dependents[:n] }()
			return insert(g)
		})
	}),

	// Children.
	missed("the children of a refused update are inserted", "Spawn/Unchanged", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			answer := update(u)
			if answer.Err != nil {
				_, _ = p.spawn(&u, p.last)
			}
			return answer
		})
	}),
	missed("an update that was answered before inserts children", "Spawn/Unchanged", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			answer := update(u)
			if answer.Err == nil && !answer.Changed {
				_, _ = p.spawn(&u, p.last)
			}
			return answer
		})
	}),
	missed("an update whose children are refused is written", "Spawn/Refused", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			answer := update(u)
			if refused := answer.Err; refused != nil && len(u.Spawn) > 0 {
				u.Spawn = nil
				answer = update(u)
				answer.Err = refused
			}
			return answer
		})
	}),
	missed("children are not inserted", "Spawn/Complete", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			u.Spawn = nil
			return update(u)
		})
	}),
}

// deeper lets queues take more jobs of a group than they may.
func (p *planted) deeper(more func(store.Group) int) {
	p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
		defer p.queuesWith(func(q *gq.Queue) {
			if q.MaxDepth > 0 {
				q.MaxDepth += more(g)
			}
		})()
		return insert(g)
	})
}

// keyed changes how the keys of new jobs are recorded.
func (p *planted) keyed(change func(*keyUse, *job)) {
	p.placed(func(j *job, s *gq.Spec, _ *store.Placed) {
		if use, ok := p.keys[store.KeyOf(s)]; ok {
			change(&use, j)
			p.keys[store.KeyOf(s)] = use
		}
	})
}

// without removes dependencies from a group.
func (p *planted) without(g store.Group, wrong func(gq.Dependency) bool) {
	for i := range g.Jobs {
		g.Jobs[i].DependsOn = slices.DeleteFunc(slices.Clone(g.Jobs[i].DependsOn), wrong)
	}
}

func (p *planted) collides(change func(*machine.Collision)) {
	p.rules.collide = func(h machine.KeyHolder, s *gq.Spec, now time.Time) machine.Collision {
		c := machine.Collide(h, s, now)
		change(&c)
		return c
	}
}

func (p *planted) submits(change func(*machine.Submission)) {
	p.rules.submit = func(b machine.Submission, now time.Time) (gq.State, []gq.Event) {
		change(&b)
		return machine.Submit(b, now)
	}
}

// Memory that was returned is the store's own.
var memoryBugs = []bug{
	missed("leases that were returned are the store's memory", "Memory/Read Memory/Written Memory/Held Memory/Apart", func(p *planted) {
		p.lends(func(s *gq.State, _ *gq.Job, j *job) {
			if s.Lease != nil && j.state.Lease != nil {
				s.Lease = j.state.Lease
			}
		})
	}),
	missed("policies that were returned are the store's memory", "Memory/Read Memory/Written Memory/Apart", func(p *planted) {
		p.lends(func(s *gq.State, _ *gq.Job, j *job) { s.Policy = j.state.Policy })
	}),
	missed("failures that were returned are the store's memory", "Memory/Read", func(p *planted) {
		p.lends(func(s *gq.State, _ *gq.Job, j *job) { s.Failure = j.state.Failure })
	}),
	missed("bytes that were returned are the store's memory", "Memory/Read Memory/Apart", func(p *planted) {
		p.lends(func(_ *gq.State, whole *gq.Job, j *job) {
			whole.Result, whole.Checkpoint = j.result, j.checkpoint
			if whole.Spec.Payload.Data != nil {
				whole.Spec.Payload.Data = j.spec.Payload.Data
			}
		})
	}),
	missed("maps that were returned are the store's memory", "Memory/Read Memory/Apart", func(p *planted) {
		p.lends(func(_ *gq.State, whole *gq.Job, j *job) {
			whole.Spec.Attributes, whole.Metadata.Tags = j.spec.Attributes, j.metadata.Tags
		})
	}),
	missed("lists that were returned are the store's memory", "Memory/Read Memory/Apart", func(p *planted) {
		p.lends(func(_ *gq.State, whole *gq.Job, j *job) { whole.Spec.Requires = j.spec.Requires })
	}),
	missed("the document is the caller's memory", "Docs/Data", func(p *planted) {
		p.on.PutDocs = func(ctx context.Context, docs []store.Doc) ([]uint64, error) {
			versions, err := p.Store.PutDocs(ctx, docs)
			for key, d := range p.docs {
				for _, given := range docs {
					if given.Kind == key.kind && given.Name == key.name && bytes.Equal(given.Data, d.Data) {
						d.Data = given.Data
						p.docs[key] = d
					}
				}
			}
			return versions, err
		}
	}),
}

// lends calls share for each job in an answer; whole is the job, or empty where only its state was
// asked for.
func (p *planted) lends(share func(s *gq.State, whole *gq.Job, j *job)) {
	state := func(s *gq.State) {
		if j := p.jobs[s.ID]; j != nil {
			share(s, new(gq.Job), j)
		}
	}
	jobs := func(jobs []gq.Job) {
		for i := range jobs {
			if j := p.jobs[jobs[i].State.ID]; j != nil {
				share(&jobs[i].State, &jobs[i], j)
			}
		}
	}
	found := func(found []store.Found) {
		for i := range found {
			if j := p.jobs[found[i].State.ID]; j != nil {
				share(&found[i].State, &found[i].Job, j)
			}
		}
	}
	p.on.Get = func(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error) {
		out, err := p.Store.Get(ctx, refs, parts)
		found(out)
		return out, err
	}
	p.on.Peek = func(ctx context.Context, f store.Filter, n int) ([]store.Found, error) {
		out, err := p.Store.Peek(ctx, f, n)
		found(out)
		return out, err
	}
	p.on.List = func(ctx context.Context, q gq.Query) (gq.Page, error) {
		page, err := p.Store.List(ctx, q)
		jobs(page.Jobs)
		return page, err
	}
	p.on.Claim = func(ctx context.Context, c []store.Claim) ([]store.Claimed, error) {
		out, err := p.Store.Claim(ctx, c)
		for i := range out {
			jobs(out[i].Jobs)
		}
		return out, err
	}
	p.on.Insert = func(ctx context.Context, g []store.Group) ([]store.Inserted, error) {
		out, err := p.Store.Insert(ctx, g)
		for i := range out {
			for k := range out[i].Jobs {
				state(&out[i].Jobs[k].State)
			}
		}
		return out, err
	}
	p.on.Update = func(ctx context.Context, u []store.Update) ([]store.Updated, error) {
		out, err := p.Store.Update(ctx, u)
		for i := range out {
			state(&out[i].State)
			for k := range out[i].Spawned {
				state(&out[i].Spawned[k].State)
			}
		}
		return out, err
	}
}
