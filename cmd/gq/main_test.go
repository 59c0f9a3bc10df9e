package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/wire"
)

func TestMain(m *testing.M) {
	cmdtest.WaitTogether(8) // the parallel ones mostly wait for servers and databases
	leaktest.Main(pgtest.Tests(m), goleak.Cleanup(func(status int) {
		cmdtest.Remove()
		os.Exit(status) //nolint:forbidigo // that is what the function is for
	}))
}

// outcome is what a user sees of a run.
type outcome struct {
	status         int
	stdout, stderr string
}

// gqIn runs the program with a directory for temporary files.
func gqIn(ctx context.Context, tmp string, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	getenv := func(name string) string {
		if name == "TMPDIR" {
			return tmp
		}
		return ""
	}
	status := run(ctx, args, getenv, strings.NewReader(""), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args   string
		status int
		want   string // on standard output if the status is 0, else on standard error
	}{
		{"--help", 0, "Exit status:"},
		{"-h", 0, "gq bench --store memory:"},
		{"help", 0, "Available Commands:"},
		{"help bench", 0, "fsyncs/job"},
		{"bench --help", 0, "fsyncs/job"},
		{"version", 0, "gq "},
		{"--version", 0, "gq "},
		{"completion bash", 0, "bash completion"},

		{"", 2, "a command is missing after gq; want one of audit, backup, bench, "},
		{"bnech", 2, "unknown command \"bnech\" for gq; did you mean bench?"},
		{"xyzzy", 2, "unknown command \"xyzzy\" for gq"},
		{"--nope", 2, "unknown flag: --nope"},
		{"bench --nope", 2, "Run 'gq bench --help' for usage."},
		{"bench extra", 2, "gq bench takes no arguments; unexpected \"extra\""},
		{"version extra", 2, "gq version takes no arguments"},
		{"help nosuch", 2, "unknown command \"nosuch\""},
		{"completion", 2, "a command is missing after gq completion"},
		{"completion nosuch", 2, "unknown command \"nosuch\" for gq completion"},

		{"bench --store", 2, "flag needs an argument"},
		{"bench --store memory", 2, "store: \"memory\" is not a store URL"},
		{"bench --store memory:x", 2, "nothing may follow memory:"},
		{"bench --store file:", 2, "the directory is missing"},
		{"bench --store file://host/dir", 2, "names a host"},
		{"bench --store redis:x", 2, "unknown kind of store \"redis\""},
		{"bench --callers 1,x", 2, "invalid argument"},
		{"bench --jobs 5 --duration 1s", 2, "--jobs and --duration cannot be combined"},
		{"bench --scenario cycle,nosuch", 2, "scenario: \"nosuch\" is not one of"},
		{"bench --batch 0 --repeat 0 --store x", 2, "\n  batch: 0 is not between 1 and 1000\n  repeat: 0 is not"},
	} {
		t.Run(test.args, func(t *testing.T) {
			got := gqIn(t.Context(), t.TempDir(), strings.Fields(test.args)...)
			if got.status != test.status {
				t.Errorf("status %d, want %d", got.status, test.status)
			}
			said, silent := got.stdout, got.stderr
			if test.status != 0 {
				said, silent = got.stderr, got.stdout
			}
			if !strings.Contains(said, test.want) {
				t.Errorf("it said\n%s\nwant %q in it", said, test.want)
			}
			if silent != "" {
				t.Errorf("and on the other stream\n%s", silent)
			}
		})
	}
}

// TestErrorsForPrograms checks that errors of every origin are printed as JSON, if and
// only if requested.
func TestErrorsForPrograms(t *testing.T) {
	d := newShell(t)
	for _, test := range []struct {
		args   string
		status int
		code   string
		field  string // of the first fault
	}{
		{"job get " + unknownID + " --json", 3, "not_found", ""},
		{"job get x --json", 2, "invalid", "id"},
		{"job list --json --state NOPE --since x", 2, "invalid", "state"},
		{"job list --json=true --limit 0", 2, "invalid", "limit"},
		{"submit --json t --queue -1- --priority 9", 2, "invalid", "priority"},
		{"job replay --json " + d.submit("t"), 5, "illegal_move", ""},
		{"job wait --json --timeout 1ms " + d.submit("t"), 6, "timeout", ""},
		{"job get --nope --json", 2, "usage", ""},
		{"job nope --json", 2, "usage", ""},
		{"nope --json", 2, "usage", ""},
		{"--json", 2, "usage", ""},
		{"config check --json --drain soon", 2, "invalid", "--drain: drain"},
	} {
		got := d.gq(strings.Fields(test.args)...)
		var out struct {
			Error struct {
				Code       string       `json:"code"`
				Message    string       `json:"message"`
				Faults     []wire.Fault `json:"faults"`
				ExitStatus int          `json:"exit_status"`
			} `json:"error"`
		}
		if err := json.Unmarshal([]byte(got.stderr), &out); err != nil || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("gq %s: %v: %+v", test.args, err, got)
			continue
		}
		e := out.Error
		if got.status != test.status || e.ExitStatus != test.status || e.Code != test.code || e.Message == "" || got.stdout != "" {
			t.Errorf("gq %s: %+v, want status %d and code %s", test.args, got, test.status, test.code)
		}
		if test.field != "" && (len(e.Faults) == 0 || e.Faults[0].Field != test.field || e.Faults[0].Problem == "") {
			t.Errorf("gq %s: faults %+v, want one of %s", test.args, e.Faults, test.field)
		}
	}
	for _, args := range []string{"job get " + unknownID, "job get --nope", "job get --json=false x", "submit t --priority 9 -- --json"} {
		if got := d.gq(strings.Fields(args)...); got.status == 0 || !strings.HasPrefix(got.stderr, "gq: ") {
			t.Errorf("gq %s: %+v", args, got)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if got := d.gqIn(stopped, "stats", "--json"); got.status != 1 || !strings.Contains(got.stderr, `"code":"interrupted"`) {
		t.Errorf("interrupted: %+v", got)
	}
	// JSON output includes what people see next to the result.
	first := d.submit("t", "--key", "k")
	again := d.gq("submit", "t", "--key", "k", "--json")
	if again.stderr != "" || !strings.Contains(again.stdout, first) || !strings.Contains(again.stdout, `"existing":true`) {
		t.Errorf("a key that is taken: %+v", again)
	}
}
