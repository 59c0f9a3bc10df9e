package native

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

// The members that a job and an event have in each view, copied by hand from the documents: for
// the job model the thirteen fields of section 10 and those of sections 1, 4, 6, 7, 8 and 9, for
// the queue semantics the names of its text. Any other member is an extension; redacted is the only
// one, and only in answers that leave something out.
var (
	jobModelMembers = map[string]string{
		"job": `id created_at updated_at state attempt scheduled_at started_at completed_at type priority tags correlation_id callback_url
			idempotency_key payload result dependencies timeouts previous_attempt_id failure redacted`,
		"event":        `id state updated_at attempt failure`,
		"dependencies": `type job_id`,
		"timeouts":     `execution visibility lifetime`,
		"failure":      `category message code`,
	}
	semanticsMembers = map[string]string{
		"job":   `id queue state reason retries MaxRetries retry_at lease_token lease_version LeaseExpiresAt LeaseTTL ExecutionTimeout redacted`,
		"event": `time id queue state trigger reason retry_at lease_token lease_version LeaseExpiresAt`,
	}
	jobModelStates  = strings.Fields(`PENDING SCHEDULED DELAYED RUNNING COMPLETED FAILED RETRYING DEAD_LETTER CANCELLED`)
	semanticsStates = strings.Fields(`Ready InFlight Failed Succeeded`)
)

// opaque are members whose content is the user's.
var opaque = []string{"payload", "result", "tags"}

// extensions lists the members of an object that a document does not have, within nested objects
// and lists too.
func extensions(members map[string]string, within string, object map[string]any) (all []string) {
	known := strings.Fields(members[within])
	for name, v := range object {
		if !slices.Contains(known, name) {
			all = append(all, within+"."+name)
		}
		if slices.Contains(opaque, name) {
			continue
		}
		list, ok := v.([]any)
		if !ok {
			list = []any{v}
		}
		for _, v := range list {
			if nested, ok := v.(map[string]any); ok {
				all = append(all, extensions(members, name, nested)...)
			}
		}
	}
	return all
}

// described resolves the schema of an object and lists its members and those of its nested
// objects.
func described(t *testing.T, document reply, within string, schema any, into map[string]string) {
	t.Helper()
	m, _ := schema.(map[string]any)
	if ref, ok := m["$ref"].(string); ok {
		m, _ = document.at("components", "schemas", strings.TrimPrefix(ref, "#/components/schemas/")).(map[string]any)
	}
	if items, ok := m["items"]; ok {
		described(t, document, within, items, into)
		return
	}
	properties, _ := m["properties"].(map[string]any)
	if len(properties) == 0 {
		return
	}
	if m["additionalProperties"] != false {
		t.Errorf("%s may have any member", within)
	}
	into[within] = strings.Join(slices.Sorted(maps.Keys(properties)), " ")
	for name, p := range properties {
		if !slices.Contains(opaque, name) {
			described(t, document, name, p, into)
		}
	}
}

func sorted(members string) string {
	return strings.Join(slices.Sorted(strings.FieldsSeq(members)), " ")
}

// The description of the API gives a job in a view the members and states of the document, to the
// innermost object.
func TestViewsAreDescribed(t *testing.T) {
	spec.Covers(t, "J-03", "Q-21")
	_, s := newViews(t)
	document := s.want(200, "GET", "/openapi.json")
	for _, test := range []struct {
		name, prefix string
		members      map[string]string
		states       []string
	}{{"jobmodel", "Jobmodel", jobModelMembers, jobModelStates}, {"semantics", "Semantics", semanticsMembers, semanticsStates}} {
		form := "application/vnd.gopherqueue." + test.name + "+json"
		job := document.at("paths", "/v1/jobs/{id}", "get", "responses", "200", "content", form, "schema")
		listed := document.at("paths", "/v1/jobs", "get", "responses", "200", "content", form, "schema", "properties", "jobs", "items")
		if fmt.Sprint(job) != fmt.Sprint(listed) || job == nil {
			t.Errorf("%s: a job is %v, a listed one %v", test.name, job, listed)
		}
		got := map[string]string{}
		described(t, document, "job", job, got)
		described(t, document, "event", map[string]any{"$ref": "#/components/schemas/" + test.prefix + "Event"}, got)
		for within, members := range test.members {
			if got[within] != sorted(members) {
				t.Errorf("%s: %s has %s, want %s", test.name, within, got[within], sorted(members))
			}
		}
		if len(got) != len(test.members) {
			t.Errorf("%s: the objects are %v", test.name, slices.Sorted(maps.Keys(got)))
		}
		states, _ := document.at("components", "schemas", test.prefix+"Job", "properties", "state", "enum").([]any)
		if len(states) != len(test.states) {
			t.Errorf("%s: states %v", test.name, states)
		}
		for _, state := range states {
			if !slices.Contains(test.states, state.(string)) {
				t.Errorf("%s: state %v", test.name, state)
			}
		}
	}
}

// newViews returns a newsroom whose engine runs, and its server.
func newViews(t *testing.T) (*newsroom, *site) {
	t.Helper()
	n := newNewsroom(t, EventLimits{})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- n.engine.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the engine ended with %v", err)
		}
	})
	return n, &site{t: t, engine: n.engine, face: n.http, server: n.web, log: &logBuffer{}}
}

// lines decodes the answer of job-events.
func (r reply) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(r.text) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, v)
	}
	return all
}

// TestJobModelView goes through the life of a job that is held, started, renewed, checkpointed,
// retried and cancelled, and of its dependency and a workflow's signal, and reads, lists and
// follows them in the view: they have the states and members of the document and no others.
func TestJobModelView(t *testing.T) {
	spec.Covers(t, "J-03", "J-137")
	_, s := newViews(t)
	first := s.submit(`{"type":"a","queue":"first","payload":{"n":1}}`)
	_, l := s.claim(`,"queues":["first"]`)
	s.want(200, "POST", lease(l, "complete"), `{"result":{"ok":true}}`)
	id := s.submit(fmt.Sprintf(`{"type":"a","queue":"q","tags":{"k":"v"},"correlation_id":"c","callback_url":"https://example.com/x","priority":"HIGH",
		"requires":["gpu"],"cost_units":3,"attributes":{"x":"y"},"idempotency_key":"key","payload":{"n":1.10},"limit_key":"l","fair_key":"f",
		"requester":"r","tier":"t","max_fee":5,"depends_on":[{"kind":"AFTER","job":%q}],"policy":{"backoff":{"strategy":"constant","initial":"1h"}}}`, first))
	var seen []string
	check := func(when, state string) (job map[string]any) {
		t.Helper()
		got := s.want(200, "GET", "/v1/jobs/"+id+"?view=jobmodel")
		if form := got.header.Get("Content-Type"); form != "application/vnd.gopherqueue.jobmodel+json" {
			t.Errorf("%s: content type %s", when, form)
		}
		page := s.want(200, "GET", "/v1/jobs?queue=q&view=jobmodel&state="+state)
		listed, _ := page.at("jobs", 0).(map[string]any)
		if listed == nil || listed["id"] != id {
			t.Errorf("%s: state %s lists %s", when, state, page.text)
		}
		for _, other := range jobModelStates {
			if other != state && len(s.want(200, "GET", "/v1/jobs?queue=q&view=jobmodel&state="+other).at("jobs").([]any)) > 0 {
				t.Errorf("%s: it is also listed as %s", when, other)
			}
		}
		for _, job := range []map[string]any{got.body, listed} {
			if more := extensions(jobModelMembers, "job", job); len(more) > 0 {
				t.Errorf("%s: the job model has no %q", when, more)
			}
			if job["state"] != state || job["id"] != id || job["priority"] != "HIGH" || job["idempotency_key"] != "key" {
				t.Errorf("%s: want %s: %v", when, state, job)
			}
		}
		for _, r := range []reply{got, page} {
			if strings.Contains(r.text, "CLAIMED") || strings.Contains(r.text, "claimed") {
				t.Errorf("%s: %s", when, r.text)
			}
		}
		seen = append(seen, slices.Collect(maps.Keys(got.body))...)
		return got.body
	}
	if job := check("submitted", "SCHEDULED"); fmt.Sprint(job["payload"]) != "map[n:1.10]" ||
		fmt.Sprint(job["dependencies"]) != fmt.Sprintf("[map[job_id:%s type:AFTER]]", first) ||
		fmt.Sprint(job["timeouts"]) != "map[execution:30m0s lifetime:168h0m0s visibility:5m0s]" {
		t.Errorf("submitted: %v", job)
	}
	_, l = s.claim(`,"queues":["q"],"offers":["gpu"],"hold":true`)
	if job := check("held", "SCHEDULED"); job["attempt"] != jsonNumber("0") || job["updated_at"] != job["scheduled_at"] {
		t.Errorf("held: %v", job)
	}
	s.want(200, "POST", lease(l, "start"))
	s.want(200, "POST", lease(l, "heartbeat"), `{"progress":0.5,"note":"half","checkpoint":{"at":7}}`)
	check("renewed and checkpointed", "RUNNING")
	s.want(200, "POST", lease(l, "fail"), `{"category":"TEMPORARY","code":"bad","message":"no","retry_after":"2h"}`)
	if job := check("failed", "RETRYING"); fmt.Sprint(job["failure"]) != "map[category:TEMPORARY code:bad message:no]" || job["previous_attempt_id"] != l {
		t.Errorf("failed: %v", job)
	}
	s.want(200, "POST", "/v1/jobs/"+id+"/reschedule")
	_, again := s.claim(`,"queues":["q"],"offers":["gpu"]`)
	s.want(200, "POST", "/v1/jobs/"+id+"/cancel", `{"reason":"enough"}`)
	s.want(200, "POST", lease(again, "heartbeat"), `{}`)
	if job := check("asked to stop", "RUNNING"); job["previous_attempt_id"] != l || job["attempt"] != jsonNumber("2") {
		t.Errorf("asked to stop: %v", job)
	}
	s.want(200, "POST", lease(again, "release"), `{}`)
	check("cancelled", "CANCELLED")
	id = first
	if got := s.want(200, "GET", "/v1/jobs/"+first+"?view=jobmodel"); fmt.Sprint(got.at("result")) != "map[ok:true]" || got.str("state") != "COMPLETED" {
		t.Errorf("completed: %s", got.text)
	} else {
		seen = append(seen, slices.Collect(maps.Keys(got.body))...)
	}
	for name := range strings.FieldsSeq(jobModelMembers["job"]) {
		if name != "redacted" && !slices.Contains(seen, name) {
			t.Errorf("no job had the member %s", name)
		}
	}
}

// histories are the ways of the jobs of TestViewsOfEvents in each view.
var histories = map[string]map[string]string{
	"jobmodel": {
		"done":    "PENDING SCHEDULED RUNNING RETRYING SCHEDULED RUNNING COMPLETED",
		"lost":    "PENDING SCHEDULED RUNNING RETRYING SCHEDULED RUNNING DEAD_LETTER",
		"delayed": "PENDING DELAYED CANCELLED",
		"signal":  "PENDING SCHEDULED RUNNING COMPLETED",
	},
	"semantics": {
		"done":    "Ready InFlight Ready InFlight Succeeded",
		"lost":    "Ready InFlight InFlight InFlight Failed", // the second is the expiry
		"delayed": "Ready Failed",
		"signal":  "Ready InFlight Succeeded",
	},
}

// TestViewsOfEvents reads the history of jobs in the views: from the job, from the stream and
// from the socket.
func TestViewsOfEvents(t *testing.T) {
	spec.Covers(t, "J-03", "Q-21")
	n, s := newViews(t)
	ids := map[string]string{}
	ids["done"] = s.submit(`{"type":"t","queue":"done"}`)
	_, l := s.claim(`,"queues":["done"],"hold":true`)
	s.want(200, "POST", lease(l, "start"))
	s.want(200, "POST", lease(l, "heartbeat"), `{"checkpoint":1}`)
	s.want(200, "POST", lease(l, "fail"), `{"category":"TEMPORARY","message":"no"}`)
	s.want(200, "POST", "/v1/jobs/"+ids["done"]+"/reschedule")
	_, l = s.claim(`,"queues":["done"]`)
	s.want(200, "POST", lease(l, "complete"), `{}`)

	ids["lost"] = s.submit(`{"type":"t","queue":"lost","policy":{"preset":"semantics","max_attempts":1}}`)
	s.claim(`,"queues":["lost"],"ttl":"10ms"`)
	n.expired(ids["lost"])
	_, l = s.claim(`,"queues":["lost"]`)
	s.want(200, "POST", lease(l, "fail"), `{"category":"TEMPORARY","message":"no"}`)

	ids["delayed"] = s.submit(`{"type":"t","queue":"delayed","delay":"1h","tags":{"a":"b"}}`)
	s.want(200, "PATCH", "/v1/jobs/"+ids["delayed"], `{"tags":{"a":"c"}}`)
	s.want(200, "POST", "/v1/jobs/"+ids["delayed"]+"/cancel")

	flow := s.want(201, "POST", "/v1/workflows", `{"jobs":[{"ref":"go","signal_within":"1h"}]}`).str("id")
	ids["signal"] = s.want(200, "GET", "/v1/workflows/"+flow).str("jobs", 0, "id")
	if got := s.want(200, "GET", "/v1/jobs/"+ids["signal"]+"?view=jobmodel"); got.str("state") != "PENDING" || got.at("scheduled_at") != nil {
		t.Errorf("a signal that is waited for: %s", got.text)
	}
	s.want(200, "POST", "/v1/workflows/"+flow+"/signals/go", `{"value":1}`)
	if got := s.want(200, "GET", "/v1/jobs/"+ids["signal"]+"?view=jobmodel"); got.str("state") != "COMPLETED" || got.at("attempt") != jsonNumber("1") || got.at("started_at") == nil {
		t.Errorf("a signal that came: %s", got.text)
	}

	document := s.want(200, "GET", "/openapi.json")
	for name, members := range map[string]map[string]string{"jobmodel": jobModelMembers, "semantics": semanticsMembers} {
		for job, want := range histories[name] {
			check := func(from string, events []map[string]any) {
				t.Helper()
				var got []string
				for _, e := range events {
					if e["id"] != ids[job] {
						t.Errorf("%s, %s: an event of %v", name, from, e["id"])
					}
					if more := extensions(members, "event", e); len(more) > 0 {
						t.Errorf("%s, %s: the document has no %q", name, from, more)
					}
					got = append(got, e["state"].(string))
				}
				states := strings.Join(got, " ")
				if from != "history" { // which tells a start from its claim by what came before
					states = strings.ReplaceAll(states, "Ready InFlight InFlight Ready", "Ready InFlight Ready")
				}
				if states != want {
					t.Errorf("%s, %s of %s: %s, want %s", name, from, job, states, want)
				}
			}
			all := s.want(200, "GET", "/v1/jobs/"+ids[job]+"/events?view="+name)
			check("history", all.lines(t))
			if strings.Contains(strings.ToLower(all.text), "claimed") {
				t.Errorf("%s: %s", name, all.text)
			}
			events := len(all.lines(t))
			check("stream", n.viewStream(name, ids[job], events))
			check("socket", n.viewSocket(document, name, ids[job], events))
		}
	}
	if got := s.want(200, "GET", "/v1/jobs/"+ids["lost"]+"/events?view=semantics").lines(t); got[2]["trigger"] != "Lease Timeout" || got[4]["trigger"] != "Nack" {
		t.Errorf("the lost job: %v", got)
	}
}

// expired waits until the store has recorded that the lease of a job ran out.
func (n *newsroom) expired(job string) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), time.Minute)
	defer cancel()
	found := errors.New("found")
	err := n.engine.Follow(ctx, 0, func(events []gq.Event) error {
		for i := range events {
			if events[i].Job.String() == job && events[i].LeaseState == gq.LeaseExpired {
				return found
			}
		}
		return nil
	})
	if !errors.Is(err, found) {
		n.Fatalf("no lease of job %s ran out: %v", job, err)
	}
}

// viewStream reads events of a job from the stream.
func (n *newsroom) viewStream(name, job string, count int) (all []map[string]any) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, n.web.URL+"/v1/events?after=0&view="+name+"&job="+job, nil)
	if err != nil {
		n.Fatal(err)
	}
	answer, err := n.web.Client().Do(r)
	if err != nil {
		n.Fatal(err)
	}
	defer answer.Body.Close()
	event := ""
	for lines := bufio.NewScanner(answer.Body); len(all) < count && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			event = text
		}
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			var v map[string]any
			if err := json.Unmarshal([]byte(text), &v); err != nil || v["state"] != event {
				n.Fatalf("%v: the event %s: %s", err, event, text)
			}
			all = append(all, v)
		}
	}
	return all
}

// conforms reports whether a value is what a schema of a document describes. It knows what
// the schemas of events have.
func conforms(document reply, schema, value any) bool {
	s, _ := schema.(map[string]any)
	if ref, ok := s["$ref"].(string); ok {
		return conforms(document, document.at("components", "schemas", strings.TrimPrefix(ref, "#/components/schemas/")), value)
	}
	if forms, ok := s["oneOf"].([]any); ok {
		fitting := 0
		for _, form := range forms {
			if conforms(document, form, value) {
				fitting++
			}
		}
		return fitting == 1
	}
	if all, ok := s["enum"].([]any); ok && !slices.Contains(all, value) {
		return false
	}
	switch s["type"] {
	case "string":
		_, ok := value.(string)
		return ok
	case "integer", "number":
		_, ok := value.(float64)
		return ok
	case "boolean":
		_, ok := value.(bool)
		return ok
	case "object":
	default: // it may be anything
		return true
	}
	members, ok := value.(map[string]any)
	properties, _ := s["properties"].(map[string]any)
	for name, member := range members {
		form, described := properties[name]
		if !described {
			form = s["additionalProperties"]
		}
		ok = ok && form != nil && form != false && conforms(document, form, member)
	}
	required, _ := s["required"].([]any)
	for _, name := range required {
		_, given := members[name.(string)]
		ok = ok && given
	}
	return ok
}

// viewSocket reads events of a job from the WebSocket.
func (n *newsroom) viewSocket(document reply, name, job string, count int) (all []map[string]any) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), time.Minute)
	defer cancel()
	schema := document.at("paths", "/v1/events/ws", "get", "responses", "101", "content", "application/json", "schema")
	conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(n.web.URL, "http")+"/v1/events/ws?after=0&view="+name+"&job="+job, nil) //nolint:bodyclose // closed by the library
	if err != nil {
		n.Fatal(err)
	}
	defer func() { _ = conn.CloseNow() }()
	for len(all) < count {
		_, text, err := conn.Read(ctx)
		if err != nil {
			n.Fatal(err)
		}
		var v map[string]any
		if err := json.Unmarshal(text, &v); err != nil {
			n.Fatal(err)
		}
		if !conforms(document, schema, v) {
			n.Errorf("the description of the API has no message %s", text)
		}
		delete(v, "seq") // of the message, see TestSocketsInAViewResume
		all = append(all, v)
	}
	return all
}

// A socket in a view that was cut goes on after the seq of its last message. The entries of a
// signal share one, which only the last of them has.
func TestSocketsInAViewResume(t *testing.T) {
	n, s := newViews(t)
	flow := s.want(201, "POST", "/v1/workflows", `{"jobs":[{"ref":"go","signal_within":"1h"}]}`).str("id")
	s.want(200, "POST", "/v1/workflows/"+flow+"/signals/go", `{"value":1}`)
	s.submit(`{"type":"t"}`)
	read := func(query string, count int) (states []string, seqs []uint64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		conn, _, err := websocket.Dial(ctx, "ws"+strings.TrimPrefix(n.web.URL, "http")+"/v1/events/ws?"+query, nil) //nolint:bodyclose // closed by the library
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.CloseNow() }()
		for range count {
			_, text, err := conn.Read(ctx)
			var v struct {
				State string
				Seq   uint64
			}
			if err == nil {
				err = json.Unmarshal(text, &v)
			}
			if err != nil {
				t.Fatal(err)
			}
			states, seqs = append(states, v.State), append(seqs, v.Seq)
		}
		return states, seqs
	}
	_, want := read("after=0", 4) // submitted, completed; submitted, scheduled
	for name, all := range map[string]struct {
		states string
		seqs   []uint64
	}{
		"jobmodel":  {"PENDING SCHEDULED RUNNING COMPLETED PENDING SCHEDULED", []uint64{want[0], 0, 0, want[1], want[2], want[3]}},
		"semantics": {"Ready InFlight Succeeded Ready", []uint64{want[0], 0, want[1], want[2]}},
	} {
		states, seqs := read("after=0&view="+name, len(all.seqs))
		if strings.Join(states, " ") != all.states || !slices.Equal(seqs, all.seqs) {
			t.Errorf("%s: %v %v, want %s %v", name, states, seqs, all.states, all.seqs)
		}
		for i, seq := range seqs[:len(seqs)-1] {
			if seq == 0 {
				continue
			}
			if rest, _ := read(fmt.Sprintf("after=%d&view=%s", seq, name), len(seqs)-i-1); !slices.Equal(rest, states[i+1:]) {
				t.Errorf("%s: after %d come %v, want %v", name, seq, rest, states[i+1:])
			}
		}
	}
}

// TestSemanticsView goes through the four states: with two jobs, one of which is claimed, loses
// its lease, is claimed again, nacked and acknowledged.
func TestSemanticsView(t *testing.T) {
	spec.Covers(t, "Q-21", "Q-25", "Q-26", "Q-27", "Q-28", "Q-96")
	n, s := newViews(t)
	id := s.submit(`{"type":"t","queue":"q","policy":{"preset":"semantics","backoff":{"strategy":"constant","initial":"1h","max":"1h","jitter":"none"}}}`)
	other := s.submit(`{"type":"t","queue":"q","delay":"1h","policy":{"preset":"semantics"}}`)
	check := func(when, state string) reply {
		t.Helper()
		got := s.want(200, "GET", "/v1/jobs/"+id+"?view=semantics")
		if more := extensions(semanticsMembers, "job", got.body); len(more) > 0 || got.str("state") != state || got.at("MaxRetries") != jsonNumber("3") {
			t.Errorf("%s: extensions %q, want %s: %s", when, more, state, got.text)
		}
		for _, one := range semanticsStates {
			listed := s.want(200, "GET", "/v1/jobs?queue=q&view=semantics&state="+one)
			if strings.Contains(listed.text, id) != (one == state) || strings.Contains(listed.text, other) != (one == "Ready") {
				t.Errorf("%s: %s lists %s", when, one, listed.text)
			}
		}
		if all := s.want(200, "GET", "/v1/jobs?queue=q&view=semantics"); len(all.at("jobs").([]any)) != 2 {
			t.Errorf("%s: the list is %s", when, all.text)
		}
		if both := s.want(200, "GET", "/v1/jobs?queue=q&view=semantics&state=Ready,InFlight,Succeeded&limit=1&order=oldest"); len(both.at("jobs").([]any)) != 1 || both.str("next_cursor") == "" {
			t.Errorf("%s: a page of one is %s", when, both.text)
		}
		return got
	}
	if got := check("enqueued", "Ready"); got.str("LeaseTTL") != "5s" || got.at("retries") != jsonNumber("0") || got.at("lease_token") != nil || got.at("retry_at") != nil {
		t.Errorf("enqueued: %s", got.text)
	}
	_, l := s.claim(`,"queues":["q"],"ttl":"10ms"`)
	n.expired(id)
	got := check("expired", "InFlight")
	if expires, err := time.Parse(time.RFC3339, got.str("LeaseExpiresAt")); err != nil || !expires.Before(time.Now()) || got.str("lease_token") != l || got.at("lease_version") != jsonNumber("1") {
		t.Errorf("expired: %v, %s", err, got.text)
	}
	s.want(409, "POST", lease(l, "complete"), `{}`)
	_, l = s.claim(`,"queues":["q"]`)
	if got := check("reclaimed", "InFlight"); got.str("lease_token") != l || got.at("lease_version") != jsonNumber("2") || got.at("retries") != jsonNumber("0") {
		t.Errorf("reclaimed: %s", got.text)
	}
	s.want(200, "POST", lease(l, "heartbeat"), `{"progress":0.5,"note":"half","checkpoint":{"at":7}}`)
	check("renewed", "InFlight")
	s.want(200, "POST", lease(l, "fail"), `{"category":"TEMPORARY","message":"no"}`)
	if got := check("nacked", "Ready"); got.str("retry_at") == "" || got.at("retries") != jsonNumber("1") || got.at("lease_token") != nil {
		t.Errorf("nacked: %s", got.text)
	}
	s.want(200, "POST", "/v1/jobs/"+id+"/reschedule")
	_, l = s.claim(`,"queues":["q"]`)
	s.want(200, "POST", lease(l, "complete"), `{}`)
	check("acknowledged", "Succeeded")

	id = s.submit(`{"type":"t","queue":"r","policy":{"preset":"semantics"}}`)
	s.want(200, "POST", "/v1/jobs/"+id+"/cancel")
	if got := s.want(200, "GET", "/v1/jobs/"+id+"?view=semantics"); got.str("state") != "Failed" || got.str("reason") != "cancelled" {
		t.Errorf("cancelled: %s", got.text)
	}
}

// A view that does not exist is refused with those that do, and so are states of another view.
func TestUnknownViews(t *testing.T) {
	_, s := newViews(t)
	id := s.submit(`{"type":"t"}`)
	for _, path := range []string{
		"/v1/jobs?view=x", "/v1/jobs/" + id + "?view=x", "/v1/jobs/" + id + "/events?view=x", "/v1/events?view=x", "/v1/events/ws?view=x",
		"/v1/jobs?view=", "/v1/jobs/" + id + "?view=", "/v1/jobs/" + id + "/wait?view=", "/v1/jobs/" + id + "/events?view=", "/v1/events?view=", "/v1/events/ws?view=",
	} {
		got := s.want(400, "GET", path)
		if !slices.Equal(got.fields(), []string{"view"}) || !strings.Contains(got.text, "[semantics jobmodel]") {
			t.Errorf("%s: %s", path, got.text)
		}
	}
	for query, names := range map[string]string{
		"view=jobmodel&state=CLAIMED": "PENDING", "view=jobmodel&state=Ready": "PENDING", "view=semantics&state=RUNNING": "Ready", "state=Ready": "CLAIMED",
	} {
		if got := s.want(400, "GET", "/v1/jobs?"+query); !slices.Equal(got.fields(), []string{"state"}) || !strings.Contains(got.text, names) {
			t.Errorf("%s: %s", query, got.text)
		}
	}
	if got := s.want(400, "GET", "/v1/jobs/"+id+"?view=jobmodel&policy=true"); !slices.Equal(got.fields(), []string{"policy"}) {
		t.Errorf("policy: %s", got.text)
	}
	for _, name := range []string{"jobmodel", "semantics"} {
		if got := s.want(400, "GET", "/v1/jobs/"+id+"?view="+name+"&checkpoint=true"); !slices.Equal(got.fields(), []string{"checkpoint"}) {
			t.Errorf("checkpoint: %s", got.text)
		}
	}
}

// TestProgressReachesFollowers follows two jobs over server-sent events and over gRPC: each
// follower gets the newest progress of each job, with its type and queue.
func TestProgressReachesFollowers(t *testing.T) {
	n, s := newViews(t)
	want := map[string]string{}
	for i, kind := range []string{"resize", "encode"} {
		id := s.submit(fmt.Sprintf(`{"type":%q,"queue":%q}`, kind, kind))
		want[id] = fmt.Sprintf("%s %s 0.%d5 row %d", kind, kind, i, i)
	}
	type told struct{ id, text string }
	followers := map[string]func() (told, error){}
	next, closing := n.sse("")
	defer closing()
	followers["server-sent events"] = func() (told, error) {
		for {
			e, err := next()
			if err != nil || e.Type == gq.EventProgress {
				return told{e.Entity, fmt.Sprintf("%s %s %v %s", e.Data.Queue, e.Data.JobType, deref(e.Data.Progress), e.Data.Note)}, err
			}
		}
	}
	stream, err := n.events.Subscribe(t.Context(), &pb.SubscribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var buffer []*pb.Event
	followers["gRPC"] = func() (told, error) {
		for {
			for len(buffer) == 0 {
				m, err := stream.Recv()
				if err != nil {
					return told{}, err
				}
				buffer = m.GetEvents()
			}
			e := buffer[0]
			if buffer = buffer[1:]; e.GetType() == pb.EventType_EVENT_TYPE_JOB_PROGRESS {
				return told{e.GetJobId(), fmt.Sprintf("%s %s %v %s", e.GetQueue(), e.GetJobType(), e.GetProgress(), e.GetNote())}, nil
			}
		}
	}
	for i, queue := range []string{"resize", "encode"} {
		_, l := s.claim(fmt.Sprintf(`,"queues":[%q]`, queue))
		s.want(200, "POST", lease(l, "heartbeat"), fmt.Sprintf(`{"progress":0.%d5,"note":"row %d"}`, i, i))
	}
	for name, follow := range followers {
		got := map[string]string{}
		for len(got) < len(want) {
			e, err := follow()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			got[e.id] = e.text
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func deref(p *float64) float64 {
	if p == nil {
		return -1
	}
	return *p
}
