package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// A program of gq work does not run recorded steps again, and reads the results of other jobs of
// its workflow by name.
func TestSteps(t *testing.T) {
	s := startServer(t, nil, "--store", "memory:")
	dir := t.TempDir()
	script := `set -e
case $GQ_JOB_TYPE in
order)
	said=$("$GQ" step 'first one' -- sh -c 'echo ran >> "$0"; printf hello' "$DIR/first")
	"$GQ" step fails -- sh -c 'echo ran >> "$0"; printf lost; [ -e "$1" ] || { touch "$1"; exit 75; }' "$DIR/fails" "$DIR/failed" > "$DIR/output"
	"$GQ" step empty -- true
	again=$("$GQ" step 'first one' -- false)
	printf '"%s %s"' "$said" "$again";;
last)
	printf '"%s"' "$GQ_WORKFLOW_OUTCOME";;
broken)
	exit 3;;
charge)
	printf '%s' "${GQ_WORKFLOW_OUTCOME-none}" > "$DIR/outcome"
	"$GQ" progress 40% 'row 4'
	"$GQ" progress 2 2> "$DIR/progress" || test $? = 2
	printf '{"receipt":7}';;
pack)
	"$GQ" input absent 2> "$DIR/absent" || test $? = 3
	"$GQ" input charge > "$DIR/input"
	cp "$GQ_INPUTS" "$DIR/inputs"
	"$GQ" input late 2> "$DIR/late" || test $? = 65
	printf '"packed"';;
late)
	printf '"late"';;
big)
	"$GQ" step big -- head -c 2000000 /dev/zero;;
esac`
	work := exec.Command(cmdtest.Program(t), "work", "--addr", s.grpc, "--type", "order,charge,pack,late,broken,last,big", "--exec", script)
	work.Env = append(work.Environ(), "GQ="+cmdtest.Program(t), "DIR="+dir, "TMPDIR="+t.TempDir(), "GQ_INPUTS=of another job", "GQ_WORKFLOW_OUTCOME=FAILED")
	var stderr strings.Builder
	work.Stderr = &stderr
	if err := work.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = work.Process.Signal(syscall.SIGTERM)
		_ = work.Wait()
		if t.Failed() {
			t.Log(stderr.String())
		}
	}()
	c, err := client.New(s.grpc, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	content := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	end := func(spec gq.Spec) gq.Job {
		t.Helper()
		out, err := c.Submit(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		job, err := c.Wait(ctx, out.ID())
		if err != nil {
			t.Fatal(err)
		}
		return job
	}
	order := end(gq.Spec{Type: "order"})
	if order.State.Status != gq.StatusCompleted || order.State.Attempt != 2 || string(order.Result) != `"hello hello"` {
		t.Errorf("the order is %s after %d attempts: %s", order.State.Status, order.State.Attempt, order.Result)
	}
	for name, want := range map[string]string{"first": "ran\n", "fails": "ran\nran\n", "output": "lost"} {
		if got := content(name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}

	any := gq.NewKind[gq.None, gq.None]
	flow := gq.NewWorkflow("order")
	charge := flow.Add("charge", any("charge").With(gq.None{}))
	pack := flow.Add("pack", any("pack").With(gq.None{}), gq.After(charge))
	flow.Add("late", any("late").With(gq.None{}), gq.After(pack))
	flow.Finally("last", any("last").With(gq.None{}))
	id, err := c.SubmitWorkflow(ctx, flow)
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Workflow(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range w.Jobs {
		if job, err := c.Wait(ctx, j.ID); err != nil || job.State.Status != gq.StatusCompleted {
			t.Errorf("%s is %s: %v", j.Ref, job.State.Status, err)
		} else if j.Ref == "charge" && job.State.Note != "row 4" {
			t.Errorf("the last report of progress is %q", job.State.Note)
		} else if j.Ref == "last" && string(job.Result) != `"SUCCEEDED"` {
			t.Errorf("the final job saw %s", job.Result)
		}
	}
	if got := content("outcome"); got != "none" {
		t.Errorf("a job that is not final has the outcome %s", got)
	}
	failing := gq.NewWorkflow("order")
	failing.Add("broken", any("broken").With(gq.None{}))
	failing.Finally("last", any("last").With(gq.None{}))
	if id, err = c.SubmitWorkflow(ctx, failing); err != nil {
		t.Fatal(err)
	}
	if w, err = c.Workflow(ctx, id); err != nil {
		t.Fatal(err)
	}
	if job, err := c.Wait(ctx, w.Jobs[1].ID); err != nil || string(job.Result) != `"FAILED"` {
		t.Errorf("the final job of a workflow that failed saw %s, %v", job.Result, err)
	}
	if got := content("progress"); !strings.Contains(got, "not a number from 0 to 1") {
		t.Errorf("a part above 1: %s", got)
	}
	if got := content("input"); got != `{"receipt":7}` {
		t.Errorf("the input is %s", got)
	}
	if got := content("inputs"); !strings.Contains(got, `"charge":{"ref":"charge"`) || !strings.Contains(got, `"result":{"receipt":7}`) {
		t.Errorf("the inputs are %s", got)
	}
	if got := content("absent"); !strings.Contains(got, `has no job "absent"`) {
		t.Errorf("an unknown job: %s", got)
	}
	if got := content("late"); !strings.Contains(got, "SCHEDULED") && !strings.Contains(got, "PENDING") {
		t.Errorf("a job that has not completed: %s", got)
	}

	big := end(gq.Spec{Type: "big"})
	if big.State.Status != gq.StatusFailed || big.State.Attempt != 1 || !strings.Contains(big.State.Failure.Message, "1048576 bytes") {
		t.Errorf("a step with too much output: %s after %d attempts, %+v", big.State.Status, big.State.Attempt, big.State.Failure)
	}
}

func TestStepNeedsAWorker(t *testing.T) {
	for _, args := range [][]string{
		{"step", "charge", "--", "true"}, {"input", "charge"}, // outside of a program
		{"step"}, {"step", "charge", "true"}, {"step", "charge", "--"}, {"step", "", "--", "true"},
		{"step", strings.Repeat("x", 300), "--", "true"}, {"input"}, {"input", ""}, {"input", "a", "b"},
	} {
		if got := gqIn(t.Context(), t.TempDir(), args...); got.status != cli.ExitUsage || got.stdout != "" {
			t.Errorf("gq %q: %+v", args, got)
		}
	}
}

// A pattern that cannot be is refused before the worker says that it works.
func TestWorkRefusesPatterns(t *testing.T) {
	for _, queue := range []string{"*a*", "a,a", "a b"} {
		got := gqIn(t.Context(), t.TempDir(), "work", "--addr", "127.0.0.1:1", "--type", "t", "--exec", "true", "--queue", queue)
		if got.status != cli.ExitUsage || !strings.Contains(got.stderr, "queue") || strings.Contains(got.stderr, "queue_sets") || strings.Contains(got.stderr, "working") {
			t.Errorf("gq work --queue %q: %+v", queue, got)
		}
	}
}
