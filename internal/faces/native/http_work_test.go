package native

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestClaiming(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	if got := s.want(200, "POST", "/v1/claim", `{"worker":"w"}`); got.text != "{\"jobs\":[]}\n" {
		t.Errorf("nothing to claim is %s", got.text)
	}
	s.submit(`{"type":"a","payload":{"x":1}}`)
	s.submit(`{"type":"b"}`)
	s.submit(`{"type":"c","cost_units":9}`)
	got := s.want(200, "POST", "/v1/claim", `{"worker":"w","types":["a"],"n":5,"ttl":"90s"}`)
	if len(got.at("jobs").([]any)) != 1 || got.at("jobs", 0, "payload", "x") != jsonNumber("1") || got.str("jobs", 0, "lease", "ttl") != "1m30s" ||
		got.str("jobs", 0, "lease", "worker") != "w" || got.at("jobs", 0, "lease", "version") != jsonNumber("1") {
		t.Errorf("%s", got.text)
	}
	if got := s.want(200, "POST", "/v1/claim", `{"worker":"w","max_cost":5,"n":5}`); len(got.at("jobs").([]any)) != 1 {
		t.Errorf("%s", got.text)
	}
	// A waiting claim gets the job as soon as it is available.
	waited := make(chan reply, 1)
	go func() {
		waited <- s.do("POST", "/v1/claim", `{"worker":"w","queues":["late"],"wait":"1m"}`)
	}()
	s.submit(`{"type":"x","queue":"late"}`)
	if got := <-waited; got.str("jobs", 0, "type") != "x" {
		t.Errorf("%s", got.text)
	}
	for body, field := range map[string]string{
		`{}`: "worker", `{"worker":"w","n":-1}`: "n", `{"worker":"w","n":0}`: "n", `{"worker":"w","wait":"11m"}`: "wait", `{"worker":"w","wait":5}`: "wait",
		`{"worker":"w","queues":["a b"]}`: "queues[0]", `{"worker":"w","ttl":"-1s"}`: "ttl", `{"worker":"w","type":"a"}`: "type",
		`{"worker":"w","n":1000000}`: "n", `{"worker":"w","types":[""]}`: "types[0]",
	} {
		if got := s.want(400, "POST", "/v1/claim", body); !strings.Contains(strings.Join(got.fields(), " "), field) {
			t.Errorf("%s: %s", body, got.text)
		}
	}
}

func TestHoldThenStart(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	s.submit(`{"type":"a"}`)
	job, l := s.claim(`,"hold":true`)
	if job["state"] != "CLAIMED" || job["detail"] != "CLAIMED" {
		t.Errorf("%v", job)
	}
	if got := s.want(200, "POST", lease(l, "start"), `{"ttl":"1m"}`); got.str("state") != "RUNNING" || got.at("attempt") != jsonNumber("1") {
		t.Errorf("%s", got.text)
	}
	if got := s.want(409, "POST", lease(l, "start")); got.str("code") != "illegal_move" {
		t.Errorf("%s", got.text)
	}
}

func TestHeartbeatReports(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	id := s.submit(`{"type":"a"}`)
	_, l := s.claim("")
	got := s.want(200, "POST", lease(l, "heartbeat"), `{"progress":0.25,"note":"a quarter","checkpoint":{"page":3},"worker":"w1","version":1,
		"spawn":[{"type":"child","payload":1}]}`)
	if got.at("progress") != jsonNumber("0.25") || got.str("note") != "a quarter" || got.at("checkpoints") != jsonNumber("1") {
		t.Errorf("%s", got.text)
	}
	got = s.want(200, "POST", lease(l, "heartbeat"))
	if got.at("progress") != jsonNumber("0.25") {
		t.Errorf("a heartbeat that says nothing changed the progress: %s", got.text)
	}
	if got := s.want(200, "GET", "/v1/jobs/"+id+"?checkpoint=true"); got.at("checkpoint", "page") != jsonNumber("3") {
		t.Errorf("%s", got.text)
	}
	if got := s.want(200, "GET", "/v1/jobs?state=SCHEDULED"); got.str("jobs", 0, "type") != "child" {
		t.Errorf("no child: %s", got.text)
	}
	s.want(400, "POST", lease(l, "heartbeat"), `{"progress":2}`)
	s.want(400, "POST", lease(l, "heartbeat"), `{"checkpoint":1,"checkpoint_base64":"AA=="}`)
	s.want(400, "POST", lease(l, "heartbeat"), `{"spawn":[{"type":"x","nope":1}]}`)
	s.want(400, "GET", "/v1/jobs/"+id+"?checkpoint=maybe")
}

// Spawned jobs may need each other.
func TestSpawnedJobsOverHTTP(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	id := s.submit(`{"type":"a"}`)
	_, l := s.claim("")
	bad := s.want(400, "POST", lease(l, "complete"), `{"spawn":[{"type":"join","needs":[{"ref":"x","kind":"FAN_IN"}]}]}`)
	if !strings.Contains(bad.text, "spawn[0].needs[0].ref") {
		t.Errorf("an unknown name: %s", bad.text)
	}
	s.want(400, "POST", lease(l, "complete"), `{"spawn":[{"type":"join","needs":[{"kind":"FAN_IN"}]}]}`)
	s.want(200, "POST", lease(l, "complete"), `{"spawn":[{"type":"join","needs":[{"ref":"p","kind":"FAN_IN"}]},{"type":"part","ref":"p"}]}`)
	part := s.want(200, "GET", "/v1/jobs?state=SCHEDULED").str("jobs", 0, "id")
	join := s.want(200, "GET", "/v1/jobs?state=PENDING")
	if join.str("jobs", 0, "type") != "join" || join.str("jobs", 0, "depends_on", 0, "job") != id || join.str("jobs", 0, "depends_on", 1, "job") != part {
		t.Errorf("the join depends on %s", join.text)
	}
}

// A claimable job that is to run later is replaced, and the answer is the copy. So is one that is
// submitted again, if it is unique that way, and the answer names it.
func TestReplacedJobsOverHTTP(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	id := s.submit(`{"type":"a"}`)
	at := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	got := s.want(200, "POST", "/v1/jobs/"+id+"/reschedule", `{"run_at":"`+at+`"}`)
	if got.str("id") == id || got.str("replaces") != id || got.str("state") != "DELAYED" || got.str("submitted_at") == "" {
		t.Errorf("put off: %s", got.text)
	}
	if old := s.want(200, "GET", "/v1/jobs/"+id); old.str("replaced_by") != got.str("id") || old.str("state") != "CANCELLED" {
		t.Errorf("the job that was put off: %s", old.text)
	}
	unique := `{"type":"u","idempotency_key":"k","unique":{"while":"waiting","on_collision":"replace"}}`
	first := s.want(201, "POST", "/v1/jobs", unique)
	second := s.want(201, "POST", "/v1/jobs", unique)
	if second.str("replaces") != first.str("id") || strings.Contains(first.text, "replaces") {
		t.Errorf("%s\n%s", first.text, second.text)
	}
	batch := s.want(200, "POST", "/v1/jobs/batch", `{"jobs":[`+unique+`]}`)
	if batch.str("jobs", 0, "replaces") != second.str("id") {
		t.Errorf("%s", batch.text)
	}
}

func TestOnlyTheHolderMayWrite(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	s.submit(`{"type":"a","policy":{"lease_ttl":"1m"}}`)
	_, l := s.claim("")
	for _, body := range []string{`{"version":2}`, `{"worker":"someone else"}`} {
		for _, verb := range []string{"start", "heartbeat", "complete", "fail", "release"} {
			if got := s.want(409, "POST", lease(l, verb), body); got.str("code") != "stale_lease" {
				t.Errorf("%s %s: %s", verb, body, got.text)
			}
		}
	}
	for _, verb := range []string{"start", "heartbeat", "complete", "fail", "release"} {
		got := s.do("POST", lease("00000000-0009-4b05-93e0-e190275c5125", verb))
		if got.status != 409 && got.status != 404 {
			t.Errorf("%s under an unknown lease: %d %s", verb, got.status, got.text)
		}
	}
	s.want(200, "POST", lease(l, "complete"), `{"result":1}`)
	s.want(200, "POST", lease(l, "complete"), `{"result":1}`) // its response was lost
	if got := s.want(409, "POST", lease(l, "complete"), `{"result":2}`); got.str("code") != "stale_lease" {
		t.Errorf("%s", got.text)
	}
}

func TestFailAndRelease(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	s.submit(`{"type":"a"}`)
	_, l := s.claim("")
	got := s.want(200, "POST", lease(l, "fail"), `{"message":"try later","retry_after":"1h"}`)
	if got.str("state") != "RETRYING" || got.str("failure", "category") != "TEMPORARY" || got.str("failure", "retry_after") != "1h0m0s" {
		t.Errorf("%s", got.text)
	}
	if at, err := time.Parse(time.RFC3339, got.str("run_at")); err != nil || time.Until(at) < 50*time.Minute {
		t.Errorf("run_at %q", got.str("run_at"))
	}
	s.submit(`{"type":"b"}`)
	_, l = s.claim(`,"types":["b"]`)
	s.want(400, "POST", lease(l, "fail"), `{"category":"ODD"}`)
	s.want(400, "POST", lease(l, "release"), `{"delay":"never"}`)
	got = s.want(200, "POST", lease(l, "release"), `{"delay":"1h","reason":"shift over"}`)
	if got.str("state") != "RETRYING" || got.at("bound") != jsonNumber("4") {
		t.Errorf("%s", got.text)
	}
}

// A list of queues comes in pages, each with the counts of its queues.
func TestQueuePages(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	if got := s.want(200, "GET", "/v1/queues"); len(got.at("queues").([]any)) != 0 || got.str("next_cursor") != "" {
		t.Errorf("without queues: %s", got.text)
	}
	for _, name := range []string{"d", "a", "e", "b", "c"} {
		s.submit(`{"type":"t","queue":"` + name + `"}`)
	}
	for limit, want := range map[string][]string{
		"?limit=2": {"a b", "c d", "e"}, "?limit=5": {"a b c d e"}, "?limit=1": {"a", "b", "c", "d", "e"}, "?limit=1000": {"a b c d e"}, "?": {"a b c d e"},
	} {
		var pages []string
		for cursor := ""; len(pages) < 10; {
			got := s.want(200, "GET", "/v1/queues"+limit+"&cursor="+cursor)
			var names []string
			for i := range got.at("queues").([]any) {
				names = append(names, got.str("queues", i, "name"))
				if got.at("queues", i, "counts", "SCHEDULED") != jsonNumber("1") {
					t.Errorf("%s: %s", limit, got.text)
				}
			}
			pages = append(pages, strings.Join(names, " "))
			if cursor = got.str("next_cursor"); cursor == "" {
				break
			}
		}
		if !slices.Equal(pages, want) {
			t.Errorf("%s: the pages are %q, want %q", limit, pages, want)
		}
	}
	for query, field := range map[string]string{"limit=0": "limit", "limit=1001": "limit", "limit=x": "limit", "cursor=a%20b": "cursor"} {
		if got := s.want(400, "GET", "/v1/queues?"+query); len(got.fields()) != 1 || got.fields()[0] != field {
			t.Errorf("%s: %s", query, got.text)
		}
	}
}

// The figures of queues come in pages, of 1000 unless told; the totals are those of all queues.
func TestStatsPages(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	const many = 2100
	for name := range many {
		s.submit(fmt.Sprintf(`{"type":"t","queue":"q%04d"}`, name))
	}
	for limit, want := range map[string][]int{"": {1000, 1000, 100}, "limit=999&": {999, 999, 102}} {
		var pages []int
		next := 0
		for cursor := ""; len(pages) < 10; {
			got := s.want(200, "GET", "/v1/stats?"+limit+"cursor="+cursor)
			queues := got.at("queues").([]any)
			for i := range queues {
				if name := fmt.Sprintf("q%04d", next); got.str("queues", i, "queue") != name || got.at("queues", i, "live") != jsonNumber("1") {
					t.Fatalf("queue %d is %v, want %s", next, queues[i], name)
				}
				next++
			}
			if got.at("live") != jsonNumber("2100") || got.at("total", "SCHEDULED") != jsonNumber("2100") {
				t.Errorf("the totals of a page are %v", got.at("total"))
			}
			pages = append(pages, len(queues))
			if cursor = got.str("next_cursor"); cursor == "" {
				break
			}
		}
		if !slices.Equal(pages, want) {
			t.Errorf("%q: pages of %v queues, want %v", limit, pages, want)
		}
	}
	for query, field := range map[string]string{"limit=0": "limit", "limit=1001": "limit", "cursor=a%20b": "cursor"} {
		if got := s.want(400, "GET", "/v1/stats?"+query); len(got.fields()) != 1 || got.fields()[0] != field {
			t.Errorf("%s: %s", query, got.text)
		}
	}
}

func TestQueues(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	s.want(404, "GET", "/v1/queues/mail")
	s.want(200, "PUT", "/v1/pools/p", `{"capacity":8}`)
	got := s.want(200, "PATCH", "/v1/queues/mail", `{"max_running":2,"max_depth":3,"rate":{"count":5,"per":"1s","burst":2},"key_limit":1,"fair":true,"pool":"p"}`)
	if got.str("name") != "mail" || got.at("max_running") != jsonNumber("2") || got.str("rate", "per") != "1s" || got.at("fair") != true ||
		got.at("counts", "SCHEDULED") != jsonNumber("0") || got.str("policy", "preset") != "jobmodel" {
		t.Errorf("%s", got.text)
	}
	got = s.want(200, "PUT", "/v1/queues/mail", `{"rate":{"count":0,"per":"0s"}}`)
	if got.at("rate") != nil || got.at("max_running") != jsonNumber("2") {
		t.Errorf("%s", got.text)
	}
	for range 3 {
		s.submit(`{"type":"a","queue":"mail"}`)
	}
	if got := s.want(429, "POST", "/v1/jobs", `{"type":"a","queue":"mail"}`); got.str("code") != "queue_full" {
		t.Errorf("%s", got.text)
	}
	if got := s.want(200, "POST", "/v1/queues/mail/pause"); got.at("paused") != true {
		t.Errorf("%s", got.text)
	}
	if got := s.want(200, "POST", "/v1/claim", `{"worker":"w","queues":["mail"]}`); len(got.at("jobs").([]any)) != 0 {
		t.Error("a paused queue gives jobs")
	}
	if got := s.want(200, "POST", "/v1/queues/mail/resume", `{}`); got.at("paused") != false {
		t.Errorf("%s", got.text)
	}
	if got := s.want(200, "GET", "/v1/queues"); got.str("queues", 0, "name") != "mail" || got.at("queues", 0, "counts", "SCHEDULED") != jsonNumber("3") {
		t.Errorf("%s", got.text)
	}
	s.want(200, "PUT", "/v1/queues/a%2Fb", `{"paused":true}`)
	if got := s.want(200, "GET", "/v1/queues/a%2Fb"); got.str("name") != "a/b" {
		t.Errorf("%s", got.text)
	}
	for body, field := range map[string]string{
		`{"max_running":-1}`: "max_running", `{"policy":{"max_attempts":0}}`: "policy.max_attempts", `{"rate":{"count":-1,"per":"1s"}}`: "rate.count",
		`{"name":"x"}`: "name", `{"pool":"a b"}`: "pool", `{"counts":{}}`: "counts",
	} {
		if got := s.want(400, "PATCH", "/v1/queues/mail", body); len(got.fields()) == 0 || got.fields()[0] != field {
			t.Errorf("%s: %s", body, got.text)
		}
	}
	s.want(400, "PATCH", "/v1/queues/a%20b", `{"paused":true}`)
}

func TestPools(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	if got := s.want(200, "GET", "/v1/pools"); got.text != "{\"pools\":[]}\n" {
		t.Errorf("%s", got.text)
	}
	if got := s.want(200, "PUT", "/v1/pools/gpu", `{"capacity":8}`); got.str("name") != "gpu" || got.at("capacity") != jsonNumber("8") {
		t.Errorf("%s", got.text)
	}
	if got := s.want(200, "GET", "/v1/pools"); got.str("pools", 0, "name") != "gpu" {
		t.Errorf("%s", got.text)
	}
	for _, bad := range []string{`{"capacity":-1}`, `{}`, `{"capacity":null}`} {
		s.want(400, "PUT", "/v1/pools/gpu", bad)
	}
	if got := s.want(200, "GET", "/v1/pools"); got.at("pools", 0, "capacity") != jsonNumber("8") {
		t.Errorf("%s", got.text)
	}
	s.want(400, "PUT", "/v1/pools/gpu", `{"size":1}`)
}

func TestSchedules(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	s.want(404, "GET", "/v1/schedules/nightly")
	s.want(404, "DELETE", "/v1/schedules/nightly")
	got := s.want(200, "PUT", "/v1/schedules/nightly", `{"cron":"30 2 * * *","time_zone":"Europe/Berlin","missed":"skip","job":{"type":"report","payload":{"x":1},"priority":"LOW"}}`)
	if got.str("next_at") == "" || got.str("job", "type") != "report" || got.at("job", "payload", "x") != jsonNumber("1") || got.str("missed") != "skip" {
		t.Errorf("%s", got.text)
	}
	if got := s.want(200, "POST", "/v1/schedules/nightly/pause"); got.at("paused") != true {
		t.Errorf("%s", got.text)
	}
	if got := s.want(200, "POST", "/v1/schedules/nightly/resume"); got.at("paused") != false {
		t.Errorf("%s", got.text)
	}
	s.want(200, "PUT", "/v1/schedules/ping", `{"every":"30s","job":{"type":"ping"}}`)
	if got := s.want(200, "GET", "/v1/schedules"); got.str("schedules", 0, "name") != "nightly" || got.str("schedules", 1, "every") != "30s" {
		t.Errorf("%s", got.text)
	}
	for body, field := range map[string]string{
		`{"job":{"type":"x"}}`: "cron", `{"cron":"x","job":{"type":"x"}}`: "cron", `{"every":"1s","job":{"type":""}}`: "job.type",
		`{"every":"1s","job":{"type":"x","delay":"-1s"}}`: "job.delay", `{"every":"1s","job":{"type":"x"},"next_at":"2030-01-01T00:00:00Z"}`: "next_at",
		`{"cron":"* * * * *","time_zone":"Mars","job":{"type":"x"}}`: "time_zone", `{"every":"1s","missed":"never","job":{"type":"x"}}`: "missed",
		`{"every":"1s","job":{"type":"x","payload":1,"payload_base64":""}}`: "job.payload_base64",
	} {
		if got := s.want(400, "PUT", "/v1/schedules/bad", body); !strings.Contains(strings.Join(got.fields(), " "), field) {
			t.Errorf("%s: %s", body, got.text)
		}
	}
	if got := s.want(204, "DELETE", "/v1/schedules/nightly"); got.text != "" {
		t.Errorf("%s", got.text)
	}
	s.want(404, "POST", "/v1/schedules/nightly/pause")
	s.want(404, "POST", "/v1/schedules/nightly/resume")
}

func TestWorkersAndStats(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	s.submit(`{"type":"a"}`)
	s.claim("")
	if got := s.want(200, "GET", "/v1/workers"); got.str("workers", 0, "name") != "w1" || got.at("workers", 0, "running") != jsonNumber("1") {
		t.Errorf("%s", got.text)
	}
	got := s.want(200, "GET", "/v1/stats")
	if got.at("total", "RUNNING") != jsonNumber("1") || got.at("held") != jsonNumber("1") || got.str("queues", 0, "queue") != "default" || got.at("workers") != jsonNumber("1") {
		t.Errorf("%s", got.text)
	}
	if got := s.want(409, "DELETE", "/v1/workers/w1"); !strings.Contains(got.str("detail"), "it still holds jobs (1); complete, fail or release them first") {
		t.Errorf("%s", got.text)
	}
	s.want(400, "DELETE", "/v1/workers/"+strings.Repeat("w", 10_000))
}

// A worker that says that it has stopped is not listed, whether or not the server has noticed
// that its last claim has ended.
func TestStoppedWorker(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	s.want(200, "POST", "/v1/claim", `{"worker":"rack 7/w1","queues":["default"]}`)
	if got := s.want(200, "GET", "/v1/workers"); got.str("workers", 0, "name") != "rack 7/w1" {
		t.Errorf("%s", got.text)
	}
	s.want(204, "DELETE", "/v1/workers/rack%207%2Fw1")
	if got := s.want(200, "GET", "/v1/workers"); got.str("workers", 0, "name") != "" {
		t.Errorf("%s", got.text)
	}
	s.want(204, "DELETE", "/v1/workers/rack%207%2Fw1")
}
