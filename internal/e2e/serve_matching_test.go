package e2e_test

import (
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// matching calls the matching API of a server, which must succeed.
func (s *served) matching(method, path, body string) string {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.http+"/api/matching"+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 400 {
		s.t.Fatalf("%s %s: %d %s %v", method, path, answer.StatusCode, text, err)
	}
	return string(text)
}

const anyProvider = `{"id":"p","capabilities":["AI"],"stake":10000,"attestation_expires_at":8589934591}`

// Submitting a job and requesting a round returns its assignment, unless 50 ms have
// passed: then the server may have run a round by itself.
func TestARoundAnswersWhatWasJustSubmitted(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:", "--matching-queue-ack-timeout-ms", "170000")
	s.matching(http.MethodPut, "/policy", `{"quotas":{"leases_max_per_provider":1000}}`)
	s.matching(http.MethodPost, "/providers", anyProvider)
	// A request may coincide with a round triggered earlier, so most must be answered,
	// not all.
	quick, answered := 0, 0
	for deadline := time.Now().Add(patience); (answered < 2 || answered <= quick/2) && time.Now().Before(deadline); {
		last := time.Now()
		cmdtest.WaitFor(t, "what came before to be over", func() bool { return time.Since(last) > 200*time.Millisecond })
		s.matching(http.MethodPost, "/providers/p/heartbeat", "")
		start := time.Now()
		job := s.matching(http.MethodPost, "/jobs", `{"kind":"AI"}`)
		round := s.matching(http.MethodPost, "/rounds", "")
		took := time.Since(start)
		id, _, _ := strings.Cut(strings.TrimPrefix(job, `{"id":"`), `"`)
		switch {
		case strings.Contains(round, `"job_id":"`+id+`"`):
			quick, answered = quick+1, answered+1
		case took < 50*time.Millisecond:
			quick++
		} // otherwise the machine is busy
	}
	if answered < 2 || answered <= quick/2 {
		t.Errorf("%d of %d jobs were assigned by the round that was asked for after them", answered, quick)
	}
	s.Signal(syscall.SIGTERM)
	s.Ended()
}
