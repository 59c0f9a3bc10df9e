package dashboard

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
)

type queuesView struct {
	Rows  []queueRow
	Find  string
	After string
	Next  string // name of the last queue of this page, if more follow
	More  bool   // the search stopped before it had seen all queues
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
		found, view.More, err = v.findQueues(view.Find, view.After)
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

// findQueues returns the queues after a name that contain a text.
func (v *visit) findQueues(text, after string) (found []gq.Queue, more bool, err error) {
	text = strings.ToLower(text)
	for range maxQueuesSearched / 1000 {
		page, err := v.d.queue.QueuesAfter(v.ctx, after, 1000)
		if err != nil {
			return nil, false, err
		}
		for i := range page {
			if strings.Contains(strings.ToLower(page[i].Name), text) {
				if found = append(found, page[i]); len(found) > queuesPerPage {
					return found, false, nil
				}
			}
		}
		if len(page) < 1000 {
			return found, false, nil
		}
		after = page[len(page)-1].Name
	}
	return found, true, nil
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
	Holding []gq.Job        // the newest jobs that workers hold
	Next    []gq.Job        // the oldest claimable jobs
	Recent  recent
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
	for i := range workers {
		if slices.Contains(workers[i].Queues, name) {
			view.Workers = append(view.Workers, workers[i])
		}
	}
	view.Workers = view.Workers[:min(len(view.Workers), 100)]
	for _, part := range []struct {
		to *[]gq.Job
		q  gq.Query
	}{
		{&view.Holding, gq.Query{Statuses: []gq.Status{gq.StatusRunning, gq.StatusClaimed}}},
		{&view.Next, gq.Query{Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true}},
	} {
		part.q.Queue, part.q.Limit, part.q.MaxScan = name, shownJobs, maxSearched
		page, err := d.queue.List(v.ctx, part.q)
		if err != nil {
			return view, err
		}
		*part.to = page.Jobs
	}
	if view.Recent, err = v.recent(name); err != nil {
		return view, err
	}
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

// limitsForm has the limits of a queue as text.
type limitsForm struct {
	MaxRunning, MaxDepth, KeyLimit, RateCount, RatePer, RateBurst string
}

type limitsView struct {
	queueRow
	Form    limitsForm
	Effects []string // what the change would do; nil before the preview
	Faults  []gq.Fault
	Recent  recent
}

func formOf(q *gq.Queue) limitsForm {
	text := func(n int) string {
		if n == 0 {
			return ""
		}
		return strconv.Itoa(n)
	}
	f := limitsForm{MaxRunning: text(q.MaxRunning), MaxDepth: text(q.MaxDepth), KeyLimit: text(q.KeyLimit), RateCount: text(q.Rate.Count), RateBurst: text(q.Rate.Burst)}
	if q.Rate.Per > 0 {
		f.RatePer = q.Rate.Per.String()
	}
	return f
}

func (d *Dashboard) editLimits(v *visit) error {
	found, err := v.queueView(v.r.URL.Query().Get("name"))
	if err != nil {
		return err
	}
	return v.show("limits", "Limits of "+found.Queue.Name, limitsView{queueRow: found.queueRow, Form: formOf(&found.Queue), Recent: found.Recent})
}

// saveLimits shows the effect of new limits first, and then applies them.
func (d *Dashboard) saveLimits(v *visit) error {
	name := v.r.PostForm.Get("name")
	found, err := v.queueView(name)
	if err != nil {
		return err
	}
	form := readLimits(v.r.PostForm)
	change, faults := form.parse()
	view := limitsView{queueRow: found.queueRow, Form: form, Recent: found.Recent, Faults: faults}
	if len(faults) > 0 {
		v.status = 400
		return v.show("limits", "Limits of "+name, view)
	}
	if v.r.PostForm.Get("apply") == "" {
		after := found.Queue
		change(&after)
		view.Effects = effects(&found, &after)
		return v.show("limits", "Limits of "+name, view)
	}
	_, err = d.queue.ChangeQueue(v.ctx, name, change)
	if v.audit("change limits", "queue "+name, err) != nil {
		var invalid *gq.InvalidError
		if errors.As(err, &invalid) {
			v.status, view.Faults = 400, invalid.Faults
			return v.show("limits", "Limits of "+name, view)
		}
		return err
	}
	return v.done("queue", "limits", "name", name)
}

func readLimits(f url.Values) limitsForm {
	get := func(name string) string { return strings.TrimSpace(f.Get(name)) }
	return limitsForm{get("max_running"), get("max_depth"), get("key_limit"), get("rate_count"), get("rate_per"), get("rate_burst")}
}

// parse returns the change that a form asks for.
func (f limitsForm) parse() (change func(*gq.Queue), faults []gq.Fault) {
	count := func(field, text string) int {
		if text == "" {
			return 0
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			faults = append(faults, gq.Fault{Field: field, Problem: fmt.Sprintf("%.40q is not a whole number; leave it empty for no limit", text)})
		}
		return n
	}
	running, depth, key := count("max_running", f.MaxRunning), count("max_depth", f.MaxDepth), count("key_limit", f.KeyLimit)
	rate := gq.Rate{Count: count("rate", f.RateCount), Burst: count("rate burst", f.RateBurst)}
	if rate.Count > 0 {
		rate.Per = time.Second
		if f.RatePer != "" {
			per, err := time.ParseDuration(f.RatePer)
			if err != nil || per <= 0 {
				faults = append(faults, gq.Fault{Field: "rate per", Problem: fmt.Sprintf("%.40q is not a duration such as 1s or 5m", f.RatePer)})
			}
			rate.Per = per
		}
	} else {
		rate = gq.Rate{}
	}
	return func(q *gq.Queue) { q.MaxRunning, q.MaxDepth, q.KeyLimit, q.Rate = running, depth, key, rate }, faults
}

// effects says what new limits would do to a queue as it is now.
func effects(now *queueView, after *gq.Queue) (list []string) {
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	before, held, live := &now.Queue, now.Held(), now.Live()
	if after.MaxRunning != before.MaxRunning {
		switch free := int64(after.MaxRunning) - held; {
		case after.MaxRunning == 0:
			add("Any number of jobs may run at once; %s run now.", number(held))
		case free < 0:
			add("%s jobs run now, %s more than the new limit. They continue; no further job starts until fewer than %s run.", number(held), number(-free), number(after.MaxRunning))
		default:
			add("%s jobs run now; %s more may start.", number(held), number(free))
		}
	}
	if after.MaxDepth != before.MaxDepth {
		switch free := int64(after.MaxDepth) - live; {
		case after.MaxDepth == 0:
			add("Submissions are never refused because of the depth.")
		case free <= 0:
			add("%s jobs are live now. Submissions are refused until there are fewer than %s.", number(live), number(after.MaxDepth))
		default:
			add("%s jobs are live now; %s more are accepted.", number(live), number(free))
		}
	}
	if after.KeyLimit != before.KeyLimit {
		if after.KeyLimit == 0 {
			add("Jobs with the same limit key no longer wait for each other.")
		} else {
			add("At most %s jobs with the same limit key run at once.", number(after.KeyLimit))
		}
	}
	if after.Rate != before.Rate {
		switch {
		case !after.Rate.Limited():
			add("Jobs start as fast as workers take them.")
		default:
			perSecond := float64(after.Rate.Count) / after.Rate.Per.Seconds()
			add("At most %s jobs start every %s.", number(after.Rate.Count), duration(after.Rate.Per))
			if waiting := now.Waiting(); waiting > 0 && perSecond > 0 {
				add("The %s waiting jobs take at least %s to start.", number(waiting), duration(time.Duration(float64(waiting)/perSecond*float64(time.Second))))
			}
			if now.Recent.Known() && now.Recent.PerSecond > perSecond {
				add("Jobs finished at %.3g a second lately, so the queue becomes slower.", now.Recent.PerSecond)
			}
		}
	}
	if len(list) == 0 {
		add("Nothing changes.")
	}
	return list
}
