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
