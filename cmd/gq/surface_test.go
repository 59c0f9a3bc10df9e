package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// Calls everything that the built program offers, once correctly and once incorrectly:
// every route of /openapi.json, every RPC that reflection lists, every command. One
// without a row fails.

// A shape lists the members that a JSON object must have, as name:kind, where a kind is
// s, n, b, o or a: a string, a number, a boolean, an object or an array.
const (
	jobShape      = "id:s queue:s type:s state:s priority:s attempt:n bound:n created_at:s updated_at:s policy:o"
	problemShape  = "type:s title:s status:n code:s detail:s request_id:s"
	queueShape    = "name:s paused:b max_running:n max_depth:n policy:o"
	scheduleShape = "name:s every:s paused:b job:o next_at:s fired:n"
	flowShape     = "id:s status:s jobs:a text:s"
	explainShape  = "job:s queue:s state:s cause:s summary:s timeline:a"
	tokenShape    = "id:s name:s grants:a created_at:s"
	statsShape    = "queues:a total:o live:n held:n workers:n"
	pageShape     = "jobs:a next_cursor:s"
	providerShape = "id:s status:s capabilities:a stake:n health_ppb:n eligible:b leases_active:n"
)

// misshapen lists what an object lacks.
func misshapen(object map[string]any, shape string) (lacks []string) {
	for member := range strings.FieldsSeq(shape) {
		name, kind, _ := strings.Cut(member, ":")
		var ok bool
		switch v := object[name]; kind {
		case "s":
			_, ok = v.(string)
		case "n":
			_, ok = v.(float64)
		case "b":
			_, ok = v.(bool)
		case "o":
			_, ok = v.(map[string]any)
		case "a":
			_, ok = v.([]any)
		}
		if !ok {
			lacks = append(lacks, member)
		}
	}
	return lacks
}

// surfaceScene creates what calls refer to: a waiting, a dead, a held and a running job,
// a queue and a schedule.
func (c *castle) surfaceScene() *strings.Replacer {
	c.t.Helper()
	queue := fmt.Sprintf("q%d", time.Now().UnixNano())
	submit := func() string {
		return c.must("POST", "/v1/jobs", fmt.Sprintf(`{"type":"t","queue":%q,"policy":{"max_attempts":1}}`, queue))["id"].(string)
	}
	claim := func(hold bool) string {
		out := c.must("POST", "/v1/claim", fmt.Sprintf(`{"worker":"w","queues":[%q],"hold":%t}`, queue, hold))
		return cmdtest.Member(out["jobs"].([]any)[0].(map[string]any), "lease", "id").(string)
	}
	dead := submit()
	c.must("POST", "/v1/leases/"+claim(false)+"/fail", `{"message":"down"}`)
	submit()
	held := claim(true)
	submit()
	lease := claim(false)
	c.must("PUT", "/v1/schedules/"+queue, `{"every":"1h","job":{"type":"t"}}`)
	flow := func() string {
		return c.must("POST", "/v1/workflows", fmt.Sprintf(`{"jobs":[{"ref":"go","queue":%q,"signal_within":"1h"}]}`, queue))["id"].(string)
	}
	waits, over := flow(), flow()
	c.must("POST", "/v1/workflows/"+over+"/cancel", `{}`)
	file := filepath.Join(c.t.TempDir(), "flow.json")
	if err := os.WriteFile(file, []byte(`{"jobs":[{"ref":"more","type":"t"}]}`), 0o600); err != nil {
		c.t.Fatal(err)
	}
	retired := queue + "-retired"
	for _, id := range []string{queue, retired} {
		c.must("POST", "/api/matching/providers", fmt.Sprintf(`{"id":%q,"capabilities":["QUANTUM"],"stake":10000,"attestation_expires_at":8589934591}`, id))
	}
	c.must("POST", "/api/matching/providers/"+retired+"/status", `{"status":"RETIRED"}`)
	c.must("POST", "/v1/jobs", fmt.Sprintf(`{"type":"t","queue":"%s-unserved"}`, queue)) // w claims from all other queues
	matched := c.must("POST", "/api/matching/jobs", `{"kind":"AI"}`)["id"].(string)
	return strings.NewReplacer("$PROVIDER", queue, "$RETIRED", retired, "$MATCHED", matched, "$FLOWFILE", file, "$FLOW", waits, "$OVER", over, "$NOFLOW", "0199a5c0-7d1e-7c3a-9f00-2b6d1c5e8a01", "$QUEUE", queue, "$LIVE", submit(), "$DEAD", dead, "$HELD", held, "$LEASE", lease, "$NONE", unknownID,
		"$FILE", filepath.Join(c.t.TempDir(), "gone"))
}

// routeRow has a correct request and an incorrect one.
type routeRow struct {
	body   string // or ?query
	status int    // 200 unless given
	shape  string // "" is none
	bad    string // path and body of the incorrect one: "/v1/jobs/x" or "{}"; "" is none
	fails  int    // its status; 400 unless given
}

var routeRows = map[string]routeRow{
	"GET /healthz": {shape: "status:s"},
	"GET /readyz":  {shape: "status:s"},

	"POST /v1/jobs":                 {body: `{"type":"t"}`, status: 201, shape: jobShape, bad: `{"type":5}`},
	"GET /v1/jobs":                  {body: `?queue=$QUEUE&type=t&tag=a=b`, shape: pageShape, bad: `?limit=100000`},
	"POST /v1/jobs/batch":           {body: `{"jobs":[{"type":"t"}]}`, shape: "jobs:a", bad: `{"jobs":[]}`},
	"POST /v1/jobs/cancel":          {body: `{"queue":"$QUEUE"}`, shape: "cancelled:n requested:n finished:n", bad: `{}`},
	"POST /v1/jobs/purge":           {body: `{"queue":"$QUEUE","states":["DEAD_LETTER"]}`, shape: "purged:n", bad: `{}`},
	"POST /v1/jobs/replay":          {body: `{"queue":"$QUEUE","states":["DEAD_LETTER"]}`, shape: "jobs:a", bad: `{}`},
	"POST /v1/jobs/count":           {body: `{"queue":"$QUEUE"}`, shape: "jobs:n", bad: `{"states":["NOPE"]}`},
	"GET /v1/jobs/{id}":             {shape: jobShape, bad: "/v1/jobs/$NONE", fails: 404},
	"PATCH /v1/jobs/{id}":           {body: `{"tags":{"a":"b"}}`, shape: jobShape, bad: `{"state":"COMPLETED"}`},
	"DELETE /v1/jobs/{id}":          {status: 204, bad: "/v1/jobs/$LIVE", fails: 409},
	"POST /v1/jobs/{id}/cancel":     {shape: jobShape, bad: "/v1/jobs/$DEAD/cancel", fails: 409},
	"POST /v1/jobs/{id}/replay":     {status: 201, shape: jobShape + " replay_of:s", bad: "/v1/jobs/$LIVE/replay", fails: 409},
	"POST /v1/jobs/{id}/edit":       {body: `{"queue":"$QUEUE"}`, status: 201, shape: jobShape, bad: `{}`},
	"POST /v1/jobs/{id}/reschedule": {shape: jobShape, bad: "/v1/jobs/$DEAD/reschedule", fails: 409},
	"GET /v1/jobs/{id}/events":      {shape: "seq:n time:s entity:s type:s data:o", bad: "/v1/jobs/x/events"},
	"GET /v1/jobs/{id}/explain":     {shape: explainShape, bad: "/v1/jobs/$NONE/explain", fails: 404},
	"GET /v1/jobs/{id}/wait":        {body: `?timeout=1ms`, shape: jobShape, bad: `?timeout=soon`},
	"POST /v1/claim":                {body: `{"worker":"w","queues":["$QUEUE"]}`, shape: "jobs:a", bad: `{"worker":""}`},
	"POST /v1/leases/{id}/start":    {shape: jobShape + " lease:o", bad: "/v1/leases/x/start", fails: 409},

	"POST /v1/leases/{id}/heartbeat": {body: `{"progress":0.5}`, shape: jobShape + " lease:o progress:n", bad: `{"progress":5}`},
	"POST /v1/leases/{id}/complete":  {body: `{"result":1}`, shape: jobShape + " lease:o", bad: `{"result":1,"version":99}`, fails: 409},
	"POST /v1/leases/{id}/fail":      {body: `{"message":"x"}`, shape: jobShape + " failure:o", bad: `{"category":"BAD"}`},
	"POST /v1/leases/{id}/release":   {body: `{}`, shape: jobShape, bad: `{"delay":"-1s"}`},

	"GET /v1/queues":                      {shape: "queues:a next_cursor:s", bad: `?limit=0`},
	"GET /v1/queues/{name}":               {shape: queueShape + " counts:o", bad: "/v1/queues/none", fails: 404},
	"PUT /v1/queues/{name}":               {body: `{"max_depth":1000}`, shape: queueShape, bad: `{"max_depth":-1}`},
	"PATCH /v1/queues/{name}":             {body: `{"max_depth":1000}`, shape: queueShape, bad: `{"depth":1}`},
	"POST /v1/queues/{name}/declare":      {body: `{"max_running":3}`, shape: queueShape, bad: `{"max_running":-3}`},
	"POST /v1/queues/{name}/pause":        {shape: queueShape, bad: "/v1/queues/a%20b/pause"},
	"POST /v1/queues/{name}/resume":       {shape: queueShape, bad: "/v1/queues/none/resume", fails: 404},
	"DELETE /v1/queues/{name}":            {status: 409, shape: problemShape, bad: "/v1/queues/none", fails: 404}, // without live jobs: TestDeleteQueue
	"GET /v1/queues/{name}/keys":          {shape: "keys:a next_cursor:s", bad: `?limit=0`},
	"PUT /v1/queues/{name}/keys/{key}":    {body: `{"limit":5}`, shape: "queue:s key:s limit:n updated_at:s", bad: `{}`},
	"DELETE /v1/queues/{name}/keys/{key}": {status: 404, shape: problemShape, bad: "/v1/queues/none/keys/k", fails: 404}, // of a key with limits: TestQueueKeys
	"GET /v1/queues/{name}/history":       {shape: "points:a", bad: `?step=7m`},
	"GET /v1/history":                     {shape: "points:a", bad: `?step=7m`},
	"GET /v1/activity":                    {shape: "queues:a", bad: `?queue=a%20b`},
	"GET /v1/pools":                       {shape: "pools:a"},
	"PUT /v1/pools/{name}":                {body: `{"capacity":5}`, shape: "name:s capacity:n", bad: `{"capacity":-5}`},

	"POST /v1/workflows":                     {body: `{"jobs":[{"ref":"a","type":"t"}]}`, status: 201, shape: "id:s", bad: `{"jobs":[{"type":"t"}]}`},
	"GET /v1/workflows":                      {shape: "workflows:a", bad: `?limit=101`},
	"GET /v1/workflows/{id}/graph.svg":       {shape: "text:<svg ", bad: "/v1/workflows/$NOFLOW/graph.svg", fails: 404},
	"GET /v1/workflows/{id}/graph.txt":       {shape: "text:gq.signal", bad: "/v1/workflows/$NOFLOW/graph.txt", fails: 404},
	"GET /v1/workflows/{id}":                 {shape: flowShape, bad: "/v1/workflows/$NOFLOW", fails: 404},
	"POST /v1/workflows/{id}/cancel":         {shape: "cancelled:n requested:n finished:n", bad: "/v1/workflows/$NOFLOW/cancel", fails: 404},
	"POST /v1/workflows/{id}/retry":          {shape: flowShape, bad: "/v1/workflows/$FLOW/retry", fails: 409},
	"POST /v1/workflows/{id}/jobs":           {body: `{"jobs":[{"ref":"a","type":"t"}]}`, shape: flowShape, bad: `{"jobs":[{"type":"t"}]}`},
	"POST /v1/workflows/{id}/signals/{name}": {body: `{"value":1}`, shape: "id:s state:s", bad: "/v1/workflows/$FLOW/signals/none", fails: 404},

	"GET /v1/inbox":                      {shape: "waiting:n refused:n submissions:a", bad: "/v1/inbox?limit=x"},
	"POST /v1/inbox/retry":               {body: `{"all":true}`, shape: "submissions:n", bad: `{}`},
	"POST /v1/inbox/discard":             {body: `{"all":true}`, shape: "submissions:n", bad: `{}`},
	"GET /v1/schedules":                  {shape: "schedules:a"},
	"GET /v1/schedules/{name}":           {shape: scheduleShape, bad: "/v1/schedules/none", fails: 404},
	"PUT /v1/schedules/{name}":           {body: `{"every":"1h","job":{"type":"t"}}`, shape: scheduleShape, bad: `{"cron":"x","job":{"type":"t"}}`},
	"DELETE /v1/schedules/{name}":        {status: 204, bad: "/v1/schedules/none", fails: 404},
	"POST /v1/schedules/{name}/trigger":  {shape: "slot:s", bad: "/v1/schedules/none/trigger", fails: 404},
	"POST /v1/schedules/{name}/backfill": {body: `{"from":"2020-01-01T00:00:00Z","to":"2020-01-01T01:00:00Z"}`, shape: "slots:n missing:n submitted:n", bad: `{"from":"2020-01-01T00:00:00Z"}`},
	"POST /v1/schedules/{name}/declare":  {body: `{"every":"1h","job":{"type":"t"}}`, shape: scheduleShape, bad: `{"cron":"x","job":{"type":"t"}}`},
	"POST /v1/schedules/{name}/pause":    {shape: scheduleShape, bad: "/v1/schedules/none/pause", fails: 404},
	"POST /v1/schedules/{name}/resume":   {shape: scheduleShape, bad: "/v1/schedules/none/resume", fails: 404},

	"GET /v1/workers":           {shape: "workers:a"},
	"DELETE /v1/workers/{name}": {status: 204}, // of a worker that holds jobs: TestWorkersAndStats
	"GET /v1/stats":             {shape: statsShape},
	"GET /v1/events":            {body: "?after=x", status: 400, shape: problemShape}, // correct call: TestSubscribe
	"GET /v1/events/ws":         {body: "?after=x", status: 400, shape: problemShape},

	"POST /v1/tokens":                         {body: `{"name":"$QUEUE","grants":[{"scopes":["read"],"queues":["*"]}]}`, status: 201, shape: tokenShape + " token:s", bad: `{"name":"x"}`},
	"GET /v1/tokens":                          {shape: "tokens:a"},
	"GET /v1/audit":                           {shape: "entries:a next_cursor:s", bad: "?limit=0"},
	"DELETE /v1/tokens/{name}":                {status: 404, shape: problemShape}, // existing one: TestTokensOfAServer
	"GET /v1/webhooks/deliveries":             {shape: "deliveries:a next_cursor:s", bad: "?limit=0"},
	"POST /v1/webhooks/deliveries/{id}/retry": {status: 404, shape: problemShape}, // existing one: TestDeadLetter
	"GET /v1/webhooks/secret":                 {shape: "secret:s"},
	"POST /v1/backups":                        {status: 400, shape: problemShape}, // correct call: TestBackupOfAServer
}

func TestEveryRoute(t *testing.T) {
	c := newCastle(t)
	var there []string
	for path, item := range c.must("GET", "/openapi.json", "")["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			there = append(there, strings.ToUpper(method)+" "+path)
		}
	}
	allRows(t, "routes", there, routeRows)
	for name, row := range routeRows {
		scene := c.surfaceScene()
		method, path, _ := strings.Cut(name, " ")
		id := "$LIVE"
		switch {
		case strings.HasSuffix(path, "/start"):
			id = "$HELD"
		case strings.Contains(path, "/leases/"):
			id = "$LEASE"
		case method == http.MethodDelete || strings.HasSuffix(path, "/replay"):
			id = "$DEAD"
		case strings.HasSuffix(path, "/retry") && strings.Contains(path, "/workflows/"):
			id = "$OVER"
		case strings.Contains(path, "/workflows/"):
			id, path = "$FLOW", strings.Replace(path, "{name}", "go", 1)
		}
		path = strings.NewReplacer("{id}", id, "{name}", "$QUEUE").Replace(path)
		if row.bad != "" {
			at, body := path, row.bad
			if strings.HasPrefix(row.bad, "/") {
				at, body = row.bad, ""
			}
			c.answers(method, scene.Replace(at), scene.Replace(body), max(row.fails, 400), problemShape)
		}
		c.answers(method, scene.Replace(path), scene.Replace(row.body), max(row.status, 200), row.shape)
	}
	// Pages for people and collectors are not JSON.
	for path, want := range map[string]string{"/docs": "<!doctype html>", "/metrics": "# HELP"} {
		if code, text := c.text(bootstrap, "GET", path, ""); code != 200 || !strings.HasPrefix(text, want) {
			t.Errorf("GET %s: %d %.100s", path, code, text)
		}
	}
}

// TestRefusalsAreProblems checks that rejections have the form of every other error, even
// where a success would not be JSON.
func TestRefusalsAreProblems(t *testing.T) {
	c := newCastle(t)
	reader := c.must("POST", "/v1/tokens", `{"name":"r","grants":[{"scopes":["read"],"queues":["q"]}]}`)["token"].(string)
	for _, path := range []string{"/metrics", "/v1/events/ws", "/v1/events", "/v1/jobs", "/docs/none"} {
		code, text := c.text("gq_no_such_token", "GET", path, "")
		if code != 401 {
			t.Errorf("GET %s: %d", path, code)
		}
		c.shaped("GET "+path, text, problemShape)
	}
	code, text := c.text(reader, "GET", "/metrics", "")
	if code != 403 || !strings.Contains(text, `"code":"denied"`) {
		t.Errorf("GET /metrics of a reader of one queue: %d %s", code, text)
	}
	c.shaped("GET /metrics", text, problemShape)
}

// answers makes a request and checks its status and shape; of several lines only the
// first counts.
func (c *castle) answers(method, path, body string, code int, shape string) {
	c.t.Helper()
	got, text := c.text(bootstrap, method, path, body)
	if got != code {
		c.t.Errorf("%s %s %s: %d %.300s, want %d", method, path, body, got, text, code)
		return
	}
	c.shaped(fmt.Sprintf("%s %s %s", method, path, body), text, shape)
}

func (c *castle) shaped(what, text, shape string) {
	c.t.Helper()
	if shape == "" {
		if text != "" {
			c.t.Errorf("%s answers %.300s", what, text)
		}
		return
	}
	if words, ok := strings.CutPrefix(shape, "text:"); ok { // no JSON
		if !strings.Contains(text, words) {
			c.t.Errorf("%s answers %.300s", what, text)
		}
		return
	}
	line, _, _ := strings.Cut(text, "\n")
	var object map[string]any
	if err := json.Unmarshal([]byte(line), &object); err != nil {
		c.t.Errorf("%s answers %.300s: %v", what, text, err)
	} else if lacks := misshapen(object, shape); len(lacks) > 0 {
		c.t.Errorf("%s lacks %q: %.600s", what, lacks, line)
	}
}

// rpcRow has a correct call and an incorrect one.
type rpcRow struct {
	body  string
	shape string // of the response in protojson, where 64-bit numbers are strings
	bad   string // "" is none
	code  codes.Code
}

const (
	protoJob   = "spec:o state:o"
	protoState = "id:s status:s"
)

var rpcRows = map[string]rpcRow{
	"JobsService/Submit":      {`{"spec":{"type":"t"}}`, "state:o", `{}`, codes.InvalidArgument},
	"JobsService/SubmitBatch": {`{"specs":[{"type":"t"}]}`, "submitted:a", "", 0},
	"JobsService/SubmitGraph": {`{"drafts":[{"spec":{"type":"t"}}]}`, "submitted:a", `{"drafts":[{}]}`, codes.InvalidArgument},
	"JobsService/Get":         {`{"id":"$LIVE"}`, protoJob, `{"id":"$NONE"}`, codes.NotFound},
	"JobsService/List":        {`{"query":{"queue":"$QUEUE"}}`, "jobs:a", `{"limit":"5000"}`, codes.InvalidArgument},
	"JobsService/Update":      {`{"id":"$LIVE","setTags":{"a":"b"}}`, protoJob, `{"id":"$DEAD","setTags":{"a":"b"}}`, codes.FailedPrecondition},
	"JobsService/Cancel":      {`{"id":"$LIVE"}`, protoState, `{"id":"$DEAD"}`, codes.FailedPrecondition},
	"JobsService/CancelWhere": {`{"query":{"queue":"$QUEUE"}}`, "cancelled:s", `{"query":{"statuses":[99]}}`, codes.InvalidArgument},
	"JobsService/Replay":      {`{"id":"$DEAD"}`, "state:o", `{"id":"$LIVE"}`, codes.FailedPrecondition},
	"JobsService/Edit":        {`{"id":"$LIVE","queue":"$QUEUE"}`, "state:o", `{"id":"$DEAD","queue":"$QUEUE"}`, codes.FailedPrecondition},
	"JobsService/Reschedule":  {`{"id":"$LIVE"}`, protoState, `{"id":"$DEAD"}`, codes.FailedPrecondition},
	"JobsService/ReplayWhere": {`{"query":{"queue":"$QUEUE","statuses":["STATUS_DEAD_LETTER"]}}`, "jobIds:a", `{}`, codes.InvalidArgument},
	"JobsService/CountWhere":  {`{"query":{"queue":"$QUEUE"}}`, "jobs:s", `{"query":{"statuses":[99]}}`, codes.InvalidArgument},
	"JobsService/Purge":       {`{"id":"$DEAD"}`, "", `{"id":"$LIVE"}`, codes.FailedPrecondition},
	"JobsService/PurgeWhere":  {`{"query":{"queue":"$QUEUE","statuses":["STATUS_DEAD_LETTER"]}}`, "purged:s", `{}`, codes.InvalidArgument},
	"JobsService/Wait":        {`{"id":"$DEAD"}`, protoJob, `{"id":"x"}`, codes.InvalidArgument},
	"JobsService/Explain":     {`{"id":"$LIVE"}`, "", `{"id":"$NONE"}`, codes.NotFound},
	"JobsService/History":     {`{"id":"$LIVE"}`, "events:a", `{"id":"$NONE"}`, codes.NotFound},
	"JobsService/Count":       {`{"queues":["$QUEUE"]}`, "queues:a", "", 0},
	"JobsService/Stats":       {`{}`, "queues:a", "", 0},

	"WorkersService/Claim":         {`{"worker":"w","queues":["$QUEUE"]}`, "jobs:a", `{}`, codes.InvalidArgument},
	"WorkersService/Start":         {`{"lease":{"id":"$HELD"}}`, protoState, `{"lease":{"id":"x"}}`, codes.Aborted},
	"WorkersService/Heartbeat":     {`{"beats":[{"lease":{"id":"$LEASE"}}]}`, "answers:a", "", 0},
	"WorkersService/Settle":        {`{"outcomes":[{"lease":{"id":"$LEASE"},"complete":{}}]}`, "answers:a", "", 0},
	"WorkersService/Work":          {`{"id":"1","hello":{"worker":"w"}}`, "id:s", `{}`, codes.InvalidArgument},
	"WorkersService/ListWorkers":   {`{}`, "workers:a", "", 0},
	"WorkersService/WorkerStopped": {`{"worker":"none"}`, "", `{}`, codes.InvalidArgument},

	"QueuesService/GetQueue":      {`{"name":"$QUEUE"}`, "name:s policy:o", `{"name":"none"}`, codes.NotFound},
	"QueuesService/ListQueues":    {`{"limit":1}`, "queues:a", `{"limit":-1}`, codes.InvalidArgument},
	"QueuesService/SetQueue":      {`{"name":"$QUEUE","maxDepth":"9"}`, "name:s maxDepth:s", `{"name":"$QUEUE","maxDepth":"-9"}`, codes.InvalidArgument},
	"QueuesService/PauseQueue":    {`{"name":"$QUEUE"}`, "name:s paused:b", `{"name":"a b"}`, codes.InvalidArgument},
	"QueuesService/ResumeQueue":   {`{"name":"$QUEUE"}`, "name:s", `{"name":"none"}`, codes.NotFound},
	"QueuesService/DeleteQueue":   {`{"name":"none"}`, "-", `{"name":"none"}`, codes.NotFound},
	"QueuesService/ListQueueKeys": {`{"queue":"$QUEUE"}`, "-", `{"queue":"$QUEUE","limit":-1}`, codes.InvalidArgument},
	"QueuesService/SetQueueKey":   {`{"queue":"$QUEUE","key":"k","limit":5}`, "queue:s key:s limit:s updatedAt:s", `{"queue":"$QUEUE","key":"k"}`, codes.InvalidArgument},
	"QueuesService/UnsetQueueKey": {`{"queue":"$QUEUE","key":"none"}`, "-", `{"queue":"$QUEUE","key":"none"}`, codes.NotFound},
	"QueuesService/QueueHistory":  {`{"queues":["$QUEUE"]}`, "points:a", `{"step":"7s"}`, codes.InvalidArgument},
	"QueuesService/QueueActivity": {`{"queues":["$QUEUE"]}`, "queues:a", `{"queues":["a b"]}`, codes.InvalidArgument},
	"QueuesService/ListPools":     {`{}`, "pools:a", "", 0},
	"QueuesService/SetPool":       {`{"name":"p","capacity":"3"}`, "name:s capacity:s", `{"name":"p","capacity":"-3"}`, codes.InvalidArgument},

	"SchedulesService/GetSchedule": {`{"name":"$QUEUE"}`, "name:s template:o", `{"name":"none"}`, codes.NotFound},
	"InboxService/ReadInbox":       {`{}`, "", `{"limit":1001}`, codes.InvalidArgument},
	"InboxService/RetryRefused":    {`{"all":true}`, "", `{}`, codes.InvalidArgument},
	"InboxService/DiscardRefused":  {`{"all":true}`, "", `{"job_ids":["x"]}`, codes.InvalidArgument},

	"SchedulesService/ListSchedules":    {`{}`, "schedules:a", "", 0},
	"SchedulesService/SetSchedule":      {`{"schedule":{"name":"$QUEUE","every":"60s","template":{"type":"t"}}}`, "name:s template:o", `{}`, codes.InvalidArgument},
	"SchedulesService/TriggerSchedule":  {`{"name":"$QUEUE"}`, "slot:s jobId:s", `{"name":"none"}`, codes.NotFound},
	"SchedulesService/BackfillSchedule": {`{"name":"$QUEUE","from":"2020-01-01T00:00:00Z","to":"2020-01-01T01:00:00Z"}`, "", `{"name":"$QUEUE"}`, codes.InvalidArgument},
	"SchedulesService/PauseSchedule":    {`{"name":"$QUEUE"}`, "name:s paused:b", `{"name":"none"}`, codes.NotFound},
	"SchedulesService/ResumeSchedule":   {`{"name":"$QUEUE"}`, "name:s", `{"name":"none"}`, codes.NotFound},
	"SchedulesService/DeleteSchedule":   {`{"name":"$QUEUE"}`, "", `{"name":"none"}`, codes.NotFound},

	"WorkflowsService/SubmitWorkflow": {`{"jobs":[{"ref":"a","spec":{"type":"t"}}]}`, "id:s", `{}`, codes.InvalidArgument},
	"WorkflowsService/GetWorkflow":    {`{"id":"$FLOW"}`, "id:s jobs:a status:s", `{"id":"$NOFLOW"}`, codes.NotFound},
	"WorkflowsService/ListWorkflows":  {`{}`, "workflows:a", `{"limit":"101"}`, codes.InvalidArgument},
	"WorkflowsService/CancelWorkflow": {`{"id":"$FLOW"}`, "cancelled:s", `{"id":"$NOFLOW"}`, codes.NotFound},
	"WorkflowsService/RetryWorkflow":  {`{"id":"$OVER"}`, "id:s jobs:a", `{"id":"$FLOW"}`, codes.FailedPrecondition},
	"WorkflowsService/AddToWorkflow":  {`{"id":"$FLOW","jobs":[{"ref":"a","spec":{"type":"t"}}]}`, "id:s jobs:a", `{"id":"$FLOW","jobs":[{"ref":"go","spec":{"type":"t"}}]}`, codes.InvalidArgument},
	"WorkflowsService/SignalWorkflow": {`{"id":"$FLOW","name":"go","value":"MQ=="}`, "id:s status:s", `{"id":"$FLOW","name":"none"}`, codes.NotFound},

	"EventsService/Subscribe":  {`{"after":"0","jobId":"$LIVE"}`, "events:a position:s", `{"jobId":"x"}`, codes.InvalidArgument},
	"EventsService/ListEvents": {`{"limit":"1"}`, "events:a", `{"limit":"1001"}`, codes.InvalidArgument},
	"EventsService/LastEvent":  {`{}`, "seq:s", "", 0},

	"AdminService/CreateToken":      {`{"name":"$QUEUE","grants":[{"scopes":["read"],"queues":["*"]}]}`, "", `{}`, codes.InvalidArgument},
	"AdminService/ListTokens":       {`{}`, "", "", 0},
	"AdminService/RevokeToken":      {`{"token":"bootstrap"}`, "-", `{"token":"none"}`, codes.NotFound},
	"AdminService/ListDeliveries":   {`{}`, "", `{"limit":"-1"}`, codes.InvalidArgument},
	"AdminService/RetryDelivery":    {`{"id":"none"}`, "-", `{"id":"none"}`, codes.NotFound},
	"AdminService/GetWebhookSecret": {`{}`, "secret:s", "", 0},
	"AdminService/ListAudit":        {`{}`, "", `{"limit":"-1"}`, codes.InvalidArgument},
	"AdminService/CreateBackup":     {`{}`, "-", `{}`, codes.InvalidArgument}, // correct call: TestBackupOfAServer
}

func TestEveryRPC(t *testing.T) {
	c := newCastle(t)
	services := c.services()
	var there []string
	for name, s := range services {
		if short, ours := strings.CutPrefix(name, "gopherqueue.v1."); ours {
			for i := range s.Methods().Len() {
				there = append(there, short+"/"+string(s.Methods().Get(i).Name()))
			}
		}
	}
	allRows(t, "RPCs", there, rpcRows)
	for name, row := range rpcRows {
		scene := c.surfaceScene()
		service, method, _ := strings.Cut(name, "/")
		m := services["gopherqueue.v1."+service].Methods().ByName(protoreflect.Name(method))
		// The first response of a stream is enough; a unary call has just one.
		call := func(body string) (string, error) {
			in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
			if err := protojson.Unmarshal([]byte(scene.Replace(body)), in); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+bootstrap), patience)
			defer cancel()
			s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: m.IsStreamingServer(), ClientStreams: m.IsStreamingClient()}, "/gopherqueue.v1."+name)
			if err != nil {
				return "", err
			}
			if err := s.SendMsg(in); err != nil {
				return "", err
			}
			if !m.IsStreamingClient() {
				_ = s.CloseSend()
			}
			err = s.RecvMsg(out)
			text, _ := protojson.Marshal(out)
			return string(text), err
		}
		if row.bad != "" {
			if text, err := call(row.bad); status.Code(err) != row.code {
				t.Errorf("%s %s: %v %s, want %v", name, row.bad, err, text, row.code)
			}
		}
		if row.shape == "-" {
			continue // correct call: TestEveryCallIsGuarded
		}
		text, err := call(row.body)
		if err != nil {
			t.Errorf("%s %s: %v", name, row.body, err)
		} else if row.shape != "" {
			c.shaped(name, text, row.shape)
		}
	}
}

// commandRow has a correct and an incorrect use of a command.
type commandRow struct {
	args   string
	exit   int
	shape  string // of its output with --json; "" is no output, "-" means no --json
	prints string // without --json
	bad    string // with exit status fails
	fails  int    // 2 unless given
	long   bool   // runs until stopped; other tests run it
}

var commandRows = map[string]commandRow{
	"serve": {long: true, bad: "--http nonsense:port:more"},
	"work":  {long: true, bad: ""},
	"step":  {long: true, bad: "charge"}, "input": {long: true, bad: "charge"}, "progress": {long: true, bad: "much"}, // TestSteps runs them
	"spawn": {long: true, bad: "t --priority 9"}, // TestSpawnFromAProgram runs it
	"demo":  {long: true, bad: "extra"},
	"bench": {long: true, bad: "--store redis:"},

	"bench scale": {long: true, bad: "--axis nonsense"},
	"backup":      {long: true}, "restore": {long: true}, "copy": {long: true}, "provide": {long: true}, // TestMove and TestProvide run them

	"submit": {args: "t --queue $QUEUE", shape: jobShape, prints: "-", bad: "t --priority 9"},

	"job get":        {args: "$LIVE", shape: jobShape, prints: "SCHEDULED", bad: "$NONE", fails: 3},
	"job list":       {args: "--queue $QUEUE --type t", shape: pageShape, prints: "DEAD_LETTER", bad: "--limit 0"},
	"job update":     {args: "$LIVE --tag a=b", shape: jobShape, prints: "updated", bad: "$DEAD --tag a=b", fails: 5},
	"job cancel":     {args: "$LIVE", shape: jobShape, prints: "CANCELLED", bad: "$DEAD", fails: 5},
	"job run-now":    {args: "$LIVE", shape: jobShape, prints: "SCHEDULED", bad: "$DEAD", fails: 5},
	"job edit":       {args: "$LIVE --queue $QUEUE", shape: jobShape, bad: "$LIVE", fails: 2},
	"job reschedule": {args: "$LIVE --in 1h", shape: jobShape, prints: "DELAYED", bad: "$LIVE", fails: 2},
	"job replay":     {args: "$DEAD", shape: jobShape, prints: "-", bad: "$LIVE", fails: 5},
	"job events":     {args: "$LIVE", shape: "seq:n time:s entity:s type:s data:o", prints: "job.submitted", bad: "$NONE", fails: 3},
	"job wait":       {args: "$DEAD", exit: 1, shape: jobShape, prints: "DEAD_LETTER", bad: "$LIVE --timeout 10ms", fails: 6},
	"job explain":    {args: "$LIVE", shape: explainShape, prints: "SCHEDULED", bad: "nonsense"},

	"queue list":      {shape: "queues:a next_cursor:s", prints: "QUEUE", bad: "extra"},
	"queue show":      {args: "$QUEUE", shape: queueShape, prints: "jobmodel", bad: "none", fails: 3},
	"queue pause":     {args: "$QUEUE", shape: queueShape, prints: "paused", bad: ""},
	"queue resume":    {args: "$QUEUE", shape: queueShape, prints: "resumed", bad: "none", fails: 3},
	"queue declare":   {args: "$QUEUE --max-depth 500", shape: queueShape, prints: "500 live", bad: "$QUEUE --max-running -5"},
	"queue set":       {args: "$QUEUE --max-running 5", shape: queueShape, prints: "5 held", bad: "$QUEUE --max-running -5"},
	"queue delete":    {args: "$QUEUE", exit: 5, bad: "none", fails: 3}, // without live jobs: TestDeleteQueue
	"queue history":   {args: "$QUEUE", shape: "points:a", prints: "SUBMITTED", bad: "$QUEUE --step 7s"},
	"queue key list":  {args: "$QUEUE", shape: "keys:a next_cursor:s", prints: "KEY", bad: "none", fails: 3},
	"queue key set":   {args: "$QUEUE k --limit 5", shape: "queue:s key:s limit:n", prints: "5", bad: "$QUEUE k"},
	"queue key unset": {args: "$QUEUE none", exit: 3, bad: "$QUEUE"}, // of a key with limits: TestQueueKeys
	"pool list":       {shape: "pools:a", prints: "POOL", bad: "extra"},
	"pool set":        {args: "p --capacity 5", shape: "name:s capacity:n", prints: "capacity of 5", bad: "p"},

	"inbox list":    {shape: "waiting:n refused:n submissions:a", prints: "PROBLEM", bad: "--limit 0"},
	"inbox retry":   {args: "--all", shape: "submissions:n", prints: "retried 0", bad: ""},
	"inbox discard": {args: "--all --yes", shape: "submissions:n", prints: "discarded 0", bad: "x"},

	"schedule list":     {shape: "schedules:a", prints: "SCHEDULE", bad: "extra"},
	"schedule show":     {args: "$QUEUE", shape: scheduleShape, prints: "every 1h0m0s", bad: "none", fails: 3},
	"schedule declare":  {args: "$QUEUE --every 1h --type t", shape: scheduleShape, prints: "every 1h0m0s", bad: "$QUEUE --cron x --type t"},
	"schedule set":      {args: "$QUEUE --every 1h --type t", shape: scheduleShape, prints: "every 1h0m0s", bad: "$QUEUE --cron x --type t"},
	"schedule trigger":  {args: "$QUEUE", shape: "slot:s", bad: "none", fails: 3},
	"schedule backfill": {args: "$QUEUE --from 2020-01-01T00:00:00Z --to 2020-01-01T01:00:00Z", shape: "slots:n", bad: "$QUEUE", fails: 2},
	"schedule pause":    {args: "$QUEUE", shape: scheduleShape, prints: "paused", bad: "none", fails: 3},
	"schedule resume":   {args: "$QUEUE", shape: scheduleShape, prints: "resumed", bad: "none", fails: 3},
	"schedule delete":   {args: "$QUEUE --yes", shape: "deleted:s", prints: "deleted", bad: "none --yes", fails: 3},

	"workflow submit": {args: "$FLOWFILE", shape: "id:s", prints: "-7", bad: "$FILE"},
	"workflow list":   {shape: "workflows:a", prints: "WORKFLOW", bad: "--limit 0"},
	"workflow show":   {args: "$FLOW", shape: flowShape, prints: "waits for a signal", bad: "$NOFLOW", fails: 3},
	"workflow cancel": {args: "$FLOW", shape: "cancelled:n requested:n finished:n", prints: "1 cancelled", bad: "nonsense"},
	"workflow retry":  {args: "$OVER", shape: flowShape, prints: "RUNNING", bad: "$FLOW", fails: 5},
	"workflow signal": {args: "$FLOW go --value 1", shape: "id:s state:s", prints: "COMPLETED", bad: "$FLOW go --value nonsense"},
	"workflow add":    {args: "$FLOW $FLOWFILE", shape: flowShape, prints: "more t SCHEDULED", bad: "$FLOW $FILE"},

	"worker list": {shape: "workers:a", prints: "WORKER", bad: "extra"},
	"dlq list":    {args: "--queue $QUEUE", shape: pageShape, prints: "DEAD_LETTER", bad: "--limit 5000"},
	"dlq replay":  {args: "$DEAD", shape: jobShape, prints: "-", bad: "$LIVE", fails: 5},
	"dlq purge":   {args: "$DEAD --yes", shape: "purged:n", prints: "1 purged", bad: "$DEAD"},

	"token create":   {args: "$QUEUE --grant read", shape: tokenShape + " token:s", prints: "gq_", bad: "x --grant fly"},
	"token list":     {shape: "tokens:a", prints: "NAME", bad: "extra"},
	"token revoke":   {args: "none --yes", exit: 3, bad: ""},
	"audit":          {shape: "entries:a next_cursor:s", prints: "OUTCOME", bad: "--limit 0"},
	"webhook list":   {shape: "deliveries:a next_cursor:s", prints: "STATE", bad: "--limit 0"},
	"webhook retry":  {args: "none", exit: 3, bad: ""},
	"webhook secret": {shape: "secret:s", prints: "whsec_", bad: "extra"},
	"backup now":     {exit: 2, bad: "extra"}, // correct call: TestBackupOfAServer

	"top":    {long: true, bad: "--interval 1ms"}, // TestTop and TestTopOnce run it
	"events": {args: "--last 1", shape: "seq:n time:s entity:s type:s data:o", prints: "job.", bad: "--event nonsense"},

	"stats":   {shape: statsShape, prints: "QUEUE", bad: "extra"},
	"doctor":  {exit: 1, shape: "checks:a", prints: "that no worker asks for", bad: "extra"},
	"version": {shape: "version:s go:s platform:s build:s", prints: "gq ", bad: "extra"},

	"config check":   {shape: "status:s", prints: "ok", bad: "--drain soon"},
	"config print":   {shape: "http:o grpc:o store:o", prints: "store:", bad: "--drain soon"},
	"migrate up":     {args: "--store memory:", exit: 2, bad: "--store nonsense"},
	"migrate status": {args: "--store memory:", exit: 2, bad: "--store nonsense"},
	"migrate dump":   {shape: "-", prints: "CREATE SCHEMA IF NOT EXISTS gq", bad: "extra"},
	"match":          {args: "$FILE", exit: 2, bad: ""}, // correct call: TestMatchVectors
	"match replay":   {args: "$FILE --file", exit: 2, bad: ""},
	"match rounds":   {shape: "rounds:a next_cursor:s", prints: "ROUND", bad: "--limit 0"},
	"match cancel":   {args: "--job $MATCHED", shape: "id:s kind:s state:s", prints: "CANCELLED", bad: "--round 999999", fails: 3},

	"provider list":     {shape: "providers:a next_cursor:s", prints: "ELIGIBLE", bad: "--limit 0"},
	"provider show":     {args: "$PROVIDER", shape: providerShape, prints: "ACTIVE", bad: "none", fails: 3},
	"provider register": {args: "$PROVIDER --capability AI --stake 5000", shape: providerShape, prints: "5000", bad: "x --capability BIO"},
	"provider status":   {args: "$PROVIDER suspended --reason test", shape: providerShape, prints: "SUSPENDED", bad: "$PROVIDER GONE"},
	"provider leases":   {args: "$PROVIDER", shape: "leases:a next_cursor:s", prints: "LEASE", bad: "none", fails: 3},
	"provider remove":   {args: "$RETIRED", shape: "removed:a", prints: "1 removed", bad: "$PROVIDER", fails: 5},

	"facts jobs":   {shape: "job_runs:a", prints: "ADDON", bad: "--limit 201"},
	"facts leases": {shape: "lease_runs:a", prints: "GRANTED", bad: "--addon matching"},
	"facts events": {shape: "events:a", prints: "EVENT", bad: "--cursor nonsense"},

	"completion bash": {shape: "-", prints: "bash completion", bad: "extra"}, "completion zsh": {shape: "-", prints: "compdef", bad: "extra"},
	"completion fish": {shape: "-", prints: "fish completion", bad: "extra"}, "completion powershell": {shape: "-", prints: "powershell completion", bad: "extra"},
	"help": {args: "job get", shape: "-", prints: "gq job get ID", bad: "nonsense"},
}

// leaves lists the commands that do something, by their names below gq.
func leaves(c *cobra.Command, path string) (all []string) {
	for _, child := range c.Commands() {
		name := strings.TrimSpace(path + " " + child.Name())
		if child.Hidden {
			continue
		}
		if child.RunE != nil || child.Run != nil {
			all = append(all, name)
		}
		all = append(all, leaves(child, name)...)
	}
	return all
}

func TestEveryCommand(t *testing.T) {
	c := newCastle(t)
	root := newRoot(process{getenv: os.Getenv, stdin: strings.NewReader(""), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}})
	allRows(t, "commands", leaves(root, ""), commandRows)
	for _, name := range slices.Sorted(maps.Keys(commandRows)) { // doctor before work, which leaves nothing to find
		row := commandRows[name]
		// Help and syntax errors need no process.
		if got := gqIn(t.Context(), t.TempDir(), append(strings.Fields(name), "--help")...); got.status != 0 || !strings.Contains(got.stdout, "Usage:") || got.stderr != "" {
			t.Errorf("gq %s --help: %+v", name, got)
		} else if !strings.HasPrefix(name, "completion") && name != "help" && !strings.Contains(got.stdout, "Examples:") {
			t.Errorf("gq %s --help has no example", name)
		}
		if got := gqIn(t.Context(), t.TempDir(), append(strings.Fields(name), "--no-such-flag")...); got.status != 2 || got.stdout != "" || got.stderr == "" {
			t.Errorf("gq %s --no-such-flag: %+v", name, got)
		}
		scene := c.surfaceScene()
		words := func(args string) []string {
			return append(strings.Fields(name), strings.Fields(scene.Replace(args))...)
		}
		want := row.fails
		if want == 0 {
			want = cli.ExitUsage
		}
		if row.bad != "" || !row.long {
			if bad := c.run(words(row.bad)...); row.bad+row.args != "" && bad.status != want || bad.status != 0 && bad.stderr == "" {
				t.Errorf("gq %v: %+v, want status %d", words(row.bad), bad, want)
			} else if bad.status != 0 && row.shape != "-" {
				c.told(words(row.bad), want)
			}
		}
		if row.long {
			continue
		}
		if row.shape != "-" {
			got := c.run(append(words(row.args), "--json")...)
			if got.status != row.exit {
				t.Errorf("gq %v --json: %+v", words(row.args), got)
			} else {
				c.shaped("gq "+name+" --json", got.stdout, row.shape)
			}
		}
		if row.prints != "" {
			scene = c.surfaceScene()
			got := c.run(words(row.args)...)
			if got.status != row.exit || !strings.Contains(got.stdout, row.prints) || strings.Contains(got.stdout, "\x1b") {
				t.Errorf("gq %v: %+v, want %q", words(row.args), got, row.prints)
			}
		}
	}
	// An unreachable server, and a missing token.
	if got := c.gq("stats", "--addr", "127.0.0.1:1"); got.status != cli.ExitUnreachable {
		t.Errorf("nobody there: %+v", got)
	}
	if got := c.gq("stats"); got.status != cli.ExitFailure || !strings.Contains(got.stderr, "token") {
		t.Errorf("without a token: %+v", got)
	}
}

// told checks that a command explains its exit status in JSON.
func (c *castle) told(args []string, status int) {
	c.t.Helper()
	got := c.run(append(args, "--json")...)
	lines := strings.Split(strings.TrimSpace(got.stderr), "\n")
	var out struct{ Error map[string]any }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &out); err != nil || got.status != status || out.Error["exit_status"] != float64(status) {
		c.t.Errorf("gq %v --json: %+v, %v; want status %d and an error in JSON", args, got, err, status)
	} else if lacks := misshapen(out.Error, "code:s message:s exit_status:n"); len(lacks) > 0 {
		c.t.Errorf("gq %v --json: the error lacks %q: %s", args, lacks, got.stderr)
	}
}

// run runs the program as the administrator.
func (c *castle) run(args ...string) outcome {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, cmdtest.Program(c.t), args...)
	command.Env = append(slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "GQ_") }), "GQ_ADDR="+c.grpc, "GQ_HTTP="+c.http, "GQ_TOKEN="+bootstrap)
	command.Dir = c.t.TempDir()
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	_ = command.Run()
	return outcome{command.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
