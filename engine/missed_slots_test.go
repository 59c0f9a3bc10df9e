package engine_test

import (
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

// Of several slots that are due at once, one has a job: the last if it takes the place of the others, otherwise the
// first, during which they were skipped. A backfill makes the jobs of the others, and of no slot twice.
func TestOverlapOfMissedSlots(t *testing.T) {
	for rule, want := range map[gq.OverlapRule]int{gq.OverlapSkip: 1, gq.OverlapQueueOne: 1, gq.OverlapCancelRunning: 4} {
		t.Run(rule.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, f *fixture) {
				put := must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{
					Name: "s", Every: time.Hour, Overlap: rule, Missed: gq.MissedAll, Template: gq.Spec{Type: "t", Queue: "q"},
				}))
				slot := func(n int) time.Time { return put.Next.Add(time.Duration(n-1) * time.Hour) }
				time.Sleep(time.Until(slot(4).Add(time.Second)))
				f.sweep()
				s := must[gq.Schedule](t)(f.Schedule(t.Context(), "s"))
				if s.Fired != 1 || s.Skipped != 3 || !s.Last.Equal(slot(want)) || !s.Next.Equal(slot(5)) {
					t.Errorf("fired %d, skipped %d, last %v, next %v; want the slot %v", s.Fired, s.Skipped, s.Last, s.Next, slot(want))
				}
				filled := must[gq.BackfillReport](t)(f.BackfillSchedule(t.Context(), gq.Backfill{Schedule: "s", From: slot(1), To: slot(4)}))
				if filled.Submitted != 3 {
					t.Errorf("the backfill: %+v", filled)
				}
				var got []string
				for _, j := range live(t, f.Engine, "s") {
					got = append(got, j.Spec.Attributes[gq.AttributeSlot])
				}
				if slices.Sort(got); len(got) != 4 || len(slices.Compact(got)) != 4 {
					t.Errorf("jobs of the slots %v", got)
				}
			})
		})
	}
}

// If the queue has room for some of many missed slots, the rest fires later. The slots need
// several commits.
func TestMissedSlotsBeyondTheRoom(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		f.putQueue(gq.Queue{Name: "q", MaxDepth: 200})
		for range 80 {
			f.submit(gq.Spec{Queue: "q", Type: "blocking"})
		}
		put := must[gq.Schedule](t)(f.PutSchedule(t.Context(), gq.Schedule{
			Name: "s", Every: time.Minute, Missed: gq.MissedAll, MissedLimit: 200, Template: gq.Spec{Type: "t", Queue: "q"},
		}))
		time.Sleep(time.Until(put.Next.Add(149*time.Minute + time.Second)))
		f.sweep()
		if s := must[gq.Schedule](t)(f.Schedule(t.Context(), "s")); s.Fired != 120 || !s.Next.Equal(put.Next.Add(120*time.Minute)) {
			t.Errorf("with room for 120 jobs: fired %d, next %v after %v", s.Fired, s.Next, put.Next)
		}
		must[gq.CancelReport](t)(f.CancelWhere(t.Context(), gq.Query{Queue: "q", Types: []string{"blocking"}}, ""))
		f.sweep()
		if s := must[gq.Schedule](t)(f.Schedule(t.Context(), "s")); s.Fired != 150 || !s.Next.Equal(put.Next.Add(150*time.Minute)) {
			t.Errorf("with room for all: fired %d, next %v after %v", s.Fired, s.Next, put.Next)
		}
	})
}
