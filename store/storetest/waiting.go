package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var waitingCases = []Case{
	{
		Name:   "Waiting/Claimable",
		Clause: "Waiting lists every queue with a claimable job, also one whose time has come or whose lease has expired, and no idle one",
		run:    waitingClaimable,
	},
	{
		Name:   "Waiting/Pages",
		Clause: "Waiting lists queues with a prefix by name, page by page",
		run:    waitingPages,
	},
}

// waiting lists the queues with a prefix.
func (e *env) waiting(prefix, after string, limit int) []string {
	e.Helper()
	queues, err := e.store().Waiting(e.Context(), prefix, after, limit)
	e.check("Waiting", err)
	return queues
}

func waitingClaimable(e *env) {
	e.equal("an empty store", e.waiting("", "", 10), []string(nil))
	e.add(inQueue("mail.a"))
	e.add(inQueue("mail.b"))
	e.add(inQueue("mailer"))
	e.equal("jobs in two queues", e.waiting("mail.", "", 10), []string{"mail.a", "mail.b"})
	e.put("mail.a", func(q *gq.Queue) { q.Paused = true })
	if got := e.waiting("mail.", "", 10); !slices.Contains(got, "mail.b") {
		e.Errorf("one of them paused: %q", got)
	}
	e.put("mail.a", func(*gq.Queue) {})
	e.equal("both after the pause", e.waiting("mail.", "", 10), []string{"mail.a", "mail.b"})
	a := e.one(from("mail.a"), lasting(time.Minute))
	e.equal("one of them claimed", e.waiting("mail.", "", 10), []string{"mail.b"})
	e.complete(e.one(from("mail.b")))
	e.equal("both claimed", e.waiting("mail.", "", 10), []string(nil))
	e.add(inQueue("mail.c"))
	e.equal("a new queue", e.waiting("mail.", "", 10), []string{"mail.c"})
	e.clock.Advance(time.Minute)
	e.equal("an expired lease", e.waiting("mail.", "", 10), []string{"mail.a", "mail.c"})
	e.complete(e.one(from("mail.c")))
	e.stale("the lease that has expired", a.State.ID, a.State.Lease.Ref())
	e.add(inQueue("mail.d"), delayed(time.Hour))
	e.clock.Advance(time.Hour)
	if got := e.waiting("mail.", "", 10); !slices.Contains(got, "mail.d") {
		e.Errorf("a job whose time has come: %q", got)
	}
	e.put("mail.k", func(q *gq.Queue) { q.KeyRate = gq.Rate{Count: 1, Per: time.Minute} })
	e.each(e.specs(2, inQueue("mail.k"), limitedBy("k"))...)
	e.limited("of a key", 5, 1, e.now().Add(time.Minute), from("mail.k"))
	e.clock.Advance(time.Minute)
	if got := e.waiting("mail.", "", 10); !slices.Contains(got, "mail.k") {
		e.Errorf("a key that is free again: %q", got)
	}
}

func waitingPages(e *env) {
	var want []string
	for i := range 10 {
		name := fmt.Sprint("q/", i)
		want = append(want, name)
		e.add(inQueue(name))
	}
	e.add(inQueue("q"))
	e.add(inQueue("r"))
	var got []string
	for after := ""; len(got) < 20; {
		page := e.waiting("q/", after, 3)
		got = append(got, page...)
		if len(page) < 3 {
			break
		}
		after = page[2]
	}
	e.equal("the pages", got, want)
	e.equal("a prefix that is a name", e.waiting("q", "", 2), []string{"q", "q/0"})
	e.equal("after a name that is none", e.waiting("q/", "q/7x", 10), []string{"q/8", "q/9"})
	e.equal("all queues", e.waiting("", "q/9", 10), []string{"r"})
	for _, limit := range []int{0, -1, store.MaxPage + 1} {
		if _, err := e.store().Waiting(e.Context(), "", "", limit); !errors.Is(err, gq.ErrInvalid) {
			e.Errorf("a limit of %d: %v", limit, err)
		}
	}
}
