package simple

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"runtime"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var updateBugs = []bug{
	found("updates see a time that is 1 ns old", "Fence/Expired Clock/Joined", func(p *planted) {
		p.applies(func(apply store.Apply, s gq.State, _ time.Time) (gq.State, []gq.Event, error) {
			return apply(s, p.config.Clock.Now().Add(-1))
		})
	}),
	found("a refused update is written", "Update/Refused", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			apply, refused := u.Apply, error(nil)
			u.Apply = func(s gq.State, now time.Time) (next gq.State, events []gq.Event, err error) {
				next, events, refused = apply(s, now)
				return next, events, nil
			}
			answer := update(u)
			if refused != nil {
				answer.Err = refused
				p.find(u.Ref).keep(&u)
			}
			return answer
		})
	}),
	found("the blobs of a refused update are written", "Update/Refused Fence/", func(p *planted) {
		p.keeps(func(a store.Updated) bool { return a.Err != nil })
	}),
	missed("the blobs of an update that was answered before are written", "Settle/RepeatAfterRetry", func(p *planted) {
		p.keeps(func(a store.Updated) bool { return a.Err == nil && !a.Changed })
	}),
	missed("updates are decided outside the lock", "Update/Concurrent", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			if j := p.find(u.Ref); j != nil {
				seen, apply := j.state, u.Apply
				p.mu.Unlock()
				runtime.Gosched()
				p.mu.Lock()
				u.Apply = func(_ gq.State, now time.Time) (gq.State, []gq.Event, error) { return apply(seen, now) }
			}
			return update(u)
		})
	}),
	found("updates of one call do not see each other", "Update/Twice", func(p *planted) {
		update := p.on.Update
		p.on.Update = func(ctx context.Context, updates []store.Update) ([]store.Updated, error) {
			seen := p.states()
			updates = slices.Clone(updates)
			for i, u := range updates {
				if j := p.find(u.Ref); j != nil {
					updates[i].Apply = func(_ gq.State, now time.Time) (gq.State, []gq.Event, error) { return u.Apply(seen[j], now) }
				}
			}
			return update(ctx, updates)
		}
	}),
	found("a heartbeat is an event", "Settle/Heartbeat Events/Only", func(p *planted) {
		p.applies(func(apply store.Apply, s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			next, events, err := apply(s, now)
			if err == nil && next != s && len(events) == 0 {
				events = []gq.Event{{Job: next.ID, Type: gq.EventUpdated, Status: next.Status, Attempt: next.Attempt}}
			}
			return next, events, err
		})
	}),
	found("a heartbeat does not extend the lease", "Settle/Heartbeat", func(p *planted) {
		p.applies(func(apply store.Apply, s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			next, events, err := apply(s, now)
			if len(events) == 0 && next.Lease != nil && s.Lease != nil {
				next.Lease = s.Lease
			}
			return next, events, err
		})
	}),
	found("results are lost", "Blob/Result", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			u.Result = nil
			return update(u)
		})
	}),
	missed("results, checkpoints and metadata are stored unchecked", "Blob/Limits", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			limits := p.config.Limits
			defer func() { p.config.Limits = limits }()
			p.config.Limits.ResultBytes, p.config.Limits.CheckpointBytes = 1<<40, 1<<40
			return update(u)
		})
	}),
	found("an update without a checkpoint drops the one there is", "Blob/Checkpoint Blob/Kept", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			answer := update(u)
			if j := p.find(u.Ref); answer.Changed && u.Checkpoint == nil {
				j.checkpoint = nil
			}
			return answer
		})
	}),
	found("what was to settle a job ends its lease also where it is refused", "Settle/Hint", func(p *planted) {
		p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
			answer := update(u)
			if j := p.find(u.Ref); answer.Err != nil && u.Settles && j != nil && j.state.Status.Held() {
				next := j.state
				next.Status, next.Lease = gq.StatusScheduled, nil
				p.replace(j, next)
			}
			return answer
		})
	}),
}

var timeBugs = []bug{
	found("execution timeouts are not due", "Due/Each", func(p *planted) {
		p.rules.due = func(s *gq.State) time.Time {
			endless, policy := *s, *s.Policy
			if policy.ExecutionTimeout, endless.Policy = 0, &policy; s.Status == gq.StatusRunning {
				s = &endless
			}
			return machine.Due(s)
		}
	}),
	found("what is due is listed by submission", "Due/Order", func(p *planted) {
		p.on.Due = func(ctx context.Context, limit int) (store.Due, error) {
			due, err := p.Store.Due(ctx, limit)
			slices.SortFunc(due.Jobs, func(a, b gq.JobID) int { return bySequence(p.jobs[a], p.jobs[b]) })
			return due, err
		}
	}),
	found("Due never says when to look again", "Due/Nothing", func(p *planted) {
		p.on.Due = func(ctx context.Context, limit int) (store.Due, error) {
			due, err := p.Store.Due(ctx, limit)
			due.Next = time.Time{}
			return due, err
		}
	}),
	found("the time of the store follows its clock backwards", "Clock/Backwards Clock/Now", func(p *planted) {
		p.before = func() { p.last = time.Time{} }
	}),
	found("the clock is read for each event", "Clock/Batch", func(p *planted) {
		p.afterEvents(func(e *gq.Event) bool {
			e.Time = p.config.Clock.Now()
			return true
		})
	}),

	// Dependents.
	found("dependents are never told", "Depend/After", func(p *planted) {
		p.after = func() { p.dependents = nil }
	}),
	found("dependents are told twice", "Depend/FanIn", func(p *planted) {
		p.releases(func(told []dependent) []dependent { return append(slices.Clone(told), told...) })
	}),
	found("dependents are told of success, whatever happened", "Depend/Failure", func(p *planted) {
		p.releases(func(told []dependent) []dependent {
			for i := range told {
				told[i].ended.Status = gq.StatusCompleted
			}
			return told
		})
	}),
	found("the first dependency to end releases", "Depend/After", func(p *planted) {
		p.releases(func(told []dependent) []dependent {
			for _, d := range told {
				if j := p.jobs[d.id]; j != nil && j.state.Waits > 1 {
					next := j.state
					next.Waits = 1
					p.replace(j, next)
				}
			}
			return told
		})
	}),
	found("a bad end stops at the first generation", "Depend/Failure", func(p *planted) {
		p.releases(func(told []dependent) []dependent {
			for _, d := range told {
				if j := p.jobs[d.id]; j != nil {
					if next, _, _ := machine.DependencyEnded(j.state, d.ended, p.nowLocked()); !next.Live() {
						j.dependents = nil
					}
				}
			}
			return told
		})
	}),

	// Collecting.
	found("jobs are collected 1 ns early", "Collect/Retention", func(p *planted) {
		p.rules.kept = func(r store.Retention, s *gq.State) time.Duration { return r.For(s) - 1 }
	}),
	found("the retention of a job's own policy is ignored", "Collect/Own Collect/OwnLonger Collect/None", func(p *planted) {
		p.rules.kept = func(r store.Retention, s *gq.State) time.Duration { return r.Of(s.Status) }
	}),
	found("retention counts from submission", "Collect/Retention", func(p *planted) {
		p.rules.kept = func(r store.Retention, s *gq.State) time.Duration { return r.For(s) - s.CompletedAt.Sub(s.CreatedAt) }
	}),
	found("live jobs are collected", "Collect/Live", func(p *planted) {
		p.on.Collect = func(ctx context.Context, limit int) (int, time.Time, error) {
			n, next, err := p.Store.Collect(ctx, limit)
			for _, j := range slices.Clone(p.submitted.items) {
				if j.state.Live() && n < limit && !p.nowLocked().Before(j.state.CreatedAt.Add(p.config.Retention.Completed)) {
					p.remove(j)
					n++
				}
			}
			return n, next, err
		}
	}),
	found("all events go with the first job", "Collect/Events", func(p *planted) {
		p.collected(func() {
			p.rewrites(0, func(*gq.Event) bool { return false })
			p.gone = p.eventSeq
		})
	}),
	found("dependents of a collected job wait for ever", "Collect/Dependents", func(p *planted) {
		p.collected(func() { p.dependents = nil })
	}),
	found("live jobs are purged", "Purge/Live", func(p *planted) {
		p.on.Purge = func(ctx context.Context, ids []gq.JobID) ([]error, error) {
			answers, err := p.Store.Purge(ctx, ids)
			for i := range answers {
				if j := p.jobs[ids[i]]; j != nil {
					answers[i] = nil
					p.remove(j)
				}
			}
			return answers, err
		}
	}),
	found("events go with a purged job", "Purge/Events", func(p *planted) {
		p.on.Purge = func(ctx context.Context, ids []gq.JobID) ([]error, error) {
			answers, err := p.Store.Purge(ctx, ids)
			for i := range answers {
				if answers[i] == nil {
					p.forget(map[gq.JobID]bool{ids[i]: true})
				}
			}
			return answers, err
		}
	}),
}

var readBugs = []bug{
	found("every read carries all blobs", "Payload/Parts", func(p *planted) {
		p.lends(func(_ *gq.State, whole *gq.Job, j *job) {
			whole.Spec.Payload.Data = bytes.Clone(j.spec.Payload.Data)
			whole.Result, whole.Checkpoint = bytes.Clone(j.result), bytes.Clone(j.checkpoint)
		})
	}),
	found("finished jobs are not listed", "List/Order", func(p *planted) {
		p.on.List = func(ctx context.Context, q gq.Query) (gq.Page, error) {
			page, err := p.Store.List(ctx, q)
			page.Jobs = slices.DeleteFunc(page.Jobs, func(j gq.Job) bool { return !j.State.Live() })
			return page, err
		}
	}),
	missed("pages are cut by position", "List/Pages", func(p *planted) {
		p.on.List = func(ctx context.Context, q gq.Query) (gq.Page, error) {
			passed, err := store.ParseCursor(q.Cursor)
			if err != nil || q.Limit == 0 {
				return p.Store.List(ctx, q)
			}
			limit := q.Limit
			q.Cursor, q.Limit = "", min(limit+int(passed), store.MaxPage)
			page, err := p.Store.List(ctx, q)
			page.Jobs = page.Jobs[min(int(passed), len(page.Jobs)):]
			if page.Next != "" {
				page.Next = store.Cursor(passed + uint64(limit))
			}
			return page, err
		}
	}),
	found("a range of creation times includes its end", "List/Created", func(p *planted) {
		p.on.List = func(ctx context.Context, q gq.Query) (gq.Page, error) {
			if !q.CreatedBefore.IsZero() {
				q.CreatedBefore = q.CreatedBefore.Add(1)
			}
			return p.Store.List(ctx, q)
		}
	}),
	found("held jobs count as running", "Counts/Steps", func(p *planted) {
		p.on.Counts = func(ctx context.Context, queues ...string) ([]gq.Count, error) {
			counts, err := p.Store.Counts(ctx, queues...)
			for i := range counts {
				by := &counts[i].By
				by[gq.StatusRunning] += by[gq.StatusClaimed]
				by[gq.StatusClaimed] = 0
			}
			return counts, err
		}
	}),
	found("the second event of a commit is lost", "Insert/FirstState", func(p *planted) {
		p.rules.submit = func(b machine.Submission, now time.Time) (gq.State, []gq.Event) {
			s, events := machine.Submit(b, now)
			return s, slices.DeleteFunc(events, func(e gq.Event) bool { return e.Type == gq.EventScheduled })
		}
	}),
	found("a replay begins with the event it should begin after", "Events/Replay", func(p *planted) {
		p.on.Events = func(ctx context.Context, after uint64, limit int) ([]gq.Event, error) {
			if after == 0 || after <= p.gone || len(p.events) <= 3 {
				return p.Store.Events(ctx, after, limit)
			}
			return p.Store.Events(ctx, after-1, limit)
		}
	}),
	found("an insert is told before what happened last", "Events/Turns", func(p *planted) {
		p.groups(func(g store.Group, insert func(store.Group) store.Inserted) store.Inserted {
			n := len(p.events)
			answer := insert(g)
			if n > 0 && len(p.events) > n {
				last, first := &p.events[n-1], &p.events[n]
				*last, *first = *first, *last
				last.Seq, first.Seq = first.Seq, last.Seq
			}
			return answer
		})
	}),

	// Notifications.
	missed("other queues of a pool are not told", "Notify/Room", func(p *planted) {
		p.hears(func(n *store.News) { n.Queues = n.Queues[:min(len(n.Queues), 1)] })
	}),
	missed("nobody is told that a running job is to stop", "Notify/Cancels", func(p *planted) {
		p.hears(func(n *store.News) { n.Cancels = nil })
	}),
	missed("what a queue is configured to is not told", "Notify/Room", func(p *planted) {
		configuring := false
		p.hears(func(n *store.News) {
			if configuring {
				*n = store.News{}
			}
		})
		p.on.PutQueue = func(ctx context.Context, q gq.Queue) error {
			configuring = true
			defer func() { configuring = false }()
			return p.Store.PutQueue(ctx, q)
		}
	}),
	missed("the events of providers of a change are not written", "Change/Events", func(p *planted) {
		p.on.Change = func(ctx context.Context, c store.Change) (store.Changed, error) {
			if store.CheckChange(c) == nil {
				c.Events = nil
			}
			return p.Store.Change(ctx, c)
		}
	}),
}

var docBugs = []bug{
	found("a document is written whatever its version", "Docs/Version", func(p *planted) {
		p.on.PutDocs = func(ctx context.Context, docs []store.Doc) ([]uint64, error) {
			return p.Store.PutDocs(ctx, p.current(docs))
		}
	}),
	found("the documents before one that has changed are written", "Docs/Atomic", func(p *planted) {
		p.on.PutDocs = func(ctx context.Context, docs []store.Doc) ([]uint64, error) {
			versions, err := p.Store.PutDocs(ctx, docs)
			if err != nil {
				for _, d := range docs {
					if p.checkVersions([]store.Doc{d}) != nil {
						break
					}
					p.putDocs([]store.Doc{d})
				}
			}
			return versions, err
		}
	}),
	missed("documents are not validated", "Docs/Invalid", func(p *planted) {
		p.on.PutDocs = func(ctx context.Context, docs []store.Doc) ([]uint64, error) {
			if store.CheckDocs(docs) != nil {
				return make([]uint64, len(docs)), nil
			}
			return p.Store.PutDocs(ctx, docs)
		}
	}),
	found("a document that is made again has an old version", "Docs/Again", func(p *planted) {
		p.on.PutDocs = func(ctx context.Context, docs []store.Doc) ([]uint64, error) {
			versions, err := p.Store.PutDocs(ctx, docs)
			for i := range versions {
				if key := (docKey{docs[i].Kind, docs[i].Name}); versions[i] > 0 {
					d := p.docs[key]
					versions[i] = docs[i].Version + 1
					d.Version = versions[i]
					p.docs[key] = d
				}
			}
			return versions, err
		}
	}),
	found("documents of all kinds share their names", "Docs/Kind", func(p *planted) {
		p.on.PutDocs = func(ctx context.Context, docs []store.Doc) ([]uint64, error) {
			docs = slices.Clone(docs)
			for i := range docs {
				docs[i].Kind = "any"
			}
			return p.Store.PutDocs(ctx, docs)
		}
		p.on.Doc = func(ctx context.Context, kind, name string) (store.Doc, error) {
			d, err := p.Store.Doc(ctx, "any", name)
			d.Kind = kind
			return d, err
		}
		p.on.Docs = func(ctx context.Context, kind, after string, limit int) ([]store.Doc, error) {
			docs, err := p.Store.Docs(ctx, "any", after, limit)
			for i := range docs {
				docs[i].Kind = kind
			}
			return docs, err
		}
	}),
	found("a page of documents begins with the one it should begin after", "Docs/Pages", func(p *planted) {
		p.on.Docs = func(ctx context.Context, kind, after string, limit int) ([]store.Doc, error) {
			docs, err := p.Store.Docs(ctx, kind, after, limit)
			if d, ok := p.docs[docKey{kind, after}]; ok && err == nil {
				docs = slices.Insert(docs, 0, d)
			}
			return docs, err
		}
	}),
	found("an empty document is none", "Docs/Data", func(p *planted) {
		p.on.PutDocs = func(ctx context.Context, docs []store.Doc) ([]uint64, error) {
			versions, err := p.Store.PutDocs(ctx, docs)
			maps.DeleteFunc(p.docs, func(_ docKey, d store.Doc) bool { return len(d.Data) == 0 })
			return versions, err
		}
	}),

	// Changes of documents and jobs.
	missed("the jobs before one that refuses are changed", "Change/AllOrNothing", func(p *planted) {
		p.refused(func(ctx context.Context, c store.Change) {
			for _, u := range c.Updates {
				if answers, err := p.Store.Update(ctx, []store.Update{u}); err != nil || answers[0].Err != nil {
					break
				}
			}
		})
	}),
	missed("jobs are changed whatever the version of the documents with them", "Change/AllOrNothing", func(p *planted) {
		p.on.Change = func(ctx context.Context, c store.Change) (store.Changed, error) {
			c.Docs = p.current(c.Docs)
			return p.Store.Change(ctx, c)
		}
	}),
	missed("jobs are inserted whatever the version of the documents with them", "Change/Insert", func(p *planted) {
		p.refused(func(ctx context.Context, c store.Change) {
			if p.checkVersions(c.Docs) != nil {
				_, _ = p.Store.Insert(ctx, []store.Group{{Jobs: c.Insert}})
			}
		})
	}),
	missed("documents are written although the jobs with them are refused", "Change/Insert", func(p *planted) {
		p.refused(func(ctx context.Context, c store.Change) {
			if len(c.Insert) > 0 {
				_, _ = p.Store.PutDocs(ctx, c.Docs)
			}
		})
	}),
}

var openBugs = []bug{
	found("keys are lost in a restart", "Keys/Reopen", func(p *planted) {
		p.reopened = func() { clear(p.keys) }
	}),
	found("the configuration of queues is lost in a restart", "Queues/Reopen", func(p *planted) {
		p.reopened = func() {
			for name := range p.queues {
				p.queues[name] = machine.NewQueue(name)
			}
		}
	}),
	found("documents are lost in a restart", "Docs/Reopen", func(p *planted) {
		p.reopened = func() { clear(p.docs) }
	}),
	found("the capacity of pools is lost in a restart", "Pool/Reopen", func(p *planted) {
		p.reopened = func() {
			for name := range p.pools {
				p.pools[name] = gq.Pool{Name: name, Capacity: gq.MaxCapacity}
			}
		}
	}),
	found("what was used of a rate is lost in a restart", "Rate/Reopen", func(p *planted) {
		p.reopened = func() { clear(p.rates) }
	}),
	found("a restart forgets what keys owe", "KeyRate/Reopen", func(p *planted) {
		p.reopened = func() { clear(p.owed) }
	}),
	found("turns begin again after a restart", "Fair/Reopen", func(p *planted) {
		p.reopened = func() { clear(p.served) }
	}),
	found("dependents that were not told are forgotten in a restart", "Depend/Reopen", func(p *planted) {
		p.reopened = func() { p.dependents = nil }
	}),
	found("after a restart the time may run backwards", "Reopen/Clock", func(p *planted) {
		p.reopened = func() { p.last = time.Time{} }
	}),
	found("versions begin again after a restart", "Fence/Reopen", func(p *planted) {
		p.reopened = func() { p.jobsWith(func(s *gq.State) { s.Version = 0 }) }
	}),
	missed("numbers of collected jobs are used again after a restart", "Collect/Numbers", func(p *planted) {
		p.reopened = func() {
			p.sequence = 0
			for _, j := range p.jobs {
				p.sequence = max(p.sequence, j.state.Sequence)
			}
		}
	}),
	found("events are lost in a restart", "Events/Reopen", func(p *planted) {
		p.reopened = func() { p.rewrites(0, func(*gq.Event) bool { return false }) }
	}),
	found("heartbeats are lost in a restart", "Reopen/Everything", func(p *planted) {
		p.reopened = func() {
			p.jobsWith(func(s *gq.State) {
				if s.Lease != nil && s.Status.Held() {
					lease := *s.Lease
					lease.HeartbeatAt, lease.ExpiresAt = lease.GrantedAt, lease.GrantedAt.Add(lease.TTL)
					s.Lease = &lease
				}
			})
		}
	}),
	missed("a closed store goes on", "Close/Later", func(p *planted) {
		p.before = func() { p.closed = false }
	}),
	missed("closing twice is an error", "Close/Twice", func(p *planted) {
		p.on.Close = func() error {
			if p.closed {
				return gq.ErrClosed
			}
			return p.Store.Close()
		}
	}),
}

// keeps stores the blobs of updates with some answers.
func (p *planted) keeps(some func(store.Updated) bool) {
	p.updates(func(u store.Update, update func(store.Update) store.Updated) store.Updated {
		answer := update(u)
		if j := p.find(u.Ref); j != nil && some(answer) {
			j.keep(&u)
		}
		return answer
	})
}

// afterEvents changes the events of every call.
func (p *planted) afterEvents(change func(*gq.Event) bool) {
	var before uint64
	p.before = func() { before = p.eventSeq }
	p.after = func() {
		if p.eventSeq > before {
			p.rewrites(before, change)
		}
	}
}

// releases changes which dependents are told of what.
func (p *planted) releases(change func(told []dependent) []dependent) {
	p.on.ReleaseDependents = func(ctx context.Context, limit int) (int, error) {
		n := min(max(limit, 1), len(p.dependents))
		told := change(slices.Clone(p.dependents[:n]))
		p.dependents = append(told, p.dependents[n:]...)
		return p.Store.ReleaseDependents(ctx, cmp.Or(len(told), limit))
	}
}

// collected calls f after jobs were collected.
func (p *planted) collected(f func()) {
	p.on.Collect = func(ctx context.Context, limit int) (int, time.Time, error) {
		n, next, err := p.Store.Collect(ctx, limit)
		if n > 0 {
			f()
		}
		return n, next, err
	}
}

// hears changes what listeners are told.
func (p *planted) hears(change func(*store.News)) {
	p.on.Notify = func(events bool, f func(store.News)) func() {
		return p.Store.Notify(events, func(n store.News) {
			change(&n)
			f(n)
		})
	}
}

// refused calls f after a change was refused.
func (p *planted) refused(f func(context.Context, store.Change)) {
	p.on.Change = func(ctx context.Context, c store.Change) (store.Changed, error) {
		out, err := p.Store.Change(ctx, c)
		if err != nil {
			f(ctx, c)
		}
		return out, err
	}
}

// current returns documents with the versions that the store has.
func (p *planted) current(docs []store.Doc) []store.Doc {
	docs = slices.Clone(docs)
	for i, d := range docs {
		docs[i].Version = p.docs[docKey{d.Kind, d.Name}].Version
	}
	return docs
}
