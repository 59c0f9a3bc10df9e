package engine_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/machine"
)

func TestUpdateMetadata(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		id := f.submit(gq.Spec{Metadata: gq.Metadata{Tags: map[string]string{"a": "1", "b": "2"}}})
		url, trace := "https://example.com/done", "trace-1"
		j := must[gq.Job](t)(f.UpdateMetadata(t.Context(), id, gq.MetadataPatch{
			Priority: gq.PriorityHigh, SetTags: map[string]string{"c": "3"}, DropTags: []string{"a", "z"}, CorrelationID: &trace, CallbackURL: &url,
		}))
		want := gq.Metadata{Priority: gq.PriorityHigh, Tags: map[string]string{"b": "2", "c": "3"}, CorrelationID: trace, CallbackURL: url}
		if !j.Metadata.Equal(want) || !f.get(id).Metadata.Equal(want) || j.State.Own != gq.PriorityHigh {
			t.Errorf("metadata %+v, stored %+v, want %+v", j.Metadata, f.get(id).Metadata, want)
		}

		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				must[gq.Job](t)(f.UpdateMetadata(t.Context(), id, gq.MetadataPatch{SetTags: map[string]string{fmt.Sprint("t", i): "x"}}))
			})
		}
		wg.Wait()
		if n := len(f.get(id).Metadata.Tags); n != 22 {
			t.Errorf("%d tags after 20 concurrent additions to 2", n)
		}

		bad := "ftp://x"
		_, err := f.UpdateMetadata(t.Context(), id, gq.MetadataPatch{CallbackURL: &bad})
		wantErr(t, "a bad URL", err, gq.ErrInvalid)
		_, lease := f.take()
		_, err = f.UpdateMetadata(t.Context(), id, gq.MetadataPatch{Priority: gq.PriorityLow})
		wantErr(t, "priority after the claim", err, gq.ErrIllegalMove)
		must[gq.Job](t)(f.UpdateMetadata(t.Context(), id, gq.MetadataPatch{DropTags: []string{"b"}}))
		must[gq.State](t)(f.Complete(t.Context(), lease, nil))
		_, err = f.UpdateMetadata(t.Context(), id, gq.MetadataPatch{DropTags: []string{"c"}})
		wantErr(t, "a finished job", err, gq.ErrIllegalMove)
		_, err = f.UpdateMetadata(t.Context(), machine.NewJobID([16]byte{1}), gq.MetadataPatch{})
		wantErr(t, "no job", err, gq.ErrNotFound)
	})
}

func TestReplay(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		first := f.submit(gq.Spec{})
		id := f.submit(gq.Spec{
			Type: "send", Queue: "q", Payload: payload("1"), Key: gq.IdempotencyKey{Name: "k"}, Delay: time.Minute,
			DependsOn: []gq.Dependency{{Kind: gq.DependencyAfterAny, Job: first}}, Attributes: map[string]string{"x": "y"},
		})
		_, err := f.Replay(t.Context(), id)
		wantErr(t, "replay of a live job", err, gq.ErrIllegalMove)
		must[gq.Job](t)(f.UpdateMetadata(t.Context(), id, gq.MetadataPatch{SetTags: map[string]string{"a": "1"}}))
		must[gq.State](t)(f.Cancel(t.Context(), id, ""))
		before := f.get(id)
		out := must[gq.SubmitResult](t)(f.Replay(t.Context(), id))
		j := f.get(out.ID())
		if out.Existing || j.State.Status != gq.StatusScheduled || j.Spec.ReplayOf != id || j.Spec.Type != "send" || j.Spec.Queue != "q" ||
			string(j.Spec.Payload.Data) != "1" || j.Metadata.Tags["a"] != "1" || j.Spec.Attributes["x"] != "y" {
			t.Errorf("the replay reads %+v", j)
		}
		if after := f.get(id); after.State.Status != before.State.Status || !after.State.CompletedAt.Equal(before.State.CompletedAt) {
			t.Errorf("the old job changed: %+v", after.State)
		}
		_, err = f.Replay(t.Context(), machine.NewJobID([16]byte{1}))
		wantErr(t, "no job", err, gq.ErrNotFound)
	})
}

func TestListAndEvents(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		var ids []gq.JobID
		for range 5 {
			ids = append(ids, f.submit(gq.Spec{}))
		}
		page := must[gq.Page](t)(f.List(t.Context(), gq.Query{Limit: 3, OldestFirst: true}))
		rest := must[gq.Page](t)(f.List(t.Context(), gq.Query{Limit: 3, OldestFirst: true, Cursor: page.Next}))
		var listed []gq.JobID
		for _, j := range append(page.Jobs, rest.Jobs...) {
			listed = append(listed, j.State.ID)
		}
		if !slices.Equal(listed, ids) || rest.Next != "" {
			t.Errorf("listed %v, want %v", listed, ids)
		}
		events := must[[]gq.Event](t)(f.Events(t.Context(), 0, 100))
		if more := must[[]gq.Event](t)(f.Events(t.Context(), events[3].Seq, 100)); len(more) != len(events)-4 {
			t.Errorf("%d events after the fourth of %d", len(more), len(events))
		}
		_, err := f.List(t.Context(), gq.Query{Limit: -1})
		wantErr(t, "a bad limit", err, gq.ErrInvalid)
	})
}

// pages reads all pages of a list and returns the content of each.
func (f *fixture) pages(q gq.Query) (all []gq.JobID, sizes []int) {
	f.Helper()
	for {
		page := must[gq.Page](f.T)(f.List(f.Context(), q))
		for i := range page.Jobs {
			all = append(all, page.Jobs[i].State.ID)
		}
		sizes = append(sizes, len(page.Jobs))
		if q.Cursor = page.Next; q.Cursor == "" {
			return all, sizes
		}
	}
}

func TestListByTypeAndTag(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		labelled := func(typ, queue string, tags ...string) gq.JobID {
			m := map[string]string{}
			for i := 0; i < len(tags); i += 2 {
				m[tags[i]] = tags[i+1]
			}
			return f.submit(gq.Spec{Type: typ, Queue: queue, Metadata: gq.Metadata{Tags: m}})
		}
		a := labelled("a", "q", "customer", "7", "env", "prod")
		b := labelled("b", "q", "customer", "7")
		c := labelled("c", "r", "customer", "8")
		d := labelled("a", "r")
		must[gq.Job](t)(f.UpdateMetadata(t.Context(), d, gq.MetadataPatch{SetTags: map[string]string{"env": "prod"}}))
		for _, test := range []struct {
			q    gq.Query
			want []gq.JobID
		}{
			{gq.Query{Types: []string{"a"}}, []gq.JobID{a, d}},
			{gq.Query{Types: []string{"a", "c"}}, []gq.JobID{a, c, d}},
			{gq.Query{Types: []string{"a"}, Queue: "r"}, []gq.JobID{d}},
			{gq.Query{Tags: map[string]string{"customer": "7"}}, []gq.JobID{a, b}},
			{gq.Query{Tags: map[string]string{"customer": "7", "env": "prod"}}, []gq.JobID{a}},
			{gq.Query{Tags: map[string]string{"env": "prod"}}, []gq.JobID{a, d}},
			{gq.Query{Tags: map[string]string{"env": ""}}, nil},
			{gq.Query{Types: []string{"b"}, Tags: map[string]string{"customer": "8"}}, nil},
			{gq.Query{Types: []string{"a"}, Statuses: []gq.Status{gq.StatusRunning}}, nil},
		} {
			for limit := range 4 {
				q := test.q
				q.Limit, q.OldestFirst = limit, true
				if got, _ := f.pages(q); !slices.Equal(got, test.want) {
					t.Errorf("%+v: %v, want %v", q, got, test.want)
				}
				newest := slices.Clone(test.want)
				slices.Reverse(newest)
				q.OldestFirst = false
				if got, _ := f.pages(q); !slices.Equal(got, newest) {
					t.Errorf("%+v: %v, want %v", q, got, newest)
				}
			}
		}
		for name, q := range map[string]gq.Query{
			"no type": {Types: []string{""}}, "no text": {Types: []string{"\xff"}}, "no tag": {Tags: map[string]string{"": "x"}},
			"a limit": {Types: []string{"a"}, Limit: 1001}, "a cursor": {Types: []string{"a"}, Cursor: "x"}, "many": {Types: make([]string, 101)},
		} {
			_, err := f.List(t.Context(), q)
			wantErr(t, name, err, gq.ErrInvalid)
			_, err = f.CancelWhere(t.Context(), q, "")
			if name != "a limit" && name != "a cursor" { // which it does not use
				wantErr(t, name, err, gq.ErrInvalid)
			}
		}
	})
}

// TestListByTypeIsBounded has one job of a type after more other jobs than one page scans.
// Cancel and purge continue where a page ends.
func TestListByTypeIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		wanted := gq.Query{Types: []string{"rare"}}
		rare := f.submit(gq.Spec{Type: "rare"})
		specs := make([]gq.Spec, engine.MaxScan+10)
		for i := range specs {
			specs[i] = gq.Spec{Type: "common"}
		}
		must[[]gq.SubmitResult](t)(f.SubmitBatch(t.Context(), specs))
		if got, sizes := f.pages(wanted); !slices.Equal(got, []gq.JobID{rare}) || !slices.Equal(sizes, []int{0, 1}) {
			t.Errorf("listed %v on pages of %v, want it on the second page", got, sizes)
		}
		page := must[gq.Page](t)(f.List(t.Context(), wanted))
		if len(page.Jobs) != 0 || page.Next == "" {
			t.Errorf("the first page has %d jobs, next %q, want none and a next page", len(page.Jobs), page.Next)
		}
		if report := must[gq.CancelReport](t)(f.CancelWhere(t.Context(), wanted, "")); report != (gq.CancelReport{Cancelled: 1}) {
			t.Errorf("%+v", report)
		}
		f.status(rare, gq.StatusCancelled)
		wanted.Statuses = []gq.Status{gq.StatusCancelled}
		if n := must[int](t)(f.PurgeWhere(t.Context(), wanted)); n != 1 {
			t.Errorf("%d purged", n)
		}
		if c := must[[]gq.Count](t)(f.Counts(t.Context())); c[0].Live() != int64(len(specs)) {
			t.Errorf("%d are left", c[0].Live())
		}
	})
}

func TestQueues(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		_, err := f.Queue(t.Context(), "q")
		wantErr(t, "no queue", err, gq.ErrNotFound)
		_, err = f.Resume(t.Context(), "q")
		wantErr(t, "resume of no queue", err, gq.ErrNotFound)
		_, err = f.Resume(t.Context(), "a b")
		wantErr(t, "resume of no name", err, gq.ErrInvalid)
		if q := must[gq.Queue](t)(f.Pause(t.Context(), "q")); !q.Paused || q.Policy != machine.DefaultPolicy() {
			t.Errorf("paused: %+v", q)
		}
		f.submit(gq.Spec{Queue: "q"})
		f.claim(0, on("q"))
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				must[gq.Queue](t)(f.ChangeQueue(t.Context(), "q", func(q *gq.Queue) {
					if i%2 == 0 {
						q.MaxRunning++
					} else {
						q.MaxDepth++
					}
				}))
			})
		}
		wg.Wait()
		if q := must[gq.Queue](t)(f.Resume(t.Context(), "q")); q.Paused || q.MaxRunning != 5 || q.MaxDepth != 5 {
			t.Errorf("after concurrent changes: %+v", q)
		}
		f.claim(1, on("q"))
		for range 4 {
			f.submit(gq.Spec{Queue: "q"})
		}
		_, err = f.Submit(t.Context(), gq.Spec{Type: "t", Queue: "q"})
		wantErr(t, "beyond the depth", err, gq.ErrQueueFull)
		_, err = f.PutQueue(t.Context(), gq.Queue{Name: "a b", MaxDepth: -1})
		if !slices.Contains(fields(err), "name") || !slices.Contains(fields(err), "max_depth") {
			t.Errorf("a bad queue: %v", err)
		}
		names := []string{}
		for _, q := range must[[]gq.Queue](t)(f.Queues(t.Context())) {
			names = append(names, q.Name)
		}
		if !slices.Equal(names, []string{"q"}) {
			t.Errorf("queues %v", names)
		}
		stats := must[gq.Stats](t)(f.Stats(t.Context()))
		if stats.Total.Live() != 5 || stats.Total.Held() != 1 || stats.Workers != 1 || stats.Commits == 0 {
			t.Errorf("stats %+v", stats)
		}
		if c := must[[]gq.Count](t)(f.Counts(t.Context(), "q")); len(c) != 1 || c[0].By[gq.StatusScheduled] != 4 {
			t.Errorf("counts %+v", c)
		}
	})
}

func TestWorkers(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		for range 3 {
			f.submit(gq.Spec{})
		}
		jobs := f.claim(2, as("a"), func(r *gq.ClaimRequest) { r.Types, r.Offers, r.MaxCost = []string{"t"}, []string{"gpu"}, 7 })
		var wg sync.WaitGroup
		wg.Go(func() { f.claim(0, as("b"), on("elsewhere"), waiting(10*time.Minute)) })
		time.Sleep(30 * time.Second)
		got := must[[]gq.LiveWorker](t)(f.Workers(t.Context()))
		if len(got) != 2 || got[0].Name != "a" || got[0].Running != 2 || got[0].MaxCost != 7 || !slices.Equal(got[0].Types, []string{"t"}) ||
			got[1].Waiting != 1 || !got[1].LastSeen.Equal(time.Now()) || !slices.Equal(got[1].Queues, []string{"elsewhere"}) {
			t.Errorf("workers %+v", got)
		}
		if !got[0].Serves(gq.DefaultQueue, "t") || got[0].Serves(gq.DefaultQueue, "u") || got[0].Serves("q", "t") || got[1].Serves(gq.DefaultQueue, "t") ||
			len(got[0].Lacks([]string{"gpu", "tpu"})) != 1 {
			t.Errorf("what they serve is wrong: %+v", got)
		}
		must[[]gq.LeaseResult](t)(f.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: gq.LeaseRef{ID: jobs[0].State.Lease.ID}}}))
		must[gq.State](t)(f.Complete(t.Context(), jobs[1].State.Lease.Ref(), nil))
		time.Sleep(45 * time.Second)
		if got := must[[]gq.LiveWorker](t)(f.Workers(t.Context())); len(got) != 2 || got[0].Running != 1 {
			t.Errorf("after a heartbeat and a completion: %+v", got)
		}
		time.Sleep(time.Minute)
		if got := must[[]gq.LiveWorker](t)(f.Workers(t.Context())); len(got) != 1 || got[0].Name != "b" {
			t.Errorf("a is silent, b waits: %+v", got)
		}
		wg.Wait()
		time.Sleep(2 * time.Minute)
		if got := must[[]gq.LiveWorker](t)(f.Workers(t.Context())); len(got) != 0 {
			t.Errorf("both are gone: %+v", got)
		}
	})
}

func TestOptions(t *testing.T) {
	s := open(t)
	_, err := engine.New(s, engine.Options{Timeout: -1, Sweep: 1, Poll: -1, Memory: -1, Batch: 100_000})
	for _, want := range []string{"timeout", "sweep", "poll", "memory", "batch"} {
		if !slices.Contains(fields(err), want) {
			t.Errorf("no fault of %s in %v", want, err)
		}
	}
}

// Engines that change a queue at the same time do not undo each other's changes.
func TestChangesOfAQueueByManyEngines(t *testing.T) {
	s := open(t)
	first := newEngine(t, s, engine.Options{})
	must[gq.Queue](t)(first.PutQueue(t.Context(), machine.NewQueue("q")))
	const engines, changes = 4, 25
	var wg sync.WaitGroup
	for range engines {
		e := newEngine(t, s, engine.Options{})
		wg.Go(func() {
			for range changes {
				if _, err := e.ChangeQueue(t.Context(), "q", func(q *gq.Queue) { q.MaxDepth++ }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if q := must[gq.Queue](t)(first.Queue(t.Context(), "q")); q.MaxDepth != engines*changes {
		t.Errorf("%d changes of %d are left", q.MaxDepth, engines*changes)
	}
}
