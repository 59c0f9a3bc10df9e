package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/transfer"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

// filled creates a directory with a store of n jobs in several states.
func filled(t testing.TB, n int) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "filled")
	s, err := local.Open(dir, local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const step = 500
	for from := 0; from < n; from += step {
		groups := make([]store.Group, min(step, n-from))
		for i := range groups {
			k := from + i
			spec := gq.Spec{ID: machine.NewJobID([16]byte{byte(k), byte(k >> 8), byte(k >> 16), 1}), Type: "t"}
			spec.Payload = gq.Payload{ContentType: "text/plain", Data: fmt.Appendf(nil, "payload of job %d", k)}
			groups[i] = store.One(spec.WithDefaults())
		}
		_, err = s.Insert(t.Context(), groups)
		if err != nil {
			t.Fatal(err)
		}
		answers, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: len(groups) / 2, Worker: "w", TTL: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		var updates []store.Update
		for _, j := range answers[0].Jobs[1:] { // one is held
			ref := j.State.Lease.Ref()
			updates = append(updates, store.Update{Ref: store.Ref{Job: j.State.ID}, Result: []byte("done"), Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Complete(s, ref, []byte("done"), now)
			}})
		}
		if _, err := s.Update(t.Context(), updates); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// movedBy parses the output of a command with --json.
func movedBy(t testing.TB, stdout string) moved {
	t.Helper()
	var m moved
	if err := json.Unmarshal([]byte(stdout), &m); err != nil {
		t.Fatalf("%v: %q", err, stdout)
	}
	if !m.Verified || len(m.Kinds) != 10 {
		t.Fatalf("%+v", m)
	}
	return m
}

func TestMove(t *testing.T) {
	dir := filled(t, 50)
	tmp := t.TempDir()
	path := func(name string) string { return filepath.Join(tmp, name) }
	gq := func(args ...string) outcome { return gqIn(t.Context(), tmp, args...) }
	back := gq("backup", path("one"), "--store", "file:"+dir, "--json")
	if back.status != 0 || back.stderr != "" {
		t.Fatalf("%+v", back)
	}
	want := movedBy(t, back.stdout)
	jobs := slices.IndexFunc(want.Kinds, func(k transfer.Named) bool { return k.Name == "jobs" })
	if jobs < 0 || want.Kinds[jobs].Count != 50 || want.Resumed {
		t.Errorf("%+v", want)
	}
	for _, args := range []string{
		"restore " + path("one") + " --json --store file:" + path("two"),
		"copy file:" + path("two") + " file:" + path("three") + " --json",
		"backup " + path("four") + " --json --store file:" + path("three"),
	} {
		out := gq(strings.Fields(args)...)
		if out.status != 0 {
			t.Fatalf("%s: %+v", args, out)
		}
		if got := movedBy(t, out.stdout); !reflect.DeepEqual(got.Kinds, want.Kinds) || got.LastEvent != want.LastEvent {
			t.Errorf("%s: %+v, want %+v", args, got, want)
		}
	}
	plain := gq("backup", path("five"), "--store", "file:"+dir)
	for _, text := range []string{"KIND", "jobs          50", want.Kinds[jobs].Checksum, "equal", "backed up file:", "and verified in"} {
		if !strings.Contains(plain.stdout, text) {
			t.Errorf("%q is missing in:\n%s", text, plain.stdout)
		}
	}
	whole, err := os.ReadFile(path("one"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"cut": whole[:len(whole)-100], "other": []byte("something else")} {
		if err := os.WriteFile(path(name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := startServer(t, nil, "--store", "file:"+dir)
	for _, test := range []struct {
		args   string
		status int
		want   string
	}{
		{"backup " + path("six") + " --store file:" + dir, cli.ExitConflict, "in use by another process"},
		{"backup " + path("one") + " --store file:" + path("two"), cli.ExitConflict, "exists already"},
		{"backup " + path("six") + " --store file:" + path("nowhere"), cli.ExitNotFound, "there is no store"},
		{"backup " + path("six") + " --store memory:", cli.ExitUsage, "memory: ends with its process"},
		{"backup", cli.ExitUsage, "gq backup needs a file to write"},
		{"restore " + path("one") + " --store file:" + path("two"), cli.ExitConflict, "the store is not empty"},
		{"restore " + path("nowhere") + " --store file:" + path("new"), cli.ExitNotFound, "nowhere: not found"},
		{"restore " + path("cut") + " --store file:" + path("new"), cli.ExitFailure, "it was cut off"},
		{"restore " + path("other") + " --store file:" + path("new"), cli.ExitUsage, "is not a backup"},
		{"copy file:" + path("two"), cli.ExitUsage, "a source and a destination"},
		{"copy file:" + path("two") + " file:" + path("three"), cli.ExitConflict, "the store is not empty"},
		{"copy file:" + path("two") + " mysql://x", cli.ExitUsage, "DST"},
	} {
		out := gq(strings.Fields(test.args)...)
		if out.status != test.status || !strings.Contains(out.stderr, test.want) || out.stdout != "" {
			t.Errorf("gq %s: %+v, want status %d and %q", test.args, out, test.status, test.want)
		}
	}
	server.Signal(os.Interrupt)
	server.Ended()
	for _, name := range []string{"new", "six", "six.partial"} {
		if _, err := os.Stat(path(name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a command that was refused has left %s: %v", name, err)
		}
	}
}

// killedUntilDone repeatedly runs the program and kills it after a while, until it
// finishes. It returns the final output: empty if it was killed when done but before
// printing.
func killedUntilDone(t testing.TB, random *rand.Rand, unfinished func(), args ...string) (stdout string, kills int) {
	t.Helper()
	wait := 30 * time.Millisecond
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), wait+time.Duration(random.Int64N(int64(wait))))
		c := exec.CommandContext(ctx, cmdtest.Program(t), args...) // SIGKILL
		var stderr strings.Builder
		c.Stderr = &stderr
		out, err := c.Output()
		killed := ctx.Err() != nil
		cancel()
		done := strings.Contains(stderr.String(), "not empty") || strings.Contains(stderr.String(), "exists already")
		switch {
		case err == nil || kills > 0 && done:
			return string(out), kills
		case !killed:
			t.Fatalf("gq %s: %v: %s", strings.Join(args, " "), err, stderr.String())
		}
		kills++
		unfinished()
		wait += wait / 2 // it finishes eventually, on any machine
	}
	t.Fatalf("gq %s never came to its end", strings.Join(args, " "))
	return "", 0
}

// TestKilledMove kills copies and restores halfway until they are done. In the end
// everything has arrived, in every direction.
func TestKilledMove(t *testing.T) {
	if testing.Short() {
		t.Skip("-short leaves out what takes many processes; make test runs it")
	}
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := filled(t, 3000)
	tmp := t.TempDir()
	path := func(name string) string { return filepath.Join(tmp, name) }
	url := pgtest.Database(t)
	refused := 0
	serve := func(store string) func() {
		return func() { // a server never opens an unfinished store
			if refused > 2 {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			out := gqIn(ctx, tmp, "token", "list", "--store", store)
			if strings.Contains(out.stderr, "unfinished copy") && strings.Contains(out.stderr, "again to finish it") {
				refused++
			}
		}
	}
	kinds := func(stdout string) []any {
		m := movedBy(t, stdout)
		return []any{m.Kinds, m.LastEvent}
	}
	first := gqIn(t.Context(), tmp, "backup", path("first"), "--store", "file:"+dir, "--json")
	if first.status != 0 {
		t.Fatalf("%+v", first)
	}
	total := 0
	for i, args := range [][]string{
		{"copy", "file:" + dir, url, "--json"},
		{"backup", path("second"), "--store", url, "--json"},
		{"restore", path("second"), "--store", "file:" + path("third"), "--json"},
	} {
		to := args[len(args)-2]
		check := func() {}
		if args[0] != "backup" {
			check = serve(to)
		}
		out, kills := killedUntilDone(t, random, check, args...)
		total += kills
		t.Logf("gq %s: killed %d times", args[0], kills)
		if out == "" { // it was killed before printing
			out = gqIn(t.Context(), tmp, "backup", path(fmt.Sprint("check", i)), "--store", to, "--json").stdout
		}
		if got, want := kinds(out), kinds(first.stdout); !reflect.DeepEqual(got, want) {
			t.Errorf("gq %s after %d kills: %v, want %v", args[0], kills, got, want)
		}
	}
	if total < 5 || refused == 0 {
		t.Errorf("only %d kills, and %d unfinished stores were refused", total, refused)
	}
}
