package native

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

// The pictures of a workflow are an image and a text. Names that are too long for their boxes are
// shortened, and complete in the titles.
func TestWorkflowPictures(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	long := strings.Repeat("W", gq.MaxRefBytes)
	flow := gq.NewWorkflow("order")
	flow.Add(long, gq.Draft{Spec: gq.Spec{Type: "order.<charge>"}})
	flow.Add("äöü", gq.Draft{Spec: gq.Spec{Type: strings.Repeat("界", 50)}}, gq.After(gq.Ref(long)))
	id, err := s.engine.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	read := func(ending, contentType string) string {
		t.Helper()
		response, err := http.Get(s.server.URL + "/v1/workflows/" + id.String() + "/graph." + ending)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != contentType || response.Header.Get("Content-Security-Policy") == "" {
			t.Errorf("graph.%s: %d %v, %v", ending, response.StatusCode, response.Header, err)
		}
		return string(text)
	}
	if text := read("txt", "text/plain; charset=utf-8"); !strings.HasPrefix(text, long+" order.<charge> SCHEDULED\n") {
		t.Errorf("the text is %s", text)
	}
	image := read("svg", "image/svg+xml")
	var shown, titles []string
	for d, in := xml.NewDecoder(strings.NewReader(image)), ""; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, image)
		}
		switch token := token.(type) {
		case xml.StartElement:
			in = token.Name.Local
		case xml.EndElement:
			in = ""
		case xml.CharData:
			switch in {
			case "text":
				shown = append(shown, string(token))
			case "title":
				titles = append(titles, string(token))
			}
		}
	}
	if len(shown) != 4 || len(titles) != 3 || titles[1] != long+" order.<charge> SCHEDULED" {
		t.Fatalf("the boxes have %q and the titles %q", shown, titles)
	}
	for _, text := range shown {
		if n := len([]rune(text)); n > 26 { // a box is 200 pixels wide and a letter about 7
			t.Errorf("%q has %d letters", text, n)
		}
	}
	if !strings.HasSuffix(shown[0], "W…") || !strings.HasSuffix(shown[2], "界…") {
		t.Errorf("the boxes have %q", shown)
	}
	for path, want := range map[string]int{
		"/v1/workflows/none/graph.svg":                                 http.StatusBadRequest,
		"/v1/workflows/01900000-0000-7000-8000-000000000000/graph.txt": http.StatusNotFound,
	} {
		response, err := http.Get(s.server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, response.StatusCode, want)
		}
	}
}

// A member of a workflow has at most 1000 dependencies, as any other job; a final job waits for
// more of them.
func TestWorkflowBreadth(t *testing.T) {
	spec.Covers(t, "J-82")
	s := newSite(t, HTTPOptions{})
	var jobs, needs []string
	for i := range gq.MaxDependencies + 1 {
		jobs = append(jobs, fmt.Sprintf(`{"ref":"%d","type":"t"}`, i))
		needs = append(needs, fmt.Sprintf(`{"ref":"%d"}`, i))
	}
	flow := func(needs ...string) string {
		members := slices.Clone(jobs)
		for i, n := range needs {
			members = append(members, fmt.Sprintf(`{"ref":"wide%d","type":"t","needs":[%s]}`, i, n))
		}
		return `{"jobs":[` + strings.Join(members, ",") + `,{"ref":"last","type":"t","final":"EITHER"}]}`
	}
	most, more := strings.Join(needs[1:], ","), strings.Join(needs, ",")
	s.want(http.StatusCreated, "POST", "/v1/workflows", flow(most, most))
	answer := s.want(http.StatusBadRequest, "POST", "/v1/workflows", flow(most, more))
	if want := `"field":"jobs[1002].depends_on","problem":"1001 dependencies are more than 1000 (job \"wide1\")"`; !strings.Contains(strings.ReplaceAll(answer.text, " ", ""), strings.ReplaceAll(want, " ", "")) || strings.Contains(answer.text, "jobs[1001]") {
		t.Errorf("the answer is %s, want %s", answer.text, want)
	}
}

// The answer to a signal is the whole job.
func TestSignalAnswersTheJob(t *testing.T) {
	s := newSite(t, HTTPOptions{})
	flow := gq.NewWorkflow("order")
	flow.Signal("paid", time.Hour)
	id, err := s.engine.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a repeated signal has the same answer
		answer := s.want(http.StatusOK, "POST", "/v1/workflows/"+id.String()+"/signals/paid", `{"value":1}`)
		if answer.str("queue") == "" || answer.str("type") == "" || answer.str("state") != "COMPLETED" {
			t.Errorf("the answer is %s", answer.text)
		}
	}
}

// The claim of a final job has the status of the jobs that are not final, over HTTP, by a call of
// gRPC and on a Work stream. The claim of another job has none.
func TestClaimOfFinalJobHasTheOutcome(t *testing.T) {
	s, h := newSite(t, HTTPOptions{}), serveGRPC(t, GRPCOptions{}, nil)
	b := h.open()
	credit := uint64(1)
	claims := map[string]struct {
		engine *engine.Engine
		claim  func() (ref, outcome string, lease gq.LeaseID)
	}{
		"HTTP": {s.engine, func() (ref, outcome string, lease gq.LeaseID) {
			job, id := s.claim("")
			outcome, _ = job["workflow_outcome"].(string)
			return job["ref"].(string), outcome, gq.LeaseID(id)
		}},
		"gRPC": {h.engine, func() (ref, outcome string, lease gq.LeaseID) {
			r, err := h.workers.Claim(t.Context(), &pb.ClaimRequest{Worker: "w", N: 1})
			if err != nil || len(r.GetJobs()) != 1 {
				t.Fatalf("%v, %v", r, err)
			}
			return seen(r.GetJobs()[0])
		}},
		"the Work stream": {h.engine, func() (ref, outcome string, lease gq.LeaseID) {
			credit++
			b.credit(credit, 1, 0)
			r := b.receive()
			if len(r.GetJobs().GetJobs()) != 1 {
				t.Fatalf("%v", r)
			}
			return seen(r.GetJobs().GetJobs()[0])
		}},
	}
	for name, c := range claims {
		for _, want := range []gq.WorkflowStatus{gq.WorkflowSucceeded, gq.WorkflowFailed} {
			flow := gq.NewWorkflow("order")
			flow.Add("charge", gq.Draft{Spec: gq.Spec{Type: "t"}})
			flow.Add("pack", gq.Draft{Spec: gq.Spec{Type: "t"}}, gq.After(gq.Ref("charge")))
			flow.Finally("mail", gq.Draft{Spec: gq.Spec{Type: "t"}})
			if _, err := c.engine.SubmitWorkflow(t.Context(), flow); err != nil {
				t.Fatal(err)
			}
			for _, job := range []string{"charge", "pack", "mail"} {
				ref, outcome, id := c.claim()
				shown := ""
				if job == "mail" {
					shown = want.String()
				}
				if ref != job || outcome != shown {
					t.Errorf("%s: claimed %s with the outcome %q, want %s with %q", name, ref, outcome, job, shown)
				}
				end := gq.Outcome{Lease: gq.LeaseRef{ID: id}, Verdict: gq.VerdictComplete}
				if job == "pack" && want == gq.WorkflowFailed {
					end.Verdict, end.Failure = gq.VerdictFail, gq.Failure{Category: gq.CategoryPermanent}
				}
				if got, err := c.engine.Settle(t.Context(), []gq.Outcome{end}); err != nil || got[0].Err != nil {
					t.Fatalf("%v, %v", got, err)
				}
			}
		}
	}
}

// seen returns what a client reads of a claimed job.
func seen(j *pb.Job) (ref, outcome string, lease gq.LeaseID) {
	return j.GetSpec().GetRef(), j.GetWorkflowOutcome(), gq.LeaseID(j.GetState().GetLease().GetId())
}
