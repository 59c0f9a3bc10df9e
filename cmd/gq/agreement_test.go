package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store/postgres"
)

// What deletes something for good asks first, and is refused where nobody can answer.
func TestDeletingAsksFirst(t *testing.T) {
	d := newShell(t)
	d.want(0, "schedule", "set", "nightly", "--every", "1h", "--type", "t")
	for _, args := range []string{
		"schedule delete nightly", "token revoke x", "inbox discard --all", "inbox discard " + unknownID, "dlq purge " + unknownID, "queue delete q --purge",
	} {
		for _, format := range []string{"", " --json"} {
			if got := d.gq(strings.Fields(args + format)...); got.status != 2 || !strings.Contains(got.stderr, "say --yes") {
				t.Errorf("gq %s%s: %+v", args, format, got)
			}
		}
	}
	d.want(0, "schedule", "show", "nightly")
	d.want(0, "schedule", "delete", "nightly", "--yes")
	d.want(3, "schedule", "show", "nightly")
}

// The layout of a database says in a word, in a sentence and in the exit status what to do.
func TestMigrationStatus(t *testing.T) {
	for _, test := range []struct {
		layout postgres.Layout
		status string
		exit   int
	}{
		{postgres.Layout{Version: 0, Oldest: 0, Current: 2}, "pending", 1},
		{postgres.Layout{Version: 1, Oldest: 1, Current: 2}, "pending", 1},
		{postgres.Layout{Version: 2, Oldest: 1, Current: 2}, "up_to_date", 0},
		{postgres.Layout{Version: 3, Oldest: 2, Current: 2}, "newer", 0},
		{postgres.Layout{Version: 3, Oldest: 3, Current: 2}, "too_new", 5},
	} {
		if status, text, exit := migrationStatus(test.layout); status != test.status || exit != test.exit || text == "" {
			t.Errorf("%+v is %s, %q, %d", test.layout, status, text, exit)
		}
	}
}

// forgetful is a queue that keeps only the events after some number.
type forgetful struct {
	queue
	kept uint64
}

func (f forgetful) Events(_ context.Context, after uint64, _ int) ([]gq.Event, error) {
	if after < f.kept {
		return nil, gq.ErrGone
	}
	return nil, nil
}

// The last events are those that are kept.
func TestFirstKept(t *testing.T) {
	for newest := range uint64(20) {
		for kept := range newest + 1 {
			for from := range newest + 1 {
				got, err := firstKept(t.Context(), forgetful{kept: kept}, from, newest)
				if err != nil || got != max(from, kept) {
					t.Errorf("from %d to %d, kept after %d: %d, %v", from, newest, kept, got, err)
				}
			}
		}
	}
}

// Workers write the same log as the server.
func TestWorkerLog(t *testing.T) {
	for _, test := range []struct {
		format       string
		flag, inJSON bool
	}{{"", false, false}, {"text", false, false}, {"json", false, true}, {"", true, true}, {"text", true, true}} {
		var lines bytes.Buffer
		p := process{stderr: &lines, getenv: func(name string) string { return map[string]string{"GQ_LOG_FORMAT": test.format}[name] }}
		workerLog(p, test.flag).Info("started", "slots", 3)
		var line map[string]any
		err := json.Unmarshal(lines.Bytes(), &line)
		if (err == nil) != test.inJSON || test.inJSON && (line["message"] != "started" || line["ts_ms"] == nil || line["service"] != "gq") {
			t.Errorf("%+v: %s", test, lines.String())
		}
	}
}

// The help of every command that calls a server names the variables for TLS.
func TestHelpNamesTLS(t *testing.T) {
	root, found := newRoot(process{getenv: func(string) string { return "" }}), 0
	for _, name := range leaves(root, "") {
		c, _, err := root.Find(strings.Fields(name))
		if err != nil {
			t.Fatal(err)
		}
		if c.Flags().Lookup("addr") == nil || name == "bench" { // which has neither token nor TLS
			continue
		}
		found++
		for _, variable := range []string{"GQ_TOKEN", "GQ_TLS", "GQ_TLS_CA", "GQ_TLS_CERT", "GQ_TLS_KEY"} {
			if !strings.Contains(c.Long, variable) {
				t.Errorf("gq %s --help does not name %s", name, variable)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d commands call a server", found)
	}
}
