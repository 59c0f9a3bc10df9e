package worker_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

// bound is a queue whose middleware binds results and checkpoints to the job that they are of. Its
// jobs have the results of others as inputs.
type bound struct {
	*memory
	inputs []gq.Input
}

func (q bound) Claim(ctx context.Context, r gq.ClaimRequest) ([]gq.Job, error) {
	jobs, err := q.memory.Claim(ctx, r)
	for i := range jobs {
		jobs[i].Inputs = q.inputs
	}
	return jobs, err
}

// seal returns what is stored of some data.
func (bound) seal(d gq.Data) []byte { return fmt.Appendf(nil, "%d %s %s", d.Part, d.Job, d.Bytes) }

func (q bound) Seal(_ context.Context, d gq.Data) (gq.Data, error) {
	d.Bytes = q.seal(d)
	return d, nil
}

func (q bound) Unseal(_ context.Context, d gq.Data) (gq.Data, error) {
	if len(d.Bytes) == 0 || d.Part == gq.WithPayload {
		return d, nil
	}
	prefix := q.seal(gq.Data{Part: d.Part, Job: d.Job})
	plain, ok := bytes.CutPrefix(d.Bytes, prefix)
	if !ok {
		return d, fmt.Errorf("%q is not of job %s", d.Bytes, d.Job)
	}
	d.Bytes = plain
	return d, nil
}

func (bound) SubmitWith(ctx context.Context, specs []gq.Spec, submit gq.SubmitFunc) ([]gq.SubmitResult, error) {
	return submit(ctx, specs)
}

// Middleware is told which job a result or a checkpoint is of: that of an input is the other job.
func TestMiddlewareKnowsTheJobs(t *testing.T) {
	bubble(t, func(f *fixture) {
		q := bound{memory: f.memory}
		for i, ref := range []string{"first", "second", "third"} {
			in := gq.Input{Ref: ref, Job: machine.NewJobID([16]byte{byte(i + 1)}), Status: gq.StatusCompleted, Omitted: ref == "third"}
			if !in.Omitted {
				in.Result = q.seal(gq.Data{Part: gq.WithResult, Job: in.Job, Bytes: []byte("of " + ref)})
			}
			q.inputs = append(q.inputs, in)
		}
		w := worker.New(q, worker.Config{Logger: discard()})
		w.HandleFunc("work", func(ctx context.Context, run *worker.Run) error {
			if run.Attempt() == 1 {
				if err := run.Checkpoint(ctx, []byte("so far")); err != nil {
					return err
				}
				return worker.Snooze(0)
			}
			if c := run.LastCheckpoint(); string(c) != "so far" {
				t.Errorf("the checkpoint is %q", c)
			}
			for i, want := range []string{"of first", "of second", ""} {
				if got := run.Inputs()[i].Result; string(got) != want {
					t.Errorf("input %d is %q", i, got)
				}
			}
			return run.SetResult([]byte("done"))
		})
		id := f.work(nil)
		w.Start(f.Context())
		after(time.Minute)
		j := f.wantStatus(id, gq.StatusCompleted)
		if want := q.seal(gq.Data{Part: gq.WithResult, Job: id, Bytes: []byte("done")}); !bytes.Equal(j.Result, want) {
			t.Errorf("stored %q", j.Result)
		}
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
}
