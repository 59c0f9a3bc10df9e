package simple

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/storetest"
)

// planted is a store with a bug, which is planted in its rules, in its calls, or before and after
// each of them. It makes one call at a time, so that a bug may read and write what Store guards.
type planted struct {
	*Store
	on            calls
	before, after func()
	reopened      func() // after the store was opened again

	mu sync.Mutex
}

// calls are methods of a store that a bug may replace.
type calls struct {
	Insert            func(context.Context, []store.Group) ([]store.Inserted, error)
	Update            func(context.Context, []store.Update) ([]store.Updated, error)
	Change            func(context.Context, store.Change) (store.Changed, error)
	Get               func(context.Context, []store.Ref, gq.Parts) ([]store.Found, error)
	List              func(context.Context, gq.Query) (gq.Page, error)
	Counts            func(context.Context, ...string) ([]gq.Count, error)
	Claim             func(context.Context, []store.Claim) ([]store.Claimed, error)
	Peek              func(context.Context, store.Filter, int) ([]store.Found, error)
	Waiting           func(ctx context.Context, prefix, after string, limit int) ([]string, error)
	Due               func(context.Context, int) (store.Due, error)
	ReleaseDependents func(context.Context, int) (int, error)
	Collect           func(context.Context, int) (int, time.Time, error)
	Purge             func(context.Context, []gq.JobID) ([]error, error)
	Events            func(context.Context, uint64, int) ([]gq.Event, error)
	PutQueue          func(context.Context, gq.Queue) error
	PutKey            func(context.Context, gq.QueueKey) error
	Pools             func(context.Context) ([]gq.Pool, error)
	PutDocs           func(context.Context, []store.Doc) ([]uint64, error)
	Doc               func(ctx context.Context, kind, name string) (store.Doc, error)
	FindDocs          func(context.Context, []store.DocName) ([]store.Doc, error)
	Docs              func(ctx context.Context, kind, after string, limit int) ([]store.Doc, error)
	Notify            func(bool, func(store.News)) func()
	Close             func() error
}

// backend opens stores with a bug. None is planted by a nil function.
func backend(plant func(*planted)) storetest.Backend {
	open := func(s *Store) *planted {
		p := &planted{Store: s, before: func() {}, after: func() {}, reopened: func() {}, on: calls{
			Insert: s.Insert, Update: s.Update, Change: s.Change, Get: s.Get, List: s.List, Counts: s.Counts,
			Claim: s.Claim, Peek: s.Peek, Waiting: s.Waiting,
			Due: s.Due, ReleaseDependents: s.ReleaseDependents, Collect: s.Collect, Purge: s.Purge, Events: s.Events,
			PutQueue: s.PutQueue, PutKey: s.PutKey, Pools: s.Pools,
			PutDocs: s.PutDocs, Doc: s.Doc, FindDocs: s.FindDocs, Docs: s.Docs, Notify: s.Notify, Close: s.Close,
		}}
		plant(p)
		return p
	}
	return storetest.Backend{
		Open: func(t testing.TB, cfg store.Config) store.Store {
			t.Helper()
			s, err := Open(cfg)
			if err != nil {
				t.Fatalf("open: %v", err)
			}
			if plant == nil {
				return s
			}
			return open(s)
		},
		Reopen: func(t testing.TB, old store.Store, _ store.Config) store.Store {
			t.Helper()
			if err := old.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			if p, ok := old.(*planted); ok {
				again := open(p.Store.reopen())
				again.reopened()
				return again
			}
			return old.(*Store).reopen()
		},
	}
}

// reopen opens a closed store with its data, as a store on a disk is opened again.
func (s *Store) reopen() *Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = false
	return s
}

// call begins a call. The caller must call the result at its end.
func (p *planted) call() (end func()) {
	p.mu.Lock()
	p.before()
	return func() {
		p.after()
		p.mu.Unlock()
	}
}

func (p *planted) Insert(ctx context.Context, g []store.Group) ([]store.Inserted, error) {
	defer p.call()()
	return p.on.Insert(ctx, g)
}

func (p *planted) Update(ctx context.Context, u []store.Update) ([]store.Updated, error) {
	defer p.call()()
	return p.on.Update(ctx, u)
}

func (p *planted) Change(ctx context.Context, c store.Change) (store.Changed, error) {
	defer p.call()()
	return p.on.Change(ctx, c)
}

func (p *planted) Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error) {
	defer p.call()()
	return p.on.Get(ctx, refs, parts)
}

func (p *planted) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	defer p.call()()
	return p.on.List(ctx, q)
}

func (p *planted) Counts(ctx context.Context, queues ...string) ([]gq.Count, error) {
	defer p.call()()
	return p.on.Counts(ctx, queues...)
}

func (p *planted) Keyed(ctx context.Context, scopes, names []string) ([]gq.JobID, error) {
	defer p.call()()
	return p.Store.Keyed(ctx, scopes, names)
}

func (p *planted) Claim(ctx context.Context, c []store.Claim) ([]store.Claimed, error) {
	defer p.call()()
	return p.on.Claim(ctx, c)
}

func (p *planted) Peek(ctx context.Context, f store.Filter, n int) ([]store.Found, error) {
	defer p.call()()
	return p.on.Peek(ctx, f, n)
}

func (p *planted) Waiting(ctx context.Context, prefix, after string, limit int) ([]string, error) {
	defer p.call()()
	return p.on.Waiting(ctx, prefix, after, limit)
}

func (p *planted) Now(ctx context.Context) (time.Time, error) {
	defer p.call()()
	return p.Store.Now(ctx)
}

func (p *planted) Due(ctx context.Context, limit int) (store.Due, error) {
	defer p.call()()
	return p.on.Due(ctx, limit)
}

func (p *planted) ReleaseDependents(ctx context.Context, limit int) (int, error) {
	defer p.call()()
	return p.on.ReleaseDependents(ctx, limit)
}

func (p *planted) Collect(ctx context.Context, limit int) (int, time.Time, error) {
	defer p.call()()
	return p.on.Collect(ctx, limit)
}

func (p *planted) Purge(ctx context.Context, ids []gq.JobID) ([]error, error) {
	defer p.call()()
	return p.on.Purge(ctx, ids)
}

func (p *planted) Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
	defer p.call()()
	return p.on.Events(ctx, after, limit)
}

func (p *planted) LastEvent(ctx context.Context) (uint64, error) {
	defer p.call()()
	return p.Store.LastEvent(ctx)
}

func (p *planted) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	defer p.call()()
	return p.Store.History(ctx, id)
}

func (p *planted) PutQueue(ctx context.Context, q gq.Queue) error {
	defer p.call()()
	return p.on.PutQueue(ctx, q)
}

func (p *planted) DeleteQueue(ctx context.Context, name string) error {
	defer p.call()()
	return p.Store.DeleteQueue(ctx, name)
}

func (p *planted) Queues(ctx context.Context, q store.QueueQuery) ([]gq.Queue, error) {
	defer p.call()()
	return p.Store.Queues(ctx, q)
}

func (p *planted) PutKey(ctx context.Context, k gq.QueueKey) error {
	defer p.call()()
	return p.on.PutKey(ctx, k)
}

func (p *planted) Keys(ctx context.Context, q store.KeyQuery) ([]gq.QueueKey, error) {
	defer p.call()()
	return p.Store.Keys(ctx, q)
}

func (p *planted) PutPool(ctx context.Context, pool gq.Pool) error {
	defer p.call()()
	return p.Store.PutPool(ctx, pool)
}

func (p *planted) Pools(ctx context.Context) ([]gq.Pool, error) {
	defer p.call()()
	return p.on.Pools(ctx)
}

func (p *planted) PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error) {
	defer p.call()()
	return p.on.PutDocs(ctx, docs)
}

func (p *planted) Doc(ctx context.Context, kind, name string) (store.Doc, error) {
	defer p.call()()
	return p.on.Doc(ctx, kind, name)
}

func (p *planted) FindDocs(ctx context.Context, names []store.DocName) ([]store.Doc, error) {
	defer p.call()()
	return p.on.FindDocs(ctx, names)
}

func (p *planted) Docs(ctx context.Context, kind, after string, limit int) ([]store.Doc, error) {
	defer p.call()()
	return p.on.Docs(ctx, kind, after, limit)
}

func (p *planted) Notify(events bool, f func(store.News)) func() {
	defer p.call()()
	return p.on.Notify(events, f)
}

func (p *planted) Close() error {
	defer p.call()()
	return p.on.Close()
}

// groups has each group inserted by f, which may call insert.
func (p *planted) groups(f func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted) {
	p.on.Insert = func(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
		return each(groups, func(g store.Group) (out store.Inserted, err error) {
			g.Jobs = slices.Clone(g.Jobs)
			return f(g, func(g store.Group) store.Inserted { return one(ctx, p.Store.Insert, g, &err) }), err
		})
	}
}

// claims has each claim answered by f, which may call claim.
func (p *planted) claims(f func(c store.Claim, claim func(store.Claim) store.Claimed) store.Claimed) {
	p.on.Claim = func(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
		return each(claims, func(c store.Claim) (out store.Claimed, err error) {
			return f(c, func(c store.Claim) store.Claimed { return one(ctx, p.Store.Claim, c, &err) }), err
		})
	}
}

// updates has each update made by f, which may call update.
func (p *planted) updates(f func(u store.Update, update func(store.Update) store.Updated) store.Updated) {
	p.on.Update = func(ctx context.Context, updates []store.Update) ([]store.Updated, error) {
		return each(updates, func(u store.Update) (out store.Updated, err error) {
			return f(u, func(u store.Update) store.Updated { return one(ctx, p.Store.Update, u, &err) }), err
		})
	}
}

// each answers the items of a call one by one.
func each[In, Out any](items []In, f func(In) (Out, error)) ([]Out, error) {
	out := make([]Out, len(items))
	for i, item := range items {
		var err error
		if out[i], err = f(item); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// one makes a call with one item. It puts the error of the call into err.
func one[In, Out any](ctx context.Context, call func(context.Context, []In) ([]Out, error), item In, err *error) (out Out) {
	answers, failed := call(ctx, []In{item})
	if *err = failed; failed != nil {
		return out
	}
	return answers[0]
}

// specs changes every spec before it is inserted.
func (p *planted) specs(change func(*gq.Spec)) {
	p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
		for i := range g.Jobs {
			change(&g.Jobs[i])
		}
		return insert(g)
	})
}

// disguised inserts every spec with a change that its job does not keep.
func (p *planted) disguised(change func(*gq.Spec)) {
	p.inserted(change, func(j *job, spec *gq.Spec, _ *store.Placed) {
		j.spec.Key, j.spec.OrderKey, j.spec.Policy = spec.Key, spec.OrderKey, spec.Policy
	})
}

// placed calls f for each job that was inserted, with its spec.
func (p *planted) placed(f func(j *job, spec *gq.Spec, a *store.Placed)) {
	p.inserted(func(*gq.Spec) {}, f)
}

func (p *planted) inserted(change func(*gq.Spec), f func(j *job, spec *gq.Spec, a *store.Placed)) {
	p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
		given := slices.Clone(g.Jobs)
		for i := range g.Jobs {
			change(&g.Jobs[i])
		}
		answer := insert(g)
		for i := range answer.Jobs {
			if a := &answer.Jobs[i]; !a.Existing {
				f(p.jobs[a.State.ID], &given[i], a)
			}
		}
		return answer
	})
}

// answered changes the answer to each submitted job.
func (p *planted) answered(change func(*store.Placed)) {
	p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
		answer := insert(g)
		for i := range answer.Jobs {
			change(&answer.Jobs[i])
		}
		return answer
	})
}

// applies replaces the function of every update by f, which may call apply.
func (p *planted) applies(f func(apply store.Apply, s gq.State, now time.Time) (gq.State, []gq.Event, error)) {
	p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
		apply := u.Apply
		u.Apply = func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return f(apply, s, now) }
		return update(u)
	})
}

// asked changes every claim.
func (p *planted) asked(change func(*store.Claim)) {
	p.claims(func(c store.Claim, claim func(store.Claim) store.Claimed) store.Claimed {
		change(&c)
		return claim(c)
	})
}

// granted changes what a claim gives to a job.
func (p *planted) granted(change func(*gq.State, *machine.Grant)) {
	claim := p.rules.claim
	p.rules.claim = func(s gq.State, g machine.Grant, now time.Time) (gq.State, []gq.Event, error) {
		change(&s, &g)
		return claim(s, g, now)
	}
}

// limited changes the queues for each claim.
func (p *planted) limited(change func(*gq.Queue)) {
	p.claims(func(c store.Claim, claim func(store.Claim) store.Claimed) store.Claimed {
		defer p.queuesWith(change)()
		return claim(c)
	})
}

// queuesWith changes all queues until back is called.
func (p *planted) queuesWith(change func(*gq.Queue)) (back func()) {
	was := maps.Clone(p.queues)
	for name, q := range was {
		change(&q)
		p.queues[name] = q
	}
	return func() { maps.Copy(p.queues, was) }
}

// jobsWith changes all jobs until back is called. Those that have changed since stay.
func (p *planted) jobsWith(change func(*gq.State)) (back func()) {
	was := make(map[*job][2]gq.State)
	for _, j := range p.jobs {
		next := j.state
		if change(&next); next != j.state {
			was[j] = [2]gq.State{j.state, next}
			p.replace(j, next)
		}
	}
	return func() {
		for j, s := range was {
			if j.state == s[1] {
				p.replace(j, s[0])
			}
		}
	}
}

// states returns the states of all jobs.
func (p *planted) states() map[*job]gq.State {
	all := make(map[*job]gq.State)
	for _, j := range p.jobs {
		all[j] = j.state
	}
	return all
}

// rewrites changes every event after a number, or removes it if change returns false.
func (p *planted) rewrites(after uint64, change func(*gq.Event) bool) {
	rewrite := func(events []gq.Event) []gq.Event {
		kept := events[:0:0]
		for _, e := range events {
			if e.Seq <= after || change(&e) {
				kept = append(kept, e)
			}
		}
		return kept
	}
	p.events = rewrite(p.events)
	for _, j := range p.jobs {
		j.events = rewrite(j.events)
	}
}
