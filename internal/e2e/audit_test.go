package e2e_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/cli"
)

// TestAuditOverGRPC changes a queue and cancels jobs over gRPC, each with a token of its own, and
// reads with gq audit who did it. A token that may only read leaves no entry, because it changes
// nothing.
func TestAuditOverGRPC(t *testing.T) {
	s := startServer(t, []string{"GQ_ADMIN_TOKEN=bootstrap-bootstrap"}, "--store", "memory:")
	boot := []string{"GQ_TOKEN=bootstrap-bootstrap"}
	as := func(name, grant string) []string {
		t.Helper()
		out := s.gqAs(boot, "token", "create", name, "--grant", grant)
		if out.status != 0 {
			t.Fatalf("%+v", out)
		}
		return []string{"GQ_TOKEN=" + strings.TrimSpace(out.stdout)}
	}
	night, deploy, reader := as("night-shift", "admin"), as("deploy", "submit,read@mail"), as("reader", "read")
	for range 2 {
		if out := s.gqAs(deploy, "submit", "t", "--queue", "mail"); out.status != 0 {
			t.Fatalf("%+v", out)
		}
	}
	for _, call := range []struct {
		env    []string
		args   []string
		status int
	}{
		{night, []string{"queue", "pause", "mail"}, 0},
		{reader, []string{"queue", "resume", "mail"}, cli.ExitFailure},
		{deploy, []string{"job", "cancel", "--queue", "mail", "--reason", "wrong release", "--yes"}, 0},
		{night, []string{"queue", "resume", "none"}, cli.ExitNotFound},
	} {
		if out := s.gqAs(call.env, call.args...); out.status != call.status {
			t.Fatalf("%q: %+v, want the exit code %d", call.args, out, call.status)
		}
	}
	out := s.gqAs(boot, "audit", "--json")
	var page struct {
		Entries []struct {
			By, Face, From, Verb, Object, Outcome string
			Count                                 int
		}
	}
	if err := json.Unmarshal([]byte(out.stdout), &page); err != nil || out.status != 0 {
		t.Fatalf("%+v: %v", out, err)
	}
	var got []string
	for _, e := range page.Entries {
		if !strings.HasPrefix(e.From, "127.0.0.1") {
			t.Errorf("the entry %+v does not say where the call came from", e)
		}
		if e.Verb != "create" { // the tokens
			got = append(got, fmt.Sprintf("%s|%s|%s|%s|%d|%s", e.By, e.Face, e.Verb, e.Object, e.Count, e.Outcome))
		}
	}
	want := []string{
		"night-shift|grpc|resume|queue none|0|not_found",
		"deploy|grpc|cancel|jobs with queue=mail|2|ok",
		"night-shift|grpc|pause|queue mail|0|ok",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("gq audit has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if out := s.gqAs(boot, "audit", "--by", "night-shift", "--verb", "pause"); out.status != 0 || !strings.Contains(out.stdout, "night-shift") || !strings.Contains(out.stdout, "queue mail") || strings.Contains(out.stdout, "deploy") {
		t.Errorf("the entries of one token: %+v", out)
	}
	for _, env := range [][]string{deploy, reader} {
		if out := s.gqAs(env, "audit"); out.status != cli.ExitFailure {
			t.Errorf("a token without admin on all queues reads the trail: %+v", out)
		}
	}
	for _, env := range [][]string{night, deploy, reader} {
		if secret := strings.TrimPrefix(env[0], "GQ_TOKEN="); strings.Contains(out.stdout, secret) {
			t.Error("the trail has the secret of a token")
		}
	}
}
