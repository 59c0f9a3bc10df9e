package e2e_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// spawned lists the jobs of a type in the order of submission, whole.
func spawned(t *testing.T, c *client.Client, typ string) []gq.Job {
	t.Helper()
	page, err := c.List(t.Context(), gq.Query{Types: []string{typ}})
	if err != nil {
		t.Fatal(err)
	}
	jobs := make([]gq.Job, len(page.Jobs))
	for i := range page.Jobs {
		if jobs[i], err = c.Get(t.Context(), page.Jobs[i].State.ID, gq.WithPayload); err != nil {
			t.Fatal(err)
		}
	}
	slices.SortFunc(jobs, func(a, b gq.Job) int {
		return strings.Compare(string(a.Spec.Payload.Data), string(b.Spec.Payload.Data))
	})
	return jobs
}

// The jobs that a program of gq work spawns exist once its job has completed, with all that their
// flags say, and wait for each other. A program that fails or has lost its lease spawns none, and
// one whose jobs are refused fails.
func TestSpawnFromAProgram(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil, "--store", "memory:")
	dir, c := t.TempDir(), s.client()
	script := "DIR=" + dir + "; GQ=" + cmdtest.Program(t) + `; set -e
case $GQ_JOB_TYPE in
album)
	"$GQ" spawn photo --needs first,third --needs-end second --payload '2 <b>' --content-type text/plain --priority LOW --tag shop=7 --execution-timeout 7s --keep none
	"$GQ" spawn photo --ref first --payload '{ "n": 1 }' --queue other --preset resilient --key one
	"$GQ" spawn photo --ref second --payload 3 --delay 1h --unique waiting --key two
	"$GQ" spawn photo --ref third --payload 4 --after "$GQ_JOB_ID";;
broken)
	"$GQ" spawn lost
	exit 3;;
wrong)
	"$GQ" spawn lost --ref first
	"$GQ" spawn lost --needs absent;;
stale)
	[ "$GQ_ATTEMPT" != 1 ] || {
		"$GQ" spawn lost
		"$GQ" spawn lost
		echo > "$DIR/spawned"
		while [ ! -e "$DIR/go" ]; do sleep 0.01; done
	};;
esac`
	work := startWork(t, s, "--type", "album,broken,wrong,stale", "--slots", "2", "--grace", "1m", "--exec", script)
	run := func(typ string) gq.Job {
		t.Helper()
		out, err := c.Submit(t.Context(), gq.Spec{Type: typ})
		if err != nil {
			t.Fatal(err)
		}
		job, err := c.Wait(t.Context(), out.ID())
		if err != nil {
			t.Fatal(err)
		}
		return job
	}

	album := run("album")
	photos := spawned(t, c, "photo")
	if album.State.Status != gq.StatusCompleted || len(photos) != 4 {
		t.Fatalf("the job is %s, %+v, and spawned %d jobs", album.State.Status, album.State.Failure, len(photos))
	}
	last, first, second, third := photos[0], photos[3], photos[1], photos[2]
	parent := gq.Dependency{Kind: gq.DependencyFanOut, Job: album.State.ID}
	for _, want := range []struct {
		job     *gq.Job
		payload string
		status  gq.Status
		needs   []gq.Dependency
	}{
		{&first, `{ "n": 1 }`, gq.StatusScheduled, []gq.Dependency{parent}},
		{&second, "3", gq.StatusDelayed, []gq.Dependency{parent}},
		{&third, "4", gq.StatusScheduled, []gq.Dependency{{Kind: gq.DependencyAfter, Job: album.State.ID}, parent}},
		{&last, "2 <b>", gq.StatusPending, []gq.Dependency{
			parent, {Kind: gq.DependencyAfter, Job: first.State.ID}, {Kind: gq.DependencyAfter, Job: third.State.ID}, {Kind: gq.DependencyFanIn, Job: second.State.ID},
		}},
	} {
		if j := want.job; string(j.Spec.Payload.Data) != want.payload || j.State.Status != want.status || !slices.Equal(j.Spec.DependsOn, want.needs) {
			t.Errorf("%s is %s and depends on %v, want %s, %s and %v", j.Spec.Payload.Data, j.State.Status, j.Spec.DependsOn, want.payload, want.status, want.needs)
		}
	}
	if s := last.Spec; s.Payload.ContentType != "text/plain" || s.Metadata.Priority != gq.PriorityLow || s.Metadata.Tags["shop"] != "7" ||
		s.Policy.ExecutionTimeout != 7*time.Second || s.Policy.Retention != gq.KeepNone {
		t.Errorf("the flags of the last job gave %+v", s)
	}
	if s := first.Spec; s.Queue != "other" || s.Policy.Preset != gq.PresetResilient || s.Key.Name != "one" {
		t.Errorf("the flags of the first job gave %+v", s)
	}
	if s := second.Spec; s.Unique.While != gq.WhileWaiting || s.Delay != time.Hour {
		t.Errorf("the flags of the second job gave %+v", s)
	}

	if job := run("broken"); job.State.Status != gq.StatusFailed || job.State.Failure.Code != "exit_3" {
		t.Errorf("a program that fails: %s, %+v", job.State.Status, job.State.Failure)
	}
	if job := run("wrong"); job.State.Status != gq.StatusFailed || job.State.Failure.Code != "invalid_spawn" || !strings.Contains(job.State.Failure.Message, `"absent"`) {
		t.Errorf("a program that names an unknown job: %s, %+v", job.State.Status, job.State.Failure)
	}

	out, err := c.Submit(t.Context(), gq.Spec{Type: "stale"})
	if err != nil {
		t.Fatal(err)
	}
	cmdtest.WaitFor(t, "the program to spawn jobs", func() bool {
		_, err := os.Stat(filepath.Join(dir, "spawned"))
		return err == nil
	})
	job, err := c.Get(t.Context(), out.ID(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Release(t.Context(), job.State.Lease.Ref(), 0, "another worker takes over"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if job, err = c.Wait(t.Context(), out.ID()); err != nil || job.State.Status != gq.StatusCompleted || job.State.Attempt != 2 {
		t.Errorf("the job whose first lease was lost: %s after %d attempts, %v", job.State.Status, job.State.Attempt, err)
	}
	if err := work.Process.Signal(syscall.SIGTERM); err != nil { // it ends once it has reported everything
		t.Fatal(err)
	}
	_ = work.Wait()
	if lost := spawned(t, c, "lost"); len(lost) > 0 {
		t.Errorf("%d jobs were spawned by programs that did not complete: %+v", len(lost), lost)
	}
}

// Flags are checked at once, and the command needs a program of gq work.
func TestSpawnRefusals(t *testing.T) {
	for _, args := range []string{"spawn", "spawn a b", "spawn a", "spawn a --priority 9", "spawn a --delay 1s --at 2030-01-31T12:00:00Z", "spawn a --after x"} {
		if got := runGQ(t, strings.Fields(args)...); got.status != cli.ExitUsage || got.stdout != "" {
			t.Errorf("gq %s: %+v", args, got)
		}
	}
}
