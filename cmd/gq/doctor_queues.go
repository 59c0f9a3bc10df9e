package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/quantity"
)

const (
	oldestSample = 1000 // ready jobs of all queues that are looked at, the oldest
	otherReasons = 10   // queues without workers whose oldest job is explained
	namedQueues  = 3    // queues that a line names
)

// standing is a queue with what is wrong with it.
type standing struct {
	*gq.Queue
	gq.Count
	oldest time.Time // since when its oldest ready job has waited, if it is among the oldest of all
}

func (s *standing) ready() int64 { return s.By[gq.StatusScheduled] }

// String names a queue with its ready jobs.
func (s *standing) String() string {
	text := s.Name + " (" + quantity.Of(s.ready(), "ready job")
	if !s.oldest.IsZero() {
		text += ", the oldest since " + roundly(time.Since(s.oldest))
	}
	return text + ")"
}

// queues tells about queues that are paused, full, at their limit or without workers. There may be
// very many, so each kind has a line or two.
func (f *findings) queues(ctx context.Context, q queue, queues []gq.Queue, counts []gq.Count, workers []gq.LiveWorker) error {
	by := make(map[string]gq.Count, len(counts))
	for _, c := range counts {
		by[c.Queue] = c
	}
	asked := newAsked(workers)
	var paused, full, limited group
	var unserved []*standing
	for i := range queues {
		queue, count := &queues[i], by[queues[i].Name]
		ready := count.By[gq.StatusScheduled]
		switch {
		case queue.Paused && count.Live() > 0:
			paused.add(count.Live(), "%s is paused with %s; gq queue resume %s", queue.Name, quantity.Of(count.Live(), "live job"), queue.Name)
		case ready > 0 && !asked.has(queue.Name):
			unserved = append(unserved, &standing{Queue: queue, Count: count})
		case queue.MaxDepth > 0 && count.Live() >= int64(queue.MaxDepth):
			full.add(count.Live(), "%s is full: %s, and submissions are refused", queue.Name, quantity.Of(count.Live(), "live job"))
		case queue.MaxRunning > 0 && ready > 0 && count.Held() >= int64(queue.MaxRunning):
			limited.add(ready, "%s runs as many jobs as it may, %d, and has %s", queue.Name, queue.MaxRunning, quantity.Of(ready, "waiting job"))
		}
	}
	f.group("fail", "queue", "queues", full)
	f.group("note", "queue", "queues", paused)
	f.group("note", "queue", "queues", limited)
	alone, err := f.unserved(ctx, q, unserved)
	if err != nil {
		return err
	}
	if !alone && len(full.found) == 0 {
		f.add("ok", "queues", "%d", len(queues))
	}
	return nil
}

// unserved tells about queues whose jobs no worker asks for, and reports whether there are any.
func (f *findings) unserved(ctx context.Context, q queue, found []*standing) (alone bool, err error) {
	if len(found) == 0 {
		return false, nil
	}
	if err := longestFirst(ctx, q, found); err != nil {
		return true, err
	}
	var others group
	kept := found[:0]
	for i, s := range found {
		if i < otherReasons {
			why, other, err := otherReason(ctx, q, s.Name)
			switch {
			case err != nil:
				return true, err
			case other && why.Cause == gq.CauseNext: // a round or a worker is about to take it
				continue
			case other: // such as that of matching, whose jobs no worker claims
				others.add(0, "%s has %s; the oldest: %s", s.Name, quantity.Of(s.ready(), "ready job"), clean(why.Summary))
				continue
			case s.Name == matching.Queue && why.Summary != "":
				alone = true
				f.add("fail", "queue", "%s has %s and %s", s.Name, quantity.Of(s.ready(), "ready job"), clean(why.Summary))
				continue
			}
		}
		kept = append(kept, s)
	}
	f.group("note", "queue", "queues", others)
	switch len(kept) {
	case 0:
		return alone, nil
	case 1:
		f.add("fail", "queue", "%s has %s that no worker asks for", kept[0].Name, quantity.Of(kept[0].ready(), "ready job"))
	default:
		var names []string
		jobs := int64(0)
		for i, s := range kept {
			jobs += s.ready()
			if i < namedQueues {
				names = append(names, s.String())
			}
		}
		if len(kept) > namedQueues {
			names = append(names, "…")
		}
		f.add("fail", "queue", "%d queues have %s that no worker asks for, the longest waiting: %s", len(kept), quantity.Of(jobs, "ready job"), strings.Join(names, ", "))
	}
	return true, nil
}

// longestFirst sorts queues by how long their oldest ready job has waited, and then by how many
// ready jobs they have.
func longestFirst(ctx context.Context, q queue, found []*standing) error {
	page, err := q.List(ctx, gq.Query{Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: oldestSample})
	if err != nil {
		return err
	}
	oldest := map[string]time.Time{}
	for i := range page.Jobs {
		name, at := page.Jobs[i].Spec.Queue, page.Jobs[i].State.ScheduledAt
		if known, ok := oldest[name]; !ok || at.Before(known) {
			oldest[name] = at
		}
	}
	for _, s := range found {
		s.oldest = oldest[s.Name]
	}
	slices.SortStableFunc(found, func(a, b *standing) int {
		switch {
		case a.oldest.IsZero() != b.oldest.IsZero():
			if a.oldest.IsZero() {
				return 1
			}
			return -1
		case !a.oldest.Equal(b.oldest):
			return a.oldest.Compare(b.oldest)
		default:
			return cmp.Compare(b.ready(), a.ready())
		}
	})
	return nil
}

// otherReason explains the oldest ready job of a queue without workers. other is true if something else
// than a missing worker holds it up.
func otherReason(ctx context.Context, q queue, name string) (why gq.Reason, other bool, err error) {
	page, err := q.List(ctx, gq.Query{Queue: name, Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: 1})
	if err != nil || len(page.Jobs) == 0 {
		return why, false, err
	}
	x, err := q.Explain(ctx, page.Jobs[0].State.ID)
	if err != nil {
		if errors.Is(err, gq.ErrNotFound) {
			err = nil
		}
		return why, false, err
	}
	missing := x.Cause == gq.CauseNoWorker || slices.ContainsFunc(x.Also, func(r gq.Reason) bool { return r.Cause == gq.CauseNoWorker })
	return x.Reason, !missing, nil
}

// asked are the queues that live workers ask for.
type asked struct {
	names    map[string]bool
	patterns []string
}

func newAsked(workers []gq.LiveWorker) asked {
	a := asked{names: map[string]bool{}}
	for i := range workers {
		for _, name := range workers[i].Queues {
			if a.names[name] {
				continue
			}
			a.names[name] = true
			if strings.HasSuffix(name, "*") {
				a.patterns = append(a.patterns, name)
			}
		}
	}
	return a
}

// has reports whether a worker asks for the jobs of a queue.
func (a asked) has(queue string) bool {
	return a.names[queue] || slices.ContainsFunc(a.patterns, func(p string) bool { return gq.MatchQueue(p, queue) })
}

const (
	strandedSample = 200 // ready jobs of a queue that are looked at, the newest
	strandedQueues = 100 // queues that are looked at, those with the most ready jobs
)

// stranded finds ready jobs that no live worker can run, in queues that workers serve: no worker handles
// their type, offers what they require or accepts their cost.
func (f *findings) stranded(ctx context.Context, q queue, queues []gq.Queue, counts []gq.Count, workers []gq.LiveWorker) error {
	paused := map[string]bool{}
	for i := range queues {
		paused[queues[i].Name] = queues[i].Paused
	}
	asked := newAsked(workers)
	busy := slices.DeleteFunc(slices.Clone(counts), func(c gq.Count) bool {
		return c.By[gq.StatusScheduled] == 0 || paused[c.Queue] || !asked.has(c.Queue)
	})
	slices.SortStableFunc(busy, func(a, b gq.Count) int {
		return cmp.Compare(b.By[gq.StatusScheduled], a.By[gq.StatusScheduled])
	})
	var found group
	for i := range min(len(busy), strandedQueues) {
		if err := strandedIn(ctx, q, busy[i].Queue, workers, &found); err != nil {
			return err
		}
	}
	f.group("fail", "jobs", "groups of jobs that cannot run", found)
	return nil
}

// strandedIn adds the jobs of a queue that cannot run, by the reason.
func strandedIn(ctx context.Context, q queue, name string, workers []gq.LiveWorker, found *group) error {
	page, err := q.List(ctx, gq.Query{Queue: name, Statuses: []gq.Status{gq.StatusScheduled}, Limit: strandedSample})
	if err != nil {
		return err
	}
	first, n := map[string]gq.JobID{}, map[string]int{}
	var order []string
	for k := range page.Jobs {
		why := unable(&page.Jobs[k].Spec, workers)
		if why == "" {
			continue
		}
		if n[why]++; n[why] == 1 {
			first[why] = page.Jobs[k].State.ID
			order = append(order, why)
		}
	}
	for _, why := range order {
		found.add(int64(n[why]), "%d of %s in queue %s cannot run: %s; gq job explain %s", n[why], quantity.Of(len(page.Jobs), "ready job"), name, why, first[why])
	}
	return nil
}
