package storetest

import (
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

const allParts = gq.WithPayload | gq.WithResult | gq.WithCheckpoint

// The transitions of package machine as functions that a store applies.

func completing(ref gq.LeaseRef, result []byte) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Complete(s, ref, result, now)
	}
}

func failing(ref gq.LeaseRef, f gq.Failure) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Fail(s, ref, f, machine.Draw{}, now)
	}
}

func beating(ref gq.LeaseRef, r machine.Report) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Heartbeat(s, ref, r, now)
	}
}

func releasing(ref gq.LeaseRef, delay time.Duration, reason string) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Release(s, ref, delay, reason, now)
	}
}

func preparing(ref gq.LeaseRef, d gq.Detail) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Prepare(s, ref, d, now) }
}

func starting(ref gq.LeaseRef, ttl time.Duration) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Start(s, ref, ttl, now) }
}

func cancelling(reason string) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Cancel(s, reason, now) }
}

func updating(own gq.Priority) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Update(s, own, now) }
}

func rescheduling(at time.Time) store.Apply {
	return func(s gq.State, now time.Time) (gq.State, []gq.Event, error) { return machine.Reschedule(s, at, now) }
}

func advancing(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
	return machine.Advance(s, machine.Draw{}, now)
}

var (
	temporary = gq.Failure{Category: gq.CategoryTemporary, Code: "busy", Message: "try again"}
	permanent = gq.Failure{Category: gq.CategoryPermanent, Code: "bad", Message: "never again"}
)

func byID(id gq.JobID) store.Ref         { return store.Ref{Job: id} }
func byLease(lease gq.LeaseID) store.Ref { return store.Ref{Lease: lease} }

// tryUpdate makes updates in one call and returns the result of each.
func (e *env) tryUpdate(updates ...store.Update) []store.Updated {
	e.Helper()
	answers, err := e.store().Update(e.Context(), updates)
	e.check("Update", err)
	if len(answers) != len(updates) {
		e.Fatalf("Update answered %d of %d updates", len(answers), len(updates))
	}
	return answers
}

// update applies a verb, which must be accepted.
func (e *env) update(id gq.JobID, apply store.Apply) gq.State {
	e.Helper()
	return e.updated(store.Update{Ref: byID(id), Apply: apply})
}

func (e *env) updated(u store.Update) gq.State {
	e.Helper()
	answer := e.tryUpdate(u)[0]
	e.check("Update", answer.Err)
	return answer.State
}

// complete completes a claimed job.
func (e *env) complete(j gq.Job) gq.State {
	e.Helper()
	return e.update(j.State.ID, completing(j.State.Lease.Ref(), nil))
}

// fail fails the attempt of a claimed job.
func (e *env) fail(j gq.Job, f gq.Failure) gq.State {
	e.Helper()
	return e.update(j.State.ID, failing(j.State.Lease.Ref(), f))
}

func (e *env) cancel(id gq.JobID) gq.State {
	e.Helper()
	return e.updated(cancelled(id))
}

// cancelled is an update that cancels a job.
func cancelled(id gq.JobID) store.Update {
	return store.Update{Ref: byID(id), Apply: cancelling("no longer wanted")}
}

// end brings a waiting job, the next one that a claim would find, to a terminal status.
func (e *env) end(id gq.JobID, as gq.Status, asks ...asking) {
	e.Helper()
	if as == gq.StatusCancelled {
		e.cancel(id)
		return
	}
	j := e.one(asks...)
	if j.State.ID != id {
		e.Fatalf("claimed job %s, want %s", j.State.ID, id)
	}
	for {
		var s gq.State
		switch as {
		case gq.StatusCompleted:
			s = e.complete(j)
		case gq.StatusFailed:
			s = e.fail(j, permanent)
		default:
			s = e.fail(j, temporary)
		}
		if s.Status == as {
			return
		}
		if s.Status != gq.StatusRetrying {
			e.Fatalf("job %s is %s, want %s", id, s.Status, as)
		}
		e.clock.Set(s.RunAt)
		j = e.one(asks...)
	}
}

// find reads one job.
func (e *env) find(ref store.Ref, parts gq.Parts) store.Found {
	e.Helper()
	found, err := e.store().Get(e.Context(), []store.Ref{ref}, parts)
	e.check("Get", err)
	if len(found) != 1 {
		e.Fatalf("Get answered %d of 1", len(found))
	}
	return found[0]
}

// get reads one job, which must exist, with all its parts.
func (e *env) get(id gq.JobID) gq.Job {
	e.Helper()
	found := e.find(byID(id), allParts)
	e.check("Get", found.Err)
	return found.Job
}

// state reads the state of a job, which must exist.
func (e *env) state(id gq.JobID) gq.State {
	e.Helper()
	return e.get(id).State
}

// stands fails unless a job has the status.
func (e *env) stands(what string, id gq.JobID, want gq.Status) {
	e.Helper()
	if got := e.state(id).Status; got != want {
		e.Errorf("%s: job is %s, want %s", what, got, want)
	}
}

// absent fails if a job exists.
func (e *env) absent(what string, id gq.JobID) {
	e.Helper()
	if found := e.find(byID(id), 0); found.Err == nil {
		e.Errorf("%s: the job is there (%s), want it not found", what, found.State.Status)
	} else {
		e.is(what+": Get", found.Err, gq.ErrNotFound)
	}
}

// release calls ReleaseDependents until it has updated every dependent.
func (e *env) release() {
	e.Helper()
	for range 100_000 {
		n, err := e.store().ReleaseDependents(e.Context(), 100)
		e.check("ReleaseDependents", err)
		if n == 0 {
			return
		}
		if n < 0 || n > 100 {
			e.Fatalf("Release told %d dependents, want at most the limit of 100", n)
		}
	}
	e.Fatalf("Release never came to an end")
}

// due returns the due jobs and when to ask again.
func (e *env) due(limit int) store.Due {
	e.Helper()
	due, err := e.store().Due(e.Context(), limit)
	e.check("Due", err)
	if len(due.Jobs) > max(limit, 1) {
		e.Fatalf("Due listed %d jobs, more than the limit of %d", len(due.Jobs), limit)
	}
	if now := e.clock.Now(); due.Now.Before(now) {
		e.Errorf("Due judged by %v, and the clock shows %v", due.Now, now)
	}
	if l, ok := e.store().(store.LateLister); ok {
		late, err := l.Late(e.Context(), limit)
		e.check("Late", err)
		if !slices.Equal(late.Jobs, due.Jobs) {
			e.Errorf("Late listed %v, and Due %v", late.Jobs, due.Jobs)
		}
	}
	return due
}

// sweep applies everything that is due, for every job.
func (e *env) sweep() {
	e.Helper()
	for range 100_000 {
		jobs := e.due(100).Jobs
		if len(jobs) == 0 {
			return
		}
		updates := make([]store.Update, len(jobs))
		for i, id := range jobs {
			updates[i] = store.Update{Ref: byID(id), Apply: advancing}
		}
		for _, answer := range e.tryUpdate(updates...) {
			e.check("Update", answer.Err)
		}
	}
	e.Fatalf("Due never came to an end although every job it listed was advanced")
}

// collect removes jobs past their retention and returns their number.
func (e *env) collect() (total int) {
	e.Helper()
	for range 100_000 {
		n, _, err := e.store().Collect(e.Context(), 100)
		e.check("Collect", err)
		if n == 0 {
			return total
		}
		if n < 0 || n > 100 {
			e.Fatalf("Collect removed %d jobs, want at most the limit of 100", n)
		}
		total += n
	}
	e.Fatalf("Collect never came to an end")
	return total
}

// counts reads the counts of queues, without queues that have no jobs.
func (e *env) counts(queues ...string) map[string]gq.Count {
	e.Helper()
	counts, err := e.store().Counts(e.Context(), queues...)
	e.check("Counts", err)
	by := make(map[string]gq.Count, len(counts))
	for _, c := range counts {
		if _, twice := by[c.Queue]; twice {
			e.Errorf("Counts named queue %q twice", c.Queue)
		}
		if c != (gq.Count{Queue: c.Queue}) {
			by[c.Queue] = c
		}
	}
	return by
}

// put configures a queue.
func (e *env) put(name string, change func(*gq.Queue)) {
	e.Helper()
	q := machine.NewQueue(name)
	change(&q)
	e.check("PutQueue", e.store().PutQueue(e.Context(), q))
}

// history reads the events of a job.
func (e *env) history(id gq.JobID) []gq.Event {
	e.Helper()
	events, err := e.store().History(e.Context(), id)
	e.check("History", err)
	return events
}

// events reads all events after a number, in small pages.
func (e *env) events(after uint64) (all []gq.Event) {
	e.Helper()
	for range 100_000 {
		events, err := e.store().Events(e.Context(), after, 7)
		e.check("Events", err)
		if len(events) == 0 {
			return all
		}
		if len(events) > 7 {
			e.Fatalf("Events returned %d events, more than the limit of 7", len(events))
		}
		all = append(all, events...)
		after = events[len(events)-1].Seq
	}
	e.Fatalf("Events never came to an end")
	return nil
}

// list reads every page of a query.
func (e *env) list(q gq.Query) (all []gq.Job) {
	e.Helper()
	for range 100_000 {
		page, err := e.store().List(e.Context(), q)
		e.check("List", err)
		if q.Limit > 0 && len(page.Jobs) > q.Limit {
			e.Fatalf("List returned %d jobs, more than the limit of %d", len(page.Jobs), q.Limit)
		}
		all = append(all, page.Jobs...)
		if page.Next == "" {
			return all
		}
		q.Cursor = page.Next
	}
	e.Fatalf("List never came to an end")
	return nil
}

// trace is a short form of a history: the status after each event.
func trace(events []gq.Event) []gq.Status {
	statuses := make([]gq.Status, len(events))
	for i, v := range events {
		statuses[i] = v.Status
	}
	return statuses
}

// snapshot has everything that can be read about some jobs, and the counts.
type snapshot struct {
	Jobs    []store.Found
	History [][]gq.Event
	Counts  map[string]gq.Count
}

// snapshot needs Get, History and Counts.
func (e *env) snapshot(ids ...gq.JobID) (s snapshot) {
	e.Helper()
	for _, id := range ids {
		s.Jobs = append(s.Jobs, e.find(byID(id), allParts))
		s.History = append(s.History, e.history(id))
	}
	s.Counts = e.counts()
	return s
}

// unchanged fails if anything differs from the snapshot.
func (e *env) unchanged(what string, before snapshot, ids ...gq.JobID) {
	e.Helper()
	e.equal(what+" left the job changed", e.snapshot(ids...), before)
}
