package storetest

import (
	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var skimCases = []Case{{
	Name:   "Events/Skim",
	Clause: "what a store tells those who only count is what its events tell, from any number on and however many at a time",
	run:    eventSkim,
}}

func eventSkim(e *env) {
	e.story()
	s, ctx := e.store(), e.Context()
	events, err := s.Events(ctx, 0, 10_000)
	e.check("Events", err)
	if len(events) < 20 {
		e.Fatalf("only %d events", len(events))
	}
	elapsed := 0
	for _, limit := range []int{1, 3, 7, 10_000} {
		for from := 0; from < len(events); from += max(limit, 5) {
			after := uint64(0)
			if from > 0 {
				after = events[from-1].Seq
			}
			n := 0
			last, err := store.Skim(ctx, s, after, limit, func(v *gq.Event) {
				if from+n >= len(events) {
					e.Fatalf("an event too many: %+v", *v)
				}
				want := events[from+n]
				n++
				if v.Seq != want.Seq || !v.Time.Equal(want.Time) || v.Queue != want.Queue || v.Type != want.Type || v.Status != want.Status ||
					v.LeaseState != want.LeaseState || v.Elapsed != want.Elapsed || (v.Failure == nil) != (want.Failure == nil) ||
					v.Failure != nil && (v.Failure.Category != want.Failure.Category || v.Failure.Code != want.Failure.Code) {
					e.Errorf("told %+v of %+v", *v, want)
				}
				if want.Elapsed > 0 {
					elapsed++
				}
			})
			e.check("Skim", err)
			if want := min(limit, len(events)-from); n != want || last != events[from+n-1].Seq {
				e.Errorf("%d events after %d up to %d, limit %d; want %d", n, after, last, limit, want)
			}
		}
	}
	if elapsed == 0 {
		e.Errorf("no event says how long the job waited or ran")
	}
	end := events[len(events)-1].Seq
	if last, err := store.Skim(ctx, s, end, 5, func(v *gq.Event) { e.Errorf("event %+v after the last", *v) }); err != nil || last != end {
		e.Errorf("after the last event: %d, %v", last, err)
	}
}
