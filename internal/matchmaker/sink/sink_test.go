package sink_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker/sink"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/webhook"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"file:claims.jsonl": "", "file:/var/lib/gq/claims": "", "queue:claims": "", "http://127.0.0.1:9000/x": "", "https://example.org": "",
		"": "want file:PATH, queue:NAME or a URL", "claims.jsonl": "want file:PATH", "file:": "want file:PATH", "queue:": "want queue:NAME", "queue:a b": "want queue:NAME",
		"queue:matching": "choose another queue", "queue:taskqueue": "choose another queue", "ftp://example.org/x": "want file:PATH",
		"https://user:secret@example.org/x": "signed instead", "https://": "is not a URL", "http://%zz/": "not well-formed",
	} {
		_, err := sink.Parse(text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret@") {
			t.Errorf("%q: the error has the password: %v", text, err)
		}
	}
}

func open[T sink.Record](t *testing.T, target string, e sink.Environment) match.Sink[T] {
	t.Helper()
	parsed, err := sink.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sink.Open[T](parsed, e)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func claims(ids ...string) (list []match.Claim) {
	for _, id := range ids {
		list = append(list, match.Claim{Lease: gq.LeaseID(id), Provider: "p<", Kind: match.AI, Digest: "00"})
	}
	return list
}

// ids reads the ids of the lines of a file.
func ids(t *testing.T, path string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var m struct {
			ID, Type string
			Data     match.Claim
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.Type != "matching.claim" || m.Data.Provider != "p<" || !strings.HasSuffix(line, "\n") {
			t.Fatalf("line %q: %v", line, err)
		}
		list = append(list, m.ID)
	}
	return list
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "claims.jsonl")
	accept := open[match.Claim](t, "file:"+path, sink.Environment{})
	if got := ids(t, path); len(got) != 0 {
		t.Fatalf("%v", got)
	}
	put := func(ids ...string) {
		t.Helper()
		if err := accept(t.Context(), claims(ids...)); err != nil {
			t.Fatal(err)
		}
	}
	put("a", "b")
	// A crash has cut off a line, longer than one block.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"id":"claim-c","data":"` + strings.Repeat("x", 200_000)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	put("c")
	if got, want := ids(t, path), []string{"claim-a", "claim-b", "claim-c"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	put("d")
	if got, want := ids(t, path), []string{"claim-d"}; !slices.Equal(got, want) {
		t.Errorf("after a rotation: %v, want %v", got, want)
	}
	parsed, err := sink.Parse("file:" + filepath.Join(path, "not-a-directory"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sink.Open[match.Claim](parsed, sink.Environment{}); err == nil {
		t.Error("a file that cannot be written is accepted")
	}
}

var secret = webhook.Secret("0123456789abcdef0123456789abcdef")

// Requests are signed, one for each record, and a failed batch repeats only what was not
// accepted.
func TestURL(t *testing.T) {
	var got []string
	refuse := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := webhook.Verify(secret.Text(), r.Header, body); err != nil {
			t.Error(err)
		}
		id := r.Header.Get(webhook.HeaderID)
		if !strings.Contains(string(body), fmt.Sprintf(`{"id":%q,"type":"matching.claim","data":{"lease_id":`, id)) {
			t.Errorf("body %s", body)
		}
		got = append(got, id)
		switch {
		case refuse == "redirect":
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		case refuse == id:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	accept := open[match.Claim](t, server.URL, sink.Environment{Secret: secret})
	refuse = "claim-b"
	if err := accept(t.Context(), claims("a", "b", "c")); err == nil || !strings.Contains(err.Error(), "status 500") {
		t.Fatal(err)
	}
	refuse = "redirect"
	if err := accept(t.Context(), claims("a", "b", "c")); err == nil || !strings.Contains(err.Error(), "status 307") {
		t.Fatal(err)
	}
	refuse = ""
	if err := accept(t.Context(), claims("a", "b", "c", "d")); err != nil {
		t.Fatal(err)
	}
	if err := accept(t.Context(), claims("a")); err != nil { // another batch
		t.Fatal(err)
	}
	if want := []string{"claim-a", "claim-b", "claim-b", "claim-b", "claim-c", "claim-d", "claim-a"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	server.Close()
	if err := accept(t.Context(), claims("e")); err == nil {
		t.Error("accepted by nobody")
	}
}

// jobs is a queue that remembers what was submitted.
type jobs struct {
	specs []gq.Spec
	err   error // of the second job
}

func (q *jobs) SubmitBatch(_ context.Context, specs []gq.Spec) ([]gq.SubmitResult, error) {
	out := make([]gq.SubmitResult, len(specs))
	if len(specs) > 1 {
		out[1].Err = q.err
	}
	q.specs = append(q.specs, specs...)
	return out, nil
}

func TestQueue(t *testing.T) {
	q := &jobs{}
	accept := open[match.RoundProof](t, "queue:rounds", sink.Environment{Queue: q})
	if err := accept(t.Context(), []match.RoundProof{{Round: 1}, {Round: 2}}); err != nil {
		t.Fatal(err)
	}
	if len(q.specs) != 2 {
		t.Fatalf("%+v", q.specs)
	}
	s := q.specs[1]
	if s.Queue != "rounds" || s.Type != "matching.round" || s.Key.Name != "round-2" || !strings.HasPrefix(string(s.Payload.Data), `{"round":2,`) || s.Payload.ContentType != gq.JSON {
		t.Errorf("%+v", s)
	}
	q.err = gq.ErrQueueFull
	if err := accept(t.Context(), []match.RoundProof{{Round: 3}, {Round: 4}}); !errors.Is(err, gq.ErrQueueFull) || !strings.Contains(err.Error(), "round-4") {
		t.Errorf("a full queue: %v", err)
	}
}

// A URL decides about proofs and findings; an answer that is not as documented decides
// nothing.
func TestChecks(t *testing.T) {
	answer, status := "", http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := webhook.Verify(secret.Text(), r.Header, body); err != nil {
			t.Error(err)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	e := sink.Environment{Secret: secret}
	proofs, sla := sink.ProofsAt(server.URL, e), sink.JudgeAt(server.URL, e)
	for _, v := range []struct {
		status     int
		text, flaw string
		decides    bool
	}{
		{200, `{"flaw":""}`, "", true}, {200, `{"flaw":"wrong root"}`, "wrong root", true},
		{200, `{}`, "", false}, {200, ``, "", false}, {200, `{"flaw":1}`, "", false}, {200, `{"flaw":"","valid":true}`, "", false}, {500, `{"flaw":""}`, "", false}, {302, `{"flaw":""}`, "", false},
	} {
		answer, status = v.text, v.status
		flaw, err := proofs.CheckProof(t.Context(), match.Completion{Lease: "l"})
		if flaw != v.flaw || (err == nil) != v.decides {
			t.Errorf("%d %s: %q, %v", v.status, v.text, flaw, err)
		}
	}
	for _, v := range []struct {
		status  int
		text    string
		want    match.Judgement
		decides bool
	}{
		{200, `{"penalty":5,"reason":"fraud","jail":true}`, match.Judgement{Penalty: 5, Reason: "fraud", Jail: true}, true}, {200, `{}`, match.Judgement{}, true},
		{200, `{"penalty":-1}`, match.Judgement{}, false}, {200, `{"fine":1}`, match.Judgement{}, false}, {503, `{}`, match.Judgement{}, false},
	} {
		answer, status = v.text, v.status
		got, err := sla.Judge(t.Context(), match.Finding{Lease: "l"})
		if got != v.want || (err == nil) != v.decides {
			t.Errorf("%d %s: %+v, %v", v.status, v.text, got, err)
		}
	}
}
