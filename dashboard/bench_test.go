package dashboard_test

import (
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
	_ "github.com/gopherqueue/gq/driver/postgres"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

var (
	benchJobs   = flag.Int("bench-jobs", 20_000, "jobs in the store of BenchmarkPages")
	benchQueues = flag.Int("bench-queues", 1000, "queues they are in")
	benchStore  = flag.String("bench-store", "file", "store of BenchmarkPages: file or postgres")
	benchURL    = flag.String("bench-url", "", "PostgreSQL database that has the jobs already, instead of a new store")
	benchMost   = flag.Duration("bench-most", 0, "fail if the median of a page takes longer; 0 never fails")
)

// BenchmarkPages measures the time that the server needs for each page of a large store:
//
//	go test ./dashboard -run '^$' -bench Pages -benchtime 50x -bench-jobs 1000000 -bench-most 50ms
func BenchmarkPages(b *testing.B) {
	queue := openLarge(b)
	d, err := dashboard.New(queue, dashboard.Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	some := func(q gq.Query) string {
		q.Limit = 1
		page, err := queue.List(b.Context(), q)
		if err != nil || len(page.Jobs) == 0 {
			b.Fatalf("no job: %v", err)
		}
		return page.Jobs[0].State.ID.String()
	}
	waiting := some(gq.Query{Statuses: []gq.Status{gq.StatusScheduled}, Queue: "queue-0007"})
	dead := some(gq.Query{Statuses: []gq.Status{gq.StatusDeadLetter}})
	for _, path := range []string{
		"", "queues", "queues?find=99", "queue?name=queue-0007", "jobs", "jobs?state=dead_letter", "jobs?queue=queue-0007&state=scheduled", "jobs?type=type-3",
		"jobs?correlation=none", "jobs?since=2020-01-01T00:00", "jobs/" + waiting, "jobs/" + dead, "dead", "workflows", "schedules", "workers", "pools", "events", "events?type=job.dead_lettered", "about",
	} {
		b.Run(strings.NewReplacer(waiting, "waiting", dead, "dead", "/", "_").Replace("_"+path), func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				w := httptest.NewRecorder()
				began := time.Now()
				d.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/"+path, nil))
				took = append(took, time.Since(began))
				if w.Code != http.StatusOK {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
			slices.Sort(took)
			median := took[len(took)/2]
			b.ReportMetric(float64(median)/1e6, "median-ms")
			b.ReportMetric(float64(took[0])/1e6, "fastest-ms") // on a busy machine the median says little
			if *benchMost > 0 && median > *benchMost {
				b.Errorf("the median of %q is %v, more than %v", path, median, *benchMost)
			}
		})
	}
}

// openLarge opens a store with many jobs: most wait, a tenth has completed and one in two
// hundred is a dead letter.
func openLarge(b *testing.B) *gq.Client {
	b.Helper()
	url := *benchURL
	switch {
	case url != "":
		return openStore(b, url)
	case *benchStore == "postgres":
		url = pgtest.Own(b).URL("postgres")
	default:
		url = "file:" + b.TempDir()
	}
	queue := openStore(b, url)
	fill(b, queue)
	return queue
}

func openStore(b *testing.B, url string) *gq.Client {
	b.Helper()
	queue, err := gq.Open(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := queue.Close(); err != nil {
			b.Error(err)
		}
	})
	return queue
}

func fill(b *testing.B, queue *gq.Client) {
	b.Helper()
	name := func(i int) string { return fmt.Sprintf("queue-%04d", i%*benchQueues) }
	for first := 0; first < *benchJobs; first += 1000 {
		specs := make([]gq.Spec, 1000)
		for k := range specs {
			specs[k] = gq.Spec{Queue: name(first + k), Type: fmt.Sprintf("type-%d", k%10), Metadata: gq.Metadata{Tags: map[string]string{"tenant": fmt.Sprint(k % 50)}}}
			specs[k].Overrides.MaxAttempts = 1
		}
		results, err := queue.SubmitBatch(b.Context(), specs)
		if err != nil {
			b.Fatal(err)
		}
		for _, r := range results {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
	for done, i := 0, 0; done < *benchJobs/10; i++ {
		jobs, err := queue.Claim(b.Context(), gq.ClaimRequest{Worker: "worker-1", Queues: []string{name(i)}, N: max(1, *benchJobs / *benchQueues / 10)})
		if err != nil {
			b.Fatal(err)
		}
		outcomes := make([]gq.Outcome, len(jobs))
		for k := range jobs {
			outcomes[k] = gq.Outcome{Lease: jobs[k].State.Lease.Ref(), Verdict: gq.VerdictComplete}
			if done++; done%20 == 0 {
				outcomes[k].Verdict, outcomes[k].Failure = gq.VerdictFail, gq.Failure{Category: gq.CategoryTemporary, Message: fmt.Sprintf("host %d is down", done%7)}
			}
		}
		settled, err := queue.Settle(b.Context(), outcomes)
		for _, s := range settled {
			err = errors.Join(err, s.Err)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
