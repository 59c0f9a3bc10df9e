package storetest

import (
	"time"

	"github.com/gopherqueue/gq"
)

var agingCases = []Case{
	{
		Name:   "Aging/Overtakes",
		Clause: "a job that has waited for its policy's aging is served before a fresh one of the next higher priority, and not earlier",
		run:    agingOvertakes,
	},
	{
		Name:   "Aging/Ready",
		Clause: "a job ages from the time at which it may run, not from its submission, and a retry from its backoff",
		run:    agingReady,
	},
	{
		Name:   "Aging/Priority",
		Clause: "a job that ages moves when its priority changes",
		run:    agingPriority,
	},
	{
		Name:    "Aging/Reopen",
		Clause:  "what has aged keeps its place after a restart",
		Reopens: true,
		run:     agingReopen,
	},
}

// aging is a setting for jobs that move up by one priority for each d.
func aging(d time.Duration, p gq.Priority) setting {
	return func(s *gq.Spec) {
		forever(func(p *gq.Policy) { p.Aging = d })(s)
		s.Metadata.Priority = p
	}
}

func agingOvertakes(e *env) {
	low := e.add(aging(time.Minute, gq.PriorityLow)).ID
	e.clock.Advance(time.Minute - time.Microsecond)
	normal := e.add(aging(time.Minute, gq.PriorityNormal)).ID // one step above, submitted 1 µs too early to be overtaken
	e.clock.Advance(2 * time.Microsecond)
	later := e.add(aging(time.Minute, gq.PriorityNormal)).ID
	bulk := e.add(aging(time.Minute, gq.PriorityBulk)).ID
	critical := e.add(aging(time.Minute, gq.PriorityCritical)).ID
	e.claimed("by age and priority", 10, []gq.JobID{critical, normal, low, later, bulk})
	old := e.add(aging(time.Minute, gq.PriorityBulk)).ID
	e.clock.Advance(4*time.Minute + time.Microsecond)
	fresh := e.add(aging(time.Minute, gq.PriorityCritical)).ID
	e.claimed("after four steps", 10, []gq.JobID{old, fresh})
}

func agingReady(e *env) {
	delayed := e.add(aging(time.Minute, gq.PriorityLow), func(s *gq.Spec) { s.Delay = time.Hour }).ID
	e.clock.Advance(time.Hour)
	normal := e.add(aging(time.Minute, gq.PriorityNormal)).ID
	for _, want := range []gq.JobID{normal, delayed} {
		j := e.one()
		if j.State.ID != want {
			e.Errorf("of a fresh job and one whose delay is just over: claimed %s, want %s", briefs([]gq.JobID{j.State.ID}), briefs([]gq.JobID{want}))
		}
		e.complete(j)
	}
	retried := e.add(aging(time.Minute, gq.PriorityLow), func(s *gq.Spec) { s.Policy.Backoff.Initial, s.Policy.Backoff.Max = time.Hour, time.Hour }).ID
	e.fail(e.one(), temporary)
	e.clock.Advance(time.Hour)
	normal = e.add(aging(time.Minute, gq.PriorityNormal)).ID
	e.claimed("a job whose backoff is just over", 10, []gq.JobID{normal, retried})
}

func agingPriority(e *env) {
	first := e.add(aging(time.Hour, gq.PriorityNormal)).ID
	e.clock.Advance(time.Second)
	second := e.add(aging(time.Hour, gq.PriorityNormal)).ID
	e.update(second, updating(gq.PriorityHigh))
	e.clock.Advance(time.Second)
	third := e.add(aging(time.Hour, gq.PriorityLow)).ID
	e.update(third, updating(gq.PriorityCritical))
	e.claimed("after their priorities changed", 10, []gq.JobID{third, second, first})
}

func agingReopen(e *env) {
	bulk := e.add(aging(time.Minute, gq.PriorityBulk)).ID
	e.clock.Advance(4*time.Minute + time.Microsecond)
	critical := e.add(aging(time.Minute, gq.PriorityCritical)).ID
	e.reopen()
	e.claimed("after a restart", 10, []gq.JobID{bulk, critical})
}
