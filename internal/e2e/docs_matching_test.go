package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

// The commands of docs/matching.md work as written and in this order, except that the
// server uses free ports.
func TestMatchingDocument(t *testing.T) {
	spec.Needs(t, "curl")
	text, err := os.ReadFile("../../docs/matching.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var s *served
	script := ""
	for _, b := range fences(string(text), "") {
		if b.language != "sh" {
			continue
		}
		flags, serves := strings.CutPrefix(b.text, "gq serve ")
		if !serves {
			script += b.text
			continue
		}
		if s != nil {
			t.Fatal("the document starts a second server")
		}
		args := append([]string{"serve", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"}, strings.Fields(flags)...)
		command := exec.Command(cmdtest.Program(t), args...)
		command.Dir = dir
		s = launch(t, nil, command)
	}
	if s == nil {
		t.Fatal("the document starts no server")
	}
	c := exec.CommandContext(t.Context(), "/bin/sh", "-euc", strings.ReplaceAll(script, "127.0.0.1:8780", s.http))
	c.Dir = dir
	c.Env = append(os.Environ(), "GQ_ADDR="+s.grpc, "GQ_HTTP="+s.http, "PATH="+filepath.Dir(cmdtest.Program(t))+":"+os.Getenv("PATH"))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s\nThe server said\n%s", err, out, s.Stderr.String())
	}
	for _, want := range []string{
		`"lease_id": "266e0074`, // gq match round.json gives the lease id that the document names
		"gpu-7", `"state":"COMPLETED"`, "round 1: equal: 1 assignment and", `"type":"matching.claim"`, "incapable", "CANCELLED", "0 leases cancelled, 1 had ended before", "RETIRED", "1 removed",
	} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the commands do not print %q:\n%s", want, out)
		}
	}
	s.Signal(os.Interrupt)
	if status := s.Ended(); status != 0 {
		t.Errorf("the server ended with %d\n%s", status, s.Stderr.String())
	}
}
