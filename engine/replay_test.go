package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// replayed are jobs that are replayed in different ways: under a key of the replay, or their own.
var replayedKinds = map[string]gq.Spec{
	"plain":       {},
	"keyed":       {Key: gq.IdempotencyKey{Name: "k1"}},
	"unique":      {Key: gq.IdempotencyKey{Name: "k2"}, Unique: gq.UniqueRule{While: gq.WhileLive}},
	"until done":  {Key: gq.IdempotencyKey{Name: "k3"}, Unique: gq.UniqueRule{While: gq.UntilDone}},
	"in a period": {Key: gq.IdempotencyKey{Name: "k4"}, Unique: gq.UniqueRule{While: gq.ForPeriod, Period: time.Millisecond}},
	"by a field":  {Payload: gq.Payload{Data: []byte(`{"a":1}`)}, Unique: gq.UniqueRule{While: gq.WhileLive, Fields: []string{"a"}}},
}

// Whoever replays a finished job gets the same replay: at the same time, later, and after it has ended.
func TestAJobIsReplayedOnce(t *testing.T) {
	t.Run("local", func(t *testing.T) { replayOnce(t, open(t)) })
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pgtest.Database(t), store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		replayOnce(t, s)
	})
}

func replayOnce(t *testing.T, s store.Store) {
	t.Helper()
	f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
	for kind, spec := range replayedKinds {
		t.Run(kind, func(t *testing.T) {
			spec.Queue, spec.Type = strings.ReplaceAll(kind, " ", "."), "work"
			id := f.submit(spec)
			must[gq.State](t)(f.Cancel(t.Context(), id, ""))
			again := sameReplay(t, f, id, gq.JobID{}, 1)
			must[gq.State](t)(f.Cancel(t.Context(), again, ""))
			time.Sleep(2 * time.Millisecond) // the period is over
			sameReplay(t, f, id, again, 0)
			q := gq.Query{Queue: spec.Queue, Statuses: []gq.Status{gq.StatusCancelled}}
			report := must[gq.ReplayReport](t)(f.ReplayWhere(t.Context(), q)) // also of the replay, which has ended
			if report.Existing != 1 || len(report.Jobs) != 1 || report.Refused != 0 {
				t.Errorf("many: %+v, want one that was replayed before and one more", report)
			}
			if last := must[gq.SubmitResult](t)(f.Replay(t.Context(), again)); !last.Existing || last.ID() != report.Jobs[0] {
				t.Errorf("the replay was replayed as %s, want %s", last.ID(), report.Jobs[0])
			}
			must[gq.State](t)(f.Cancel(t.Context(), report.Jobs[0], ""))
			last := again
			if !spec.Unique.IsZero() { // which is one job after the other
				last = report.Jobs[0]
			}
			if out := must[gq.SubmitResult](t)(f.Replay(t.Context(), id)); !out.Existing || out.ID() != last {
				t.Errorf("the first job was replayed as %s (existing: %t), want %s, which is there", out.ID(), out.Existing, last)
			}
			if spec.Unique.IsZero() { // nothing is left to name
				if err := f.Purge(t.Context(), again); err != nil {
					t.Fatal(err)
				}
				sameReplay(t, f, id, gq.JobID{}, 1)
			}
		})
	}
}

// sameReplay replays a job several times at once. All answers must name one job, and so many be the first.
func sameReplay(t *testing.T, f *fixture, id, want gq.JobID, first int) gq.JobID {
	t.Helper()
	answers := make([]gq.SubmitResult, 6)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() {
			var err error
			if answers[i], err = f.Replay(t.Context(), id); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range answers {
		if !answers[i].Existing {
			first--
		}
		if want.IsZero() {
			want = answers[i].ID()
		}
		if answers[i].ID() != want {
			t.Errorf("a replay is %s, want %s", answers[i].ID(), want)
		}
	}
	if first != 0 || f.get(want).Spec.ReplayOf != id {
		t.Errorf("%d more answers should say that they were the first", first)
	}
	return want
}

// The replay says who asked for it, in an attribute and in its first event.
func TestAReplaySaysWho(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		id := f.submit(gq.Spec{Type: "work"})
		must[gq.State](t)(f.Cancel(t.Context(), id, ""))
		again := must[gq.SubmitResult](t)(f.Replay(engine.WithCaller(t.Context(), "ada"), id)).ID()
		events := must[[]gq.Event](t)(f.History(t.Context(), again))
		if by := f.get(again).Spec.Attributes[gq.AttributeReplayedBy]; by != "ada" || events[0].Reason != "replay of job "+id.String()+" by ada" {
			t.Errorf("by %q, %q", by, events[0].Reason)
		}
		must[gq.State](t)(f.Cancel(t.Context(), again, ""))
		next := must[gq.SubmitResult](t)(f.Replay(t.Context(), again)).ID()
		if by, told := f.get(next).Spec.Attributes[gq.AttributeReplayedBy]; told {
			t.Errorf("nobody's replay is by %q", by)
		}
	})
}

// An edited replay is still the one.
func TestAnEditedReplayIsTheReplay(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		rule := gq.UniqueRule{While: gq.WhileLive, Fields: []string{"a"}}
		for _, spec := range []gq.Spec{{Type: "a"}, {Type: "b", Payload: payload(`{"a":1}`), Unique: rule}, {Type: "c", Payload: payload(`{"a":2,"b":1}`), Unique: rule}} {
			id := f.submit(spec)
			must[gq.State](t)(f.Cancel(t.Context(), id, ""))
			again := must[gq.SubmitResult](t)(f.Replay(t.Context(), id)).ID()
			edited := again
			for _, data := range []string{`{"a":2}`, `{"a":2,"b":3}`} {
				edited = must[gq.SubmitResult](t)(f.Edit(t.Context(), edited, gq.JobEdit{Payload: &gq.Payload{Data: []byte(data)}})).ID()
			}
			for _, ended := range []bool{false, true} {
				if ended {
					must[gq.State](t)(f.Cancel(t.Context(), edited, ""))
				}
				if out := must[gq.SubmitResult](t)(f.Replay(t.Context(), id)); out.ID() != edited || !out.Existing {
					t.Errorf("%s: the replay is %s, want the edited %s", spec.Type, out.ID(), edited)
				}
			}
		}
	})
}

// A job that was put off or edited is done by its successor, so it is not replayed beside it.
func TestAReplacedJobIsNotReplayed(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		replaced := f.submit(gq.Spec{Queue: "q", Type: "a"})
		successor := must[gq.State](t)(f.Reschedule(t.Context(), replaced, time.Now().Add(time.Hour))).ID
		cancelled := f.submit(gq.Spec{Queue: "q", Type: "a"})
		must[gq.State](t)(f.Cancel(t.Context(), cancelled, ""))
		if _, err := f.Replay(t.Context(), replaced); !errors.Is(err, gq.ErrIllegalMove) || !strings.Contains(err.Error(), successor.String()) {
			t.Errorf("a replaced job is replayed: %v", err)
		}
		report := must[gq.ReplayReport](t)(f.ReplayWhere(t.Context(), gq.Query{Queue: "q", Statuses: []gq.Status{gq.StatusCancelled}}))
		if len(report.Jobs) != 1 || report.Refused != 0 {
			t.Errorf("the replay of all cancelled jobs: %+v", report)
		}
	})
}

// Nobody can submit a job that would pass for the replay of another.
func TestTheScopeOfReplaysIsReserved(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		id := f.submit(gq.Spec{Type: "a"})
		must[gq.State](t)(f.Cancel(t.Context(), id, ""))
		key := gq.IdempotencyKey{Scope: machine.ReplayScope, Name: id.String()}
		for what, err := range map[string]error{
			"alone": func() error { _, err := f.Submit(t.Context(), gq.Spec{Type: "b", Key: key}); return err }(),
			"in a graph": func() error {
				_, err := f.SubmitGraph(t.Context(), []gq.GraphJob{{Spec: gq.Spec{Type: "b"}}, {Spec: gq.Spec{Type: "b", Key: key}}})
				return err
			}(),
		} {
			if !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "reserved") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if out := must[gq.SubmitResult](t)(f.Replay(t.Context(), id)); out.Existing {
			t.Errorf("the replay of %s is %s, which was there before", id, out.ID())
		}
	})
}

// A key finds its job, whatever the type, and the id of a job its replay.
func TestListByKey(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		a := f.submit(gq.Spec{Queue: "q", Type: "a", Key: gq.IdempotencyKey{Name: "order-7"}})
		b := f.submit(gq.Spec{Queue: "q", Type: "b", Key: gq.IdempotencyKey{Name: "order-7"}, Unique: gq.UniqueRule{While: gq.WhileLive}})
		f.submit(gq.Spec{Queue: "q", Type: "a", Key: gq.IdempotencyKey{Name: "order-8"}})
		must[gq.State](t)(f.Cancel(t.Context(), a, ""))
		replay := must[gq.SubmitResult](t)(f.Replay(t.Context(), a)).ID()
		for _, c := range []struct {
			q    gq.Query
			want []gq.JobID
		}{
			{gq.Query{Keys: []string{"order-7"}}, []gq.JobID{b, a}},
			{gq.Query{Keys: []string{"order-7"}, OldestFirst: true}, []gq.JobID{a, b}},
			{gq.Query{Keys: []string{"order-7", "nothing"}, Types: []string{"a"}}, []gq.JobID{a}},
			{gq.Query{Keys: []string{"order-7", "order-7"}, Types: []string{"a", "a"}}, []gq.JobID{a}},
			{gq.Query{Keys: []string{"order-7"}, Statuses: []gq.Status{gq.StatusScheduled}}, []gq.JobID{b}},
			{gq.Query{Keys: []string{"order-7"}, Queue: "other"}, nil},
			{gq.Query{Keys: []string{a.String()}}, []gq.JobID{replay}},
			{gq.Query{Keys: []string{"order"}}, nil},
		} {
			page := must[gq.Page](t)(f.List(t.Context(), c.q))
			var got []gq.JobID
			for i := range page.Jobs {
				got = append(got, page.Jobs[i].State.ID)
			}
			if !slices.Equal(got, c.want) || page.Next != "" {
				t.Errorf("%+v: %s, want %s", c.q, got, c.want)
			}
		}
		page := must[gq.Page](t)(f.List(t.Context(), gq.Query{Keys: []string{"order-7"}, Limit: 1}))
		if rest := must[gq.Page](t)(f.List(t.Context(), gq.Query{Keys: []string{"order-7"}, Limit: 1, Cursor: page.Next})); len(rest.Jobs) != 1 || rest.Jobs[0].State.ID != a || rest.Next != "" {
			t.Errorf("the second page is %+v", rest)
		}
		if n := must[gq.CountReport](t)(f.CountWhere(t.Context(), gq.Query{Keys: []string{"order-7"}})); n.Jobs != 2 {
			t.Errorf("counted %+v", n)
		}
		_, err := f.List(t.Context(), gq.Query{Keys: []string{""}})
		wantErr(t, "an empty key", err, gq.ErrInvalid)
	})
}

// The report of a replay of many jobs names the one that could not be submitted, also behind one that
// was left out.
func TestTheProblemOfAReplayNamesItsJob(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		replaced := f.submit(gq.Spec{Queue: "q", Type: "a"})
		must[gq.State](t)(f.Reschedule(t.Context(), replaced, time.Now().Add(time.Hour)))
		var cancelled []gq.JobID
		for range 3 {
			id := f.submit(gq.Spec{Queue: "q", Type: "a"})
			must[gq.State](t)(f.Cancel(t.Context(), id, ""))
			cancelled = append(cancelled, id)
		}
		must[gq.Queue](t)(f.ChangeQueue(t.Context(), "q", func(q *gq.Queue) { q.MaxDepth = 2 }))
		report := must[gq.ReplayReport](t)(f.ReplayWhere(t.Context(), gq.Query{Queue: "q", Statuses: []gq.Status{gq.StatusCancelled}}))
		if len(report.Jobs) != 1 || report.Refused != 2 || !strings.HasPrefix(report.Problem, "replay "+cancelled[1].String()+": ") {
			t.Errorf("replayed %d, refused %d: %q; want 1, 2 and the second job, %s", len(report.Jobs), report.Refused, report.Problem, cancelled[1])
		}
	})
}

// Pages of jobs with one key follow each other.
func TestPagesByKey(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var ids []gq.JobID
		for i := range 5 {
			ids = append(ids, f.submit(gq.Spec{Type: fmt.Sprint("t", i), Key: gq.IdempotencyKey{Name: "order-7"}}))
		}
		for _, oldest := range []bool{false, true} {
			got, _ := f.pages(gq.Query{Keys: []string{"order-7"}, Limit: 2, OldestFirst: oldest})
			if !oldest {
				slices.Reverse(got)
			}
			if !slices.Equal(got, ids) {
				t.Errorf("oldest first %v: %v, want %v", oldest, got, ids)
			}
		}
	})
}
