package native

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/access"
)

// TestObserversSeeNoContent asks for everything about a job through both APIs, with a token that
// may read content and with one that may not.
func TestObserversSeeNoContent(t *testing.T) {
	const secret = "SECRET"
	f := newFortress(t)
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	spec := gq.Spec{Queue: "q", Type: "t", Payload: gq.Payload{ContentType: "application/json", Data: []byte(`"` + secret + `"`)}}
	spec.Overrides.MaxAttempts = 1
	_, err := f.engine.Submit(ctx, spec)
	must(err)
	jobs, err := f.engine.Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, N: 1})
	must(err)
	job := jobs[0].State.ID.String()
	lease := jobs[0].State.Lease.Ref()
	_, err = f.engine.Heartbeat(ctx, []gq.Heartbeat{{Lease: lease, Note: secret, Checkpoint: []byte(secret)}})
	must(err)
	_, err = f.engine.Fail(ctx, lease, gq.Failure{Category: gq.CategoryPermanent, Code: "code", Message: secret})
	must(err)
	// A second job waits for its next attempt, and has a note and a message.
	again := spec
	again.Overrides.MaxAttempts = 5
	_, err = f.engine.Submit(ctx, again)
	must(err)
	jobs, err = f.engine.Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: []string{"q"}, N: 1})
	must(err)
	live := jobs[0].State.ID.String()
	_, err = f.engine.Heartbeat(ctx, []gq.Heartbeat{{Lease: jobs[0].State.Lease.Ref(), Note: secret}})
	must(err)
	_, err = f.engine.Fail(ctx, jobs[0].State.Lease.Ref(), gq.Failure{Category: gq.CategoryTemporary, Code: "code", Message: secret})
	must(err)
	_, err = f.engine.PutSchedule(ctx, gq.Schedule{Name: "s", Every: 1 << 40, Template: spec})
	must(err)

	observer, reader := f.token(access.Observe, "*"), f.token(access.Read, "*")
	get := func(token, path string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.web.URL+path, nil)
		must(err)
		r.Header.Set("Authorization", "Bearer "+token)
		answer, err := f.web.Client().Do(r)
		must(err)
		defer answer.Body.Close()
		var text []byte
		if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
			buffer := make([]byte, 64<<10)
			for !strings.Contains(string(text), "job.dead_lettered") && !strings.Contains(string(text), "job.failed") && !strings.Contains(string(text), "event: F") {
				n, err := answer.Body.Read(buffer)
				must(err)
				text = append(text, buffer[:n]...)
			}
		} else {
			text, err = io.ReadAll(answer.Body)
			must(err)
		}
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", path, answer.StatusCode, text)
		}
		return string(text)
	}
	for _, path := range []string{
		"/v1/jobs/" + job, "/v1/jobs", "/v1/jobs/" + live + "/wait?timeout=10ms", "/v1/jobs/" + job + "/explain", "/v1/jobs/" + job + "/events",
		"/v1/schedules", "/v1/schedules/s", "/v1/events?after=0",
		"/v1/jobs/" + job + "?view=jobmodel", "/v1/jobs?view=jobmodel", "/v1/jobs/" + job + "/events?view=jobmodel", "/v1/events?after=0&view=jobmodel",
	} {
		if text := get(reader, path); !strings.Contains(text, secret) {
			t.Errorf("%s shows a reader nothing to redact: %s", path, text)
		}
		text := get(observer, path)
		if strings.Contains(text, secret) {
			t.Errorf("%s shows an observer content: %s", path, text)
		}
		if strings.HasPrefix(path, "/v1/jobs") && !strings.Contains(text, "redacted") {
			t.Errorf("%s does not say that it is redacted: %s", path, text)
		}
	}
	for _, path := range []string{"/v1/jobs/" + live + "?", "/v1/jobs?queue=q&", "/v1/jobs/" + live + "/wait?timeout=10ms&"} {
		for _, view := range []string{"semantics", "jobmodel"} {
			const mark = `"redacted":true`
			if hidden, seen := get(observer, path+"view="+view), get(reader, path+"view="+view); !strings.Contains(hidden, mark) || strings.Contains(seen, "redacted") {
				t.Errorf("%s in %s:\n%s\n%s", path, view, hidden, seen)
			}
		}
	}

	call := func(token string) context.Context {
		return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	client, events := pb.NewJobsServiceClient(f.conn), pb.NewEventsServiceClient(f.conn)
	for name, ask := range map[string]func(ctx context.Context) (string, error){
		"Get": func(ctx context.Context) (string, error) {
			m, err := client.Get(ctx, &pb.GetRequest{Id: job, WithPayload: true, WithResult: true, WithCheckpoint: true})
			return protojson.Format(m) + string(m.GetSpec().GetPayload()) + string(m.GetCheckpoint()), err
		},
		"List": func(ctx context.Context) (string, error) {
			m, err := client.List(ctx, &pb.ListRequest{})
			return protojson.Format(m), err
		},
		"Wait": func(ctx context.Context) (string, error) {
			m, err := client.Wait(ctx, &pb.WaitRequest{Id: job})
			return protojson.Format(m), err
		},
		"Wait that runs out": func(ctx context.Context) (string, error) {
			m, err := client.Wait(ctx, &pb.WaitRequest{Id: live, Timeout: durationpb.New(10 * time.Millisecond)})
			return protojson.Format(m), err
		},
		"Explain": func(ctx context.Context) (string, error) {
			m, err := client.Explain(ctx, &pb.ExplainRequest{Id: job})
			return protojson.Format(m), err
		},
		"History": func(ctx context.Context) (string, error) {
			m, err := client.History(ctx, &pb.HistoryRequest{Id: job})
			return protojson.Format(m), err
		},
		"ListEvents": func(ctx context.Context) (string, error) {
			m, err := events.ListEvents(ctx, &pb.ListEventsRequest{})
			return protojson.Format(m), err
		},
	} {
		text, err := ask(call(reader))
		if err != nil || !strings.Contains(text, secret) {
			t.Errorf("%s shows a reader nothing to redact: %v %s", name, err, text)
		}
		if text, err = ask(call(observer)); err != nil || strings.Contains(text, secret) || !strings.Contains(text, "redacted") {
			t.Errorf("%s for an observer: %v %s", name, err, text)
		}
	}
	for _, view := range []string{"semantics", "jobmodel"} {
		for token, want := range map[string]bool{observer: true, reader: false} {
			m, err := client.Get(call(token), &pb.GetRequest{Id: job, View: view})
			if got := m.GetSemantics().GetRedacted() || m.GetJobmodel().GetRedacted(); err != nil || got != want {
				t.Errorf("%s: redacted %v, want %v: %v, %v", view, got, want, m, err)
			}
		}
	}
	m, err := client.Get(call(observer), &pb.GetRequest{Id: job, WithPayload: true})
	if err != nil || !m.GetRedacted() || m.GetState().GetFailure().GetCode() != "code" {
		t.Errorf("an observer gets %v, %v", m, err)
	}
}
