package dashboard

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
)

// queuesPerPage is the number of queues on one page.
const queuesPerPage = 50

// queueRow is one queue in a list.
type queueRow struct {
	gq.Queue
	gq.Count
	Oldest  time.Time // when the job that has waited longest became claimable; zero if none waits
	Unknown bool      // there was no time to look for it
	Workers int

	Activity gq.QueueActivity // of the last hour
}

// Ended is the number of jobs that ended in the last hour, cancelled ones not included.
func (r queueRow) Ended() int64 {
	return r.Activity.Completed + r.Activity.Failed + r.Activity.DeadLettered
}

// Throughput is the rate at which jobs ended, a second.
func (r queueRow) Throughput() float64 { return float64(r.Ended()) / time.Hour.Seconds() }

// Failures is the share of those jobs that did not succeed.
func (r queueRow) Failures() float64 {
	return float64(r.Activity.Failed+r.Activity.DeadLettered) / float64(max(1, r.Ended()))
}

// Name is the queue's name; both embedded types have it.
func (r queueRow) Name() string { return r.Queue.Name }

// Waiting is the number of claimable jobs.
func (r queueRow) Waiting() int64 { return r.By[gq.StatusScheduled] }

// Blocked is the number of jobs that wait for a time or for other jobs.
func (r queueRow) Blocked() int64 { return blocked(r.Count) }

func blocked(c gq.Count) (n int64) {
	for _, s := range groups["blocked"] {
		n += c.By[s]
	}
	return n
}

// Bad is the number of kept jobs that did not succeed.
func (r queueRow) Bad() int64 { return r.By[gq.StatusFailed] + r.By[gq.StatusDeadLetter] }

type overviewView struct {
	Stats   gq.Stats
	History historyView
	Busiest []queueRow // with the most live jobs
	Rest    int        // queues that are not listed
	Dead    []gq.Job   // the newest dead letters
	Jobs    []gq.Job   // the newest jobs
}

// Waiting and its siblings summarise all queues.
func (o overviewView) Waiting() int64   { return o.Stats.Total.By[gq.StatusScheduled] }
func (o overviewView) Blocked() int64   { return blocked(o.Stats.Total) }
func (o overviewView) Completed() int64 { return o.Stats.Total.By[gq.StatusCompleted] }
func (o overviewView) Failed() int64    { return o.Stats.Total.By[gq.StatusFailed] }
func (o overviewView) DeadLetters() int64 {
	return o.Stats.Total.By[gq.StatusDeadLetter]
}

// recentJobs is the number of jobs in the short lists of the overview.
const recentJobs = 8

func (d *Dashboard) overview(v *visit) error {
	view, err := v.readOverview()
	if err != nil {
		return err
	}
	v.watch = "all"
	return v.show("overview", "Overview", view)
}

// readOverview reads the page. The lists of jobs do not depend on the rest, so they are read at the
// same time.
func (v *visit) readOverview() (view overviewView, err error) {
	var dead, newest gq.Page
	var ofLists error
	var lists sync.WaitGroup
	lists.Go(func() {
		dead, ofLists = v.d.queue.List(v.ctx, gq.Query{Statuses: []gq.Status{gq.StatusDeadLetter}, Limit: recentJobs, MaxScan: maxSearched})
		if ofLists == nil {
			newest, ofLists = v.d.queue.List(v.ctx, gq.Query{Limit: recentJobs})
		}
	})
	err = v.readBusiest(&view)
	lists.Wait()
	view.Dead, view.Jobs = dead.Jobs, newest.Jobs
	return view, cmp.Or(err, ofLists)
}

// readBusiest reads the totals, the queues with the most live jobs and the charts.
func (v *visit) readBusiest(view *overviewView) error {
	stats, err := v.d.queue.Stats(v.ctx)
	if err != nil {
		return err
	}
	view.Stats = stats
	counts := slices.Clone(stats.Queues)
	slices.SortStableFunc(counts, func(a, b gq.Count) int {
		return cmp.Or(cmp.Compare(b.Live(), a.Live()), cmp.Compare(a.Queue, b.Queue))
	})
	view.Rest = max(0, len(counts)-queuesPerPage)
	counts = counts[:min(len(counts), queuesPerPage)]
	queueOf, err := v.lookUp(len(stats.Queues))
	if err != nil {
		return err
	}
	for _, c := range counts {
		q, err := queueOf(c.Queue)
		if err != nil {
			if errors.Is(err, gq.ErrNotFound) || errors.Is(err, gq.ErrDenied) {
				continue // deleted meanwhile
			}
			return err
		}
		view.Busiest = append(view.Busiest, queueRow{Queue: q, Count: c})
	}
	if err := v.complete(view.Busiest); err != nil {
		return err
	}
	view.History, err = v.historyOfAll(view.Busiest)
	return err
}

// lookUp returns a function that finds a queue by its name. Up to a thousand queues are read at
// once, which takes less time than reading a page of them one by one.
func (v *visit) lookUp(total int) (func(name string) (gq.Queue, error), error) {
	one := func(name string) (gq.Queue, error) { return v.d.queue.Queue(v.ctx, name) }
	if total > 1000 {
		return one, nil
	}
	all, err := v.d.queue.QueuesAfter(v.ctx, "", 1000)
	if err != nil {
		return nil, err
	}
	return func(name string) (gq.Queue, error) {
		i, ok := slices.BinarySearchFunc(all, name, func(q gq.Queue, name string) int { return cmp.Compare(q.Name, name) })
		if !ok {
			return one(name)
		}
		return all[i], nil
	}, nil
}

// Limits of the search for the oldest waiting jobs of all rows together.
const (
	searchTime    = 20 * time.Millisecond // not every store has an index for it
	searchersMost = 16                    // calls at once: a store may answer several with one read
)

// complete adds what only further calls know to the rows of a page.
func (v *visit) complete(rows []queueRow) error {
	if len(rows) == 0 {
		return nil
	}
	workers, err := v.d.queue.Workers(v.ctx)
	if err != nil {
		return err
	}
	names := make([]string, len(rows))
	for i := range rows {
		names[i] = rows[i].Queue.Name
		rows[i].Workers = len(claiming(workers, names[i]))
	}
	active, err := v.d.queue.QueueActivity(v.ctx) // of all queues, because that is one read
	if err != nil {
		return err
	}
	for _, a := range active {
		if i := slices.Index(names, a.Queue); i >= 0 {
			rows[i].Activity = a
		}
	}
	return v.findOldest(rows)
}

// claiming returns the workers that claim from a queue, by its name or by a pattern.
func claiming(workers []gq.LiveWorker, queue string) (list []gq.LiveWorker) {
	for i := range workers {
		if slices.ContainsFunc(workers[i].Queues, func(q string) bool { return gq.MatchQueue(q, queue) }) {
			list = append(list, workers[i])
		}
	}
	return list
}

// findOldest finds the job of each row that has waited longest, as far as there is time.
func (v *visit) findOldest(rows []queueRow) error {
	var waiting []*queueRow
	for i := range rows {
		if rows[i].By[gq.StatusScheduled] > 0 {
			waiting = append(waiting, &rows[i])
		}
	}
	until := time.Now().Add(searchTime)
	faults := make([]error, min(searchersMost, len(waiting)))
	var next atomic.Int64
	var searchers sync.WaitGroup
	for n := range faults {
		searchers.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(waiting)); i = next.Add(1) - 1 {
				r := waiting[i]
				if r.Unknown = i > 0 && time.Now().After(until); r.Unknown {
					continue
				}
				page, err := v.d.queue.List(v.ctx, gq.Query{Queue: r.Queue.Name, Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: 1, MaxScan: maxSearched})
				if err != nil {
					faults[n] = err
					return
				}
				if len(page.Jobs) > 0 {
					r.Oldest = page.Jobs[0].State.ScheduledAt
				}
			}
		})
	}
	searchers.Wait()
	return cmp.Or(faults...)
}
