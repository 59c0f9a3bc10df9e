package storetest

import (
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/store"
)

// release updates some dependents of ended jobs.
func (m *model) release(r *rapid.T) {
	limit := pick(r, "limit", 1, 2, 100)
	n, err := m.s.ReleaseDependents(m.Context(), limit)
	m.ok("ReleaseDependents", err)
	if n < 0 || n > limit {
		m.Fatalf("Release told %d dependents, the limit is %d", n, limit)
	}
}

// settle updates all dependents of ended jobs; afterwards none is open.
func (m *model) settle() {
	for steps := 0; ; steps++ {
		n, err := m.s.ReleaseDependents(m.Context(), 100)
		m.ok("ReleaseDependents", err)
		if n == 0 {
			break
		}
		if steps > 10_000 {
			m.Fatalf("Release does not come to an end")
		}
	}
	m.reconcile()
	for _, j := range m.jobs {
		for i, e := range j.edges {
			if j.s.Status != gq.StatusPending || e.told || !e.ahead().terminal() {
				continue
			}
			next := j.clone()
			next.tell(i, e.ahead(), m.now)
			if !sameState(next.state(), j.state()) {
				m.Fatalf("Release told everybody, but job %s does not know that job %s is %s", j.spec.ID, e.parent.spec.ID, e.parent.s.Status)
			}
			*j = *next // it knows, without a visible difference
		}
	}
}

// due compares the due jobs and the next due time.
func (m *model) due(r *rapid.T) {
	m.settle()
	m.overdue(pick(r, "limit", 1, 3, 100))
}

func (m *model) overdue(limit int) []gq.JobID {
	due, err := m.s.Due(m.Context(), limit)
	m.ok("Due", err)
	var want []time.Time
	var next time.Time
	for _, j := range m.jobs {
		if t := j.due(); come(t, m.now) {
			want = append(want, t)
		} else {
			next = earliest(next, t)
		}
	}
	slices.SortFunc(want, time.Time.Compare)
	if len(want) > limit {
		want, next = want[:limit], want[limit]
	}
	if len(due.Jobs) != len(want) {
		m.Fatalf("Due listed %d jobs, want %d", len(due.Jobs), len(want))
	}
	listed := make(map[gq.JobID]bool)
	for i, id := range due.Jobs {
		j := m.jobs[id]
		if j == nil || listed[id] || !j.due().Equal(want[i]) {
			m.Fatalf("Due listed job %s in place %d, want one that was due at %v", id, i, want[i])
		}
		listed[id] = true
	}
	if !nextIs(due, next) {
		m.Fatalf("Due says to look again at %v, want %v (now %v)", due.Next, next, m.now)
	}
	return due.Jobs
}

// sweep applies some or all of what is due.
func (m *model) sweep(r *rapid.T) {
	m.settle()
	var updates []store.Update
	var verbs []verb
	for _, id := range m.overdue(pick(r, "limit", 100, 2)) {
		v := advanceVerb()
		updates, verbs = append(updates, store.Update{Ref: byID(id), Apply: v.apply}), append(verbs, v)
		m.happened("swept")
	}
	m.change(updates, verbs)
}

// collect removes finished jobs, after the model has read all events. A job with waiting
// dependents may be kept until they know its end.
func (m *model) collect(r *rapid.T) {
	if rapid.Bool().Draw(r, "settle") {
		m.settle()
	}
	m.follow()
	limit := pick(r, "limit", 1, 100)
	n, _, err := m.s.Collect(m.Context(), limit)
	m.ok("Collect", err)
	removable := slices.DeleteFunc(m.sorted(), func(j *modelJob) bool { return !come(m.kept(j), m.now) })
	needed := 0
	for _, j := range removable {
		if slices.ContainsFunc(m.sorted(), func(o *modelJob) bool { return o.waitsFor(j) }) {
			needed++
		}
	}
	if n < 0 || n > min(limit, len(removable)) || n == 0 && len(removable) > needed {
		m.Fatalf("Collect removed %d jobs, of %d that are past their retention, with a limit of %d", n, len(removable), limit)
	}
	refs := make([]store.Ref, len(removable))
	for i, j := range removable {
		refs[i] = byID(j.spec.ID)
	}
	found, err := m.s.Get(m.Context(), refs, 0)
	m.ok("Get", err)
	gone := 0
	for i, f := range found {
		if !errors.Is(f.Err, gq.ErrNotFound) {
			continue
		}
		gone++
		m.forget(removable[i])
		m.happened("collected")
	}
	if gone != n {
		m.Fatalf("Collect says that it removed %d jobs, but %d are gone", n, gone)
	}
}

// forget deletes a job from the model after the store has removed it.
func (m *model) forget(j *modelJob) {
	delete(m.jobs, j.spec.ID)
	for lease, of := range m.leases {
		if of == j {
			delete(m.leases, lease)
		}
	}
	if k := [2]string{j.spec.Key.Scope, j.spec.Key.Name}; m.keys[k] == j {
		delete(m.keys, k)
	}
	if _, err := m.s.History(m.Context(), j.spec.ID); !errors.Is(err, gq.ErrNotFound) {
		m.Fatalf("History of a job that was removed: %v, want ErrNotFound", err)
	}
}

// purge removes a finished job before the end of its retention, if the store can. Its
// events are read afterwards.
func (m *model) purge(r *rapid.T) {
	p, ok := m.s.(store.Purger)
	if !ok {
		return
	}
	m.settle()
	j := m.anyJob(r, "job", func(j *modelJob) bool { return j.terminal() || chance(r, "live", 8) })
	if j == nil {
		return
	}
	answers, err := p.Purge(m.Context(), []gq.JobID{j.spec.ID})
	m.ok("Purge", err)
	if !j.terminal() {
		if !errors.Is(answers[0], gq.ErrIllegalMove) {
			m.Fatalf("Purge of a job that is %s: %v, want ErrIllegalMove", j.s.Status, answers[0])
		}
		return
	}
	m.ok("Purge of a finished job", answers[0])
	m.forget(j)
	m.follow()
	m.told("Events", j, m.seen[j.spec.ID])
	m.happened("purged")
}

// waitsFor reports whether a job has not learned of the end of another, even if that no
// longer matters.
func (j *modelJob) waitsFor(parent *modelJob) bool {
	return slices.ContainsFunc(j.edges, func(e modelEdge) bool { return e.parent == parent && !e.told })
}

// follow reads the new events.
func (m *model) follow() {
	for steps := 0; ; steps++ {
		events, err := m.s.Events(m.Context(), m.followed, 50)
		m.ok("Events", err)
		if len(events) > 50 || steps > 10_000 {
			m.Fatalf("Events returned %d events, the limit is 50", len(events))
		}
		if len(events) == 0 {
			break
		}
		for _, v := range events {
			if v.Seq <= m.followed {
				m.Fatalf("event %d follows %d", v.Seq, m.followed)
			}
			m.followed = v.Seq
			m.seen[v.Job] = append(m.seen[v.Job], v)
		}
	}
}

// told compares the events of a job with the model.
func (m *model) told(call string, j *modelJob, got []gq.Event) {
	m.Helper()
	plain := func(events []gq.Event) []gq.Event {
		events = slices.Clone(events)
		for i := range events {
			v := &events[i]
			v.Seq, v.Time, v.Until, v.Beat = 0, plainTime(v.Time), plainTime(v.Until), plainTime(v.Beat)
		}
		return events
	}
	want, got := plain(j.events), plain(got)
	for i := 1; i < min(len(want), len(got)); i++ {
		// A store may make a job SCHEDULED before it claims it, or by claiming it. Only the latter
		// knows since when it was claimable.
		if v := &want[i]; v.Type == gq.EventStarted && want[i-1].Type == gq.EventScheduled && want[i-1].Time.Equal(v.Time) && got[i].Elapsed == 0 {
			v.Elapsed = 0
		}
	}
	if !reflect.DeepEqual(want, got) {
		m.Fatalf("%s of job %s (-model +store):\n%s", call, j.spec.ID, cmp.Diff(want, got))
	}
}

// everything compares all data.
func (m *model) everything() {
	m.settle()
	m.follow()
	m.counts()
	for id, j := range m.jobs {
		history, err := m.s.History(m.Context(), id)
		m.ok("History", err)
		m.told("Events", j, m.seen[id])
		m.told("History", j, history)
		if !slices.EqualFunc(history, m.seen[id], func(a, b gq.Event) bool { return a.Seq == b.Seq }) {
			m.Fatalf("History of job %s has other numbers than its events", id)
		}
	}
	m.listAll(gq.Query{OldestFirst: true, Limit: 7})
	queues, err := m.s.Queues(m.Context(), store.QueueQuery{})
	m.ok("Queues", err)
	if len(queues) != len(m.queues) {
		m.Fatalf("there are %d queues, want %d", len(queues), len(m.queues))
	}
	for i, q := range queues {
		want, ok := m.queues[q.Name]
		if !ok || q.Paused != want.Paused || q.MaxRunning != want.MaxRunning || q.MaxDepth != want.MaxDepth || i > 0 && queues[i-1].Name >= q.Name {
			m.Fatalf("queue %d is %+v, want %+v", i, q, want)
		}
	}
}

// statuses returns the statuses under which a job may be counted and listed.
func (m *model) statuses(j *modelJob) []gq.Status {
	if (j.s.Status == gq.StatusDelayed || j.s.Status == gq.StatusRetrying) && come(j.s.RunAt, m.now) {
		return []gq.Status{j.s.Status, gq.StatusScheduled}
	}
	return []gq.Status{j.s.Status}
}

// counts compares the counts of every queue.
func (m *model) counts() {
	counts, err := m.s.Counts(m.Context())
	m.ok("Counts", err)
	least, most := make(map[string]gq.Count), make(map[string]gq.Count)
	total := make(map[string]int64)
	for _, j := range m.jobs {
		can := m.statuses(j)
		low, high := least[j.spec.Queue], most[j.spec.Queue]
		if len(can) == 1 {
			low.By[can[0]]++
		}
		for _, s := range can {
			high.By[s]++
		}
		least[j.spec.Queue], most[j.spec.Queue] = low, high
		total[j.spec.Queue]++
	}
	for _, c := range counts {
		sum := int64(0)
		for s, n := range c.By {
			sum += n
			if n < least[c.Queue].By[s] || n > most[c.Queue].By[s] {
				m.Fatalf("queue %s has %d jobs %s, want %d to %d", c.Queue, n, gq.Status(s), least[c.Queue].By[s], most[c.Queue].By[s])
			}
		}
		if sum != total[c.Queue] {
			m.Fatalf("queue %s has %d jobs, want %d", c.Queue, sum, total[c.Queue])
		}
		delete(total, c.Queue)
	}
	for queue, n := range total {
		m.Fatalf("the counts leave out queue %s with its %d jobs", queue, n)
	}
}

// list reads the jobs that a query selects.
func (m *model) list(r *rapid.T) {
	m.settle()
	q := gq.Query{OldestFirst: rapid.Bool().Draw(r, "oldest first"), Limit: pick(r, "limit", 1, 3, 50)}
	if chance(r, "one queue", 3) {
		q.Queue = pick(r, "queue", queueNames...)
	}
	if chance(r, "some statuses", 2) {
		q.Statuses = rapid.SliceOfN(rapid.SampledFrom(enum.All[gq.Status]()), 1, 4).Draw(r, "statuses")
	}
	if chance(r, "created after", 3) {
		q.CreatedAfter = pick(r, "after", m.times...)
	}
	if chance(r, "created before", 3) {
		q.CreatedBefore = pick(r, "before", m.times...)
	}
	m.listAll(q)
}

func (m *model) listAll(q gq.Query) {
	var got []gq.Job
	for first := true; first || q.Cursor != ""; first = false {
		page, err := m.s.List(m.Context(), q)
		m.ok("List", err)
		if len(page.Jobs) > q.Limit || len(got) > len(m.jobs) {
			m.Fatalf("List returned a page of %d jobs, the limit is %d", len(page.Jobs), q.Limit)
		}
		if !first {
			m.happened("pages")
		}
		got, q.Cursor = append(got, page.Jobs...), page.Next
	}
	at := 0
	jobs := m.sorted()
	if !q.OldestFirst {
		slices.Reverse(jobs)
	}
	for _, j := range jobs {
		fits := (q.Queue == "" || q.Queue == j.spec.Queue) &&
			!j.s.CreatedAt.Before(q.CreatedAfter) && (q.CreatedBefore.IsZero() || j.s.CreatedAt.Before(q.CreatedBefore))
		can := slices.DeleteFunc(m.statuses(j), func(s gq.Status) bool { return len(q.Statuses) > 0 && !slices.Contains(q.Statuses, s) })
		listed := at < len(got) && got[at].State.ID == j.spec.ID
		switch {
		case listed && (!fits || len(can) == 0):
			m.Fatalf("List %+v returned job %s of queue %s, %s", q, j.spec.ID, j.spec.Queue, j.s.Status)
		case !listed && fits && len(can) == len(m.statuses(j)):
			m.Fatalf("List %+v left out job %s of queue %s, %s", q, j.spec.ID, j.spec.Queue, j.s.Status)
		case listed:
			m.content("List", &modelJob{spec: j.spec, metadata: j.metadata}, got[at], 0)
			at++
		}
	}
	if at != len(got) {
		m.Fatalf("List returned %d jobs, of which %d are in order", len(got), at)
	}
}
