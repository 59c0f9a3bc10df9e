package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflection "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// Access rules of the faces other than the native one, behind the same guard. The native
// face has such a table in its own package; together they cover everything that a server
// serves.

// faceAccess is what a call of a face requires.
type faceAccess struct {
	roles string // allowed roles, out of submit, work, read and submit+read; admin is always allowed
	whole bool   // only with all queues
	lists bool   // names no queue: foreign objects are omitted rather than rejected
	open  bool   // needs no token
	own   bool   // matching: the token of the provider concerned is enough
	body  string
}

// schedulerAccess has a row for every route below /api/scheduler.
var schedulerAccess = map[string]faceAccess{
	"POST /jobs/submit":                {roles: "submit", body: `{"addon_id":"$QUEUE","job_type":"t","priority":"NORMAL","cost_units":1,"constraints":{},"payload":{}}`},
	"POST /jobs/claim":                 {roles: "work", body: `{"addon_id":"$QUEUE","worker_id":"w","accept_job_types":["none"]}`},
	"GET /jobs":                        {roles: "read", body: `?addon_id=$QUEUE`},
	"GET /jobs/{job_id}":               {roles: "read,work"},
	"POST /jobs/{job_id}/status":       {roles: "work", body: `{"state":"PREPARING","worker_id":"w"}`},
	"POST /jobs/{job_id}/cancel":       {roles: "submit+read", body: `{}`},
	"GET /jobs/{job_id}/events":        {roles: "read"},
	"POST /lease/request":              {roles: "work", body: `{"job_id":"$CLAIMED"}`},
	"POST /lease/{lease_id}/heartbeat": {roles: "work", body: `{"job_id":"$LEASED","worker_id":"w"}`},
	"POST /lease/{lease_id}/release":   {roles: "work", body: `{"job_id":"$LEASED","worker_id":"w","status":"SUCCEEDED"}`},
	"POST /lease/{lease_id}/cancel":    {roles: "work", body: `{"reason":"x"}`},
	"GET /lease/{lease_id}":            {roles: "read,work"},
	"GET /lease":                       {roles: "read", body: `?addon_id=$QUEUE`},
	"GET /stats/snapshot":              {roles: "read", whole: true},
	"GET /stats/timeseries":            {roles: "read", whole: true, body: `?metric=jobs_queued`},
	"GET /facts/job_runs":              {roles: "read", lists: true},
	"GET /facts/lease_runs":            {roles: "read", lists: true},
	"GET /facts/events":                {roles: "read", whole: true},
	"GET /admin/capacity":              {roles: "read", whole: true},
	"PUT /admin/capacity":              {whole: true, body: `{"total":1000000}`},
}

// matchingAccess has a row for every route below /api/matching.
var matchingAccess = map[string]faceAccess{
	"POST /providers":                {body: `{"id":"$PROVIDER","capabilities":["AI"],"models":["m"],"region":"eu","stake":10000,"attestation_expires_at":8589934591}`},
	"GET /providers":                 {roles: "read"},
	"GET /providers/{id}":            {roles: "read,work", own: true},
	"POST /providers/{id}/heartbeat": {roles: "work", own: true, body: `{}`},
	"POST /providers/{id}/status":    {body: `{"status":"ACTIVE","reason":"x"}`},
	"GET /providers/{id}/leases":     {roles: "read,work", own: true},
	"POST /jobs":                     {roles: "submit", body: `{"kind":"AI","spec":{"model":"m"},"requester":"r","max_fee":1,"size_bytes":1,"units":1}`},
	"DELETE /providers/{id}":         {},
	"GET /jobs/{id}":                 {roles: "read,submit"},
	"GET /jobs":                      {roles: "read"},
	"POST /jobs/{id}/cancel":         {roles: "submit", body: `{"reason":"x"}`},
	"GET /leases":                    {roles: "read"},
	"POST /leases/{id}/cancel":       {body: `{"reason":"x","provider_id":"nobody"}`},
	"GET /leases/{id}":               {roles: "read,work", own: true},
	"POST /leases/{id}/ack":          {roles: "work", own: true},
	"POST /leases/{id}/renew":        {roles: "work", own: true},
	"POST /leases/{id}/decline":      {roles: "work", own: true, body: `{"reason":"x"}`},
	"POST /leases/{id}/fail":         {roles: "work", own: true, body: `{"reason":"x"}`},
	"POST /leases/{id}/complete":     {roles: "work", own: true, body: `{"output_digest":"$DIGEST"}`},
	"POST /leases/{id}/proof":        {body: `{"valid":true}`},
	"POST /beacon":                   {body: `{"chain_id":"c","epoch_id":1,"block_height":1,"beacon":"00"}`},
	"GET /beacon":                    {roles: "read"},
	"POST /rounds":                   {},
	"GET /rounds/{n}":                {roles: "read"},
	"GET /rounds":                    {roles: "read"},
	"POST /rounds/{n}/cancel":        {body: `{"reason":"x"}`},
	"GET /policy":                    {roles: "read"},
	"PUT /policy":                    {body: `{}`},
	"GET /events/ws":                 {roles: "read"},
}

// taskQueueAccess has a row for every RPC of the task queue.
var taskQueueAccess = map[string]faceAccess{
	"SubmitJob":    {roles: "submit", body: `{"spec":{"jobType":"x"}}`},
	"GetJobStatus": {roles: "read", body: `{"jobId":"$TASK"}`},
	"GetJobResult": {roles: "read", body: `{"jobId":"$TASK"}`},
	"CancelJob":    {roles: "submit+read", body: `{"jobId":"$TASK"}`},
	"ListJobs":     {roles: "read", body: `{}`},
}

// allServices lists every gRPC service of a server and where its calls are checked.
var allServices = map[string]string{
	"gopherqueue.v1.JobsService": "native", "gopherqueue.v1.WorkersService": "native", "gopherqueue.v1.QueuesService": "native",
	"gopherqueue.v1.SchedulesService": "native", "gopherqueue.v1.WorkflowsService": "native", "gopherqueue.v1.InboxService": "native", "gopherqueue.v1.EventsService": "native", "gopherqueue.v1.AdminService": "native",
	"taskqueue.v1.TaskQueuePublicService": "here",
	"grpc.health.v1.Health":               "open", "grpc.reflection.v1.ServerReflection": "open", "grpc.reflection.v1alpha.ServerReflection": "open",
}

const bootstrap = "bootstrap-bootstrap-bootstrap"

// castle is a server with authentication, and an administrator.
type castle struct {
	*served
	conn   *grpc.ClientConn
	tokens map[string]string
}

func newCastle(t *testing.T) *castle {
	t.Helper()
	c := &castle{served: startServer(t, []string{"GQ_ADMIN_TOKEN=" + bootstrap}, "--store", "memory:", "--capacity", "1000000"), tokens: map[string]string{}}
	var err error
	if c.conn, err = grpc.NewClient(c.grpc, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.conn.Close()
		http.DefaultClient.CloseIdleConnections()
		c.Signal(syscall.SIGTERM)
		if status := c.Ended(); status != 0 {
			t.Errorf("ended with %d", status)
		}
		if text := c.Stderr.String(); strings.Contains(text, "panic") || strings.Contains(text, bootstrap) {
			t.Errorf("the log has\n%s", text)
		}
	})
	return c
}

// token returns a token with a scope on a pattern, created once.
func (c *castle) token(scope, pattern string) string {
	c.t.Helper()
	name := scope + "@" + pattern
	if c.tokens[name] == "" {
		_, answer := c.do(bootstrap, "POST", "/v1/tokens", fmt.Sprintf(`{"name":%q,"grants":[{"scopes":["%s"],"queues":[%q]}]}`,
			name, strings.ReplaceAll(scope, "+", `","`), pattern))
		c.tokens[name] = answer["token"].(string)
	}
	return c.tokens[name]
}

// do makes a request with a token, and returns the status and an object.
func (c *castle) do(token, method, path, body string) (int, map[string]any) {
	c.t.Helper()
	code, text := c.text(token, method, path, body)
	var out map[string]any
	if strings.HasPrefix(text, "{") {
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			c.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return code, out
}

func (c *castle) text(token, method, path, body string) (int, string) {
	c.t.Helper()
	if strings.HasPrefix(body, "?") {
		path, body = path+body, ""
	}
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+c.http+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if strings.HasSuffix(path, "/events/ws") {
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="} {
			r.Header.Set(name, value)
		}
	}
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return answer.StatusCode, ""
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

// must makes a request as the administrator, which must succeed.
func (c *castle) must(method, path, body string) map[string]any {
	c.t.Helper()
	code, out := c.do(bootstrap, method, path, body)
	if code >= 300 {
		c.t.Fatalf("%s %s %s: %d %v", method, path, body, code, out)
	}
	return out
}

// schedulerScene creates a queued, a claimed and a leased job of an addon.
func (c *castle) schedulerScene(queue string) *strings.Replacer {
	c.t.Helper()
	submit := func() string {
		return cmdtest.Member(c.must("POST", "/api/scheduler/jobs/submit", fmt.Sprintf(`{"addon_id":%q,"job_type":"t","priority":"URGENT","cost_units":1,"constraints":{},"payload":{}}`, queue)), "job", "job_id").(string)
	}
	claim := func() string {
		return cmdtest.Member(c.must("POST", "/api/scheduler/jobs/claim", fmt.Sprintf(`{"addon_id":%q,"worker_id":"w"}`, queue)), "job", "job_id").(string)
	}
	submit()
	leased := claim()
	lease := c.must("POST", "/api/scheduler/lease/request", fmt.Sprintf(`{"job_id":%q}`, leased))
	id, _ := cmdtest.Member(lease, "lease", "lease_id").(string)
	if id == "" {
		c.t.Fatalf("no lease: %v", lease)
	}
	submit()
	claimed := claim()
	return strings.NewReplacer("$QUEUE", queue, "$JOB", submit(), "$CLAIMED", claimed, "$LEASED", leased, "$LEASE", id)
}

// Calls every route of the scheduler API, with every role, on the caller's own addon and
// on a foreign one.
func TestEverySchedulerCallIsGuarded(t *testing.T) {
	c := newCastle(t)
	const description = "/api/scheduler/openapi.json" // reveals no data, and so needs no token
	if code, text := c.text("", http.MethodGet, description, ""); code != http.StatusOK {
		t.Errorf("%s without a token: %d %s", description, code, text)
	}
	described := c.must("GET", description, "")
	var there []string
	for path, item := range described["paths"].(map[string]any) {
		for method := range item.(map[string]any) {
			there = append(there, strings.ToUpper(method)+" "+strings.TrimPrefix(path, "/api/scheduler"))
		}
	}
	allRows(t, "routes of the scheduler API", there, schedulerAccess)
	for name, a := range schedulerAccess {
		method, path, _ := strings.Cut(name, " ")
		job := "$JOB"
		if strings.HasSuffix(path, "/status") {
			job = "$CLAIMED"
		}
		path = "/api/scheduler" + strings.NewReplacer("{job_id}", job, "{lease_id}", "$LEASE").Replace(path)
		c.judge("scheduler "+name, a, []string{"own", "foreign"}, func(token, queue string) (bool, bool, string) {
			scene := c.schedulerScene(queue)
			code, text := c.text(token, method, scene.Replace(path), scene.Replace(a.body))
			return code == http.StatusUnauthorized, code == http.StatusForbidden, text
		})
	}
	// A worker needs no other scope for a job that has run before.
	scene, worker := c.schedulerScene("again"), c.token("work", "again")
	c.must("POST", "/api/scheduler"+scene.Replace("/lease/$LEASE/cancel"), "")
	if job := cmdtest.Member(c.must("POST", "/api/scheduler/jobs/claim", `{"addon_id":"again","worker_id":"w"}`), "job", "job_id"); job != scene.Replace("$LEASED") {
		t.Fatalf("claimed %v", job)
	}
	lease, _ := cmdtest.Member(c.must("POST", "/api/scheduler/lease/request", scene.Replace(`{"job_id":"$LEASED"}`)), "lease", "lease_id").(string)
	for _, verb := range []string{"heartbeat", "release"} {
		if code, text := c.text(worker, "POST", "/api/scheduler/lease/"+lease+"/"+verb, scene.Replace(schedulerAccess["POST /lease/{lease_id}/"+verb].body)); code != http.StatusOK {
			t.Errorf("%s of a second lease: %d %s", verb, code, text)
		}
	}
}

// judge calls without a token and with every role, with tokens for the first queue and
// for all, about each queue.
func (c *castle) judge(what string, a faceAccess, queues []string, call func(token, queue string) (unknown, denied bool, text string)) {
	c.t.Helper()
	for _, token := range []string{"", "gq_aaaaaaaaaaaaa_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"} {
		if unknown, _, text := call(token, queues[0]); unknown == a.open {
			c.t.Errorf("%s with the token %q: %s", what, token, text)
		}
	}
	for _, role := range []string{"submit", "work", "read", "submit+read", "admin"} {
		has := role == "admin" || slices.ContainsFunc(strings.Split(a.roles, ","), func(may string) bool {
			return may == role || role == "submit+read" && (may == "submit" || may == "read")
		})
		for _, pattern := range []string{queues[0], "*"} {
			for _, queue := range queues {
				may := has && (pattern == "*" || queue == queues[0] && !a.whole || a.lists)
				unknown, denied, text := call(c.token(role, pattern), queue)
				as := fmt.Sprintf("%s by %s@%s on %s", what, role, pattern, queue)
				switch {
				case unknown:
					c.t.Errorf("%s: the token is not known", as)
				case denied == may:
					c.t.Errorf("%s: denied %t: %.300s", as, denied, text)
				case a.lists && pattern != "*" && len(queues) > 1 && strings.Contains(text, `"`+queues[1]+`"`):
					c.t.Errorf("%s tells of a foreign queue: %.300s", as, text)
				}
			}
		}
	}
}

// allRows fails for anything served without a row, and for a row without a counterpart.
func allRows[V any](t *testing.T, what string, there []string, rows map[string]V) {
	t.Helper()
	slices.Sort(there)
	if known := slices.Sorted(maps.Keys(rows)); !slices.Equal(there, known) {
		t.Errorf("%s and rows differ:\n%q\n%q", what, there, known)
	}
}

// matchingScene creates a provider with a lease.
func (c *castle) matchingScene(provider string) *strings.Replacer {
	c.t.Helper()
	scene := strings.NewReplacer("$PROVIDER", provider, "$DIGEST", strings.Repeat("ab", 32))
	c.do(bootstrap, "POST", "/api/matching/providers", scene.Replace(matchingAccess["POST /providers"].body))
	c.must("POST", "/api/matching/providers/"+provider+"/status", `{"status":"ACTIVE","reason":"test"}`)
	job := c.must("POST", "/api/matching/jobs", `{"kind":"AI","spec":{"model":"m"},"requester":"r","max_fee":1,"size_bytes":1,"units":1}`)
	return strings.NewReplacer("$PROVIDER", provider, "$DIGEST", strings.Repeat("ab", 32), "$JOB", job["id"].(string))
}

// Calls every route of the matching API, with every role for its queue and for another,
// and with the tokens of the provider concerned and of another one.
func TestEveryMatchingCallIsGuarded(t *testing.T) {
	c := newCastle(t)
	const description = "/openapi.json" // reveals no data, and so needs no token
	if code, text := c.text("", http.MethodGet, "/api/matching"+description, ""); code != http.StatusOK {
		t.Errorf("%s without a token: %d %s", description, code, text)
	}
	routes := matching.Handler(nil, nil, matching.Options{}).Routes()
	routes = slices.DeleteFunc(routes, func(route string) bool { return route == "GET "+description })
	allRows(t, "routes of the matching API", routes, matchingAccess)
	c.matchingScene("p1")
	lease := ""
	cmdtest.WaitFor(t, "a lease of p1", func() bool {
		c.must("POST", "/api/matching/rounds", "")
		for _, l := range c.must("GET", "/api/matching/providers/p1/leases", "")["leases"].([]any) {
			lease, _ = cmdtest.Member(l.(map[string]any), "lease_id").(string)
		}
		return lease != ""
	})
	c.matchingScene("p2")
	for name, a := range matchingAccess {
		method, path, _ := strings.Cut(name, " ")
		path = strings.Replace(path, "{n}", "1", 1)
		call := func(token string) (unknown, denied bool, text string) {
			id := "p1"
			switch {
			case strings.HasPrefix(path, "/leases/"):
				id = lease
			case strings.HasPrefix(path, "/jobs/"):
				id = unknownID
			}
			scene := strings.NewReplacer("$PROVIDER", "p1", "$DIGEST", strings.Repeat("ab", 32))
			code, text := c.text(token, method, "/api/matching"+strings.Replace(path, "{id}", id, 1), scene.Replace(a.body))
			return code == http.StatusUnauthorized, code == http.StatusForbidden, text
		}
		c.judge("matching "+name, a, []string{"matching"}, func(token, _ string) (bool, bool, string) { return call(token) })
		for _, role := range []string{"submit", "work", "read", "admin"} {
			for pattern, owner := range map[string]bool{"other": false, "matching/p1": true, "matching/p2": false} {
				may := owner && a.own && role == "work" || owner && a.own && role == "admin"
				if _, denied, text := call(c.token(role, pattern)); denied == may {
					t.Errorf("matching %s by %s@%s: denied %t: %.300s", name, role, pattern, denied, text)
				}
			}
		}
	}
	// A job or lease of another queue does not exist here, whoever asks.
	foreign := c.must("POST", "/v1/jobs", `{"type":"t","queue":"secret","payload":"classified"}`)["id"].(string)
	claimed := c.must("POST", "/v1/claim", `{"worker":"w","queues":["secret"]}`)
	held := cmdtest.Member(claimed["jobs"].([]any)[0].(map[string]any), "lease", "id").(string)
	for _, path := range []string{"/jobs/" + foreign, "/leases/" + held} {
		if code, text := c.text(c.token("read", "matching"), "GET", "/api/matching"+path, ""); code != http.StatusNotFound || strings.Contains(text, "classified") {
			t.Errorf("GET %s: %d %s", path, code, text)
		}
	}
	for _, verb := range []string{"ack", "renew", "decline", "fail", "complete"} {
		code, text := c.text(c.token("work", "matching"), "POST", "/api/matching/leases/"+held+"/"+verb, strings.ReplaceAll(matchingAccess["POST /leases/{id}/"+verb].body, "$DIGEST", strings.Repeat("ab", 32)))
		if code < 400 {
			t.Errorf("%s of a foreign lease: %d %s", verb, code, text)
		}
	}
	if job := c.must("GET", "/v1/jobs/"+foreign, ""); job["state"] != "RUNNING" {
		t.Errorf("the foreign job is %v", job["state"])
	}
}

// Calls every RPC of the task queue, with every role, for its queue and for another one;
// and checks that the calls of every service are checked somewhere.
func TestEveryTaskQueueCallIsGuarded(t *testing.T) {
	c := newCastle(t)
	services := c.services()
	allRows(t, "services", slices.Collect(maps.Keys(services)), allServices)
	service := services["taskqueue.v1.TaskQueuePublicService"]
	var there []string
	for i := range service.Methods().Len() {
		there = append(there, string(service.Methods().Get(i).Name()))
	}
	allRows(t, "RPCs of the task queue", there, taskQueueAccess)
	invoke := func(token, name, body string) (proto.Message, error) {
		t.Helper()
		m := service.Methods().ByName(protoreflect.Name(name))
		in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
		if err := protojson.Unmarshal([]byte(body), in); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		return out, c.conn.Invoke(ctx, "/"+string(service.FullName())+"/"+name, in, out)
	}
	for name, a := range taskQueueAccess {
		call := func(token string) (unknown, denied bool, text string) {
			made, err := invoke(bootstrap, "SubmitJob", `{"spec":{"jobType":"x"}}`)
			if err != nil {
				t.Fatal(err)
			}
			r := made.ProtoReflect()
			task := r.Get(r.Descriptor().Fields().ByName("job_id")).String()
			_, err = invoke(token, name, strings.ReplaceAll(a.body, "$TASK", task))
			return status.Code(err) == codes.Unauthenticated, status.Code(err) == codes.PermissionDenied, fmt.Sprint(err)
		}
		c.judge("task queue "+name, a, []string{"taskqueue"}, func(token, _ string) (bool, bool, string) { return call(token) })
		for _, role := range []string{"submit", "work", "read", "admin"} {
			if _, denied, text := call(c.token(role, "other")); !denied {
				t.Errorf("task queue %s by %s@other: %s", name, role, text)
			}
		}
	}
	// A job of another queue does not exist here.
	foreign := c.must("POST", "/v1/jobs", `{"type":"t","queue":"secret"}`)["id"].(string)
	for _, name := range []string{"GetJobStatus", "GetJobResult", "CancelJob"} {
		if _, err := invoke(c.token("admin", "taskqueue"), name, `{"jobId":"`+foreign+`"}`); status.Code(err) != codes.PermissionDenied && status.Code(err) != codes.NotFound {
			t.Errorf("%s of a foreign job: %v", name, err)
		}
		if _, err := invoke(bootstrap, name, `{"jobId":"`+foreign+`"}`); status.Code(err) != codes.NotFound {
			t.Errorf("%s of a foreign job by who may everything: %v", name, err)
		}
	}
}

// services returns the services that reflection lists.
func (c *castle) services() map[string]protoreflect.ServiceDescriptor {
	c.t.Helper()
	ctx := metadata.AppendToOutgoingContext(c.t.Context(), "authorization", "Bearer "+bootstrap)
	s, err := reflection.NewServerReflectionClient(c.conn).ServerReflectionInfo(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	defer s.CloseSend() // the call ends with its context
	ask := func(r *reflection.ServerReflectionRequest) *reflection.ServerReflectionResponse {
		c.t.Helper()
		if err := s.Send(r); err != nil {
			c.t.Fatal(err)
		}
		answer, err := s.Recv()
		if err != nil {
			c.t.Fatal(err)
		}
		return answer
	}
	files := map[string]*descriptorpb.FileDescriptorProto{}
	var fetch func(r *reflection.ServerReflectionRequest)
	fetch = func(r *reflection.ServerReflectionRequest) {
		for _, raw := range ask(r).GetFileDescriptorResponse().GetFileDescriptorProto() {
			f := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(raw, f); err != nil {
				c.t.Fatal(err)
			}
			if files[f.GetName()] != nil {
				continue
			}
			files[f.GetName()] = f
			for _, d := range f.GetDependency() {
				if files[d] == nil {
					fetch(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_FileByFilename{FileByFilename: d}})
				}
			}
		}
	}
	var names []string
	for _, service := range ask(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_ListServices{}}).GetListServicesResponse().GetService() {
		names = append(names, service.GetName())
		fetch(&reflection.ServerReflectionRequest{MessageRequest: &reflection.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service.GetName()}})
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, f := range files {
		set.File = append(set.File, f)
	}
	all, err := protodesc.NewFiles(set)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]protoreflect.ServiceDescriptor{}
	for _, name := range names {
		found, err := all.FindDescriptorByName(protoreflect.FullName(name))
		if err != nil {
			c.t.Fatal(err)
		}
		out[name] = found.(protoreflect.ServiceDescriptor)
	}
	return out
}
