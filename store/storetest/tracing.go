package storetest

import (
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var traceCases = []Case{
	{
		Name:   "Trace/Events",
		Clause: "every event of a job names the trace context that it was submitted in",
		run:    traceEvents,
	},
}

// modelTrace is the trace context of the jobs that the model traces.
const modelTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func traceEvents(e *env) {
	traced := e.spec(func(s *gq.Spec) { s.Attributes = map[string]string{gq.AttributeTraceParent: modelTrace} })
	odd := e.spec(func(s *gq.Spec) { s.Attributes = map[string]string{gq.AttributeTraceParent: "unheard of"} })
	plain := e.spec()
	e.insert(traced)
	e.insert(odd)
	e.insert(plain)
	first := e.one()
	e.tryUpdate(store.Update{Ref: byID(first.State.ID), Apply: releasing(first.State.Lease.Ref(), time.Second, "later")})
	e.clock.Advance(time.Minute)
	e.claim(3)
	for _, test := range []struct {
		spec gq.Spec
		want string
	}{{traced, modelTrace}, {odd, ""}, {plain, ""}} {
		if got := e.state(test.spec.ID).TraceParent; got != test.want {
			e.Errorf("the state of a job with %v has the trace %q, want %q", test.spec.Attributes, got, test.want)
		}
		events := e.history(test.spec.ID)
		if last := events[len(events)-1]; last.Type != gq.EventStarted {
			e.Errorf("the last event of a job with %v is %s, want %s", test.spec.Attributes, last.Type, gq.EventStarted)
		}
		for _, event := range events {
			if event.TraceParent != test.want {
				e.Errorf("the event %s of a job with %v has the trace %q, want %q", event.Type, test.spec.Attributes, event.TraceParent, test.want)
			}
		}
	}
}
