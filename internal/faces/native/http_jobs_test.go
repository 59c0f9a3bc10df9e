package native

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

func TestPayloadsKeepTheirValue(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	for _, payload := range []string{
		`123456789012345678901234567890`, `1e400`, `"\u0000"`, `{"a":[1,2.50,{"b":null}],"ü":"\ud83d\ude00"}`, `null`, `""`, `"<&>"`, `[]`,
	} {
		id := s.submit(`{"type":"a","payload":` + payload + `}`)
		got := s.want(200, "GET", "/v1/jobs/"+id).text
		if kept := payloadOf(t, got); !reflect.DeepEqual(exactly(t, []byte(payload)), exactly(t, kept)) {
			t.Errorf("payload %s became %s", payload, kept)
		}
		_, l := s.claim("")
		s.want(200, "POST", lease(l, "complete"), `{"result":`+payload+`}`)
		if got := s.want(200, "GET", "/v1/jobs/"+id).text; payload != "null" && !strings.Contains(got, `"result":`+payload) {
			t.Errorf("result %s became %s", payload, got)
		}
	}
}

// exactly decodes JSON and keeps numbers as they are written.
func exactly(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil || d.More() {
		t.Fatalf("%s is not one JSON value: %v", text, err)
	}
	return v
}

func payloadOf(t *testing.T, job string) []byte {
	t.Helper()
	var out struct {
		Payload rawJSON `json:"payload"`
	}
	if err := decodeLoose(job, &out); err != nil {
		t.Fatal(err)
	}
	return out.Payload
}

func TestBinaryIsBase64(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	data := base64.StdEncoding.EncodeToString([]byte{0, 255, 1, 'x'})
	id := s.submit(`{"type":"a","payload_base64":"` + data + `"}`)
	got := s.want(200, "GET", "/v1/jobs/"+id)
	if got.str("payload_base64") != data || got.at("payload") != nil || got.str("content_type") != "application/octet-stream" {
		t.Errorf("%s", got.text)
	}
	_, l := s.claim("")
	s.want(200, "POST", lease(l, "complete"), `{"result_base64":"`+data+`"}`)
	if got := s.want(200, "GET", "/v1/jobs/"+id); got.str("result_base64") != data || got.at("result") != nil {
		t.Errorf("%s", got.text)
	}
}

func TestSubmittingTwice(t *testing.T) {
	spec.Covers(t, "J-13", "J-15")
	s := newSite(t, HTTPOptions{})
	first := s.want(201, "POST", "/v1/jobs", `{"type":"a","idempotency_key":"k","payload":1}`)
	if location := first.header.Get("Location"); location != "/v1/jobs/"+first.str("id") {
		t.Errorf("Location %q", location)
	}
	again := s.want(200, "POST", "/v1/jobs", `{"type":"a","idempotency_key":"k","payload":1}`)
	if again.str("id") != first.str("id") || again.at("existing") != true || again.at("same") != true {
		t.Errorf("%s", again.text)
	}
	other := s.want(200, "POST", "/v1/jobs", `{"type":"a","idempotency_key":"k","payload":2}`)
	if other.str("id") != first.str("id") || other.at("same") != nil {
		t.Errorf("%s", other.text)
	}
	r, _ := http.NewRequestWithContext(context.Background(), http.MethodPost, s.server.URL+"/v1/jobs", strings.NewReader(`{"type":"a","payload":1}`))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "k")
	if got := s.send(r); got.status != 200 || got.str("id") != first.str("id") {
		t.Errorf("with the header: %d %s", got.status, got.text)
	}
	// The key belongs only to the submission.
	if got := s.want(400, "PATCH", "/v1/jobs/"+first.str("id"), `{"idempotency_key":"x"}`); got.fields()[0] != "idempotency_key" {
		t.Errorf("%s", got.text)
	}
}

// The answer to a submission shows the job as a read does, also what the queue has filled in, alone
// and in a batch, as it is and in the views.
func TestSubmissionsAnswerWhatIsRead(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	done := s.submit(`{"type":"a","queue":"done"}`)
	for _, body := range []string{
		`{"type":"a"}`, `{"type":"a","queue":"q","delay":"1h","payload":{"n":1.10},"tags":{"a":"b"},"cost_units":3,"requires":["gpu"]}`,
		`{"type":"a","order_key":"o"}`, `{"type":"a","order_key":"o"}`, `{"type":"a","depends_on":[{"kind":"AFTER","job":"` + done + `"}]}`,
		`{"type":"a","policy":{"preset":"semantics","lease_ttl":"7s"}}`,
		`{"type":"AI","queue":"matching"}`, `{"type":"QUANTUM","queue":"matching"}`, `{"type":"AI","queue":"matching","cost_units":4}`,
		`{"type":"AI","queue":"matching","attributes":{"matching.units":"0"}}`, `{"type":"other","queue":"matching"}`, `{"type":"AI","queue":"q"}`,
	} {
		for _, view := range []string{"", "?view=jobmodel", "?view=semantics"} {
			one := s.want(201, "POST", "/v1/jobs"+view, body)
			many := s.want(200, "POST", "/v1/jobs/batch"+view, `{"jobs":[`+body+`]}`).at("jobs", 0).(map[string]any)
			for _, answer := range []map[string]any{one.body, many} {
				read := s.want(200, "GET", fmt.Sprintf("/v1/jobs/%s%s", answer["id"], view))
				if !reflect.DeepEqual(answer, read.body) {
					t.Errorf("%s %s is answered with\n%v, and read as\n%v", body, view, answer, read.body)
				}
			}
		}
	}
	if got := s.want(201, "POST", "/v1/jobs", `{"type":"AI","queue":"matching"}`); got.at("cost_units") != jsonNumber("1") {
		t.Errorf("a matching job that names no units: %s", got.text)
	}
}

func TestSystemFieldsCannotBeWritten(t *testing.T) {
	spec.Covers(t, "J-06", "J-133")
	s := newSite(t, HTTPOptions{})
	id := s.submit(`{"type":"a"}`)
	for _, field := range []string{
		`"id":"00000000-0000-4000-8000-000000000000"`, `"state":"COMPLETED"`, `"attempt":3`, `"bound":9`, `"created_at":"2030-01-01T00:00:00Z"`,
		`"updated_at":"2030-01-01T00:00:00Z"`, `"scheduled_at":"2030-01-01T00:00:00Z"`, `"started_at":"2030-01-01T00:00:00Z"`,
		`"completed_at":"2030-01-01T00:00:00Z"`, `"lease":{}`, `"result":1`, `"failure":{}`, `"replay_of":"` + id + `"`, `"sequence":1`,
	} {
		name, _, _ := strings.Cut(strings.Trim(field, `"`), `"`)
		for _, got := range []reply{
			s.want(400, "POST", "/v1/jobs", `{"type":"a",`+field+`}`),
			s.want(400, "PATCH", "/v1/jobs/"+id, `{`+field+`}`),
		} {
			if got.str("code") != "invalid" || len(got.fields()) != 1 || got.fields()[0] != name {
				t.Errorf("%s: %s", field, got.text)
			}
		}
	}
	if got := s.want(200, "GET", "/v1/jobs"); len(got.body["jobs"].([]any)) != 1 {
		t.Error("something was submitted")
	}
}

func TestSubmissionFaultsAreAllTold(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	got := s.want(400, "POST", "/v1/jobs", `{"tipe":"a","priority":"URGENT","delay":"5 s","policy":{"max_attempts":1.5,"preset":"x"},"depends_on":[{"kind":"NEVER","job":"y"}]}`)
	for _, field := range []string{"tipe", "priority", "delay", "policy.max_attempts", "policy.preset", "depends_on[0].kind", "depends_on[0].job"} {
		if !strings.Contains(got.text, `"field":"`+field+`"`) {
			t.Errorf("%s is not among %v", field, got.fields())
		}
	}
	if !strings.Contains(got.text, "did you mean type?") {
		t.Errorf("%s", got.text)
	}
	// And faults that only the domain detects.
	got = s.want(400, "POST", "/v1/jobs", `{"type":"","queue":"a b","callback_url":"ftp://x","cost_units":-1}`)
	for _, field := range []string{"type", "queue", "callback_url", "cost_units"} {
		if !strings.Contains(got.text, `"field":"`+field+`"`) {
			t.Errorf("%s is not among %v", field, got.fields())
		}
	}
}

func TestPoliciesAreCompletedByTheQueue(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	s.want(200, "PUT", "/v1/queues/q", `{"policy":{"max_attempts":7,"lease_ttl":"9s"}}`)
	got := s.want(201, "POST", "/v1/jobs", `{"type":"a","queue":"q","policy":{"lease_ttl":"3s","backoff":{"max":"2m"}}}`)
	if got.at("policy", "max_attempts") != jsonNumber("7") || got.str("policy", "lease_ttl") != "3s" || got.str("policy", "backoff", "max") != "2m0s" {
		t.Errorf("%v", got.at("policy"))
	}
	got = s.want(201, "POST", "/v1/jobs", `{"type":"a","queue":"q","policy":{"preset":"semantics","max_attempts":9}}`)
	got = s.want(200, "GET", "/v1/jobs/"+got.str("id")+"?policy=true")
	if got.at("policy", "max_attempts") != jsonNumber("9") || got.str("policy", "lease_ttl") != "5s" || got.str("policy", "on_loss") != "free" {
		t.Errorf("%v", got.at("policy"))
	}
	got = s.want(201, "POST", "/v1/jobs", `{"type":"a","queue":"q"}`)
	if got.at("policy", "max_attempts") != jsonNumber("7") {
		t.Errorf("%v", got.at("policy"))
	}
}

func TestBatch(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	got := s.want(200, "POST", "/v1/jobs/batch", `{"jobs":[{"type":"a"},{"type":"","queue":"x y"},{"type":"c","priority":4}]}`)
	if got.str("jobs", 0, "state") != "SCHEDULED" || got.str("jobs", 2, "priority") != "BULK" {
		t.Errorf("%s", got.text)
	}
	if got.str("jobs", 1, "problem", "code") != "invalid" || got.at("jobs", 1, "id") != nil {
		t.Errorf("%s", got.text)
	}
	graph := `{"jobs":[{"type":"a","ref":"one"},{"type":"b","needs":[{"ref":"one"}]},{"type":"c","needs":[{"kind":"FAN_IN","ref":"one"}]}]}`
	got = s.want(200, "POST", "/v1/jobs/batch", graph)
	if got.str("jobs", 1, "state") != "PENDING" || got.str("jobs", 2, "state") != "PENDING" {
		t.Errorf("%s", got.text)
	}
	job := s.want(200, "GET", "/v1/jobs/"+got.str("jobs", 1, "id"))
	if job.str("depends_on", 0, "job") != got.str("jobs", 0, "id") || job.str("depends_on", 0, "kind") != "AFTER" {
		t.Errorf("%s", job.text)
	}
	if fmt.Sprint(got.at("jobs", 1, "depends_on")) != fmt.Sprint(job.at("depends_on")) {
		t.Errorf("answered as %s, read as %s", got.text, job.text)
	}
	for body, field := range map[string]string{
		`{"jobs":[]}`: "jobs",
		`{}`:          "jobs",
		`{"jobs":[{"type":"a","ref":"x"},{"type":"b","needs":[{"ref":"y"}]}]}`:                                 "jobs[1].needs[0].ref",
		`{"jobs":[{"type":"a","ref":"x"},{"type":"b","ref":"x"}]}`:                                             "jobs[1].ref",
		`{"jobs":[{"type":"a","ref":"x","needs":[{"ref":"y"}]},{"type":"b","ref":"y","needs":[{"ref":"x"}]}]}`: "",
		`{"jobs":[{"type":"a","atomic":true}],"atomic":true}`:                                                  "jobs[0].atomic",
		`{"jobs":[{"type":"a","ref":"x"},{"type":"b","payload":1,"payload_base64":"AA=="}]}`:                   "jobs[1].payload_base64",
		`{"jobs":[{"type":"a"},{"type":"b","ref":7}]}`:                                                         "jobs[1].ref",
		`{"jobs":[{"type":"a"},null],"atomic":true}`:                                                           "jobs[1]",
		`{"jobs":[{"type":"a"},{"type":""}],"atomic":true}`:                                                    "",
		`{"jobs":[{"type":"a"}],"atomik":true}`:                                                                "atomik",
	} {
		before := s.want(200, "GET", "/v1/stats").text
		got := s.want(400, "POST", "/v1/jobs/batch", body)
		if field != "" && !strings.Contains(got.text, `"field":"`+field+`"`) {
			t.Errorf("%s: %s is not among %v", body, field, got.fields())
		}
		if after := s.want(200, "GET", "/v1/stats"); after.at("live") != jsonNumber("5") {
			t.Errorf("%s: something was accepted: %s, before %s", body, after.text, before)
		}
	}
}

// TestBatchItemsThatCannotBeRead checks that malformed jobs of a batch, however many, are
// rejected one by one and the others are accepted.
func TestBatchItemsThatCannotBeRead(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	bad := []struct{ job, field string }{
		{`{"type":"a","priority":"URGENT"}`, "priority"},
		{`{"type":"a","atomic":true}`, "atomic"},
		{`{"type":7}`, "type"},
		{`{"type":"a","type":"b"}`, "type"},
		{`{"type":"a","payload":1,"payload_base64":"AA=="}`, "payload_base64"},
		{`{"type":"a","payload_base64":"e2JhZA==","content_type":"application/json"}`, "payload"},
		{`{"type":"a","run_at":"tomorrow"}`, "run_at"},
		{`{"type":"a","delay":"soon"}`, "delay"},
		{`{"type":"a","tags":{"a":1}}`, `tags[\"a\"]`},
		{`null`, "body"}, {`"job"`, "body"}, {`[]`, "body"},
	}
	const times = 8 // more faults than one response reports
	var jobs []string
	for range times {
		for _, b := range bad {
			jobs = append(jobs, b.job, `{"type":"good","payload":{"n":1}}`)
		}
	}
	got := s.want(200, "POST", "/v1/jobs/batch", `{"jobs":[`+strings.Join(jobs, ",")+`]}`)
	for i := range jobs {
		if i%2 == 1 {
			if got.str("jobs", i, "state") != "SCHEDULED" || got.at("jobs", i, "problem") != nil {
				t.Errorf("the good job at %d: %v", i, got.at("jobs", i))
			}
			continue
		}
		want := strings.ReplaceAll(bad[i/2%len(bad)].field, `\"`, `"`)
		if got.str("jobs", i, "problem", "code") != "invalid" || got.str("jobs", i, "problem", "faults", 0, "field") != want {
			t.Errorf("%s: %v, want a problem that names %s", jobs[i], got.at("jobs", i), want)
		}
	}
	if live := s.want(200, "GET", "/v1/stats").at("live"); live != jsonNumber(strconv.Itoa(len(jobs)/2)) {
		t.Errorf("%v jobs are live, want the %d good ones", live, len(jobs)/2)
	}
	got = s.want(200, "POST", "/v1/jobs/batch", `{"jobs":[{"typ":"a"}]}`)
	if got.str("jobs", 0, "problem", "code") != "invalid" {
		t.Errorf("a batch of one that cannot be read: %s", got.text)
	}
}

// TestJobsTellHowTheirPolicyDiffers checks that a job shows its preset and only the
// differences from it, which restore the whole policy, and the whole policy on request.
func TestJobsTellHowTheirPolicyDiffers(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	plain := s.submit(`{"type":"t"}`)
	other := s.submit(`{"type":"t","policy":{"max_attempts":7,"execution_timeout":"0s","backoff":{"jitter":"full"}}}`)
	for id, want := range map[string]string{
		plain: `"policy":{"preset":"jobmodel"}`,
		other: `"policy":{"preset":"jobmodel","max_attempts":7,"backoff":{"jitter":"full"},"execution_timeout":"0s"}`,
	} {
		for _, path := range []string{"/v1/jobs/" + id, "/v1/jobs"} {
			if got := s.want(200, "GET", path); !strings.Contains(got.text, want) {
				t.Errorf("GET %s: %s, want %s in it", path, got.text, want)
			}
		}
		whole := s.want(200, "GET", "/v1/jobs/"+id+"?policy=true")
		if whole.str("policy", "lease_ttl") != "5m0s" || whole.str("policy", "backoff", "initial") != "1s" {
			t.Errorf("the whole policy: %s", whole.text)
		}
	}
	if got := s.want(200, "GET", "/v1/jobs/"+plain); len(got.text) > 500 {
		t.Errorf("a plain job has %d bytes: %s", len(got.text), got.text)
	}
}

// TestAWaitingJobShowsNoLease checks that lease, progress and note of an ended attempt
// are hidden while the job waits for the next one.
func TestAWaitingJobShowsNoLease(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	id := s.submit(`{"type":"t"}`)
	held := s.want(200, "POST", "/v1/claim", `{"worker":"w"}`)
	lease := held.str("jobs", 0, "lease", "id")
	running := s.want(200, "POST", "/v1/leases/"+lease+"/heartbeat", `{"progress":0.5,"note":"half"}`)
	if running.at("progress") != jsonNumber("0.5") || running.str("note") != "half" || running.str("lease", "state") != "ACTIVE" {
		t.Errorf("running: %s", running.text)
	}
	failed := s.want(200, "POST", "/v1/leases/"+lease+"/fail", `{"category":"TEMPORARY","message":"later"}`)
	for what, got := range map[string]reply{"the answer": failed, "the job": s.want(200, "GET", "/v1/jobs/"+id), "the list": s.want(200, "GET", "/v1/jobs")} {
		for _, gone := range []string{`"lease":`, `"progress":`, `"note":`} {
			if strings.Contains(got.text, gone) {
				t.Errorf("%s shows %s of an attempt that has ended: %s", what, gone, got.text)
			}
		}
		if !strings.Contains(got.text, `"lease_version":1`) || !strings.Contains(got.text, `"message":"later"`) {
			t.Errorf("%s does not tell of the failure: %s", what, got.text)
		}
	}
	if events := s.want(200, "GET", "/v1/jobs/"+id+"/events"); !strings.Contains(events.text, lease) {
		t.Errorf("the events do not tell of the lease: %s", events.text)
	}
}

// TestProblemsAreToldInOneClause checks the wording of the most common errors.
func TestProblemsAreToldInOneClause(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	const unknown = "01234567-89ab-4def-8123-456789abcdef"
	for _, c := range []string{"GET ", "DELETE ", "POST /cancel", "POST /replay", "GET /events", "GET /explain", "GET /wait"} {
		method, path, _ := strings.Cut(c, " ")
		got := s.want(404, method, "/v1/jobs/"+unknown+path)
		if got.str("detail") != "job "+unknown+" not found" || got.str("code") != "not_found" {
			t.Errorf("%s: %s", c, got.text)
		}
	}
	if got := s.want(404, "PATCH", "/v1/jobs/"+unknown, `{"priority":"LOW"}`); got.str("detail") != "job "+unknown+" not found" {
		t.Errorf("update: %s", got.text)
	}
	live := s.submit(`{"type":"t"}`)
	for method, path := range map[string]string{"DELETE": "", "POST": "/replay"} {
		verb := map[string]string{"DELETE": "purged", "POST": "replayed"}[method]
		got := s.want(409, method, "/v1/jobs/"+live+path)
		if got.str("detail") != "job "+live+" is still SCHEDULED; only finished jobs can be "+verb || got.str("code") != "illegal_move" {
			t.Errorf("%s: %s", path, got.text)
		}
	}
	lease := s.want(200, "POST", "/v1/claim", `{"worker":"w"}`).str("jobs", 0, "lease", "id")
	s.want(200, "POST", "/v1/leases/"+lease+"/complete")
	got := s.want(409, "POST", "/v1/jobs/"+live+"/cancel")
	if got.str("detail") != "job "+live+" is already COMPLETED" || got.str("code") != "illegal_move" {
		t.Errorf("cancel: %s", got.text)
	}
	if got := s.want(409, "PATCH", "/v1/jobs/"+live, `{"tags":{"a":"b"}}`); got.str("detail") != "job "+live+" is already COMPLETED" {
		t.Errorf("update: %s", got.text)
	}
}

// TestMalformedJSONPayloads checks that a payload declared as JSON must be JSON.
func TestMalformedJSONPayloads(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	const bad = "e2JhZA==" // {bad
	for _, contentType := range []string{"application/json", "application/cloudevents+json"} {
		got := s.want(400, "POST", "/v1/jobs", `{"type":"t","payload_base64":"`+bad+`","content_type":"`+contentType+`"}`)
		if got.str("code") != "invalid" || got.str("faults", 0, "field") != "payload" || !strings.Contains(got.text, "byte 2") {
			t.Errorf("%s: %s", contentType, got.text)
		}
	}
	for _, contentType := range []string{"", "text/plain", "application/octet-stream"} {
		body := `{"type":"t","payload_base64":"` + bad + `"}`
		if contentType != "" {
			body = `{"type":"t","payload_base64":"` + bad + `","content_type":"` + contentType + `"}`
		}
		if got := s.want(201, "POST", "/v1/jobs", body); got.str("payload_base64") != bad {
			t.Errorf("%s: %s", contentType, got.text)
		}
	}
}

func TestListing(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	for i := range 5 {
		s.submit(fmt.Sprintf(`{"type":"t%d","queue":"q"}`, i))
	}
	s.submit(`{"type":"later","delay":"1h","tags":{"a":"b=c","x":""}}`)
	var seen []string
	cursor := ""
	for range 10 {
		got := s.want(200, "GET", "/v1/jobs?queue=q&limit=2&order=oldest&cursor="+url.QueryEscape(cursor))
		jobs, _ := got.at("jobs").([]any)
		for i := range jobs {
			seen = append(seen, got.str("jobs", i, "type"))
		}
		if cursor = got.str("next_cursor"); cursor == "" {
			break
		}
	}
	if strings.Join(seen, " ") != "t0 t1 t2 t3 t4" {
		t.Errorf("pages have %v", seen)
	}
	for query, want := range map[string]int{
		"state=DELAYED": 1, "state=DELAYED,SCHEDULED": 6, "state=DELAYED&state=SCHEDULED": 6, "state=RUNNING": 0, "queue=none": 0,
		"created_before=2000-01-01T00:00:00Z": 0, "created_after=2000-01-01T00:00:00%2B01:00": 6, "": 6,
		"type=t1": 1, "type=t1&type=t2&type=later": 3, "type=t1,t2": 0, "type=t1&queue=default": 0, "tag=a=b%3Dc": 1, "tag=a=b=c&tag=x=": 1, "tag=a=b": 0,
	} {
		got := s.want(200, "GET", "/v1/jobs?"+query)
		if jobs, ok := got.at("jobs").([]any); !ok || len(jobs) != want {
			t.Errorf("%s: %d jobs, want %d", query, len(jobs), want)
		}
	}
	for query, field := range map[string]string{
		"limit=0": "limit", "limit=1001": "limit", "limit=x": "limit", "limit=-1": "limit", "state=NOPE": "state", "order=up": "order",
		"created_after=yesterday": "created_after", "color=red": "color", "limit=1&limit=2": "limit", "queue=a%20b": "queue", "%zz=1": "query",
		"type=": "types[0]", "type=%ff": "types[0]", "tag=a": "tag", "tag==b": "tag", "tag=a=1&tag=a=2": "tag",
	} {
		if got := s.want(400, "GET", "/v1/jobs?"+query); len(got.fields()) == 0 || got.fields()[0] != field {
			t.Errorf("%s: %s", query, got.text)
		}
	}
	if got := s.do("GET", "/v1/jobs?cursor=%00garbage"); got.status != 400 {
		t.Errorf("a bad cursor: %d %s", got.status, got.text)
	}
}

func TestUpdatingMetadata(t *testing.T) {
	spec.Covers(t, "J-142")
	s := newSite(t, HTTPOptions{})
	id := s.submit(`{"type":"a","tags":{"a":"1","b":"2"}}`)
	got := s.want(200, "PATCH", "/v1/jobs/"+id, `{"tags":{"a":"9","c":"3"},"drop_tags":["b"],"priority":0,"correlation_id":"x","callback_url":"https://example.com/"}`)
	if got.str("tags", "a") != "9" || got.str("tags", "c") != "3" || got.at("tags", "b") != nil || got.str("priority") != "CRITICAL" ||
		got.str("correlation_id") != "x" || got.str("callback_url") != "https://example.com/" {
		t.Errorf("%s", got.text)
	}
	s.want(400, "PATCH", "/v1/jobs/"+id, `{}`)
	s.want(400, "PATCH", "/v1/jobs/"+id, `{"callback_url":"nope"}`)
	s.want(200, "POST", "/v1/jobs/"+id+"/cancel")
	if got := s.want(409, "PATCH", "/v1/jobs/"+id, `{"tags":{"z":"1"}}`); got.str("code") != "illegal_move" {
		t.Errorf("%s", got.text)
	}
}

func TestCancelAndReplay(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	id := s.submit(`{"type":"a","payload":{"x":1}}`)
	if got := s.want(409, "POST", "/v1/jobs/"+id+"/replay"); got.str("code") != "illegal_move" {
		t.Errorf("%s", got.text)
	}
	got := s.want(200, "POST", "/v1/jobs/"+id+"/cancel", `{"reason":"why not"}`)
	if got.str("state") != "CANCELLED" || got.str("type") != "a" {
		t.Errorf("%s", got.text)
	}
	s.want(200, "POST", "/v1/jobs/"+id+"/cancel", `{}`)
	again := s.want(201, "POST", "/v1/jobs/"+id+"/replay")
	if again.str("replay_of") != id || again.str("id") == id || again.str("state") != "SCHEDULED" || again.at("payload", "x") != jsonNumber("1") {
		t.Errorf("%s", again.text)
	}
	if twice := s.want(200, "POST", "/v1/jobs/"+id+"/replay"); twice.str("id") != again.str("id") || twice.at("existing") != true {
		t.Errorf("a second replay is %s", twice.text)
	}
	if many := s.want(200, "POST", "/v1/jobs/replay", `{"states":["CANCELLED"]}`); many.at("existing") != jsonNumber("1") || many.at("jobs") == nil {
		t.Errorf("a replay of all is %s", many.text)
	}
	if found := s.want(200, "GET", "/v1/jobs?key="+id); found.at("jobs", 0, "id") != again.str("id") {
		t.Errorf("the replay is not found: %s", found.text)
	}
	// A running job is asked to stop.
	_, l := s.claim("")
	got = s.want(200, "POST", "/v1/jobs/"+again.str("id")+"/cancel")
	if got.str("state") != "RUNNING" || got.at("cancel_requested") != true {
		t.Errorf("%s", got.text)
	}
	got = s.want(200, "POST", lease(l, "heartbeat"))
	if got.at("cancel_requested") != true || got.str("cancellation", "delivered_at") == "" {
		t.Errorf("%s", got.text)
	}
	got = s.want(200, "POST", lease(l, "fail"), `{"category":"CANCELLED"}`)
	if got.str("state") != "CANCELLED" {
		t.Errorf("%s", got.text)
	}
}

func TestCancellingMany(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	for range 3 {
		s.submit(`{"type":"a","queue":"q"}`)
	}
	s.submit(`{"type":"a","queue":"p"}`)
	s.want(400, "POST", "/v1/jobs/cancel", `{}`)
	s.want(400, "POST", "/v1/jobs/cancel", `{"states":["NOPE"]}`)
	s.want(400, "POST", "/v1/jobs/cancel", `{"created_after":"x","all":true}`)
	s.want(400, "POST", "/v1/jobs/cancel", `{"types":[""]}`)
	s.submit(`{"type":"b","tags":{"x":"y"}}`)
	s.submit(`{"type":"b"}`)
	for _, body := range []string{`{"tags":{"x":"y"}}`, `{"types":["b"]}`} { // neither needs "all"
		if got := s.want(200, "POST", "/v1/jobs/cancel", body); got.at("cancelled") != jsonNumber("1") {
			t.Errorf("%s: %s", body, got.text)
		}
	}
	got := s.want(200, "POST", "/v1/jobs/cancel", `{"queue":"q","states":["SCHEDULED"],"reason":"enough"}`)
	if got.at("cancelled") != jsonNumber("3") {
		t.Errorf("%s", got.text)
	}
	if got := s.want(200, "POST", "/v1/jobs/cancel", `{"all":true}`); got.at("cancelled") != jsonNumber("1") {
		t.Errorf("%s", got.text)
	}
}

func TestPurging(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	submit := func(queue string) string {
		return s.want(201, "POST", "/v1/jobs", `{"type":"a","queue":"`+queue+`"}`).str("id")
	}
	live, ended, other := submit("a"), submit("a"), submit("b")
	s.want(200, "POST", "/v1/jobs/"+ended+"/cancel")
	s.want(200, "POST", "/v1/jobs/"+other+"/cancel")
	if got := s.want(409, "DELETE", "/v1/jobs/"+live); got.str("code") != "illegal_move" {
		t.Errorf("%s", got.text)
	}
	s.want(204, "DELETE", "/v1/jobs/"+ended)
	s.want(404, "DELETE", "/v1/jobs/"+ended)
	s.want(404, "GET", "/v1/jobs/"+ended)
	s.want(404, "GET", "/v1/jobs/"+ended+"/events")
	s.want(400, "DELETE", "/v1/jobs/x")
	for _, body := range []string{`{}`, `{"states":[]}`, `{"states":["SCHEDULED"]}`, `{"states":["X"]}`, `{"states":["FAILED"],"queue":"a b"}`, `{"states":["FAILED"],"all":true}`} {
		s.want(400, "POST", "/v1/jobs/purge", body)
	}
	if got := s.want(200, "POST", "/v1/jobs/purge", `{"states":["CANCELLED","FAILED"],"queue":"a"}`); got.text != "{\"purged\":0}\n" {
		t.Errorf("%s", got.text)
	}
	for _, body := range []string{`{"states":["CANCELLED"],"types":["z"]}`, `{"states":["CANCELLED"],"tags":{"x":"y"}}`} {
		if got := s.want(200, "POST", "/v1/jobs/purge", body); got.at("purged") != jsonNumber("0") {
			t.Errorf("%s: %s", body, got.text)
		}
	}
	if got := s.want(200, "POST", "/v1/jobs/purge", `{"states":["CANCELLED"]}`); got.at("purged") != jsonNumber("1") {
		t.Errorf("%s", got.text)
	}
	s.want(404, "GET", "/v1/jobs/"+other)
	s.want(200, "GET", "/v1/jobs/"+live)
}

func TestUnknownAndMalformedIDs(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	const unknown = "00000000-0000-4000-8000-000000000000"
	for _, route := range []string{"GET ", "PATCH ", "POST /cancel", "POST /replay", "GET /events", "GET /explain", "GET /wait?timeout=10ms"} {
		method, suffix, _ := strings.Cut(route, " ")
		var body []string
		if method == "PATCH" {
			body = []string{`{"tags":{"a":"b"}}`}
		}
		if got := s.want(404, method, "/v1/jobs/"+unknown+suffix, body...); got.str("code") != "not_found" {
			t.Errorf("%s: %s", route, got.text)
		}
		if got := s.want(400, method, "/v1/jobs/not-an-id"+suffix, body...); got.str("code") != "invalid" || got.fields()[0] != "id" {
			t.Errorf("%s: %s", route, got.text)
		}
	}
}

func TestEventsAndExplain(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	id := s.submit(`{"type":"a","delay":"1h"}`)
	got := s.want(200, "GET", "/v1/jobs/"+id+"/events")
	if got.header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("content type %q", got.header.Get("Content-Type"))
	}
	lines := strings.Split(strings.TrimSpace(got.text), "\n")
	for i, want := range []string{"job.submitted", "job.delayed"} {
		var e map[string]any
		if err := decodeLoose(lines[i], &e); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"seq", "time", "entity", "type", "data"} {
			if e[name] == nil {
				t.Errorf("event %d has no %s", i, name)
			}
		}
		if e["type"] != want || e["entity"] != id || len(e) != 5 {
			t.Errorf("event %d is %s", i, lines[i])
		}
	}
	x := s.want(200, "GET", "/v1/jobs/"+id+"/explain")
	if x.str("cause") != "delay" || x.str("state") != "DELAYED" || x.str("summary") == "" || x.str("until") == "" || len(x.at("timeline").([]any)) != 2 {
		t.Errorf("%s", x.text)
	}
}

func TestWaitingForAJob(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	id := s.submit(`{"type":"a"}`)
	if got := s.want(200, "GET", "/v1/jobs/"+id+"/wait?timeout=1ms"); got.str("state") != "SCHEDULED" {
		t.Errorf("%s", got.text)
	}
	if got := s.want(200, "GET", "/v1/jobs/"+id+"/wait?timeout=0s"); got.str("state") != "SCHEDULED" {
		t.Errorf("%s", got.text)
	}
	for _, bad := range []string{"5", "soon", "-1s", "11m"} {
		s.want(400, "GET", "/v1/jobs/"+id+"/wait?timeout="+bad)
	}
	ended := make(chan reply, 1)
	go func() { ended <- s.do("GET", "/v1/jobs/"+id+"/wait?timeout=1m") }()
	_, l := s.claim("")
	s.want(200, "POST", lease(l, "complete"), `{"result":{"ok":true}}`)
	if got := <-ended; got.str("state") != "COMPLETED" || got.at("result", "ok") != true {
		t.Errorf("%s", got.text)
	}
	// A waiting call returns when the server is about to stop.
	id = s.submit(`{"type":"a"}`)
	go func() { ended <- s.do("GET", "/v1/jobs/"+id+"/wait?timeout=1m") }()
	claim := make(chan reply, 1)
	go func() { claim <- s.do("POST", "/v1/claim", `{"worker":"w","queues":["empty"],"wait":"1m"}`) }()
	for waiting := false; !waiting; time.Sleep(time.Millisecond) { // otherwise it would get the error of a stopping server
		workers, err := s.engine.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waiting = slices.ContainsFunc(workers, func(w gq.LiveWorker) bool { return w.Waiting > 0 })
	}
	s.face.Drain()
	if got := <-ended; got.status != 200 || got.str("state") != "SCHEDULED" {
		t.Errorf("%d %s", got.status, got.text)
	}
	if got := <-claim; got.status != 200 || len(got.at("jobs").([]any)) != 0 {
		t.Errorf("%d %s", got.status, got.text)
	}
}
