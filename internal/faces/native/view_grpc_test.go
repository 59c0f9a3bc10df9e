package native

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/internal/view"
)

// messageMembers lists the names that the fields of a message have in JSON, and those of its nested
// messages.
func messageMembers(within string, m protoreflect.MessageDescriptor, into map[string]string) {
	var names []string
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		names = append(names, f.JSONName())
		if nested := f.Message(); nested != nil && !f.IsMap() && nested.FullName().Parent() == m.FullName().Parent() {
			messageMembers(f.JSONName(), nested, into)
		}
	}
	slices.Sort(names)
	into[within] = strings.Join(names, " ")
}

// The messages of the views have the members of the documents in JSON, to the innermost.
func TestViewMessages(t *testing.T) {
	spec.Covers(t, "J-03", "Q-21")
	for _, test := range []struct {
		job, event proto.Message
		want       map[string]string
	}{
		{new(pb.JobModelJob), new(pb.JobModelEvent), jobModelMembers},
		{new(pb.SemanticsJob), new(pb.SemanticsEvent), semanticsMembers},
	} {
		got := map[string]string{}
		messageMembers("job", test.job.ProtoReflect().Descriptor(), got)
		messageMembers("event", test.event.ProtoReflect().Descriptor(), got)
		want := map[string]string{}
		for within, members := range test.want {
			want[within] = sorted(members)
		}
		if !maps.Equal(got, want) {
			t.Errorf("%T has\n%v, want\n%v", test.job, got, want)
		}
	}
}

// inView returns what a message has in a view, and checks that it has nothing else.
func inView(t *testing.T, name string, m proto.Message) map[string]any {
	t.Helper()
	text, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var whole map[string]map[string]any
	if err := json.Unmarshal(text, &whole); err != nil || len(whole) != 1 || whole[name] == nil {
		t.Fatalf("%v: it is not in the view %s and nothing else: %s", err, name, text)
	}
	return whole[name]
}

// TestViewsOverGRPC reads a job that failed once and is held again with every call that has a view,
// and compares it with the same read over HTTP.
func TestViewsOverGRPC(t *testing.T) {
	spec.Covers(t, "J-03", "Q-26")
	n, s := newViews(t)
	conn, err := grpc.NewClient(n.grpcAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	jobs, ctx := pb.NewJobsServiceClient(conn), t.Context()
	first := s.submit(`{"type":"a","queue":"first"}`)
	id := s.submit(fmt.Sprintf(`{"type":"t","queue":"q","tags":{"k":"v"},"priority":"HIGH","payload":{"n":1.10},"idempotency_key":"key","depends_on":[{"kind":"AFTER_ANY","job":%q}]}`, first))
	_, l := s.claim(`,"queues":["first"]`)
	s.want(200, "POST", lease(l, "complete"), `{}`)
	_, l = s.claim(`,"queues":["q"]`)
	s.want(200, "POST", lease(l, "fail"), `{"category":"TEMPORARY","code":"bad","message":"no"}`)
	s.want(200, "POST", "/v1/jobs/"+id+"/reschedule")
	s.claim(`,"queues":["q"],"hold":true`)
	for name, document := range map[string]struct {
		members        map[string]string
		state, history string
	}{
		"jobmodel":  {jobModelMembers, "SCHEDULED", "PENDING SCHEDULED RUNNING RETRYING SCHEDULED"},
		"semantics": {semanticsMembers, "InFlight", "Ready InFlight Ready InFlight"},
	} {
		check := func(from string, m *pb.Job, err error, same reply) {
			t.Helper()
			if err != nil {
				t.Fatalf("%s: %v", from, err)
			}
			got := inView(t, name, m)
			if more := extensions(document.members, "job", got); len(more) > 0 || got["state"] != document.state {
				t.Errorf("%s, %s: extensions %q: %v", name, from, more, got)
			}
			for member, v := range same.body {
				text, isText := v.(string)
				if _, err := time.Parse(time.RFC3339Nano, text); isText && err == nil {
					isText = got[member] == nil
				}
				if d, err := time.ParseDuration(text); err == nil {
					text = fmt.Sprintf("%vs", d.Seconds())
				}
				if isText && got[member] != text {
					t.Errorf("%s, %s: %s is %v, over HTTP %s", name, from, member, got[member], text)
				}
			}
			if m.Jobmodel != nil && (string(m.Jobmodel.Payload) != `{"n":1.10}` && from == "get" || m.Jobmodel.Dependencies[0].Type != "AFTER_ANY" ||
				m.Jobmodel.Failure.Code != "bad" || m.Jobmodel.PreviousAttemptId != l || m.Jobmodel.Timeouts.Visibility.AsDuration() != 5*time.Minute || m.Jobmodel.Attempt != 1) {
				t.Errorf("%s: %v", from, m)
			}
			if m.Semantics != nil && (m.Semantics.MaxRetries != 2 || m.Semantics.Retries != 1 || m.Semantics.LeaseVersion != 2 || m.Semantics.LeaseExpiresAt == nil || m.Semantics.LeaseTtl.AsDuration() == 0) {
				t.Errorf("%s: %v", from, m)
			}
		}
		same := s.want(200, "GET", "/v1/jobs/"+id+"?view="+name)
		m, err := jobs.Get(ctx, &pb.GetRequest{Id: id, WithPayload: true, View: name})
		check("get", m, err, same)
		m, err = jobs.Wait(ctx, &pb.WaitRequest{Id: id, Timeout: durationpb.New(time.Millisecond), View: name})
		check("wait", m, err, s.want(200, "GET", "/v1/jobs/"+id+"/wait?timeout=1ms&view="+name))
		for _, v := range view.All() {
			for _, state := range v.States {
				page, err := jobs.List(ctx, &pb.ListRequest{Query: &pb.Query{Queue: "q"}, View: v.Name, States: []string{state}})
				if err != nil || (len(page.GetJobs()) == 1) != (v.Name == "jobmodel" && state == "SCHEDULED" || v.Name == "semantics" && state == "InFlight") {
					t.Errorf("%s lists %v, %v", state, page, err)
				}
			}
		}
		page, err := jobs.List(ctx, &pb.ListRequest{Query: &pb.Query{Queue: "q"}, View: name, States: []string{document.state}})
		if err != nil || len(page.GetJobs()) != 1 {
			t.Fatalf("%v, %v", page, err)
		}
		check("list", page.GetJobs()[0], nil, reply{})

		history, err := jobs.History(ctx, &pb.HistoryRequest{Id: id, View: name})
		if err != nil {
			t.Fatal(err)
		}
		listed, err := n.events.ListEvents(ctx, &pb.ListEventsRequest{View: name})
		if err != nil || listed.GetPosition() == 0 {
			t.Fatal(listed, err)
		}
		stream, err := n.events.Subscribe(ctx, &pb.SubscribeRequest{After: new(uint64), JobId: id, View: name})
		if err != nil {
			t.Fatal(err)
		}
		var followed []*pb.Event
		for len(followed) < len(history.GetEvents()) {
			some, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			followed = append(followed, some.GetEvents()...)
		}
		for from, events := range map[string][]*pb.Event{"history": history.GetEvents(), "list": listed.GetEvents(), "subscription": followed} {
			var states []string
			for _, m := range events {
				e := inView(t, name, m)
				if more := extensions(document.members, "event", e); len(more) > 0 {
					t.Errorf("%s, %s: the document has no %q", name, from, more)
				}
				if e["id"] == id {
					states = append(states, e["state"].(string))
				}
			}
			if got := strings.Join(states, " "); got != document.history {
				t.Errorf("%s, %s: %s, want %s", name, from, got, document.history)
			}
		}
	}
	refuseViews(t, n, jobs, id)
}

// refuseViews asks for views that do not exist and for states of others.
func refuseViews(t *testing.T, n *newsroom, jobs pb.JobsServiceClient, id string) {
	t.Helper()
	ctx := t.Context()
	calls := map[string]func() error{
		"get":         func() error { _, err := jobs.Get(ctx, &pb.GetRequest{Id: id, View: "x"}); return err },
		"wait":        func() error { _, err := jobs.Wait(ctx, &pb.WaitRequest{Id: id, View: "x"}); return err },
		"list":        func() error { _, err := jobs.List(ctx, &pb.ListRequest{View: "x"}); return err },
		"history":     func() error { _, err := jobs.History(ctx, &pb.HistoryRequest{Id: id, View: "x"}); return err },
		"list events": func() error { _, err := n.events.ListEvents(ctx, &pb.ListEventsRequest{View: "x"}); return err },
		"subscribe": func() error {
			stream, err := n.events.Subscribe(ctx, &pb.SubscribeRequest{View: "x"})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
		"a checkpoint": func() error {
			_, err := jobs.Get(ctx, &pb.GetRequest{Id: id, View: "semantics", WithCheckpoint: true})
			return err
		},
		"states without a view": func() error { _, err := jobs.List(ctx, &pb.ListRequest{States: []string{"Ready"}}); return err },
		"a state of another view": func() error {
			_, err := jobs.List(ctx, &pb.ListRequest{View: "semantics", States: []string{"RUNNING"}})
			return err
		},
		"statuses with a view": func() error {
			_, err := jobs.List(ctx, &pb.ListRequest{View: "semantics", Query: &pb.Query{Statuses: []pb.Status{pb.Status_STATUS_RUNNING}}})
			return err
		},
	}
	for what, call := range calls {
		if err := call(); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A submission in the view of the job model has the limits of the document, and without the view
// it has none of them.
func TestJobModelTimeouts(t *testing.T) {
	spec.Covers(t, "J-59", "J-60", "J-61")
	n, s := newViews(t)
	limits := func(id string) string {
		job := s.want(200, "GET", "/v1/jobs/"+id)
		seen := s.want(200, "GET", "/v1/jobs/"+id+"?view=jobmodel")
		return fmt.Sprintf("%v %v %v %v", job.at("policy", "execution_timeout"), job.at("policy", "lease_ttl"), job.at("policy", "lifetime"), seen.at("timeouts"))
	}
	const path = "/v1/jobs?view=jobmodel"
	own := s.want(201, "POST", path, `{"type":"a","timeouts":{"execution":"7m","visibility":"3m","lifetime":"5h"}}`)
	if more := extensions(jobModelMembers, "job", own.body); len(more) > 0 || own.str("state") != "SCHEDULED" || own.str("timeouts", "visibility") != "3m0s" {
		t.Errorf("the answer is %s, with %q", own.text, more)
	}
	if got, want := limits(own.str("id")), "7m0s 3m0s 5h0m0s map[execution:7m0s lifetime:5h0m0s visibility:3m0s]"; got != want {
		t.Errorf("all limits: %s, want %s", got, want)
	}
	some := s.want(201, "POST", path, `{"type":"a","timeouts":{"execution":"0s"},"policy":{"lease_ttl":"2m"}}`)
	if got, want := limits(some.str("id")), "0s 2m0s <nil> map[lifetime:168h0m0s visibility:2m0s]"; got != want {
		t.Errorf("some limits: %s, want %s", got, want)
	}
	for body, field := range map[string]string{
		`{"type":"a","timeouts":{"visible":"3m"}}`:                                                                 "timeouts.visible",
		`{"type":"a","timeouts":{"visibility":"0s"}}`:                                                              "timeouts.visibility",
		`{"type":"a","timeouts":{"execution":"-1s"}}`:                                                              "timeouts.execution",
		`{"type":"a","timeouts":{"lifetime":"soon"}}`:                                                              "timeouts.lifetime",
		`{"type":"a","timeouts":{"visibility":"200000h"}}`:                                                         "timeouts.visibility",
		`{"type":"a","timeouts":{"execution":"7m"},"policy":{"execution_timeout":"9m"}}`:                           "timeouts.execution",
		`{"type":"a","timeouts":{"lifetime":"0s","visibility":"1m"},"policy":{"lease_ttl":"60s","lifetime":"9h"}}`: "timeouts.lifetime",
	} {
		if got := s.want(400, "POST", path, body).fields(); len(got) != 1 || got[0] != field {
			t.Errorf("%s: the fault is in %q", body, got)
		}
	}
	for _, other := range []string{"/v1/jobs", "/v1/jobs?view=semantics"} {
		if got := s.want(400, "POST", other, `{"type":"a","timeouts":{"execution":"7m"}}`).fields(); len(got) != 1 || got[0] != "timeouts" {
			t.Errorf("%s: the fault is in %q", other, got)
		}
	}
	conn, err := grpc.NewClient(n.grpcAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	jobs := pb.NewJobsServiceClient(conn)
	minutes := func(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Minute) }
	r := &pb.SubmitRequest{Spec: &pb.Spec{Type: "a"}, View: "jobmodel", Timeouts: &pb.JobModelTimeouts{Execution: minutes(7), Visibility: minutes(3), Lifetime: minutes(300)}}
	out, err := jobs.Submit(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := limits(out.GetState().GetId()), limits(own.str("id")); got != want {
		t.Errorf("over gRPC: %s, want %s", got, want)
	}
	r.Timeouts.Visibility = minutes(-1)
	if _, err := jobs.Submit(t.Context(), r); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "timeouts.visibility") {
		t.Errorf("a negative limit: %v", err)
	}
	r.View = ""
	if _, err := jobs.Submit(t.Context(), r); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "timeouts: ") {
		t.Errorf("without the view: %v", err)
	}
}

// The jobs of a batch, a graph and a workflow have the limits of the document in its view, and
// without the view none of them. A limit that the policy gives too, with another value, is refused
// with both names.
func TestJobModelTimeoutsOfMany(t *testing.T) {
	spec.Covers(t, "J-59", "J-60", "J-61")
	n, s := newViews(t)
	limits := func(id string) string {
		job := s.want(200, "GET", "/v1/jobs/"+id)
		return fmt.Sprintf("%v %v %v", job.at("policy", "execution_timeout"), job.at("policy", "lease_ttl"), job.at("policy", "lifetime"))
	}
	const (
		jobs = `{"jobs":[{"ref":"a","type":"a","timeouts":{"execution":"7m","visibility":"3m","lifetime":"5h"}},` +
			`{"ref":"b","type":"a","needs":[{"ref":"a"}],"timeouts":{"execution":"8m"},"policy":{"execution_timeout":"8m","lease_ttl":"2m"}},{"ref":"c","type":"a"}]}`
		conflict = `{"jobs":[{"ref":"a","type":"a"},{"ref":"b","type":"a","timeouts":{"execution":"7m"},"policy":{"execution_timeout":"9m"}}]}`
		hours    = `{"jobs":[{"ref":"a","type":"a"},{"ref":"b","type":"a","timeouts":{"lifetime":"2000000h"}}]}`
	)
	want := []string{"7m0s 3m0s 5h0m0s", "8m0s 2m0s <nil>", "<nil> <nil> <nil>"}
	check := func(call string, ids ...string) {
		t.Helper()
		for i, id := range ids {
			if got := limits(id); got != want[i] {
				t.Errorf("%s: job %d has the limits %s, want %s", call, i, got, want[i])
			}
		}
	}
	batch := s.want(200, "POST", "/v1/jobs/batch?view=jobmodel", jobs)
	check("a batch", batch.str("jobs", 0, "id"), batch.str("jobs", 1, "id"), batch.str("jobs", 2, "id"))
	for i := range 3 {
		if more := extensions(jobModelMembers, "job", batch.at("jobs", i).(map[string]any)); len(more) > 0 {
			t.Errorf("the answer for job %d has %q", i, more)
		}
	}
	workflow := s.want(201, "POST", "/v1/workflows?view=jobmodel", jobs).str("id")
	members := func(id string) (ids []string) {
		w := s.want(200, "GET", "/v1/workflows/"+id)
		for i := range w.at("jobs").([]any) {
			ids = append(ids, w.str("jobs", i, "id"))
		}
		return ids
	}
	check("a workflow", members(workflow)...)
	s.want(200, "POST", "/v1/workflows/"+workflow+"/jobs?view=jobmodel", `{"jobs":[{"ref":"d","type":"a","timeouts":{"execution":"7m","visibility":"3m","lifetime":"5h"}}]}`)
	check("a job that is added", members(workflow)[3])

	for _, path := range []string{"/v1/jobs/batch", "/v1/workflows", "/v1/workflows/" + workflow + "/jobs"} {
		for _, refused := range []struct{ view, body, field, problem string }{
			{"", jobs, "timeouts", "view=jobmodel"}, {"?view=semantics", jobs, "timeouts", "view=jobmodel"},
			{"?view=jobmodel", conflict, "timeouts.execution", "7m0s is not the 9m0s of policy.execution_timeout"},
			{"?view=jobmodel", hours, "timeouts.lifetime", ""},
		} {
			body := refused.body
			if strings.HasSuffix(path, "/jobs") { // names that the workflow does not have
				body = strings.NewReplacer(`"ref":"a"`, `"ref":"x"`, `"ref":"b"`, `"ref":"y"`, `"ref":"c"`, `"ref":"z"`).Replace(body)
			}
			got := s.want(400, "POST", path+refused.view, body)
			if f := got.fields(); len(f) == 0 || !strings.HasSuffix(f[0], "]."+refused.field) || !strings.Contains(got.text, refused.problem) {
				t.Errorf("%s%s: %s, want %s: %s", path, refused.view, got.text, refused.field, refused.problem)
			}
		}
	}
	// In a batch of independent jobs each has its own answer.
	each := s.want(200, "POST", "/v1/jobs/batch?view=jobmodel", `{"jobs":[{"type":"a","timeouts":{"execution":"0s"},"policy":{"execution_timeout":"1m"}},{"type":"a","timeouts":{"execution":"7m","visibility":"3m","lifetime":"5h"}},{"type":"a","timeouts":{"lifetime":"2000000h"}}]}`)
	if first, last := each.str("jobs", 0, "problem", "faults", 0, "field"), each.str("jobs", 2, "problem", "faults", 0, "field"); first != "timeouts.execution" || last != "timeouts.lifetime" {
		t.Errorf("the answers are %s", each.text)
	}
	check("one of a batch", each.str("jobs", 1, "id"))

	conn, err := grpc.NewClient(n.grpcAddress, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client, flows := pb.NewJobsServiceClient(conn), pb.NewWorkflowsServiceClient(conn)
	minutes := func(n int) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Minute) }
	given := []*pb.JobModelTimeouts{{Execution: minutes(7), Visibility: minutes(3), Lifetime: minutes(300)}, {Execution: minutes(8)}, nil}
	specs := []*pb.Spec{{Type: "a"}, {Type: "a", Policy: &pb.Policy{ExecutionTimeout: minutes(8), LeaseTtl: minutes(2)}}, {Type: "a"}}
	drafts := make([]*pb.Draft, len(specs))
	for i := range specs {
		drafts[i] = &pb.Draft{Spec: specs[i], Ref: fmt.Sprint(i), Timeouts: given[i]}
	}
	many := &pb.SubmitBatchRequest{Specs: specs, View: "jobmodel", Timeouts: []*pb.JobModelTimeouts{given[0], given[1], {}}}
	ids := func(all []*pb.Submitted) (ids []string) {
		for _, s := range all {
			ids = append(ids, s.GetState().GetId())
		}
		return ids
	}
	if out, err := client.SubmitBatch(t.Context(), many); err != nil {
		t.Error(err)
	} else {
		check("a batch over gRPC", ids(out.GetSubmitted())...)
	}
	graph := &pb.SubmitGraphRequest{Drafts: drafts, View: "jobmodel"}
	if out, err := client.SubmitGraph(t.Context(), graph); err != nil {
		t.Error(err)
	} else {
		check("a graph over gRPC", ids(out.GetSubmitted())...)
	}
	flow := &pb.SubmitWorkflowRequest{Jobs: drafts, View: "jobmodel"}
	if out, err := flows.SubmitWorkflow(t.Context(), flow); err != nil {
		t.Error(err)
	} else {
		check("a workflow over gRPC", members(out.GetId())...)
	}
	add := &pb.AddToWorkflowRequest{Id: workflow, Jobs: []*pb.Draft{{Spec: specs[0], Ref: "e", Timeouts: given[0]}}, View: "jobmodel"}
	if _, err := flows.AddToWorkflow(t.Context(), add); err != nil {
		t.Error(err)
	} else {
		check("a job that is added over gRPC", members(workflow)[4])
	}
	add.Jobs[0].Ref = "f"
	refused := func(what, problem string) {
		t.Helper()
		_, err1 := client.SubmitGraph(t.Context(), graph)
		_, err2 := flows.SubmitWorkflow(t.Context(), flow)
		_, err3 := flows.AddToWorkflow(t.Context(), add)
		out, err4 := client.SubmitBatch(t.Context(), many)
		if err4 == nil {
			err4 = status.Error(codes.InvalidArgument, fmt.Sprint(pbconv.ErrorFromProblem(out.GetSubmitted()[0].GetProblem())))
		}
		for i, err := range []error{err1, err2, err3, err4} {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), problem) {
				t.Errorf("%s, call %d: %v, want %s", what, i, err, problem)
			}
		}
	}
	specs[0].Policy = &pb.Policy{LeaseTtl: minutes(9)}
	refused("two values", "timeouts.visibility: 3m0s is not the 9m0s of policy.lease_ttl")
	specs[0].Policy = nil
	many.View, graph.View, flow.View, add.View = "", "", "", ""
	refused("without the view", "timeouts: is only accepted with view=jobmodel")
	many.View, many.Timeouts = "jobmodel", many.Timeouts[:2]
	if _, err := client.SubmitBatch(t.Context(), many); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "timeouts: are 2 for 3 specs") {
		t.Errorf("limits for two of three jobs: %v", err)
	}
}
