package e2e_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

// The server reports claims, rulings and rounds to the configured sinks and asks about
// proofs. What a sink did not accept before a crash comes after it.
func TestServeSinks(t *testing.T) {
	spec.Covers(t, "M-106")
	var mu sync.Mutex
	down, rounds := true, map[uint64]match.RoundProof{}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		switch r.URL.Path {
		case "/proofs":
			var c match.Completion
			if err := json.Unmarshal(body, &c); err != nil {
				t.Error(err)
			}
			flaw := ""
			if c.Proof != "good" {
				flaw = "it is not good"
			}
			fmt.Fprintf(w, `{"flaw":%q}`, flaw)
		case "/rounds":
			if down {
				w.WriteHeader(http.StatusBadGateway)
				return
			}
			var m struct {
				ID   string
				Data match.RoundProof
			}
			if err := json.Unmarshal(body, &m); err != nil || m.ID != fmt.Sprintf("round-%d", m.Data.Round) {
				t.Errorf("%s: %v", body, err)
			}
			rounds[m.Data.Round] = m.Data
		}
	}))
	t.Cleanup(receiver.Close)
	dir := t.TempDir()
	claims := filepath.Join(dir, "claims.jsonl")
	start := func() *served {
		return startServer(t, nil, "--data", filepath.Join(dir, "data"), "--matching-queue-ack-timeout-ms", "170000",
			"--matching-sinks-claims", "file:"+claims, "--matching-sinks-sla", "queue:sla", "--matching-sinks-rounds", receiver.URL+"/rounds",
			"--matching-checks-proofs", receiver.URL+"/proofs")
	}
	s := start()
	s.matching(http.MethodPost, "/providers", anyProvider)
	s.matching(http.MethodPut, "/policy", `{"eligibility":{"heartbeat_timeout_secs":10000},"retries":{"base_backoff_ai_secs":1}}`)
	s.matching(http.MethodPost, "/jobs", `{"kind":"AI","units":3}`)
	lease := func() (id string) {
		t.Helper()
		cmdtest.WaitFor(t, "a lease", func() bool {
			var page struct {
				Leases []struct {
					ID string `json:"lease_id"`
				}
			}
			if err := json.Unmarshal([]byte(s.matching(http.MethodGet, "/providers/p/leases", "")), &page); err != nil {
				t.Fatal(err)
			}
			if len(page.Leases) > 0 {
				id = page.Leases[0].ID
			}
			return id != ""
		})
		s.matching(http.MethodPost, "/leases/"+id+"/ack", "")
		return id
	}
	complete := func(id, proof string) (int, string) {
		t.Helper()
		answer, err := http.Post("http://"+s.http+"/api/matching/leases/"+id+"/complete", "application/json", strings.NewReader(fmt.Sprintf(`{"output_digest":%q,"proof":%q}`, strings.Repeat("ab", 32), proof)))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		return answer.StatusCode, string(text)
	}
	if code, text := complete(lease(), "bad"); code != http.StatusConflict || !strings.Contains(text, "proof_invalid") {
		t.Fatalf("a bad proof: %d %s", code, text)
	}
	second := lease()
	if code, text := complete(second, "good"); code != http.StatusOK {
		t.Fatalf("a good proof: %d %s", code, text)
	}
	cmdtest.WaitFor(t, "the claim", func() bool {
		text, _ := os.ReadFile(claims)
		return strings.Count(string(text), "\n") == 1 && strings.Contains(string(text), `{"id":"claim-`+second+`","type":"matching.claim"`) && strings.Contains(string(text), `"units":3`)
	})
	cmdtest.WaitFor(t, "the ruling", func() bool {
		return strings.Contains(get(t, "http://"+s.http+"/v1/jobs?queue=sla"), `"type":"matching.sla"`)
	})
	s.Signal(syscall.SIGKILL)
	s.Ended()
	mu.Lock()
	if len(rounds) != 0 {
		t.Errorf("rounds came to a receiver that was down: %v", rounds)
	}
	down = false
	mu.Unlock()
	s = start()
	cmdtest.WaitFor(t, "two rounds", func() bool { mu.Lock(); defer mu.Unlock(); return len(rounds) == 2 })
	for n, r := range rounds {
		input, err := exec.CommandContext(t.Context(), cmdtest.Program(t), "match", "replay", fmt.Sprint(n), "--input", "--http", s.http).Output()
		if err != nil || fmt.Sprintf("%x", sha256.Sum256(input)) != r.InputDigest {
			t.Errorf("round %d: the digest of its input is %s: %v\n%s", n, r.InputDigest, err, input)
		}
	}
	s.Signal(os.Interrupt)
	if status := s.Ended(); status != 0 {
		t.Errorf("the server ended with %d\n%s", status, s.Stderr.String())
	}

	// Targets that cannot be used stop the server before it begins.
	for _, v := range [][2]string{
		{"claims.jsonl", "want file:PATH, queue:NAME or a URL"}, {"queue:matching", "choose another queue"}, {"file:" + filepath.Join(claims, "x"), "not a directory"},
	} {
		var stderr bytes.Buffer
		c := exec.CommandContext(t.Context(), cmdtest.Program(t), "serve", "--store", "memory:", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--matching-sinks-claims", v[0])
		c.Stderr = &stderr
		if err := c.Run(); err == nil || !strings.Contains(stderr.String(), "matching.sinks.claims") || !strings.Contains(stderr.String(), v[1]) {
			t.Errorf("%s: %v %s", v[0], err, stderr.String())
		}
	}
}

// get reads a page, which must exist.
func get(t testing.TB, url string) string {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", url, answer.StatusCode, text, err)
	}
	return string(text)
}
