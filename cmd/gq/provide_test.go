package main

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store/local"
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
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
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
		id, _ := machine.ParseJobID(j.ID)
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
