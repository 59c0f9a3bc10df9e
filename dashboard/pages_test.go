package dashboard_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
)

func TestEmptyPages(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for path, text := range map[string]string{
		"": "No queues yet", "queues": "No queues yet", "jobs": "No jobs yet", "dead": "No dead letters",
		"workflows": "No workflows", "schedules": "No schedules", "workers": "No workers", "events": "No events",
		"jobs?state=failed": "No job matches", "queues?find=x": "No queue matches", "events?queue=x": "None of the last",
	} {
		s.has(s.get(path, http.StatusOK), text)
	}
}

func TestPagesThatAreNotThere(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for _, path := range []string{
		"nothing", "jobs/nonsense", "jobs/7d2c0a52-0000-4000-8000-000000000000", "queue?name=none", "queue", "workflows/x",
		"workflows/0199a5c0-7d1e-7c3a-9f00-2b6d1c5e8a01", "assets/none.css", "queue/limits?name=none",
	} {
		page := s.get(path, http.StatusNotFound)
		if !strings.HasPrefix(path, "assets") {
			s.has(page, "<h1>Not found</h1>", "Overview")
		}
	}
}

func TestOverview(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.submit(gq.Spec{Queue: "mail", Type: "email.send"})
	s.submit(gq.Spec{Queue: "mail", Type: "email.send", Delay: soon()})
	s.kill("reports", "report.build", "no paper")
	page := s.get("", http.StatusOK)
	s.has(page, `href="./queue?name=mail"`, "no worker", "dead letter", "no paper", "email.send")
	s.has(s.get("queues", http.StatusOK), "mail", "reports")
	s.lacks(s.get("queues?find=MAI", http.StatusOK), ">reports<")
}

// A number leads to a list of as many jobs.
func TestNumbersOfTheOverviewAreThoseOfTheirLists(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.submit(gq.Spec{Queue: "mail", Type: "retried"})
	job := s.claim("mail")
	if _, err := s.queue.Fail(t.Context(), job.State.Lease.Ref(), gq.Failure{Category: gq.CategoryTemporary, Message: "down"}); err != nil {
		t.Fatal(err)
	}
	s.submit(gq.Spec{Queue: "mail", Type: "now"})
	s.submit(gq.Spec{Queue: "mail", Type: "later", Delay: soon()})
	s.kill("reports", "dead", "no paper")
	tile := regexp.MustCompile(`<dt>(\w[\w ]*)</dt><dd><a href="\./(jobs\?state=\w+)"[^>]*>(\d+)</a>`)
	found := tile.FindAllStringSubmatch(s.get("", http.StatusOK), -1)
	numbers := make(map[string]string)
	for _, f := range found {
		numbers[f[1]] = f[3]
		if rows := strings.Count(s.get(f[2], http.StatusOK), "<tr data-row>"); strconv.Itoa(rows) != f[3] {
			t.Errorf("%s is %s, and its list has %d", f[1], f[3], rows)
		}
	}
	if numbers["Waiting"] != "1" || numbers["Blocked"] != "2" || numbers["Running"] != "0" {
		t.Errorf("the numbers are %v", numbers)
	}
}

func TestHelpListsThePages(t *testing.T) {
	s := newSite(t, dashboard.Options{Sources: dashboard.Sources{Trail: func(context.Context, string, string, string, int) ([]dashboard.TrailEntry, string, error) {
		return nil, "", nil
	}}})
	page := s.get("", http.StatusOK)
	for _, key := range regexp.MustCompile(`data-key="(\w)"[^>]*>([^<]+)<`).FindAllStringSubmatch(page, -1) {
		s.has(page, "<kbd>g</kbd> <kbd>"+key[1]+"</kbd></dt><dd>"+key[2]+"</dd>")
	}
}

func TestQueuesHavePages(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for i := range 120 {
		s.submit(gq.Spec{Queue: fmt.Sprintf("q%03d", i), Type: "t"})
	}
	first := s.get("queues", http.StatusOK)
	s.has(first, "q000", "q049", "queues?after=q049")
	s.lacks(first, "q050")
	last := s.get("queues?after=q099", http.StatusOK)
	s.has(last, "q100", "q119", "First page")
	s.lacks(last, "Next page")
	s.has(s.get("", http.StatusOK), "lists 70 more")
}

func TestQueue(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.submit(gq.Spec{Queue: "mail", Type: "email.send"})
	s.submit(gq.Spec{Queue: "mail", Type: "email.later"})
	s.claim("mail")
	page := s.get("queue?name=mail", http.StatusOK)
	for _, status := range []string{"pending", "dead_letter", "completed"} {
		s.get("jobs?queue=mail&state="+status, http.StatusOK)
		s.has(page, "state="+status+`"`)
	}
	s.has(page, "worker-1", "email.later", "Last 5 minutes", "no limit")

	next := s.post(page, "queue/pause", "name", "mail")
	page = s.get(next, http.StatusOK)
	s.has(page, "The queue is paused.", ">Resume</button>")
	if q, err := s.queue.Queue(t.Context(), "mail"); err != nil || !q.Paused {
		t.Errorf("the queue is %+v, %v", q, err)
	}
	page = s.get(s.post(page, "queue/resume", "name", "mail"), http.StatusOK)
	s.has(page, ">Pause</button>")
}

func TestLimitsArePreviewedFirst(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for range 3 {
		s.submit(gq.Spec{Queue: "mail", Type: "email.send"})
	}
	s.claim("mail")
	s.claim("mail")
	form := s.get("queue/limits?name=mail", http.StatusOK)
	fields := map[string][]string{"csrf": {s.token(form)}, "name": {"mail"}, "max_running": {"1"}, "max_depth": {"10"}, "rate_count": {"2"}, "rate_per": {"1m"}}
	page := s.do(http.MethodPost, "queue/limits", fields).body
	s.has(page, "Of 1 job that waits, 1 may start now; with the new limits 0 may, and 1 waits until jobs end.", "2 jobs run now, 1 more than the new limit.", "3 jobs are live now; 7 more are accepted.", "At most 2 jobs start every 1 m.", ">Apply</button>")
	if q, err := s.queue.Queue(t.Context(), "mail"); err != nil || q.MaxRunning != 0 {
		t.Errorf("the preview changed %+v, %v", q, err)
	}
	s.has(s.get(s.post(page, "queue/limits", "name", "mail", "max_running", "1", "apply", "1"), http.StatusOK), "The limits were changed.")
	if q, err := s.queue.Queue(t.Context(), "mail"); err != nil || q.MaxRunning != 1 || q.Rate.Limited() {
		t.Errorf("the limits are %+v, %v", q, err)
	}
	fields["max_running"] = []string{"many"}
	if a := s.do(http.MethodPost, "queue/limits", fields); a.StatusCode != http.StatusBadRequest || !strings.Contains(a.body, "not a whole number") {
		t.Errorf("a wrong number gave %d", a.StatusCode)
	}
}

// Who saves a limit leaves alone what another operator has changed since the page was made, also
// between the preview and the button that applies it.
func TestLimitsOfTwoOperators(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	change := func(f func(*gq.Queue)) {
		t.Helper()
		if _, err := s.queue.ChangeQueue(t.Context(), "mail", f); err != nil {
			t.Fatal(err)
		}
	}
	change(func(q *gq.Queue) { q.MaxRunning, q.Rate = 4, gq.Rate{Count: 2, Per: time.Minute, Burst: 3} })
	inputs := func(page string) map[string][]string {
		fields := map[string][]string{"csrf": {s.token(page)}, "name": {"mail"}}
		for _, found := range regexp.MustCompile(`name="([a-z_]+)"(?: inputmode="numeric")? value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
			fields[found[1]] = []string{found[2]}
		}
		return fields
	}
	fields := inputs(s.get("queue/limits?name=mail", http.StatusOK))
	change(func(q *gq.Queue) { q.MaxRunning = 7 })
	fields["max_depth"] = []string{"10"}
	fields = inputs(s.do(http.MethodPost, "queue/limits", fields).body)
	change(func(q *gq.Queue) { q.KeyLimit = 2 })
	fields["apply"] = []string{"1"}
	if a := s.do(http.MethodPost, "queue/limits", fields); a.StatusCode != http.StatusSeeOther {
		t.Fatalf("%d %s", a.StatusCode, a.body)
	}
	q, err := s.queue.Queue(t.Context(), "mail")
	if err != nil || q.MaxRunning != 7 || q.MaxDepth != 10 || q.KeyLimit != 2 || q.Rate.Count != 2 || q.Rate.Burst != 3 {
		t.Errorf("the limits are %+v, %v; want 7 running, 10 live, 2 of a key and the rate as it was", q, err)
	}
}

func TestJobsAreFiltered(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	mail := s.submit(gq.Spec{Queue: "mail", Type: "email.send", Key: gq.IdempotencyKey{Name: "welcome-7"}, Metadata: gq.Metadata{Tags: map[string]string{"tenant": "acme"}, CorrelationID: "order-1"}})
	late := s.submit(gq.Spec{Queue: "reports", Type: "report.build", Delay: soon()})
	link := func(id gq.JobID) string { return "jobs/" + id.String() }
	for filter, want := range map[string][2]bool{
		"": {true, true}, "state=delayed": {false, true}, "state=waiting": {true, true}, "state=finished": {false, false},
		"queue=mail": {true, false}, "type=report.build": {false, true}, "tag=tenant%3Dacme": {true, false}, "correlation=order-1": {true, false},
		"find=welcome-7": {true, false}, "find=order-1": {true, false}, "find=nothing": {false, false},
		"since=2020-01-01T00:00": {true, true}, "until=2020-01-01T00:00": {false, false},
	} {
		page := s.get("jobs?"+filter, http.StatusOK)
		if got := [2]bool{strings.Contains(page, link(mail)), strings.Contains(page, link(late))}; got != want {
			t.Errorf("%q shows %v, want %v", filter, got, want)
		}
	}
	for _, filter := range []string{"state=nothing", "tag=x", "since=yesterday", "queue=a%20b"} {
		s.has(s.get("jobs?"+filter, http.StatusBadRequest), `role="alert"`)
	}
	a := s.do(http.MethodGet, "jobs?find="+mail.String(), nil)
	if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "./jobs/"+mail.String() {
		t.Errorf("an id leads to %d %s", a.StatusCode, a.Header.Get("Location"))
	}
}

func TestJobsHavePages(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for range 120 {
		s.submit(gq.Spec{Queue: "mail", Type: "t"})
	}
	path, seen := "jobs?queue=mail", 0
	for range 4 {
		page := s.get(path, http.StatusOK)
		n := strings.Count(page, "data-row")
		if n > 50 {
			t.Fatalf("%d jobs on one page", n)
		}
		seen += n
		_, rest, ok := strings.Cut(page, `rel="next" href="./`)
		if !ok {
			break
		}
		path = strings.ReplaceAll(rest[:strings.Index(rest, `"`)], "&amp;", "&")
	}
	if seen != 120 {
		t.Errorf("the pages show %d jobs, want 120", seen)
	}
}

func TestJob(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	spec := gq.Spec{Queue: "mail", Type: "email.send", Payload: gq.Payload{Data: []byte(`{"to":"ada"}`)}}
	id := s.submit(spec)
	page := s.get("jobs/"+id.String(), http.StatusOK)
	s.has(page, "Why is it not running?", "worker", "Cancel the job", "It has not been attempted.", "job.submitted")
	s.lacks(page, `&#34;ada&#34;`)
	s.has(s.get("jobs/"+id.String()+"?show=payload", http.StatusOK), `&#34;ada&#34;`)

	job := s.claim("mail")
	if _, err := s.queue.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: job.State.Lease.Ref(), Progress: 0.42, Note: "half way", Checkpoint: []byte(`{"at":5}`)}}); err != nil {
		t.Fatal(err)
	}
	page = s.get("jobs/"+id.String(), http.StatusOK)
	s.has(page, "What is it doing?", "42 %", "half way", "worker-1", "Checkpoint")
	s.has(s.get("jobs/"+id.String()+"?show=checkpoint", http.StatusOK), `&#34;at&#34;: 5`)
	s.has(s.get(s.post(page, "jobs/"+id.String()+"/cancel", "reason", "too late"), http.StatusOK), "was asked to stop", "too late")
}

func TestActionsOnAJob(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	id := s.submit(gq.Spec{Queue: "mail", Type: "email.send", Delay: soon()})
	at := "jobs/" + id.String()
	page := s.get(at, http.StatusOK)
	s.has(page, "Starts", "Run now", "Reschedule")
	later := time.Now().Add(3 * time.Hour).UTC().Truncate(time.Second)
	s.post(page, at+"/reschedule", "at", later.Format("2006-01-02T15:04:05"))
	if j, err := s.queue.Get(t.Context(), id, 0); err != nil || !j.State.RunAt.Equal(later) {
		t.Errorf("it runs at %v, want %v, %v", j.State.RunAt, later, err)
	}
	s.post(page, at+"/priority", "priority", "HIGH")
	s.has(s.get(s.post(page, at+"/run"), http.StatusOK), "The job can run now.", "high")
	if j, err := s.queue.Get(t.Context(), id, 0); err != nil || j.State.Status != gq.StatusScheduled || j.Metadata.Priority != gq.PriorityHigh {
		t.Errorf("it is %s %s, %v", j.State.Status, j.Metadata.Priority, err)
	}
	page = s.get(s.post(page, at+"/cancel"), http.StatusOK)
	s.has(page, "The job was cancelled.", "by everyone")
	replay := s.get(s.post(page, at+"/replay"), http.StatusOK)
	s.has(replay, "Replay of", "This is the new job.")
	again := s.post(page, at+"/replay") // a second click
	s.has(s.get(again, http.StatusOK), "The job was already replayed.")
	replayed := s.get(at, http.StatusOK)
	s.has(replayed, "Replayed as", again[len("jobs/"):][:8])
	s.lacks(replayed, `/replay"`)
	if c, err := s.queue.Counts(t.Context(), "mail"); err != nil || c[0].Live() != 1 {
		t.Errorf("there are %+v, %v", c, err)
	}
	s.has(s.get(s.post(page, at+"/purge"), http.StatusOK), "The job was removed.")
	s.get(at, http.StatusNotFound)
	for _, bad := range []string{"cancel", "replay", "purge"} {
		if a := s.do(http.MethodPost, at+"/"+bad, map[string][]string{"csrf": {s.token(page)}}); a.StatusCode != http.StatusNotFound {
			t.Errorf("%s of a job that is gone: %d", bad, a.StatusCode)
		}
	}
}

func TestEstimateComesFromTheRate(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for range 5 {
		s.submit(gq.Spec{Queue: "mail", Type: "email.send"})
		job := s.claim("mail")
		if _, err := s.queue.Complete(t.Context(), job.State.Lease.Ref(), nil); err != nil {
			t.Fatal(err)
		}
	}
	s.submit(gq.Spec{Queue: "mail", Type: "email.send"})
	last := s.submit(gq.Spec{Queue: "mail", Type: "email.send"})
	s.has(s.get("jobs/"+last.String(), http.StatusOK), "1 job ahead of it; jobs of its queue started at")
	s.has(s.get("queue?name=mail", http.StatusOK), "Last 5 minutes", "in the last hour")
}

func TestNoEstimateForAJobThatNeverFits(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for _, p := range []gq.Pool{{Name: "gpu2", Capacity: 2}, {Name: "gpu9", Capacity: 9}} {
		if err := s.queue.PutPool(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.queue.PutQueue(t.Context(), gq.Queue{Name: "render", Pool: "gpu2"}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s.submit(gq.Spec{Queue: "render", Type: "frame", CostUnits: 1})
		if _, err := s.queue.Complete(t.Context(), s.claim("render").State.Lease.Ref(), nil); err != nil {
			t.Fatal(err)
		}
	}
	s.submit(gq.Spec{Queue: "render", Type: "frame", CostUnits: 2})
	s.claim("render")
	full := s.submit(gq.Spec{Queue: "render", Type: "frame", CostUnits: 2})
	s.has(s.get("jobs/"+full.String(), http.StatusOK), "jobs of its queue started at")
	for _, spec := range []gq.Spec{{}, {Delay: time.Hour}, {DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: full}}}} {
		spec.Queue, spec.Type, spec.CostUnits = "render", "frame", 5
		neverStarts(s, s.submit(spec))
	}
	retried := s.submit(gq.Spec{Queue: "retried", Type: "frame", CostUnits: 5})
	if _, err := s.queue.Fail(t.Context(), s.claim("retried").State.Lease.Ref(), gq.Failure{Category: gq.CategoryTemporary, RetryAfter: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.queue.PutQueue(t.Context(), gq.Queue{Name: "retried", Pool: "gpu2"}); err != nil {
		t.Fatal(err)
	}
	neverStarts(s, retried)
}

// neverStarts checks that the page of a job does not contradict itself.
func neverStarts(s *site, id gq.JobID) {
	s.Helper()
	page := s.get("jobs/"+id.String(), http.StatusOK)
	s.has(page, "more than the whole capacity of pool gpu2 (2)", "it costs more than its pool has, so it cannot start until one of the two is changed")
	s.lacks(page, "jobs of its queue started at", "the time that was set for it", "the end of its pause", "jobs that have not started")
}

// A visitor who sees one queue is told the same.
func TestNoEstimateForAVisitorOfOneQueue(t *testing.T) {
	s := newSite(t, dashboard.Options{Access: guests{"renderer": {"render"}, "other": {"other"}}})
	if err := s.queue.PutPool(t.Context(), gq.Pool{Name: "gpu2", Capacity: 2}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.queue.PutQueue(t.Context(), gq.Queue{Name: "render", Pool: "gpu2"}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s.submit(gq.Spec{Queue: "render", Type: "frame", CostUnits: 1})
		if _, err := s.queue.Complete(t.Context(), s.claim("render").State.Lease.Ref(), nil); err != nil {
			t.Fatal(err)
		}
	}
	s.signIn("renderer")
	neverStarts(s, s.submit(gq.Spec{Queue: "render", Type: "frame", CostUnits: 5}))
	neverStarts(s, s.submit(gq.Spec{Queue: "render", Type: "frame", CostUnits: 6, Delay: time.Hour}))
}

func TestBulkActions(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for range 7 {
		s.submit(gq.Spec{Queue: "mail", Type: "email.send"})
	}
	s.submit(gq.Spec{Queue: "other", Type: "email.send"})
	s.lacks(s.get("jobs", http.StatusOK), "Cancel all") // nobody means everything
	page := s.get("jobs?queue=mail&state=scheduled", http.StatusOK)
	form := map[string][]string{"csrf": {s.token(page)}, "queue": {"mail"}, "state": {"scheduled"}, "action": {"cancel"}}
	confirm := s.do(http.MethodPost, "jobs/bulk", form).body
	s.has(confirm, "7 jobs will be cancelled", ">Cancel 7 jobs</button>")
	s.lacks(s.get("jobs?queue=mail&state=failed", http.StatusOK), "With all jobs of this filter") // there are none
	s.has(s.get(s.post(confirm, "jobs/bulk", "queue", "mail", "state", "scheduled", "action", "cancel", "confirm", "1"), http.StatusOK), "7 jobs were cancelled")
	next := s.post(confirm, "jobs/bulk", "queue", "mail", "state", "cancelled", "action", "replay", "confirm", "1")
	s.has(s.get(next, http.StatusOK), "7 jobs were submitted again.")
	s.has(s.get(s.post(confirm, "jobs/bulk", "queue", "mail", "state", "cancelled", "action", "purge", "confirm", "1"), http.StatusOK), "7 jobs were removed.")
	if c, err := s.queue.Counts(t.Context(), "mail", "other"); err != nil || c[0].Live() != 7 || c[0].By[gq.StatusCancelled] != 0 || c[1].Live() != 1 {
		t.Errorf("there are %+v, %v", c, err)
	}
	form["action"] = []string{"purge"} // of live jobs
	if a := s.do(http.MethodPost, "jobs/bulk", form); a.StatusCode != http.StatusForbidden {
		t.Errorf("to remove live jobs gave %d", a.StatusCode)
	}
}

// What has completed is not done again at one click.
func TestACompletedJobIsReplayedAfterAQuestion(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	id := s.submit(gq.Spec{Queue: "mail", Type: "payment.capture"})
	if _, err := s.queue.Complete(t.Context(), s.claim("mail").State.Lease.Ref(), nil); err != nil {
		t.Fatal(err)
	}
	page := s.get("jobs/"+id.String(), http.StatusOK)
	s.has(page, "What it did is done a second time.")
	s.lacks(page, `<button class="primary">Replay`)
}

func TestDeadLettersAreGrouped(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for i := range 5 {
		s.kill("mail", "email.send", fmt.Sprintf("connection %d refused", i))
	}
	s.kill("mail", "email.send", "no such user")
	s.kill("reports", "report.build", "no paper")
	page := s.get("dead", http.StatusOK)
	s.has(page, "Replay 5", "connection 4 refused", "no such user", "no paper", "down")
	if n := strings.Count(page, "data-row"); n != 3 {
		t.Errorf("%d groups, want 3", n)
	}
	s.lacks(s.get("dead?queue=mail", http.StatusOK), "no paper")
	before, _, _ := strings.Cut(page, "Replay 5")
	_, key, _ := strings.Cut(before[strings.LastIndex(before, `name="group"`):], `value="`)
	key = key[:strings.Index(key, `"`)]
	s.has(s.get(s.post(page, "dead/replay", "group", key, "remove", "1"), http.StatusOK), "5 jobs were submitted again.")
	c, err := s.queue.Counts(t.Context(), "mail")
	if err != nil || c[0].By[gq.StatusDeadLetter] != 1 || c[0].Live() != 5 {
		t.Errorf("there are %+v, %v", c, err)
	}
	other := s.kill("post", "email.send", "mailbox full")
	replay := func() answer {
		return s.do(http.MethodPost, "dead/replay", map[string][]string{"csrf": {s.token(page)}, "group": {"email.send\x1fTEMPORARY\x1fdown\x1fmailbox full"}})
	}
	if a := replay(); a.StatusCode != http.StatusSeeOther {
		t.Errorf("a group that stays: %d\n%s", a.StatusCode, a.body)
	}
	if a := replay(); a.StatusCode != http.StatusNotFound {
		t.Errorf("its second replay: %d", a.StatusCode)
	}
	left := s.get("dead", http.StatusOK)
	s.has(left, "1 that was replayed is not shown")
	s.lacks(left, "mailbox full")
	fresh := mustNew(t, s.queue) // another server
	defer fresh.Close()
	w := httptest.NewRecorder()
	fresh.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/jobs/"+other.String(), http.NoBody))
	s.has(w.Body.String(), "Replayed as")
	if a := s.do(http.MethodPost, "dead/replay", map[string][]string{"csrf": {s.token(page)}, "group": {"none"}}); a.StatusCode != http.StatusNotFound {
		t.Errorf("a group that is gone: %d", a.StatusCode)
	}
}

func TestSchedules(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	if _, err := s.queue.PutSchedule(t.Context(), gq.Schedule{Name: "nightly", Cron: "30 2 * * *", Template: gq.Spec{Queue: "reports", Type: "report.build"}}); err != nil {
		t.Fatal(err)
	}
	page := s.get("schedules", http.StatusOK)
	if n := strings.Count(page, " 02:30:00</time>"); n != 5 {
		t.Errorf("%d firings are shown, want 5\n%s", n, page)
	}
	page = s.get(s.post(page, "schedules/pause", "name", "nightly"), http.StatusOK)
	s.has(page, "paused")
	s.post(page, "schedules/resume", "name", "nightly")
	s.has(s.get(s.post(page, "schedules/trigger", "name", "nightly"), http.StatusOK), "A job was submitted.")
	if c, err := s.queue.Counts(t.Context(), "reports"); err != nil || c[0].Live() != 1 {
		t.Errorf("there are %+v, %v", c, err)
	}
}

func TestWorkflows(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	flow := gq.NewWorkflow("order 7")
	charge := flow.Add("charge", gq.Draft{Spec: gq.Spec{Type: "order.charge"}})
	approve := flow.Signal("approve", time.Hour)
	flow.Add("ship", gq.Draft{Spec: gq.Spec{Type: "order.ship"}}, gq.After(charge, approve))
	id, err := s.queue.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	s.has(s.get("workflows", http.StatusOK), "order 7", "0 of 3")
	page := s.get("workflows/"+id.String(), http.StatusOK)
	s.has(page, "<svg width=", "charge", "order.ship", "Signal approve")
	if n := strings.Count(page, `class="edge"`); n != 2 {
		t.Errorf("%d edges, want 2", n)
	}
	form := url.Values{"csrf": {s.token(page)}, "name": {"approve"}, "value": {"{bad"}}
	if a := s.do(http.MethodPost, "workflows/"+id.String()+"/signal", form); a.StatusCode != http.StatusBadRequest || !strings.Contains(a.body, "is not JSON") {
		t.Errorf("a signal with broken JSON: %d\n%s", a.StatusCode, a.body)
	}
	page = s.get(s.post(page, "workflows/"+id.String()+"/signal", "name", "approve", "value", `"yes"`), http.StatusOK)
	s.has(page, "The signal was sent.", "1 of 3")
	w, err := s.queue.Workflow(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	s.has(s.get("jobs/"+w.Jobs[2].ID.String(), http.StatusOK), "of workflow", "Dependencies", `class="edge"`, "waits for job")
	page = s.get(s.post(page, "workflows/"+id.String()+"/cancel"), http.StatusOK)
	s.has(page, "The workflow was cancelled.", "Retry what did not complete")
	s.has(s.get(s.post(page, "workflows/"+id.String()+"/retry"), http.StatusOK), "submitted again")
}

// Only who may change every job of a workflow is offered to change it.
func TestWorkflowsOfTwoQueues(t *testing.T) {
	s := newSite(t, dashboard.Options{Access: guests{"first": {"one", ""}, "second": {"two", ""}, "both": {"one", "two", ""}}})
	flow := gq.NewWorkflow("order")
	one := flow.Add("one", gq.Draft{Spec: gq.Spec{Type: "t", Queue: "one"}})
	flow.Add("two", gq.Draft{Spec: gq.Spec{Type: "t", Queue: "two"}}, gq.After(one))
	id, err := s.queue.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	for token, may := range map[string]bool{"first": false, "second": false, "both": true} {
		s.signIn(token)
		if got := strings.Contains(s.get("workflows/"+id.String(), http.StatusOK), id.String()+`/cancel"`); got != may {
			t.Errorf("%s is offered to cancel it: %v", token, got)
		}
	}
}

func TestLargeGraphsAreCollapsed(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	flow := gq.NewWorkflow("large")
	first := flow.Add("first", gq.Draft{Spec: gq.Spec{Type: "split"}})
	for i := range 500 {
		flow.Add(fmt.Sprintf("part-%d", i), gq.Draft{Spec: gq.Spec{Type: fmt.Sprintf("part.%d", i%3)}}, gq.After(first))
	}
	flow.Finally("done", gq.Draft{Spec: gq.Spec{Type: "join"}})
	id, err := s.queue.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	page := s.get("workflows/"+id.String(), http.StatusOK)
	if n := strings.Count(page, `class="node`); n != 5 {
		t.Errorf("%d boxes, want 5", n)
	}
	s.has(page, "502 jobs, drawn as one box for each type and step.", "167 × part.0", "1 to 100 of 502")
	// Every job can be reached: page by page, and by type from the boxes.
	at := "workflows/" + id.String()
	s.has(page, `href="../`+at+`?from=100#steps"`, `href="../`+at+`?type=part.1#steps"`)
	s.has(s.get(at+"?from=500", http.StatusOK), "501 to 502 of 502", "First page")
	s.has(s.get(at+"?type=part.1", http.StatusOK), "1 to 100 of 167", "part-1<", "?from=100&amp;type=part.1#steps", "All types")
	s.lacks(s.get(at+"?type=part.1", http.StatusOK), "part-2<")
	s.has(s.get(at+"?type=part.1&from=99999", http.StatusOK), "None")
	s.has(s.get(at+"?from=-7", http.StatusOK), "1 to 100 of 502")
}

func TestEvents(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for range 130 {
		s.submit(gq.Spec{Queue: "mail", Type: "t"})
	}
	s.kill("reports", "report.build", "no paper")
	page := s.get("events", http.StatusOK)
	if n := strings.Count(page, "data-row"); n != 100 {
		t.Errorf("%d events are shown, want 100", n)
	}
	s.has(s.get("events?type=job.dead_lettered", http.StatusOK), "no paper")
	s.lacks(s.get("events?queue=reports", http.StatusOK), `href="./queue?name=mail"`)
	s.lacks(s.get("events?type=job.nothing", http.StatusBadRequest), "data-watch") // it would never load
}
