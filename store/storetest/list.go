package storetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var listCases = []Case{
	{
		Name:   "List/Order",
		Clause: "jobs are listed by submission, newest first or oldest first, live and finished together, without blobs",
		run:    listOrder,
	},
	{
		Name:   "List/Pages",
		Clause: "the pages of a list hold each job once, whatever the limit and whatever happens in between",
		run:    listPages,
	},
	{
		Name:   "List/Filter",
		Clause: "a query selects by queue and status, alone or together",
		run:    listFilter,
	},
	{
		Name:   "List/Oldest",
		Clause: "the oldest claimable job of a queue is the one that was submitted first, whatever its priority, turn and limit key, also if many queues are asked for at once",
		run:    listOldest,
	},
	{
		Name:   "List/Created",
		Clause: "a range of creation times includes its beginning and not its end",
		run:    listCreated,
	},
	{
		Name:   "List/Scan",
		Clause: "a limit of the search makes shorter pages, never fewer jobs",
		run:    listScan,
	},
	{
		Name:   "List/Invalid",
		Clause: "a bad limit, status, queue or cursor is ErrInvalid, and so is what a store cannot select by",
		run:    listInvalid,
	},
	{
		Name:   "List/Limit",
		Clause: "without a limit a page has 50 jobs, and at most 1000 can be asked for",
		run:    listLimit,
	},
	{
		Name:   "List/Empty",
		Clause: "a query that nothing matches is one empty page",
		run:    listEmpty,
	},
}

// listed fails unless a query finds exactly these jobs in this order.
func (e *env) listed(what string, q gq.Query, want []gq.JobID) {
	e.Helper()
	if got := idsOf(e.list(q)); !slices.Equal(got, want) {
		e.Errorf("%s: listed %s, want %s", what, briefs(got), briefs(want))
	}
}

// mixture returns six jobs in various states, in order of submission.
func (e *env) mixture() []gq.JobID {
	e.Helper()
	done := e.add(binary([]byte("payload")))
	j := e.one()
	e.updated(store.Update{Ref: byID(done.ID), Apply: completing(j.State.Lease.Ref(), []byte("r")), Result: []byte("r")})
	failed := e.add()
	e.fail(e.one(), permanent)
	running := e.add(binary([]byte("payload")))
	j = e.one()
	e.clock.Advance(time.Second)
	e.update(running.ID, beating(j.State.Lease.Ref(), machine.Report{Progress: 0.5, Note: "half"}))
	waiting := e.add(at(gq.PriorityHigh))
	later := e.add(delayed(time.Hour))
	gone := e.add(inQueue("other"))
	e.cancel(gone.ID)
	return []gq.JobID{done.ID, failed.ID, running.ID, waiting.ID, later.ID, gone.ID}
}

func listOrder(e *env) {
	ids := e.mixture()
	e.listed("oldest first", gq.Query{OldestFirst: true}, ids)
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	e.listed("newest first", gq.Query{}, newest)
	for _, j := range e.list(gq.Query{OldestFirst: true}) {
		if len(j.Spec.Payload.Data) != 0 || len(j.Result) != 0 || len(j.Checkpoint) != 0 {
			e.Errorf("a listed job has blobs: payload %q, result %q, checkpoint %q", j.Spec.Payload.Data, j.Result, j.Checkpoint)
		}
		e.equal("a listed job and the same job read", j, e.find(byID(j.State.ID), 0).Job)
	}
}

func listPages(e *env) {
	for _, oldest := range []bool{true, false} {
		for _, limit := range []int{1, 7, 10, 1000} {
			queue := "q"
			old := make(map[gq.JobID]bool)
			for _, s := range e.each(e.specs(40, inQueue(queue))...) { // all at the same time
				old[s.ID] = true
			}
			seen := make(map[gq.JobID]bool)
			var last uint64
			q := gq.Query{Queue: queue, OldestFirst: oldest, Limit: limit}
			for page := 0; ; page++ {
				p, err := e.store().List(e.Context(), q)
				e.check("List", err)
				if len(p.Jobs) > limit || page > 1000 {
					e.Fatalf("page %d has %d jobs, the limit is %d", page, len(p.Jobs), limit)
				}
				for _, j := range p.Jobs {
					if seen[j.State.ID] {
						e.Fatalf("limit %d, oldest first %t: job %s was listed twice", limit, oldest, j.State.ID)
					}
					seen[j.State.ID] = true
					if last != 0 && (j.State.Sequence > last) != oldest {
						e.Errorf("limit %d, oldest first %t: sequence %d follows %d", limit, oldest, j.State.Sequence, last)
					}
					last = j.State.Sequence
				}
				if p.Next == "" {
					break
				}
				q.Cursor = p.Next
				// Between the pages, jobs already listed and others are added, changed and
				// ended.
				if page < 20 {
					e.add(inQueue(queue))
					for _, j := range e.claim(3, from(queue)) {
						e.complete(j)
					}
				}
			}
			for id := range old {
				if !seen[id] {
					e.Errorf("limit %d, oldest first %t: job %s was never listed", limit, oldest, id)
				}
			}
			for _, j := range e.claim(1000, from(queue)) {
				e.complete(j)
			}
		}
	}
}

func listFilter(e *env) {
	ids := e.mixture()
	done, failed, running, waiting, later, gone := ids[0], ids[1], ids[2], ids[3], ids[4], ids[5]
	for _, test := range []struct {
		name     string
		queue    string
		statuses []gq.Status
		want     []gq.JobID
	}{
		{"queue q", "q", nil, ids[:5]},
		{"queue other", "other", nil, []gq.JobID{gone}},
		{"COMPLETED", "", []gq.Status{gq.StatusCompleted}, []gq.JobID{done}},
		{"RUNNING", "", []gq.Status{gq.StatusRunning}, []gq.JobID{running}},
		{"SCHEDULED or DELAYED", "", []gq.Status{gq.StatusScheduled, gq.StatusDelayed}, []gq.JobID{waiting, later}},
		{"live and finished statuses", "", []gq.Status{gq.StatusCancelled, gq.StatusScheduled, gq.StatusFailed}, []gq.JobID{failed, waiting, gone}},
		{"CANCELLED in queue q", "q", []gq.Status{gq.StatusCancelled}, nil},
		{"every status in queue q", "q", enum.All[gq.Status](), ids[:5]},
		{"PENDING", "", []gq.Status{gq.StatusPending}, nil},
	} {
		for _, limit := range []int{0, 1, 2} {
			q := gq.Query{Queue: test.queue, Statuses: test.statuses, OldestFirst: true, Limit: limit}
			e.listed(test.name, q, test.want)
			newest := slices.Clone(test.want)
			slices.Reverse(newest)
			q.OldestFirst = false
			e.listed(test.name+", newest first", q, newest)
		}
	}
}

func listOldest(e *env) {
	e.put("fair", func(q *gq.Queue) { q.Fair = true })
	e.put("rated", func(q *gq.Queue) { q.KeyRate = gq.Rate{Count: 1, Per: time.Hour} })
	want := map[string][]gq.JobID{"none": nil}
	add := func(queue string, of ...setting) {
		want[queue] = append(want[queue], e.add(append(of, inQueue(queue))...).ID)
	}
	for _, p := range []gq.Priority{gq.PriorityLow, gq.PriorityHigh, gq.PriorityNormal, gq.PriorityHigh} {
		add("levels", at(p))
		add("single", at(gq.PriorityNormal))
	}
	for i := range 12 { // each has a turn
		add("fair", fairly(fmt.Sprint("key ", i)))
	}
	e.add(inQueue("late"), delayed(time.Hour)) // is not claimable
	add("late", at(gq.PriorityLow))
	e.add(inQueue("later"), delayed(time.Hour))
	want["later"] = nil
	for range 3 {
		add("rated", limitedBy("key"))
	}
	e.claim(2, from("rated")) // the second claim finds that the rate is used up, so jobs may be set aside
	want["rated"] = want["rated"][1:]
	e.claim(1, from("single"))
	want["single"] = want["single"][1:]

	var wait sync.WaitGroup
	for range 3 {
		for queue, ids := range want {
			wait.Go(func() {
				q := gq.Query{Queue: queue, Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: 1}
				var got []gq.JobID
				for {
					page, err := e.store().List(e.Context(), q)
					if err != nil || len(page.Jobs) > 1 {
						e.Errorf("queue %s: %d jobs, %v", queue, len(page.Jobs), err)
						return
					}
					got = append(got, idsOf(page.Jobs)...)
					if q.Cursor = page.Next; page.Next == "" {
						break
					}
				}
				if !slices.Equal(got, ids) {
					e.Errorf("queue %s: listed %s one by one, want %s", queue, briefs(got), briefs(ids))
				}
			})
		}
	}
	wait.Wait()
}

func listCreated(e *env) {
	var ids []gq.JobID
	for range 5 {
		ids = append(ids, e.add().ID)
		e.clock.Advance(time.Second)
	}
	e.cancel(ids[1])
	e.cancel(ids[3])
	at := func(i int) time.Time { return start.Add(time.Duration(i) * time.Second) }
	for _, test := range []struct {
		name        string
		after, from time.Time
		want        []gq.JobID
	}{
		{"from the second to before the fourth", at(1), at(3), ids[1:3]},
		{"one instant", at(1), at(1).Add(1), ids[1:2]},
		{"an empty range", at(1), at(1), nil},
		{"just after an instant", at(1).Add(1), at(3).Add(1), ids[2:4]},
		{"without an end", at(3), time.Time{}, ids[3:]},
		{"without a beginning", time.Time{}, at(2), ids[:2]},
		{"after all", at(5), time.Time{}, nil},
	} {
		for _, limit := range []int{0, 1} {
			e.listed(test.name, gq.Query{CreatedAfter: test.after, CreatedBefore: test.from, OldestFirst: true, Limit: limit}, test.want)
			newest := slices.Clone(test.want)
			slices.Reverse(newest)
			e.listed(test.name+", newest first", gq.Query{CreatedAfter: test.after, CreatedBefore: test.from, Limit: limit}, newest)
		}
	}
}

func listScan(e *env) {
	var want []gq.JobID
	for range 3 { // more than a store may read at once
		e.each(e.specs(60, inQueue("full"))...)
		e.each(e.specs(2, inQueue("sparse"))...)
	}
	for _, j := range e.claim(100, from("full")) {
		e.complete(j)
	}
	for _, j := range e.claim(1, from("sparse")) {
		e.complete(j)
	}
	for name, q := range map[string]gq.Query{
		"one queue":                   {Queue: "sparse"},
		"one queue and status":        {Queue: "sparse", Statuses: []gq.Status{gq.StatusScheduled}},
		"finished jobs of a queue":    {Queue: "sparse", Statuses: []gq.Status{gq.StatusCompleted}},
		"a status":                    {Statuses: []gq.Status{gq.StatusCompleted}},
		"a status without jobs":       {Statuses: []gq.Status{gq.StatusPending, gq.StatusFailed}},
		"a time":                      {CreatedAfter: start, CreatedBefore: start.Add(time.Hour)},
		"everything":                  {},
		"a queue that does not exist": {Queue: "nowhere"},
	} {
		for _, oldest := range []bool{false, true} {
			q.OldestFirst, q.Limit, q.Cursor, q.MaxScan = oldest, store.MaxPage, "", 0
			want = want[:0]
			for _, j := range e.list(q) {
				want = append(want, j.State.ID)
			}
			for _, scan := range []int{1, 4, 1000} {
				q.MaxScan, q.Limit, q.Cursor = scan, 20, ""
				var got []gq.JobID
				for pages := 0; ; pages++ {
					p, err := e.store().List(e.Context(), q)
					e.check("List", err)
					if len(p.Jobs) > 20 || pages > 400 {
						e.Fatalf("%s: page %d has %d jobs", name, pages, len(p.Jobs))
					}
					for _, j := range p.Jobs {
						got = append(got, j.State.ID)
					}
					if q.Cursor = p.Next; p.Next == "" {
						break
					}
				}
				if !slices.Equal(got, want) {
					e.Errorf("%s, oldest first %t, MaxScan %d: %d jobs %v, want %d %v", name, oldest, scan, len(got), got, len(want), want)
				}
			}
		}
	}
	if _, err := e.store().List(e.Context(), gq.Query{MaxScan: -1}); !errors.Is(err, gq.ErrInvalid) {
		e.Errorf("a negative MaxScan: %v", err)
	}
}

func listInvalid(e *env) {
	e.add()
	for name, q := range map[string]gq.Query{
		"a negative limit":  {Limit: -1},
		"a limit too large": {Limit: store.MaxPage + 1},
		"no queue name":     {Queue: "not a name"},
		"a type":            {Types: []string{"t"}},
		"a tag":             {Tags: map[string]string{"a": "b"}},
		"no status":         {Statuses: []gq.Status{gq.StatusCancelled + 1}},
		"no cursor":         {Cursor: "made up"},
		"a word":            {Cursor: "abc"},
		"a number":          {Cursor: "1"},
		"an odd cursor":     {Cursor: "\x00\xff"},
	} {
		_, err := e.store().List(e.Context(), q)
		e.is(name, err, gq.ErrInvalid)
	}
}

func listLimit(e *env) {
	e.insert(e.specs(store.MaxPage + 1)...)
	for limit, want := range map[int]int{0: store.DefaultPage, 1: 1, store.MaxPage: store.MaxPage} {
		page, err := e.store().List(e.Context(), gq.Query{Limit: limit})
		e.check("List", err)
		if len(page.Jobs) != want || page.Next == "" {
			e.Errorf("limit %d: a page of %d jobs, next %q; want %d and a next page", limit, len(page.Jobs), page.Next, want)
		}
	}
}

func listEmpty(e *env) {
	e.listed("an empty store", gq.Query{}, nil)
	e.add()
	page, err := e.store().List(e.Context(), gq.Query{Queue: "nowhere"})
	e.check("List", err)
	if len(page.Jobs) != 0 || page.Next != "" {
		e.Errorf("a queue without jobs: %d jobs, next %q; want none and no next page", len(page.Jobs), page.Next)
	}
}
