package native

import (
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
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
