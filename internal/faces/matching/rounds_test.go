package matching_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

// counted is a store that counts calls.
type counted struct {
	*local.Store
	reads, writes atomic.Int64
	gets          atomic.Int64 // reads of jobs and of their histories
}

func (c *counted) Doc(ctx context.Context, kind, name string) (store.Doc, error) {
	c.reads.Add(1)
	return c.Store.Doc(ctx, kind, name)
}

func (c *counted) Docs(ctx context.Context, kind, after string, limit int) ([]store.Doc, error) {
	c.reads.Add(1)
	return c.Store.Docs(ctx, kind, after, limit)
}

func (c *counted) Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error) {
	c.gets.Add(1)
	return c.Store.Get(ctx, refs, parts)
}

func (c *counted) History(ctx context.Context, id gq.JobID) ([]gq.Event, error) {
	c.gets.Add(1)
	return c.Store.History(ctx, id)
}

func (c *counted) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	c.reads.Add(1)
	return c.Store.List(ctx, q)
}

func (c *counted) PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error) {
	c.writes.Add(1)
	return c.Store.PutDocs(ctx, docs)
}

func (c *counted) Change(ctx context.Context, change store.Change) (store.Changed, error) {
	c.writes.Add(1)
	return c.Store.Change(ctx, change)
}

// run runs rounds in the background until the test ends.
func (f *still) run() {
	f.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.dispatch.Run(ctx) }()
	f.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			f.Errorf("run: %v", err)
		}
	})
}

// A requested round covers everything submitted before it, although background rounds,
// which delay to batch changes, run too.
func TestRoundAfterSubmission(t *testing.T) {
	spec.Covers(t, "M-36")
	for _, test := range []struct {
		name  string
		after time.Duration
		asked int // assignments of the requested round
	}{
		{"at once", 0, 1},
		{"before a round is held by itself", 49 * time.Millisecond, 1},
		{"after a round was held by itself", 51 * time.Millisecond, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newStill(t, matchmaker.Options{})
				f.run()
				f.register()
				time.Sleep(time.Second) // the round after the registration is over
				job := f.must("POST", "/jobs", `{"kind":"AI"}`)["id"].(string)
				time.Sleep(test.after)
				asked := f.must("POST", "/rounds", "")["assignments"].([]any)
				if len(asked) != test.asked {
					t.Errorf("%v after the submission: %v", test.after, asked)
				}
				if len(asked) == 1 && asked[0].(object)["job_id"] != job {
					t.Errorf("assigned %v, submitted %s", asked, job)
				}
				if got := f.must("GET", "/jobs/"+job, ""); got["state"] != "ASSIGNED" {
					t.Errorf("job %v", got)
				}
			})
		})
	}
}

// While there is nothing to do, no round runs: nothing is written, and almost nothing is
// read.
func TestNoRoundsWhileIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newStill(t, matchmaker.Options{})
		f.run()
		time.Sleep(time.Second)
		f.assigned()
		f.do("ack", "")
		f.do("complete", completion)
		time.Sleep(time.Second)
		reads, writes := f.store.reads.Load(), f.store.writes.Load()
		const hours = 3
		time.Sleep(hours * time.Hour)
		if n := f.store.writes.Load() - writes; n != 0 {
			t.Errorf("%d writes in %d idle hours", n, hours)
		}
		if n := f.store.reads.Load() - reads; n > hours*60*2 {
			t.Errorf("%d reads in %d idle hours, more than two a minute", n, hours)
		}
		// It still responds.
		f.must("POST", "/providers/p/heartbeat", "")
		job := f.must("POST", "/jobs", `{"kind":"AI"}`)["id"].(string)
		time.Sleep(100 * time.Millisecond)
		if got := f.must("GET", "/jobs/"+job, ""); got["state"] != "ASSIGNED" {
			t.Errorf("job %v", got)
		}
	})
}

// A provider's leases are read in one call, however many there are, and look like each
// lease read alone: before acknowledgement, after it, and renewed.
func TestLeasesAreReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := match.DefaultSettings()
		set.AckTimeout, set.Eligibility.HeartbeatTimeout = 50_000, 100_000
		set.Quotas.LeasesMax, set.Quotas.AIUnitsPerEpoch, set.Quotas.RequesterMax = 100, 100_000, 1000
		f := newStill(t, matchmaker.Options{Settings: &set})
		f.register()
		// One read is for the leases; catching up with events may take another.
		read := func(want int) []any {
			t.Helper()
			before, docs := f.store.gets.Load(), f.store.reads.Load()
			list := f.must("GET", "/providers/p/leases", "")["leases"].([]any)
			if len(list) != want {
				t.Fatalf("%d leases, want %d", len(list), want)
			}
			if gets, docs := f.store.gets.Load()-before, f.store.reads.Load()-docs; gets > 2 || docs > 6 {
				t.Errorf("%d leases were read with %d reads of jobs and %d of documents", want, gets, docs)
			}
			return list
		}
		var jobs int
		for range 30 {
			f.must("POST", "/jobs", `{"kind":"AI"}`)
			jobs++
		}
		f.must("POST", "/providers/p/heartbeat", "")
		given := 0
		for given < jobs {
			n := len(f.must("POST", "/rounds", "")["assignments"].([]any))
			if n == 0 {
				t.Fatalf("%d of %d jobs were assigned", given, jobs)
			}
			given += n
		}
		list := read(jobs)
		for i, verbs := range [][]string{{"ack"}, {"ack", "renew"}} {
			time.Sleep(time.Second)
			for _, verb := range verbs {
				f.must("POST", "/leases/"+list[i].(object)["lease_id"].(string)+"/"+verb, "")
			}
		}
		for _, item := range read(jobs) {
			got := item.(object)
			job := got["job"]
			delete(got, "job")
			if diff := cmp.Diff(f.must("GET", "/leases/"+got["lease_id"].(string), ""), got); diff != "" {
				t.Errorf("a lease by itself and in the list (-itself +list):\n%s", diff)
			}
			if diff := cmp.Diff(f.must("GET", "/jobs/"+got["job_id"].(string), ""), job); diff != "" {
				t.Errorf("a job by itself and in the list (-itself +list):\n%s", diff)
			}
		}
	})
}
