package storetest

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// view returns a state as this store shows it.
func (n *naive) view(s gq.State, now time.Time) gq.State {
	if n.habit&readsNow != 0 {
		return s.At(now)
	}
	return s
}

func (n *naive) read(j *naiveJob, parts gq.Parts, now time.Time) gq.Job {
	out := gq.Job{Spec: j.spec, State: n.view(j.state, now), Metadata: j.metadata}
	if n.bug == readsEverything {
		parts = allParts
	}
	if parts&gq.WithPayload == 0 {
		out.Spec.Payload.Data = nil
	}
	if parts&gq.WithResult != 0 {
		out.Result = j.result
	}
	if parts&gq.WithCheckpoint != 0 {
		out.Checkpoint = j.checkpoint
	}
	return out
}

func (n *naive) Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error) {
	now, err := n.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	found := make([]store.Found, len(refs))
	for i, ref := range refs {
		id := ref.Job
		if id.IsZero() {
			id = n.data.leases[ref.Lease]
		}
		j, ok := n.data.jobs[id]
		if !ok {
			found[i].Err = fmt.Errorf("naive: %w", gq.ErrNotFound)
			continue
		}
		found[i].Job = n.read(j, parts, now)
	}
	return own(n, found), nil
}

func (n *naive) List(ctx context.Context, q gq.Query) (page gq.Page, err error) {
	now, err := n.begin(ctx, false)
	if err != nil {
		return page, err
	}
	defer n.mu.Unlock()
	if err := store.CheckQuery(&q); err != nil {
		return page, err
	}
	after, err := parseCursor(q.Cursor)
	if err != nil {
		return page, err
	}
	jobs := n.sorted()
	if !q.OldestFirst {
		slices.Reverse(jobs)
	}
	for i, j := range jobs {
		s := n.view(j.state, now)
		passed := q.Cursor != "" && (s.Sequence <= after) == q.OldestFirst
		if !q.OldestFirst {
			passed = q.Cursor != "" && s.Sequence >= after
		}
		if n.bug == pagesByOffset {
			passed = q.Cursor != "" && uint64(i) < after
		}
		if passed || !n.selects(q, j, s) {
			continue
		}
		if len(page.Jobs) == q.Limit {
			last := page.Jobs[len(page.Jobs)-1].State.Sequence
			if n.bug == pagesByOffset {
				last = uint64(i)
			}
			page.Next = base64.StdEncoding.EncodeToString([]byte("after:" + strconv.FormatUint(last, 10)))
			break
		}
		page.Jobs = append(page.Jobs, n.read(j, 0, now))
	}
	return own(n, page), nil
}

func (n *naive) selects(q gq.Query, j *naiveJob, s gq.State) bool {
	before := q.CreatedBefore.IsZero() || s.CreatedAt.Before(q.CreatedBefore) || n.bug == rangeIncludesEnd && s.CreatedAt.Equal(q.CreatedBefore)
	return (q.Queue == "" || q.Queue == j.spec.Queue) &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, s.Status)) &&
		!s.CreatedAt.Before(q.CreatedAfter) && before &&
		(s.Live() || n.bug != listsLive)
}

func parseCursor(cursor string) (after uint64, err error) {
	if cursor == "" {
		return 0, nil
	}
	text, err := base64.StdEncoding.DecodeString(cursor)
	if err == nil {
		number, ok := strings.CutPrefix(string(text), "after:")
		if !ok {
			number = ""
		}
		after, err = strconv.ParseUint(number, 10, 64)
	}
	if err != nil {
		return 0, &gq.InvalidError{Faults: []gq.Fault{{Field: "cursor", Problem: "is not one"}}}
	}
	return after, nil
}

func (n *naive) Counts(ctx context.Context, queues ...string) (counts []gq.Count, err error) {
	now, err := n.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	by := make(map[string]gq.Count)
	for _, j := range n.data.jobs {
		if len(queues) > 0 && !slices.Contains(queues, j.spec.Queue) {
			continue
		}
		c := by[j.spec.Queue]
		c.Queue = j.spec.Queue
		s := n.view(j.state, now)
		if n.bug == countsHeld && s.Status == gq.StatusClaimed {
			s.Status = gq.StatusRunning
		}
		c.By[s.Status]++
		by[j.spec.Queue] = c
	}
	for _, c := range by {
		counts = append(counts, c)
	}
	return counts, nil
}

func (n *naive) Events(ctx context.Context, after uint64, limit int) (events []gq.Event, err error) {
	_, err = n.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	if after < n.data.removed {
		return nil, fmt.Errorf("naive: %w", gq.ErrGone)
	}
	for _, v := range n.data.events {
		if len(events) < limit && (v.Seq > after || n.bug == repeatsEvents && v.Seq == after && after > 0 && len(n.data.events) > 3) {
			events = append(events, v)
		}
	}
	return own(n, events), nil
}

func (n *naive) LastEvent(ctx context.Context) (uint64, error) {
	if _, err := n.begin(ctx, false); err != nil {
		return 0, err
	}
	defer n.mu.Unlock()
	last := n.data.removed
	for _, v := range n.data.events {
		last = max(last, v.Seq)
	}
	return last, nil
}

func (n *naive) History(ctx context.Context, id gq.JobID) (events []gq.Event, err error) {
	_, err = n.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	if _, ok := n.data.jobs[id]; !ok {
		return nil, fmt.Errorf("naive: %w", gq.ErrNotFound)
	}
	for _, v := range n.data.events {
		if v.Job == id {
			events = append(events, v)
		}
	}
	return own(n, events), nil
}

func (n *naive) Collect(ctx context.Context, limit int) (removed int, next time.Time, err error) {
	now, err := n.begin(ctx, true)
	if err != nil {
		return 0, next, err
	}
	defer n.mu.Unlock()
	for _, j := range n.sorted() {
		end := j.state.CompletedAt.Add(n.cfg.Retention.Of(j.state.Status))
		if own := j.state.Policy.Retention; own > 0 && n.bug != ignoresOwnRetention {
			end = j.state.CompletedAt.Add(own)
		}
		switch n.bug {
		case collectsEarly:
			end = end.Add(-1)
		case collectsByAge:
			end = j.state.CreatedAt.Add(n.cfg.Retention.Of(j.state.Status))
		case collectsLive:
			if j.state.Live() {
				end = j.state.CreatedAt.Add(n.cfg.Retention.Completed)
			}
		default:
		}
		live := j.state.Live() && n.bug != collectsLive
		if live {
			continue
		}
		if now.Before(end) || removed == limit {
			if next.IsZero() || end.Before(next) {
				next = end
			}
			continue
		}
		removed++
		if j.state.Policy.Retention > 0 {
			n.forget(j)
		} else {
			n.remove(j)
		}
	}
	return removed, next, nil
}

func (n *naive) Purge(ctx context.Context, ids []gq.JobID) ([]error, error) {
	if _, err := n.begin(ctx, true); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	answers := make([]error, len(ids))
	for i, id := range ids {
		j, ok := n.data.jobs[id]
		switch {
		case !ok:
			answers[i] = gq.ErrNotFound
		case j.state.Live() && n.bug != purgesLive:
			answers[i] = gq.ErrIllegalMove
		case n.bug == purgesEvents:
			n.remove(j)
		default:
			n.forget(j)
		}
	}
	return answers, nil
}

func (n *naive) remove(j *naiveJob) {
	n.forget(j)
	n.data.events = slices.DeleteFunc(n.data.events, func(v gq.Event) bool {
		gone := v.Job == j.spec.ID || n.bug == collectsAllEvents
		if gone {
			n.data.removed = max(n.data.removed, v.Seq)
		}
		return gone
	})
}

// forget removes a job, but not its events.
func (n *naive) forget(j *naiveJob) {
	delete(n.data.jobs, j.spec.ID)
	for lease, id := range n.data.leases {
		if id == j.spec.ID {
			delete(n.data.leases, lease)
		}
	}
	if k := n.keyOf(j.spec); n.data.keys[k].job == j.spec.ID && n.bug != keysOutlive {
		delete(n.data.keys, k)
	}
	if n.bug == collectDropsTelling {
		n.data.telling = nil
	}
}

func (n *naive) Queues(ctx context.Context, asked store.QueueQuery) (queues []gq.Queue, err error) {
	_, err = n.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	for _, q := range n.data.queues {
		if n.data.deleted[q.Name] && !n.hasJobs(q.Name) {
			continue
		}
		if (asked.Names == nil || slices.Contains(asked.Names, q.Name)) && (asked.Pool == "" || asked.Pool == q.Pool) &&
			asked.Selects(q) && q.Name > asked.After {
			queues = append(queues, q)
		}
	}
	slices.SortFunc(queues, func(a, b gq.Queue) int { return cmp.Compare(a.Name, b.Name) })
	if asked.Limit > 0 {
		queues = queues[:min(asked.Limit, len(queues))]
	}
	return queues, nil
}

func (n *naive) Keyed(ctx context.Context, scopes, names []string) (ids []gq.JobID, err error) {
	if _, err := n.begin(ctx, false); err != nil {
		return nil, err
	}
	defer n.mu.Unlock()
	in := len(scopes)
	if in == 0 {
		known := make(map[string]bool)
		for key := range n.data.keys {
			known[key.Scope] = true
		}
		in = len(known)
	}
	if err := store.CheckKeyed(in, names); err != nil {
		return nil, err
	}
	for key, k := range n.data.keys {
		if slices.Contains(names, key.Name) && (len(scopes) == 0 || slices.Contains(scopes, key.Scope)) {
			ids = append(ids, k.job)
		}
	}
	return ids, nil
}
