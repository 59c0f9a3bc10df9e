package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/view"
)

// Past events are printed by number and filter; with --follow new ones come as they occur,
// until the user interrupts.
func TestEvents(t *testing.T) {
	t.Parallel()
	site := newCrashSite(t, "file:"+t.TempDir())
	site.start()
	c := site.client()
	submit := func(queue string) gq.JobID {
		t.Helper()
		out, err := c.Submit(t.Context(), gq.Spec{Type: "t", Queue: queue})
		if err != nil {
			t.Fatal(err)
		}
		return out.ID()
	}
	mail, other := submit("mail"), submit("other")
	type line struct {
		Seq    uint64
		Entity string
		Type   string
	}
	list := func(args ...string) (all []line) {
		t.Helper()
		got := gqIn(t.Context(), t.TempDir(), append([]string{"events", "--addr", site.grpc, "--json"}, args...)...)
		if got.status != 0 {
			t.Fatalf("%v: %+v", args, got)
		}
		for text := range strings.Lines(got.stdout) {
			var l line
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			all = append(all, l)
		}
		return all
	}
	all := list()
	if len(all) != 4 { // each job was submitted and scheduled
		t.Fatalf("%+v", all)
	}
	for _, test := range []struct {
		args string
		want []line
	}{
		{"--last 1", all[3:]},
		{"--last 0", nil},
		{fmt.Sprintf("--after %d", all[1].Seq), all[2:]},
		{"--queue mail", all[:2]},
		{"--job " + other.String(), all[2:]},
		{"--event job.submitted --queue mail --queue other", []line{all[0], all[2]}},
		{"--state scheduled --queue mail", all[1:2]},
		{"--worker nobody", nil},
	} {
		if got := list(strings.Fields(test.args)...); fmt.Sprint(got) != fmt.Sprint(test.want) {
			t.Errorf("%s: %+v, want %+v", test.args, got, test.want)
		}
	}
	if !strings.Contains(all[0].Entity, mail.String()) {
		t.Errorf("the first event is of %s", all[0].Entity)
	}
	for _, bad := range []string{"--last -1", "--last 10001", "--last 1 --after 1", "--event job.flown", "--state high", "--job x"} {
		if got := gqIn(t.Context(), t.TempDir(), append([]string{"events", "--addr", site.grpc}, strings.Fields(bad)...)...); got.status != 2 || got.stderr == "" {
			t.Errorf("%s: %+v", bad, got)
		}
	}

	follow := exec.Command(cmdtest.Program(t), "events", "--follow", "--after", fmt.Sprint(all[3].Seq), "--addr", site.grpc, "--event", "job.cancelled", "--queue", "mail")
	out, err := follow.StdoutPipe()
	if err == nil {
		err = follow.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = follow.Process.Kill() })
	lines := bufio.NewScanner(out)
	for i := range 2 {
		reason := fmt.Sprintf("no need %d", i)
		for _, job := range []gq.JobID{submit("other"), submit("mail")} {
			if _, err := c.Cancel(t.Context(), job, reason); err != nil {
				t.Fatal(err)
			}
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), "job.cancelled") || !strings.Contains(lines.Text(), "mail") || !strings.Contains(lines.Text(), reason) {
			t.Fatalf("%q, %v", lines.Text(), lines.Err())
		}
	}
	if err := follow.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := follow.Wait(); err != nil {
		t.Errorf("after an interrupt: %v", err)
	}
}

// Events of providers are about no job: a line names the provider, and the views leave them out.
func TestEventsOfProviders(t *testing.T) {
	var out strings.Builder
	p := process{stdout: &out, getenv: func(string) string { return "" }}
	r := &remote{process: p}
	events := []gq.Event{
		{Seq: 1, Queue: "matching", Job: gq.JobID{1}, Type: gq.EventProviderSlashed, Worker: "gpu-7", Reason: "PROOF_INVALID", CostUnits: 42},
		{Seq: 2, Queue: "matching", Job: gq.JobID{1}, Type: gq.EventProviderStatus, Worker: "gpu-7", Reason: "JAILED: fraud"},
	}
	if err := r.printEvents(&eventFilter{}, events); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if strings.Count(text, "gpu-7") != 2 || !strings.Contains(text, "42 of its stake; PROOF_INVALID") || !strings.Contains(text, "JAILED: fraud") || strings.Contains(text, "version") || strings.Contains(text, "unknown") {
		t.Errorf("events of a provider:\n%s", text)
	}
	for _, v := range view.All() {
		if got := v.History(events); len(got) > 0 {
			t.Errorf("view %s: %+v", v.Name, got)
		}
	}
}
