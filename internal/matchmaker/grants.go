package matchmaker

import (
	"context"
	"errors"
	"slices"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
)

// window remembers who was given leases lately.
type window struct {
	known  bool    // also what was given before this process looked
	grants []grant // by time
	counts map[string]int64
}

type grant struct {
	requester string
	at        int64
}

func (w *window) add(requester string, at int64) {
	if w.counts == nil {
		w.counts = make(map[string]int64)
	}
	w.grants = append(w.grants, grant{requester, at})
	w.counts[requester]++
}

// granted counts the leases that the requesters of some jobs were given within
// the window that ends now. Without a limit nobody needs to know.
func (d *Dispatcher) granted(ctx context.Context, jobs []*waiting, now int64) (map[string]int64, error) {
	q := &d.settings.Quotas
	if q.RequesterMax > 0 && !d.grants.known {
		if err := d.readGrants(ctx); err != nil {
			return nil, err
		}
	}
	return d.grants.of(jobs, now, q), nil
}

func (w *window) of(jobs []*waiting, now int64, q *match.Quotas) map[string]int64 {
	n := 0
	for n < len(w.grants) && w.grants[n].at <= now-q.RequesterWindow {
		g := w.grants[n]
		if w.counts[g.requester]--; w.counts[g.requester] <= 0 {
			delete(w.counts, g.requester)
		}
		n++
	}
	w.grants = append(w.grants[:0], w.grants[n:]...)
	if q.RequesterMax == 0 {
		return nil
	}
	counts := make(map[string]int64)
	for _, j := range jobs {
		if n := w.counts[j.Requester]; n > 0 {
			counts[j.Requester] = n
		}
	}
	return counts
}

// readGrants reads back what recent rounds have given.
func (d *Dispatcher) readGrants(ctx context.Context) error {
	since := d.now().Unix() - d.settings.Quotas.RequesterWindow
	var recent []grant
	for n := d.head.Round; n > 0; n-- {
		rec, err := d.readRecord(ctx, n)
		if errors.Is(err, gq.ErrNotFound) {
			break
		}
		if err != nil {
			return err
		}
		if rec.Input.Now <= since {
			break
		}
		requesters := make(map[string]string, len(rec.Input.Jobs))
		for _, j := range rec.Input.Jobs {
			requesters[j.ID] = j.Requester
		}
		for _, a := range rec.Assignments {
			recent = append(recent, grant{requesters[a.Job], rec.Input.Now})
		}
	}
	d.grants = window{known: true}
	for _, g := range slices.Backward(recent) {
		d.grants.add(g.requester, g.at)
	}
	return nil
}
