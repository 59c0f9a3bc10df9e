package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/tracing"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/worker"
)

// defaultAddr is the default gRPC address of gq serve.
const defaultAddr = "127.0.0.1:8790"

// queue is the part of a queue that commands need. Package client implements it for a
// server, package engine for the same process.
type queue interface {
	worker.Queue

	Submit(ctx context.Context, s gq.Spec) (gq.SubmitResult, error)
	Get(ctx context.Context, id gq.JobID, parts gq.Parts) (gq.Job, error)
	List(ctx context.Context, q gq.Query) (gq.Page, error)
	UpdateMetadata(ctx context.Context, id gq.JobID, p gq.MetadataPatch) (gq.Job, error)
	Cancel(ctx context.Context, id gq.JobID, reason string) (gq.State, error)
	CancelWhere(ctx context.Context, q gq.Query, reason string) (gq.CancelReport, error)
	Edit(ctx context.Context, id gq.JobID, change gq.JobEdit) (gq.SubmitResult, error)
	Replay(ctx context.Context, id gq.JobID) (gq.SubmitResult, error)
	Reschedule(ctx context.Context, id gq.JobID, at time.Time) (gq.State, error)
	ReplayWhere(ctx context.Context, q gq.Query) (gq.ReplayReport, error)
	CountWhere(ctx context.Context, q gq.Query) (gq.CountReport, error)
	DeleteQueue(ctx context.Context, name string) error
	SetQueueKey(ctx context.Context, k gq.QueueKey) (gq.QueueKey, error)
	UnsetQueueKey(ctx context.Context, queue, key string) error
	QueueKeys(ctx context.Context, queue, after string, limit int) ([]gq.QueueKey, error)
	QueueHistory(ctx context.Context, q gq.HistoryQuery) ([]gq.HistoryPoint, error)
	Purge(ctx context.Context, id gq.JobID) error
	PurgeWhere(ctx context.Context, q gq.Query) (int, error)
	Wait(ctx context.Context, id gq.JobID) (gq.Job, error)
	Explain(ctx context.Context, id gq.JobID) (gq.Explanation, error)
	History(ctx context.Context, id gq.JobID) ([]gq.Event, error)

	Queue(ctx context.Context, name string) (gq.Queue, error)
	Queues(ctx context.Context) ([]gq.Queue, error)
	QueuesAfter(ctx context.Context, name string, limit int) ([]gq.Queue, error)
	DeclareQueue(ctx context.Context, q gq.Queue) (gq.Queue, error)
	ChangeQueue(ctx context.Context, name string, change func(*gq.Queue)) (gq.Queue, error)
	Pause(ctx context.Context, queue string) (gq.Queue, error)
	Resume(ctx context.Context, queue string) (gq.Queue, error)
	Pools(ctx context.Context) ([]gq.Pool, error)
	PutPool(ctx context.Context, p gq.Pool) error
	Counts(ctx context.Context, queues ...string) ([]gq.Count, error)
	Stats(ctx context.Context) (gq.Stats, error)
	Workers(ctx context.Context) ([]gq.LiveWorker, error)

	Events(ctx context.Context, after uint64, limit int) ([]gq.Event, error)
	LastEvent(ctx context.Context) (uint64, error)
	Follow(ctx context.Context, after uint64, f func([]gq.Event) error) error

	Inbox(ctx context.Context, cursor string, limit int) (gq.Inbox, error)
	RetryRefused(ctx context.Context, which gq.RefusedSelection) (int, error)
	DiscardRefused(ctx context.Context, which gq.RefusedSelection) (int, error)

	Schedule(ctx context.Context, name string) (gq.Schedule, error)
	Schedules(ctx context.Context) ([]gq.Schedule, error)
	PutSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error)
	DeclareSchedule(ctx context.Context, s gq.Schedule) (gq.Schedule, error)
	PauseSchedule(ctx context.Context, name string) (gq.Schedule, error)
	ResumeSchedule(ctx context.Context, name string) (gq.Schedule, error)
	TriggerSchedule(ctx context.Context, name string) (gq.Firing, error)
	BackfillSchedule(ctx context.Context, b gq.Backfill) (gq.BackfillReport, error)
	DeleteSchedule(ctx context.Context, name string) error

	SubmitWorkflow(ctx context.Context, f *gq.Flow) (gq.WorkflowID, error)
	Workflow(ctx context.Context, id gq.WorkflowID) (gq.Workflow, error)
	Workflows(ctx context.Context, q gq.WorkflowQuery) (gq.WorkflowPage, error)
	CancelWorkflow(ctx context.Context, id gq.WorkflowID, reason string) (gq.CancelReport, error)
	RetryWorkflow(ctx context.Context, id gq.WorkflowID) (gq.Workflow, error)
	AddToWorkflow(ctx context.Context, id gq.WorkflowID, f *gq.Flow) (gq.Workflow, error)
	Signal(ctx context.Context, id gq.WorkflowID, name string, value any) (gq.State, error)
}

// dialer connects to the server at an address and returns a function that disconnects.
// Calls are retried for up to patience while the server is unreachable; reached is called
// when that changes.
type dialer func(addr string, patience time.Duration, reached func(bool)) (queue, func() error, error)

// dialAs returns a dialer configured by the environment: the token in GQ_TOKEN; TLS if
// GQ_TLS is 1 or GQ_TLS_CA names a file of authorities; the client certificate in
// GQ_TLS_CERT and GQ_TLS_KEY.
func dialAs(getenv func(string) string) dialer {
	return func(addr string, patience time.Duration, reached func(bool)) (queue, func() error, error) {
		o := client.Options{RetryFor: patience, Token: getenv("GQ_TOKEN"), Reached: reached}
		var err error
		if o.TLS, err = cli.ClientTLS(getenv); err != nil {
			return nil, nil, err
		}
		c, err := client.New(addr, o)
		if err != nil {
			return nil, nil, err
		}
		return c, c.Close, nil
	}
}

// remote is a command that calls a server.
type remote struct {
	process
	addr     string
	json     bool
	patience time.Duration

	saying  sync.Mutex
	unheard bool // the user knows that the server is unreachable; guarded by saying
}

// explainTLS adds the variables that calls of a server read to the help of a command.
func explainTLS(c *cobra.Command) { c.Long = cmp.Or(c.Long, c.Short+".") + "\n\n" + cli.TLSHelp }

// newRemote adds the flags that all commands for servers share, and to their help the variables.
func newRemote(p process, c *cobra.Command) *remote {
	r := &remote{process: p, patience: impatient}
	explainTLS(c)
	flags := c.Flags()
	flags.StringVar(&r.addr, "addr", "", "gRPC address of the server, or several separated by commas to try in order (default GQ_ADDR, or "+defaultAddr+")")
	flags.BoolVar(&r.json, "json", false, "print JSON for programs")
	return r
}

// How long calls are retried while the server is unreachable: a short command fails soon,
// and a long-running one outlasts a restart of the server.
const (
	impatient = 500 * time.Millisecond
	patient   = 30 * time.Second
)

// callTimeout limits calls that do not wait for anything.
const callTimeout = 30 * time.Second

// short is long with a time limit.
func (r *remote) short(ctx context.Context, f func(ctx context.Context, q queue) error) error {
	return r.long(ctx, func(ctx context.Context, q queue) error {
		limited, cancel := context.WithTimeoutCause(ctx, callTimeout, fmt.Errorf("no answer within %v: %w", callTimeout, gq.ErrTimeout))
		defer cancel()
		err := f(limited, q)
		if err != nil && errs.KindOf(err) == gq.KindInternal && limited.Err() != nil && ctx.Err() == nil {
			err = errors.Join(context.Cause(limited), err)
		}
		return err
	})
}

// long connects, calls f and disconnects.
func (r *remote) long(ctx context.Context, f func(ctx context.Context, q queue) error) error {
	addr := r.address()
	var reached func(bool)
	if r.patience > impatient { // otherwise the error follows at once
		reached = func(yes bool) { r.reached(addr, yes) }
	}
	q, closing, err := r.dial(addr, r.patience, reached)
	if err == nil {
		defer closing() //nolint:errcheck // there is nothing left to say
		err = f(tracing.Extract(ctx, func(name string) string { return r.getenv(strings.ToUpper(name)) }), q)
	}
	switch {
	case errs.KindOf(err) == gq.KindUnauthenticated && r.getenv("GQ_TOKEN") == "":
		err = fmt.Errorf("%w; set GQ_TOKEN to a token of the server %s (gq token create makes one)", err, addr)
	case errs.KindOf(err) == gq.KindUnauthenticated:
		err = fmt.Errorf("%w; the server %s does not know the token in GQ_TOKEN, or it was revoked or has expired", err, addr)
	case errors.Is(err, client.ErrOutcomeUnknown):
		err = fmt.Errorf("%w (server %s; look whether it took effect before you repeat it)", err, addr)
	case errors.Is(err, client.ErrUnreachable):
		err = fmt.Errorf("%w (server %s; is gq serve running there?)", err, addr)
	case errs.KindOf(err) == gq.KindUnavailable: // the server itself reported it
		err = fmt.Errorf("%w (server %s)", err, addr)
	}
	return err
}

// reached tells the user that the server is unreachable, or reachable again.
func (r *remote) reached(addr string, yes bool) {
	text := "cannot reach the server; trying again"
	if yes {
		text = "the server is reached again"
	}
	r.saying.Lock()
	defer r.saying.Unlock()
	r.unheard = !yes
	r.say(addr, text)
}

// slowAfter is how long a command waits for an answer before it says so.
const slowAfter = 1500 * time.Millisecond

// waits tells the user, unless done is called soon, that the server has not answered yet.
func (r *remote) waits(what string) (done func()) {
	if r.patience <= impatient {
		return func() {}
	}
	timer := time.AfterFunc(slowAfter, func() {
		r.saying.Lock()
		defer r.saying.Unlock()
		if !r.unheard {
			r.say(r.address(), "waiting for the server to "+what+"; perhaps it cannot reach its store, or its disk is full")
		}
	})
	return func() {
		timer.Stop()
		r.saying.Lock() // what has begun ends before the result is printed
		defer r.saying.Unlock()
	}
}

func (r *remote) address() string { return cmp.Or(r.addr, r.getenv("GQ_ADDR"), defaultAddr) }

// say writes a line for the user. The caller holds saying.
func (r *remote) say(addr, text string) {
	if r.json {
		workerLog(r.process, true).Warn(text, "server", addr)
		return
	}
	fmt.Fprintf(r.stderr, "gq: %s (server %s)\n", text, addr)
}

// print writes v as JSON or, for people, what f writes.
func (r *remote) print(v any, f func(s screen)) error {
	if r.json {
		return wire.EncodeJSON(r.stdout, v)
	}
	f(r.screen())
	return nil
}

func (r *remote) screen() screen { return newScreen(r.stdout, r.getenv) }

// jobArg parses a job id.
func jobArg(text string) (gq.JobID, error) {
	id, err := gq.ParseJobID(text)
	if err != nil {
		return id, cli.Invalid("id", fmt.Sprintf("%.64q is not the id of a job", text))
	}
	return id, nil
}

func jobArgs(texts []string) (ids []gq.JobID, err error) {
	for _, text := range texts {
		id, err := jobArg(text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// oneArgument checks the arguments of commands that take exactly one.
func oneArgument(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("%s needs %s", c.CommandPath(), what)
		case len(args) > 1:
			return fmt.Errorf("%s takes one argument; unexpected %q", c.CommandPath(), args[1])
		}
		return nil
	}
}
