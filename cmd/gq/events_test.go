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
	site := startServer(t, nil, "--store", "file:"+t.TempDir())
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

// gq events --follow prints the newest progress of each job, also as JSON and by its filters.
func TestFollowingProgress(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--store", "memory:")
	c := s.client()
	follow := func(args ...string) *bufio.Scanner {
		t.Helper()
		command := exec.Command(cmdtest.Program(t), append([]string{"events", "--follow", "--addr", s.grpc}, args...)...)
		out, err := command.StdoutPipe()
		if err == nil {
			err = command.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait()
		})
		return bufio.NewScanner(out)
	}
	plain := follow("--event", "job.progress", "--event", "job.started")
	filtered := follow("--queue", "other", "--json")
	next := func(lines *bufio.Scanner, event string) string {
		t.Helper()
		for lines.Scan() {
			if text := lines.Text(); strings.Contains(text, event) {
				return text
			}
		}
		t.Fatalf("no %s: %v", event, lines.Err())
		return ""
	}
	for _, queue := range []string{"mail", "other"} {
		if _, err := c.Submit(t.Context(), gq.Spec{Type: "t", Queue: queue}); err != nil {
			t.Fatal(err)
		}
	}
	var leases []gq.LeaseRef
	for _, queue := range []string{"mail", "other"} {
		jobs, err := c.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1, Queues: []string{queue}})
		if err != nil || len(jobs) != 1 {
			t.Fatal(jobs, err)
		}
		leases = append(leases, jobs[0].State.Lease.Ref())
		next(plain, "job.started")
	}
	next(filtered, "job.started")
	for i, lease := range leases {
		out, err := c.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: lease, Progress: 0.25 * float64(i+1), Note: fmt.Sprint("row ", i)}})
		if err != nil || out[0].Err != nil {
			t.Fatal(out, err)
		}
	}
	got := map[string]bool{}
	for range leases {
		text := next(plain, "job.progress")
		for i, queue := range []string{"mail", "other"} {
			if strings.Contains(text, queue) && strings.Contains(text, fmt.Sprintf("%d%% row %d", 25*(i+1), i)) {
				got[queue] = true
			}
		}
	}
	if len(got) != 2 {
		t.Errorf("the reports of %v were printed, want those of both jobs", got)
	}
	var report struct {
		Type string
		Data struct {
			Queue, Note string
			Progress    float64
		}
	}
	text := next(filtered, "job.progress")
	if err := json.Unmarshal([]byte(text), &report); err != nil || report.Data.Queue != "other" || report.Data.Note != "row 1" || report.Data.Progress != 0.5 {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}
