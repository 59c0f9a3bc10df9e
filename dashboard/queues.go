package dashboard

import (
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
)

type queuesView struct {
	Rows  []queueRow
	Find  string
	After string
	Next  string // name of the last queue of this page, if more follow
	More  bool   // the search stopped before it had seen all queues; Next is where it continues
}

// maxQueuesSearched is the number of queues that a search by name looks at.
const maxQueuesSearched = 10_000

func (d *Dashboard) queues(v *visit) error {
	q := v.r.URL.Query()
	view := queuesView{Find: strings.TrimSpace(q.Get("find")), After: q.Get("after")}
	var found []gq.Queue
	var err error
	if view.Find == "" {
		found, err = d.queue.QueuesAfter(v.ctx, view.After, queuesPerPage+1)
	} else {
		found, view.Next, err = v.findQueues(view.Find, view.After)
		view.More = view.Next != ""
	}
	if err != nil {
		return err
	}
	if len(found) > queuesPerPage {
		found = found[:queuesPerPage]
		view.Next = found[queuesPerPage-1].Name
	}
	if view.Rows, err = v.rows(found); err != nil {
		return err
	}
	v.watch = "all"
	return v.show("queues", "Queues", view)
}

// findQueues returns the queues after a name that contain a text. If it stops before it has seen all queues, it
// returns the last one that it has seen.
func (v *visit) findQueues(text, after string) (found []gq.Queue, seen string, err error) {
	text = strings.ToLower(text)
	for range maxQueuesSearched / 1000 {
		page, err := v.d.queue.QueuesAfter(v.ctx, after, 1000)
		if err != nil {
			return nil, "", err
		}
		for i := range page {
			if strings.Contains(strings.ToLower(page[i].Name), text) {
				if found = append(found, page[i]); len(found) > queuesPerPage {
					return found, "", nil
				}
			}
		}
		if len(page) < 1000 {
			return found, "", nil
		}
		after = page[len(page)-1].Name
	}
	return found, after, nil
}

// rows completes queues for a list.
func (v *visit) rows(queues []gq.Queue) ([]queueRow, error) {
	rows := make([]queueRow, len(queues))
	names := make([]string, len(queues))
	for i := range queues {
		names[i], rows[i].Queue = queues[i].Name, queues[i]
	}
	if len(names) == 0 {
		return rows, nil
	}
	counts, err := v.d.queue.Counts(v.ctx, names...)
	if err != nil {
		return nil, err
	}
	for _, c := range counts {
		if i := slices.Index(names, c.Queue); i >= 0 {
			rows[i].Count = c
		}
	}
	return rows, v.complete(rows)
}

// queueNames are names for the completion of a filter.
func (v *visit) queueNames() ([]string, error) {
	found, err := v.d.queue.QueuesAfter(v.ctx, "", 200)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(found))
	for i := range found {
		names[i] = found[i].Name
	}
	return names, nil
}

type queueView struct {
	queueRow
	Workers []gq.LiveWorker // that claim from it
	Usage   usage           // who holds what
	Next    []gq.Job        // the oldest claimable jobs
	Rates   rates
	History historyView
	Pool    *gq.Pool
}

// shownJobs is the number of jobs in a list on the page of a queue.
const shownJobs = 10

func (d *Dashboard) queuePage(v *visit) error {
	view, err := v.queueView(v.r.URL.Query().Get("name"))
	if err != nil {
		return err
	}
	v.watch = "queue:" + view.Queue.Name
	return v.show("queue", "Queue "+view.Queue.Name, view)
}

func (v *visit) queueView(name string) (view queueView, err error) {
	d := v.d
	found, err := d.queue.Queue(v.ctx, name)
	if err != nil {
		return view, err
	}
	if !v.who.may(Read, name) {
		return view, gq.ErrDenied.Errorf("you may not read queue %.80q", name)
	}
	rows, err := v.rows([]gq.Queue{found})
	if err != nil {
		return view, err
	}
	view.queueRow = rows[0]
	workers, err := d.queue.Workers(v.ctx)
	if err != nil {
		return view, err
	}
	view.Workers = claiming(workers, name)
	view.Workers = view.Workers[:min(len(view.Workers), 100)]
	if view.Usage, err = v.usage(&found); err != nil {
		return view, err
	}
	next, err := d.queue.List(v.ctx, gq.Query{Queue: name, Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: shownJobs, MaxScan: maxSearched})
	if err != nil {
		return view, err
	}
	view.Next = next.Jobs
	if view.Rates, err = v.rates(name); err != nil {
		return view, err
	}
	if view.History, err = v.history(name); err != nil {
		return view, err
	}
	view.History.Queue = name
	if found.Pool != "" && v.who.may(Read, "") {
		pools, err := d.queue.Pools(v.ctx)
		if err != nil {
			return view, err
		}
		if i := slices.IndexFunc(pools, func(p gq.Pool) bool { return p.Name == found.Pool }); i >= 0 {
			view.Pool = &pools[i]
		}
	}
	return view, nil
}

func (d *Dashboard) pauseQueue(v *visit) error {
	name := v.r.PostForm.Get("name")
	if _, err := d.queue.Queue(v.ctx, name); err != nil {
		return v.audit("pause", "queue "+name, err)
	}
	_, err := d.queue.Pause(v.ctx, name)
	if v.audit("pause", "queue "+name, err) != nil {
		return err
	}
	return v.done("queue", "paused", "name", name)
}

func (d *Dashboard) resumeQueue(v *visit) error {
	name := v.r.PostForm.Get("name")
	_, err := d.queue.Resume(v.ctx, name)
	if v.audit("resume", "queue "+name, err) != nil {
		return err
	}
	return v.done("queue", "resumed", "name", name)
}
