package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/tracing"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/worker"
)

func newWork(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "work --type TYPE --exec COMMAND",
		Short: "Run a program for every job of a type",
		Long: `Run a program for every job of a type, until interrupted. The shell runs the
command. The command reads the payload from standard input; what it writes to
standard output becomes the result. Its standard error is passed through, and its
end is kept with a failure, the line with the reason first.

Its exit status decides about the job:
  0       completed
  75      temporary failure: retried after the backoff; so is 1 for jobs of the preset resilient,
          and 126 and 127 always: the shell could not run the program
  other   permanent failure
A command killed by a signal has crashed. That is a temporary failure if the job's
policy retries crashes. If the shell runs the program as a child, it reports 128
plus the signal number, which is a permanent failure; exec avoids the child, as in
--exec 'exec ./thumbnail.sh'.

The environment contains GQ_JOB_ID, GQ_JOB_TYPE, GQ_QUEUE, GQ_ATTEMPT,
GQ_CORRELATION_ID, GQ_CONTENT_TYPE and GQ_LEASE_VERSION, and GQ_SLOT, the time
of the slot, if a schedule submitted the job. The lease version grows
with every attempt, so that other systems can refuse writes with a smaller one.
In the final job of a workflow GQ_WORKFLOW_OUTCOME is SUCCEEDED, FAILED or
CANCELLED: the status of the jobs that are not final.
gq step runs a command once for all attempts of the job, and gq input prints the
result of a job that this one depends on; $GQ_INPUTS is a JSON file with all of
them. gq progress 40% "row 400" reports progress, and gq spawn TYPE submits a job
with the completion of this one (gq step, input, progress, spawn --help).
TRACEPARENT and TRACESTATE are the W3C trace context of the submission, if it
has one, and of nothing else: those of this process are removed.

With --batch N the program gets up to N jobs of one type at once: when there are
N, or when the first has waited for --batch-wait. It reads one JSON object a line:
  {"id":"…","type":"t","queue":"q","attempt":1,"lease_version":7,"payload":…}
with payload_base64 if the payload is not JSON, and correlation_id, content_type,
slot, workflow_outcome, traceparent and tracestate where they are known. It may write a line for
each job, in any order:
  {"id":"…","result":…}                          or result_base64: completed
  {"id":"…","exit_status":75,"error":"busy"}     failed, as by that exit status
The exit status of the program decides about the jobs without a line: 0 completes
them without a result. Other output is a permanent failure of these jobs. GQ_BATCH
is the number of jobs, and GQ_JOB_TYPE their type; there are no other variables of
single jobs, and gq step, input, progress and spawn do not work. At most --slots programs
run at once; one more batch is claimed meanwhile.

When the job is cancelled, times out or loses its lease, the program and its
children get SIGTERM, and SIGKILL after --grace; a batch when this is so for all of
its jobs. If this command itself is killed with SIGKILL, on Linux the program gets
SIGKILL too, but not the children that it has started; on other systems it goes on.
On SIGINT, SIGTERM or SIGHUP this command
claims no more jobs and lets running ones finish for --drain; then it gives the
rest back.

With --metrics the worker serves its Prometheus metrics at http://ADDR/metrics, to
everyone who reaches that address: give a host other than loopback only in a
trusted network.`,
		Example: `  gq work --type thumbnail --exec ./thumbnail.sh
  gq work --type shout --exec 'tr a-z A-Z'
  gq work --type report,invoice --queue reports --slots 4 --exec 'python3 render.py'
  gq work --type click --exec ./insert-clicks.sh --batch 500 --batch-wait 2s
  gq work --type thumbnail --exec ./thumbnail.sh --metrics :9464`,
		Args: cli.NoArguments,
	}
	r := newRemote(p, c)
	f := workFlags{}
	r.patience = patient
	flags := c.Flags()
	flags.StringSliceVar(&f.types, "type", nil, "types of jobs to run; required")
	flags.StringVar(&f.command, "exec", "", "shell command to run; required")
	flags.StringSliceVar(&f.queues, "queue", nil, "queues to claim from, tried in this order; mail.* is all whose names begin with mail. (default \""+gq.DefaultQueue+"\")")
	flags.IntVar(&f.slots, "slots", 1, "programs to run at once")
	flags.IntVar(&f.batch, "batch", 0, "jobs to give to one program as JSON lines; 0 runs a program for each job")
	flags.DurationVar(&f.batchWait, "batch-wait", time.Second, "with --batch: how long the first job of a batch waits for others")
	flags.StringVar(&f.name, "name", "", "name of this worker (default host name and process id)")
	flags.StringSliceVar(&f.offers, "offers", nil, "capabilities of this worker")
	flags.DurationVar(&f.grace, "grace", 5*time.Second, "time between SIGTERM and SIGKILL")
	flags.DurationVar(&f.drain, "drain", 30*time.Second, "how long running programs may finish after a signal")
	flags.StringVar(&f.metrics, "metrics", "", "address to serve Prometheus metrics at; :PORT is on loopback only")
	flags.SortFlags = false
	_ = c.MarkFlagRequired("type")
	_ = c.MarkFlagRequired("exec")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if f.batch == 0 && c.Flags().Changed("batch-wait") {
			return cli.Invalid("batch-wait", "needs --batch")
		}
		return r.long(c.Context(), func(ctx context.Context, q queue) error { return f.run(ctx, q, r) })
	}
	return c
}

// maxBatchSize is the largest [worker.Gather.Size].
const maxBatchSize = 10_000

type workFlags struct {
	types, queues, offers []string
	command, name         string
	metrics               string // address
	slots                 int
	batch                 int // jobs of one program; 0 is one by one
	batchWait             time.Duration
	grace, drain          time.Duration
}

func (f *workFlags) run(ctx context.Context, q queue, r *remote) error {
	if f.slots < 1 {
		return cli.Invalid("slots", fmt.Sprintf("%d is less than 1", f.slots))
	}
	switch {
	case f.batch < 0 || f.batch > maxBatchSize:
		return cli.Invalid("batch", fmt.Sprintf("%d is not between 1 and %d", f.batch, maxBatchSize))
	case f.batchWait <= 0 || f.batchWait > gq.MaxDuration:
		return cli.Invalid("batch-wait", fmt.Sprintf("%v is not between 1ns and %v", f.batchWait, gq.MaxDuration))
	}
	if err := checkCommand(f.command); err != nil {
		return err
	}
	for i, name := range f.queues {
		for _, fault := range errs.FaultsOf(machine.CheckQueuePattern("queue", name)) {
			return cli.Invalid("queue", fault.Problem)
		}
		if slices.Contains(f.queues[:i], name) {
			return cli.Invalid("queue", fmt.Sprintf("%.64q is listed twice", name))
		}
	}
	log := workerLog(r.process, r.json)
	stderr := &lockedWriter{to: r.stderr}
	calls, err := newCallDir()
	if err != nil {
		return err
	}
	defer calls.remove()
	config := worker.Config{
		Name: f.name, Slots: f.slots, Offers: f.offers, DrainTimeout: f.drain, Grace: f.grace + time.Second,
		Classify: classifyExit, Logger: log,
	}
	if f.metrics != "" {
		m, stop, err := serveMetrics(ctx, f.metrics, log)
		if err != nil {
			return err
		}
		defer stop()
		config.Metrics = m
	}
	if len(f.queues) > 0 {
		config.QueueSets = []worker.QueueSet{{Queues: f.queues}}
	}
	logged := logStop(ctx, log)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	w := worker.New(refusable{q, stop}, config)
	for _, typ := range f.types {
		if f.batch > 0 {
			worker.HandleMany(w, gq.NewKind[[]byte, []byte](typ), worker.Gather{Size: f.batch, Wait: f.batchWait}, func(ctx context.Context, jobs []*oneOfMany) []error {
				return f.executeMany(ctx, typ, jobs, stderr)
			})
			continue
		}
		w.HandleFunc(typ, func(ctx context.Context, run *worker.Run) error {
			return f.execute(ctx, run, calls, stderr)
		})
	}
	log.Info("working", "worker", w.Name(), "types", strings.Join(f.types, ","), "slots", f.slots)
	err = w.Run(ctx)
	logged()
	stats := w.Stats()
	log.Info("stopped", "worker", w.Name(), "succeeded", stats.Succeeded, "failed", stats.Failed, "given_back", stats.Released)
	if refusal := context.Cause(ctx); errs.KindOf(refusal) == gq.KindInvalid {
		return refusal
	}
	return err
}

// logStop logs what ends the context. The returned function waits until that is done if
// the context has ended, and prevents it otherwise.
func logStop(ctx context.Context, log *slog.Logger) (logged func()) {
	done := make(chan struct{})
	prevent := context.AfterFunc(ctx, func() {
		defer close(done)
		log.Info("stopping", "cause", context.Cause(ctx))
	})
	return func() {
		if !prevent() {
			<-done
		}
	}
}

// refusable stops the worker when a claim is invalid, for example at the address of a web
// server, because retrying cannot help.
type refusable struct {
	queue
	stop func(error)
}

func (r refusable) Claim(ctx context.Context, c gq.ClaimRequest) ([]gq.Job, error) {
	jobs, err := r.queue.Claim(ctx, c)
	if errs.KindOf(err) == gq.KindInvalid {
		r.stop(err)
	}
	return jobs, err
}

// CancelRequests passes on the one of the queue; see [worker.Queue].
func (r refusable) CancelRequests(f func(jobs []gq.JobID)) (stop func()) {
	if q, ok := r.queue.(interface {
		CancelRequests(f func(jobs []gq.JobID)) (stop func())
	}); ok {
		return q.CancelRequests(f)
	}
	return func() {}
}

// exitTemporary is EX_TEMPFAIL of sysexits.h.
const exitTemporary = 75

// crashError means that a signal ended the program.
type crashError struct{ text string }

func (e *crashError) Error() string { return e.text }

func classifyExit(err error) gq.Failure {
	if e, ok := errors.AsType[*crashError](err); ok {
		return gq.Failure{Category: gq.CategorySystem, Code: "crashed", Message: e.text}
	}
	if e, ok := errors.AsType[*noProgramError](err); ok {
		return gq.Failure{Category: gq.CategoryTemporary, Code: e.code(), Message: e.text}
	}
	return gq.Failure{} // the worker's own rules
}

// execute runs the program for one job.
func (f *workFlags) execute(ctx context.Context, run *worker.Run, calls *callDir, stderr io.Writer) error {
	environ, stop, err := calls.serve(ctx, run)
	if err != nil {
		return gq.Temporary(err)
	}
	defer stop()
	payload, result := run.Payload(), &limited{most: gq.MaxPayloadBytes}
	environ = append(environ,
		"GQ_JOB_ID="+run.ID().String(),
		"GQ_JOB_TYPE="+run.Type(),
		"GQ_QUEUE="+run.Queue(),
		"GQ_ATTEMPT="+strconv.Itoa(run.Attempt()),
		"GQ_LEASE_VERSION="+strconv.FormatUint(uint64(run.LeaseVersion()), 10),
		"GQ_CORRELATION_ID="+strings.ReplaceAll(run.CorrelationID(), "\x00", ""), // environment variables cannot contain NUL
		"GQ_CONTENT_TYPE="+payload.ContentType,
	)
	if slot := run.Slot(); !slot.IsZero() {
		environ = append(environ, "GQ_SLOT="+slot.Format(time.RFC3339))
	}
	if outcome := run.WorkflowOutcome(); outcome != 0 {
		environ = append(environ, outcomeVariable+"="+outcome.String())
	}
	for name, value := range tracing.Fields(ctx) {
		environ = append(environ, strings.ToUpper(name)+"="+value)
	}
	ended := f.runProgram(ctx, program{stdin: bytes.NewReader(payload.Data), stdout: result, stderr: stderr, environ: environ})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case result.over:
		return &gq.PermanentError{Message: fmt.Sprintf("the program wrote more than %d bytes", result.most), Code: "result_too_large"}
	}
	if err := ended.verdict(run); err != nil {
		return err
	}
	return run.SetResult(result.data.Bytes())
}

// program is one run of the command.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string // besides that of this process
}

// runProgram runs the command until it ends or the context does.
func (f *workFlags) runProgram(ctx context.Context, p program) ending {
	command := exec.CommandContext(ctx, "/bin/sh", "-c", f.command) //nolint:gosec // that is what the user asked for
	tail := &lastBytes{most: tailBytes}
	command.Stdin, command.Stdout, command.Stderr = p.stdin, p.stdout, io.MultiWriter(p.stderr, tail)
	command.Env = append(plainEnviron(os.Environ()), p.environ...)
	endTogether(command)
	command.WaitDelay = f.grace
	err := command.Run()
	if ctx.Err() != nil {
		sweepUp(command)
	}
	return ending{err, tail.String()}
}

// ending is how a program ended.
type ending struct {
	err  error
	said string // the end of its standard error
}

// verdict decides about a job by the exit status; nil is success.
func (e ending) verdict(run *worker.Run) error {
	exit, exited := errors.AsType[*exec.ExitError](e.err)
	switch {
	case e.err == nil:
		return nil
	case !exited && errors.Is(e.err, exec.ErrWaitDelay):
		return nil // the program is done; a child process kept its output open
	case !exited:
		return gq.Temporary(fmt.Errorf("run the program: %w", e.err))
	case exit.ExitCode() < 0:
		return &crashError{saying(exit.Error(), e.said)}
	default:
		return exitError(exit.ExitCode(), e.said, run)
	}
}

// exitError is the verdict for an exit status other than 0.
func exitError(status int, said string, run *worker.Run) error {
	text := saying("exit status "+strconv.Itoa(status), said)
	if status == exitNoPermission || status == exitNotFound {
		return &noProgramError{status, text}
	}
	if status == exitTemporary || status == 1 && run.Policy().Preset == gq.PresetResilient {
		return &gq.TemporaryError{Message: text}
	}
	return &gq.PermanentError{Message: text, Code: "exit_" + strconv.Itoa(status)}
}

// outcomeVariable tells the program of a final job what has become of its workflow.
const outcomeVariable = "GQ_WORKFLOW_OUTCOME"

// plainEnviron removes variables from an environment that only some jobs have: the worker may itself
// be a program of another one.
func plainEnviron(environ []string) []string {
	return slices.DeleteFunc(environ, func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"TRACEPARENT", "TRACESTATE", "GQ_SLOT", outcomeVariable, inputsVariable, socketVariable, manyVariable}, name)
	})
}

// limited buffers what is written to it, up to a limit.
type limited struct {
	data bytes.Buffer
	most int
	over bool
}

func (l *limited) Write(p []byte) (int, error) {
	if l.over = l.over || l.data.Len()+len(p) > l.most; !l.over {
		l.data.Write(p)
	}
	return len(p), nil
}

// lockedWriter serializes the writes of concurrent programs.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer // guarded by mu
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(p)
}
