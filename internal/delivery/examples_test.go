package delivery

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/webhook"
)

// The programs of docs/webhooks.md accept signed requests and nothing else.
func TestDocumentedVerification(t *testing.T) {
	text, err := os.ReadFile("../../docs/webhooks.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	block := func(language, file string) string {
		_, rest, ok := strings.Cut(string(text), "\n```"+language+"\n")
		program, _, closed := strings.Cut(rest, "\n```\n")
		if !ok || !closed {
			t.Fatalf("docs/webhooks.md has no %s program", language)
		}
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(program+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	binary := filepath.Join(dir, "verify")
	if err := cmdtest.Build(binary, block("go", "verify.go")); err != nil {
		t.Fatal(err)
	}
	programs := map[string][]string{"go": {binary}}
	if spec.Has("python") {
		programs["python"] = []string{"python3", block("python", "verify.py")}
	}

	secret, now := webhook.NewSecret(), time.Now()
	body := []byte(`{"type":"job.completed","data":{"id":"ü"}}`)
	good := secret.Sign("msg_1", now, body)
	stamp := strconv.FormatInt(now.Unix(), 10)
	old := now.Add(-time.Hour)
	for name, program := range programs {
		for _, c := range []struct {
			what, id, at, signature string
			body                    []byte
			ok                      bool
		}{
			{"as it was sent", "msg_1", stamp, good, body, true},
			{"one of several signatures", "msg_1", stamp, "v1,AAAA " + good, body, true},
			{"another body", "msg_1", stamp, good, append(bytes.Clone(body), ' '), false},
			{"another id", "msg_2", stamp, good, body, false},
			{"another secret", "msg_1", stamp, webhook.NewSecret().Sign("msg_1", now, body), body, false},
			{"another version", "msg_1", stamp, "v0" + good[2:], body, false},
			{"no signature", "msg_1", stamp, "", body, false},
			{"too old", "msg_1", strconv.FormatInt(old.Unix(), 10), secret.Sign("msg_1", old, body), body, false},
		} {
			command := exec.CommandContext(t.Context(), program[0], append(program[1:], secret.Text(), c.id, c.at, c.signature)...) //nolint:gosec // what was just built
			command.Stdin = bytes.NewReader(c.body)
			out, err := command.CombinedOutput()
			if (err == nil) != c.ok || c.ok && strings.TrimSpace(string(out)) != "ok" {
				t.Errorf("%s, %s: %v, %s; accepted should be %t", name, c.what, err, out, c.ok)
			}
			verified := secret.Verify(c.id, c.at, c.signature, c.body, now)
			if (verified == nil) != c.ok {
				t.Errorf("Verify, %s: %v", c.what, verified)
			}
		}
	}
}
