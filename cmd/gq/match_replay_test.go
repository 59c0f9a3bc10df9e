package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
)

func TestMatchReplay(t *testing.T) {
	s, e := memoryEngine(t)
	d, err := matchmaker.New(e, s, matchmaker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := match.Provider{ID: "p", Status: match.Active, Capabilities: match.Kinds(), Stake: 10_000, AttestationExpiresAt: match.MaxTime}
	if _, err := d.Register(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Submit(t.Context(), match.Enqueue{Job: match.Job{Kind: match.AI}}); err != nil {
		t.Fatal(err)
	}
	if r, err := d.Round(t.Context()); err != nil || r.Number != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	server := httptest.NewServer(matching.Handler(d, e, matching.Options{}))
	defer server.Close()
	gq := func(args ...string) outcome {
		var stdout, stderr bytes.Buffer
		env := func(name string) string { return map[string]string{"GQ_HTTP": server.URL}[name] }
		status := run(t.Context(), append([]string{"match", "replay"}, args...), env, strings.NewReader(""), &stdout, &stderr)
		return outcome{status, stdout.String(), stderr.String()}
	}
	if got := gq("1"); got.status != cli.ExitOK || !strings.HasPrefix(got.stdout, "round 1: equal: 1 assignment and ") {
		t.Errorf("a round: %+v", got)
	}
	if got := gq("1", "--json"); got.status != cli.ExitOK || !strings.Contains(got.stdout, `"equal": true`) {
		t.Errorf("as JSON: %+v", got)
	}
	if got := gq("2"); got.status != cli.ExitNotFound || got.stdout != "" {
		t.Errorf("an unknown round: %+v", got)
	}
	if got := gq("first"); got.status != cli.ExitUsage || got.stdout != "" {
		t.Errorf("no number: %+v", got)
	}
	input := gq("1", "--input")
	if result := matchOf(t, input.stdout, "-"); result.status != cli.ExitOK || !strings.Contains(result.stdout, `"provider_id": "p"`) {
		t.Errorf("the input: %+v", result)
	}

	// A tampered record is detected.
	answer, err := http.Get(server.URL + "/api/matching/rounds/1")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var rec map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&rec); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "1.json")
	save := func() {
		text, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	save()
	if got := gq("--file", file); got.status != cli.ExitOK {
		t.Errorf("a saved record: %+v", got)
	}
	rec["assignments"].([]any)[0].(map[string]any)["score_ppb"] = 1
	save()
	if got := gq("--file", file); got.status != cli.ExitFailure || !strings.Contains(got.stderr, "were recorded") {
		t.Errorf("a changed record: %+v", got)
	}
	server.Close()
	if got := gq("1"); got.status != cli.ExitUnreachable {
		t.Errorf("no server: %+v", got)
	}
}

// The matching API is found by the server's gRPC address, like everything else, or by its
// own address.
func TestWhereMatchingIs(t *testing.T) {
	for _, v := range []struct {
		addr, http string // flags
		env        map[string]string
		want       string // "" is a usage error
	}{
		{want: "127.0.0.1:8780"},
		{http: "h:1", addr: "a:8790", env: map[string]string{"GQ_HTTP": "x:2", "GQ_ADDR": "y:8790"}, want: "h:1"},
		{addr: "a:8790", env: map[string]string{"GQ_HTTP": "x:2", "GQ_ADDR": "y:8790"}, want: "a:8780"},
		{env: map[string]string{"GQ_HTTP": "x:2", "GQ_ADDR": "y:8790"}, want: "x:2"},
		{env: map[string]string{"GQ_ADDR": "y:8790"}, want: "y:8780"},
		{env: map[string]string{"GQ_ADDR": "[::1]:8790"}, want: "[::1]:8780"},
		{env: map[string]string{"GQ_ADDR": "y:8790, z:8790"}, want: "y:8780 z:8780"},
		{env: map[string]string{"GQ_HTTP": "x:2,y:3"}, want: "x:2 y:3"},
		{env: map[string]string{"GQ_ADDR": "y:8790,z:9000"}},
		{env: map[string]string{"GQ_ADDR": "y:9000"}},
		{addr: "a"},
	} {
		a := matchingAPI{process: process{getenv: func(name string) string { return v.env[name] }}, addr: v.addr, http: v.http}
		list, err := a.servers()
		got := strings.Join(list, " ")
		if got != v.want || (err == nil) != (v.want != "") || err != nil && cli.ExitOf(err) != cli.ExitUsage {
			t.Errorf("%+v: %q, %v", v, got, err)
		}
	}
}
