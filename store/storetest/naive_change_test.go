package storetest

import (
	"context"
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

func (n *naive) Change(ctx context.Context, c store.Change) (out store.Changed, err error) {
	now, err := n.begin(ctx, true)
	if err != nil {
		return out, err
	}
	defer n.mu.Unlock()
	if err := store.CheckChange(c); err != nil {
		return out, err
	}
	if n.bug == insertsBlindly && len(c.Insert) > 0 {
		out.Placed = n.insert(store.Group{Jobs: c.Insert}, now).Jobs
		c.Insert = nil
	}
	for _, d := range c.Docs {
		if current := n.data.docs[n.docKey(d.Kind, d.Name)].Version; current != d.Version && n.bug != changesBlindly {
			return out, d.Conflict(current)
		}
	}
	jobs := make([]*naiveJob, len(c.Updates))
	seen := make(map[gq.JobID]int)
	for i, u := range c.Updates {
		id := u.Job
		if id.IsZero() {
			id = n.data.leases[u.Lease]
		}
		if k, twice := seen[id]; twice {
			return out, c.Again(i, k)
		}
		seen[id] = i
		j, ok := n.data.jobs[id]
		switch {
		case !ok && u.Job.IsZero():
			return out, &store.ChangeError{Update: i, Err: fmt.Errorf("naive: lease %q: %w", u.Lease, gq.ErrStaleLease)}
		case !ok:
			return out, &store.ChangeError{Update: i, Err: fmt.Errorf("naive: job %s: %w", id, gq.ErrNotFound)}
		}
		jobs[i] = j
		if err := u.Authorized(j.spec.Queue, &j.state); err != nil && n.bug != asksNobody {
			return out, &store.ChangeError{Update: i, Err: err}
		}
		if _, _, err := u.Apply(j.state, now); err != nil {
			return out, &store.ChangeError{Update: i, Err: err}
		}
		if n.bug == halfChanges {
			n.apply(j, u, now)
		}
	}
	if len(c.Insert) > 0 {
		placed := n.insert(store.Group{Jobs: c.Insert}, now)
		if placed.Err != nil && n.bug != docsAnyway {
			return out, &store.ChangeError{Update: store.Inserting, Err: placed.Err}
		}
		out.Placed = placed.Jobs
	}
	out.Versions = n.putDocs(c.Docs)
	for i, u := range c.Updates {
		if n.bug == halfChanges {
			out.States = append(out.States, jobs[i].state)
			continue
		}
		out.States = append(out.States, n.apply(jobs[i], u, now).State)
	}
	for _, e := range c.Events {
		if n.bug == losesNotices {
			break
		}
		n.data.seq++
		e.Seq, e.Time = n.data.seq, now
		n.data.events = append(n.data.events, e)
		n.announce(e.Queue)
	}
	return own(n, out), nil
}
