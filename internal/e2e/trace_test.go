package e2e_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// A trace goes from a Go client, a header or the environment of gq submit through a server that
// does not trace to the environment of a program and into the events.
func TestTraceReachesPrograms(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:")
	work := exec.Command(cmdtest.Program(t), "work", "--addr", s.grpc, "--type", "t", "--exec", `printf '"%s %s"' "$TRACEPARENT" "$TRACESTATE"`)
	work.Env = append(work.Environ(), "TRACEPARENT=00-11111111111111111111111111111111-1111111111111111-01", "TRACESTATE=not=this")
	if err := work.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = work.Process.Signal(syscall.SIGTERM)
		_ = work.Wait()
	}()
	c, err := client.New(s.grpc, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	state, err := trace.ParseTraceState("vendor=value")
	if err != nil {
		t.Fatal(err)
	}
	const trace0, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	const parent = "00-" + trace0 + "-" + span + "-01"
	id, _ := trace.TraceIDFromHex(trace0)
	spanID, _ := trace.SpanIDFromHex(span)
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: id, SpanID: spanID, TraceFlags: trace.FlagsSampled, TraceState: state,
	}))
	submissions := map[string]func() gq.JobID{
		"Go client": func() gq.JobID {
			r, err := c.Submit(ctx, gq.Spec{Type: "t"})
			if err != nil {
				t.Fatal(err)
			}
			return r.ID()
		},
		"workflow": func() gq.JobID {
			f := gq.NewWorkflow("w")
			f.Add("a", gq.NewKind[gq.None, gq.None]("t").With(gq.None{}))
			id, err := c.SubmitWorkflow(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			w, err := c.Workflow(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			return w.Jobs[0].ID
		},
		"HTTP": func() gq.JobID {
			request, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.http+"/v1/jobs", strings.NewReader(`{"type":"t"}`))
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("traceparent", parent)
			request.Header.Set("tracestate", "vendor=value")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			var job struct{ ID gq.JobID }
			if err := json.NewDecoder(response.Body).Decode(&job); err != nil {
				t.Fatal(err)
			}
			return job.ID
		},
		"gq submit": func() gq.JobID {
			command := exec.Command(cmdtest.Program(t), "submit", "t", "--addr", s.grpc, "--json")
			command.Env = append(command.Environ(), "TRACEPARENT="+parent, "TRACESTATE=vendor=value")
			out, err := command.Output()
			if err != nil {
				t.Fatal(err)
			}
			var job struct{ ID gq.JobID }
			if err := json.Unmarshal(out, &job); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			return job.ID
		},
	}
	for name, submit := range submissions {
		id := submit()
		j, err := c.Wait(t.Context(), id)
		if want := `"` + parent + ` vendor=value"`; err != nil || string(j.Result) != want {
			t.Errorf("%s: the program had %s (%+v), %v; want %s", name, j.Result, j.State, err, want)
		}
		response, err := http.Get("http://" + s.http + "/v1/jobs/" + id.String() + "/events")
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if n := strings.Count(string(text), `"traceparent":"`+parent+`"`); response.StatusCode != http.StatusOK || n < 3 {
			t.Errorf("%s: %d events name the trace: %s", name, n, text)
		}
	}
	r, err := c.Submit(t.Context(), gq.Spec{Type: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if j, err := c.Wait(t.Context(), r.ID()); err != nil || string(j.Result) != `" "` {
		t.Errorf("a job without a trace: the program had %s, %v", j.Result, err)
	}
}
