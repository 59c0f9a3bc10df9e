package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/internal/tracing"
	"github.com/gopherqueue/gq/match"
)

// A provider renews its lease before renew_by while its program runs, and reports how the
// program ended.
func TestProvide(t *testing.T) {
	spec.Covers(t, "M-63")
	t.Parallel()
	// A machine that stalls for seconds is late only with short leases.
	late := provideOnce(t, 15)
	if late != "" {
		t.Logf("with leases of 15 s: %s", late)
		late = provideOnce(t, 100)
	}
	if late != "" {
		t.Error(late)
	}
}

// provideOnce returns what came too late for leases of a length.
func provideOnce(t *testing.T, seconds int64) (late string) {
	length := time.Duration(seconds) * time.Second
	s, e := memoryEngine(t)
	set := match.DefaultSettings()
	set.Lease.AI, set.AckTimeout = seconds, 1000*seconds-100
	d, err := matchmaker.New(e, s, matchmaker.Options{Settings: &set})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(matching.Handler(d, e, matching.Options{}))
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	p := match.Provider{ID: "gpu", Status: match.Active, Capabilities: match.Kinds(), Stake: 10_000, AttestationExpiresAt: match.MaxTime}
	if _, err := d.Register(ctx, p, nil); err != nil {
		t.Fatal(err)
	}
	submit := func(payload string) gq.JobID {
		j, err := d.Submit(ctx, match.Enqueue{Job: match.Job{Kind: match.AI}, Payload: []byte(payload)})
		if err != nil {
			t.Fatal(err)
		}
		id, _ := gq.ParseJobID(j.ID)
		return id
	}
	long, bad := submit(`"long"`), submit(`"bad"`)
	r, err := d.Round(ctx)
	if err != nil || len(r.Assignments) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}

	// The program ends on a signal from the test: the long job after a renewal.
	file := filepath.Join(t.TempDir(), "go")
	ended := make(chan outcome, 1)
	env := func(name string) string { return map[string]string{"GQ_HTTP": server.URL}[name] }
	go func() {
		var stdout, stderr strings.Builder
		status := run(ctx, []string{
			"provide", "gpu", "--poll", "100ms", "--drain", "1s", "--exec",
			`read -r what; case $what in *bad*) echo broken >&2; exit 3;; esac; while [ ! -e ` + file + ` ]; do sleep 0.1; done; printf 'done'`,
		}, env, strings.NewReader(""), &stdout, &stderr)
		ended <- outcome{status, stdout.String(), stderr.String()}
	}()
	end := sync.OnceValue(func() outcome { stop(); return <-ended })
	defer end()
	history := func(id gq.JobID) []gq.Event {
		events, err := e.History(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return events
	}
	renewals := func() (times []time.Time) {
		for _, ev := range history(long) {
			notices, err := d.Notices(ctx, &ev)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range notices {
				if n.Type == matchmaker.LeaseRenewed {
					times = append(times, n.Time)
				}
			}
		}
		return times
	}
	// Waiting is pointless after the end of a lease.
	comes := func(ok func() bool) bool {
		for deadline := time.Now().Add(2 * length); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				return false
			}
		}
		return true
	}
	if !comes(func() bool { return len(renewals()) > 0 }) {
		return "waited in vain for a renewal"
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	state := func(id gq.JobID) matchmaker.Job {
		j, err := d.Job(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return j
	}
	if !comes(func() bool { return state(long).State == "COMPLETED" }) {
		return "waited in vain for the completion"
	}
	if got := state(long).Digest; got != "a4c3ed04a95a3da14a9d235c83d868bed7c0f45cf7f3faa751ee8f50598d2211" { // of "done"
		t.Errorf("the digest is %q", got)
	}
	lease, err := d.Lease(ctx, state(long).Lease)
	if err != nil {
		t.Fatal(err)
	}
	renewBy := lease.Start.Add(length * 6 / 10)
	for i, at := range renewals() {
		if !at.Before(renewBy) {
			late = fmt.Sprintf("renewal %d came at %v, %v after renew_by", i, at, at.Sub(renewBy))
		}
		renewBy = renewBy.Add(length / 2)
	}
	if !comes(func() bool { return state(bad).Attempt == 1 }) {
		return "waited in vain for the failure"
	}
	if j := state(bad); j.LastError != "PROVIDER_FAIL" || j.Message != "exit status 3: broken" {
		t.Errorf("failed: %+v", j)
	}
	if got := end(); got.status != cli.ExitOK {
		t.Errorf("%+v", got)
	}
	return late
}

// A provider outlasts a server that cannot serve for a while: it does not end, and it reports what
// its program did when the server can serve again. The program has the trace of the submission,
// not that of the provider.
func TestProvideOutlastsAnOutage(t *testing.T) {
	t.Setenv("TRACEPARENT", "00-11111111111111111111111111111111-1111111111111111-01")
	t.Setenv("TRACESTATE", "not=this")
	s, e := memoryEngine(t)
	d, err := matchmaker.New(e, s, matchmaker.Options{})
	if err != nil {
		t.Fatal(err)
	}
	api := matching.Handler(d, e, matching.Options{})
	var down atomic.Bool
	heartbeats, reports := make(chan struct{}, 1000), make(chan struct{}, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !down.Load() {
			api.ServeHTTP(w, r)
			return
		}
		switch path.Base(r.URL.Path) {
		case "heartbeat":
			heartbeats <- struct{}{}
		case "complete":
			reports <- struct{}{}
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"store_unavailable","detail":"the store's database is unreachable"}`)
	}))
	defer server.Close()
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if _, err := d.Register(ctx, match.Provider{ID: "gpu", Status: match.Active, Capabilities: match.Kinds(), Stake: 10_000, AttestationExpiresAt: match.MaxTime}, nil); err != nil {
		t.Fatal(err)
	}
	traced := tracing.Extract(ctx, func(name string) string {
		return map[string]string{"traceparent": parent, "tracestate": "vendor=value"}[name]
	})
	j, err := d.Submit(traced, match.Enqueue{Job: match.Job{Kind: match.AI}, Payload: []byte(`"x"`)})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := d.Round(ctx); err != nil || len(r.Assignments) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}

	dir := t.TempDir()
	began, proceed := filepath.Join(dir, "began"), filepath.Join(dir, "proceed")
	ended := make(chan outcome, 1)
	go func() {
		var stdout, stderr strings.Builder
		status := run(ctx, []string{
			"provide", "gpu", "--poll", "20ms", "--drain", "1s", "--exec",
			`: > ` + began + `; while [ ! -e ` + proceed + ` ]; do sleep 0.05; done; printf '%s %s' "$TRACEPARENT" "$TRACESTATE"`,
		}, func(name string) string { return map[string]string{"GQ_HTTP": server.URL}[name] }, strings.NewReader(""), &stdout, &stderr)
		ended <- outcome{status, stdout.String(), stderr.String()}
	}()
	exists := func(name string) bool { _, err := os.Stat(name); return err == nil }
	for deadline := time.Now().Add(patience); !exists(began); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the program has not begun")
		}
	}
	arrives := func(calls <-chan struct{}, what string) {
		t.Helper()
		select {
		case <-calls:
		case got := <-ended:
			t.Fatalf("no %s; the provider has ended: %+v", what, got)
		case <-time.After(patience):
			t.Fatalf("no %s", what)
		}
	}
	down.Store(true)
	arrives(heartbeats, "heartbeat")
	arrives(heartbeats, "heartbeat after a refused one")
	if err := os.WriteFile(proceed, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	arrives(reports, "report")
	down.Store(false)

	id, _ := gq.ParseJobID(j.ID)
	for deadline := time.Now().Add(patience); j.State != "COMPLETED"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the job is %+v", j)
		}
		if j, err = d.Job(ctx, id); err != nil {
			t.Fatal(err)
		}
	}
	if want := fmt.Sprintf("%x", sha256.Sum256([]byte(parent+" vendor=value"))); j.Digest != want {
		t.Errorf("the program did not have the trace of the submission: the digest of its output is %q, want %q", j.Digest, want)
	}
	stop()
	if got := <-ended; got.status != cli.ExitOK {
		t.Errorf("%+v", got)
	}
}

func TestProvideIsRefused(t *testing.T) {
	for _, args := range [][]string{{"provide"}, {"provide", "p"}, {"provide", "p", "--exec", "true", "--poll", "0s"}} {
		if got := gqIn(t.Context(), "", args...); got.status != cli.ExitUsage {
			t.Errorf("%v: %+v", args, got)
		}
	}
	if got := gqIn(t.Context(), "", "provide", "p", "--exec", "true", "--http", "127.0.0.1:1"); got.status != cli.ExitUnreachable {
		t.Errorf("nobody there: %+v", got)
	}
}
