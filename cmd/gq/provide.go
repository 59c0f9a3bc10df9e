package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/wire"
)

const provideLong = `Act as a provider of matching, until interrupted: send heartbeats, acknowledge the
leases that rounds assign, run a program for each and report its outcome. The
provider must be registered (gq provider register, or POST /api/matching/providers).

The shell runs the command. The command reads the job's payload from standard
input; the SHA-256 of what it writes to standard output is the digest of the
completion. Any exit status other than 0 is a failure. The environment contains
GQ_JOB_ID, GQ_LEASE_ID, GQ_KIND and GQ_ATTEMPT, and TRACEPARENT and TRACESTATE if the
submission was part of a trace.

While the program runs, its lease is renewed before renew_by. If the lease is
withdrawn, the program gets SIGTERM, and SIGKILL after --grace. On SIGINT,
SIGTERM or SIGHUP this command acknowledges no more leases and lets running programs
finish for --drain.`

func newProvide(p process) *cobra.Command {
	w := &provider{matchingAPI: matchingAPI{process: p}, held: map[gq.LeaseID]bool{}}
	c := &cobra.Command{
		Use:     "provide ID --exec COMMAND",
		Short:   "Act as a provider of matching and run a program for every lease",
		Long:    provideLong,
		Example: "  gq provide gpu-7 --exec ./infer.sh",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s takes the id of one provider, and %d were given", c.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			w.id = args[0]
			w.log = workerLog(w.process, false)
			w.errors = &lockedWriter{to: w.stderr}
			return w.run(c.Context())
		},
	}
	w.flag(c)
	c.Flags().StringVar(&w.command, "exec", "", "shell command to run; required")
	c.Flags().DurationVar(&w.poll, "poll", time.Second, "how often to look for new leases")
	c.Flags().DurationVar(&w.grace, "grace", 5*time.Second, "time between SIGTERM and SIGKILL")
	c.Flags().DurationVar(&w.drain, "drain", 30*time.Second, "how long running programs may finish after a signal")
	_ = c.MarkFlagRequired("exec")
	return c
}

// provider implements gq provide.
type provider struct {
	matchingAPI
	id, command        string
	poll, grace, drain time.Duration
	log                *slog.Logger
	errors             io.Writer

	working sync.WaitGroup
	mu      sync.Mutex
	held    map[gq.LeaseID]bool // leases whose programs run; guarded by mu
}

// given is a lease as the server encodes it.
type given struct {
	ID      gq.LeaseID `json:"lease_id"`
	Job     string     `json:"job_id"`
	Kind    string     `json:"kind"`
	Attempt int64      `json:"attempt"`
	RenewBy int64      `json:"renew_by"`
	Acked   bool       `json:"acked"`
	Status  string     `json:"status"`
	Details struct {
		Payload     json.RawMessage `json:"payload"`
		TraceParent string          `json:"traceparent"`
		TraceState  string          `json:"tracestate"`
	} `json:"job"`
}

func (l *given) live() bool { return l.Status == "ACTIVE" || l.Status == "RENEWED" }

func (w *provider) run(ctx context.Context) error {
	if err := checkCommand(w.command); err != nil {
		return err
	}
	if w.poll <= 0 {
		return cli.Invalid("poll", fmt.Sprintf("%v is not longer than 0", w.poll))
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer w.working.Wait()
	defer stop()
	w.log.Info("providing", "provider", w.id)
	defer logStop(ctx, w.log)()
	tick := time.NewTicker(w.poll)
	defer tick.Stop()
	for first := true; ; first = false {
		if err := w.look(ctx, work); err != nil && ctx.Err() == nil {
			if first || errs.KindOf(err) != gq.KindInternal && !errors.Is(err, context.DeadlineExceeded) && !passing(err) {
				return fmt.Errorf("provide %s: %w", w.id, err)
			}
			w.log.Warn("look for leases", "error", err)
		}
		select {
		case <-ctx.Done():
			w.finish()
			return nil
		case <-tick.C:
		}
	}
}

// passing reports whether the same call may succeed later: the server is away, or cannot serve now.
func passing(err error) bool {
	kind := errs.KindOf(err)
	return errors.Is(err, wire.ErrUnreachable) || kind == gq.KindUnavailable || kind == gq.KindExhausted
}

// finish waits for running programs, up to a limit.
func (w *provider) finish() {
	done := make(chan struct{})
	go func() { w.working.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(w.drain):
		w.log.Warn("programs under way are ended", "drain_ms", w.drain.Milliseconds())
	}
}

// look sends a heartbeat and starts new leases.
func (w *provider) look(ctx, work context.Context) error {
	at := "/providers/" + url.PathEscape(w.id)
	if _, _, err := w.call(ctx, http.MethodPost, at+"/heartbeat", nil); err != nil {
		return err
	}
	for cursor, more := "", true; more; more = cursor != "" {
		text, _, err := w.call(ctx, http.MethodGet, at+"/leases?cursor="+url.QueryEscape(cursor), nil)
		if err != nil {
			return err
		}
		var answer struct {
			Leases []given `json:"leases"`
			Next   string  `json:"next_cursor"`
		}
		if err := json.Unmarshal(text, &answer); err != nil {
			return fmt.Errorf("leases: %w", err)
		}
		w.begin(work, answer.Leases)
		cursor = answer.Next
	}
	return nil
}

// begin starts the leases that are not acknowledged yet.
func (w *provider) begin(work context.Context, leases []given) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range leases {
		if l.Acked || !l.live() || w.held[l.ID] {
			continue
		}
		w.held[l.ID] = true
		w.working.Go(func() {
			w.serve(work, l)
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.held, l.ID)
		})
	}
}

// serve acknowledges a lease, runs the program and reports the result.
func (w *provider) serve(ctx context.Context, l given) {
	log := w.log.With("job", l.Job, "lease", l.ID)
	said, now, err := w.tell(ctx, l.ID, "ack", nil)
	if err != nil {
		log.Warn("acknowledge", "error", err)
		return
	}
	running, end := context.WithCancelCause(ctx)
	renewals := make(chan struct{})
	go func() { defer close(renewals); w.renew(running, end, said, now, log) }()
	output, err := w.execute(running, l)
	lost := context.Cause(running)
	end(nil)
	<-renewals
	switch {
	case lost != nil && ctx.Err() == nil:
		log.Warn("the lease is no longer ours", "reason", lost)
		return
	case err == nil:
		digest := sha256.Sum256(output)
		err = w.report(ctx, l.ID, "complete", map[string]any{
			"provider_id": w.id, "output_digest": fmt.Sprintf("%x", digest), "meta": map[string]any{"output_bytes": len(output)},
		})
	default:
		log.Warn("the program failed", "error", err)
		err = w.report(ctx, l.ID, "fail", map[string]any{"provider_id": w.id, "reason": err.Error()})
	}
	if err != nil {
		log.Warn("report", "error", err)
	}
}

// report ends a lease. While the server is away it repeats the call, which has no second effect,
// until the provider stops. A server that comes back too late refuses it.
func (w *provider) report(ctx context.Context, id gq.LeaseID, what string, body map[string]any) error {
	for {
		_, _, err := w.tell(context.WithoutCancel(ctx), id, what, body)
		if !passing(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(w.poll):
		}
	}
}

func (w *provider) tell(ctx context.Context, id gq.LeaseID, what string, body map[string]any) (l given, now time.Time, err error) {
	if body == nil {
		body = map[string]any{"provider_id": w.id}
	}
	text, now, err := w.call(ctx, http.MethodPost, "/leases/"+url.PathEscape(string(id))+"/"+what, body)
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	return l, now, err
}

// renew renews a lease while its program runs: each time when a third of the time until
// renew_by is left, by the server's clock. When no more renewals are granted, the program
// may continue until the deadline.
func (w *provider) renew(ctx context.Context, lost context.CancelCauseFunc, l given, now time.Time, log *slog.Logger) {
	for {
		left := time.Unix(l.RenewBy, 0).Sub(now)
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(left*2/3, 100*time.Millisecond)):
		}
		next, at, err := w.tell(ctx, l.ID, "renew", nil)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			l, now = next, at
			continue
		case passing(err):
			log.Warn("renew", "error", err)
			now = now.Add(max(left*2/3, 100*time.Millisecond))
			continue
		}
		text, _, readErr := w.call(ctx, http.MethodGet, "/leases/"+url.PathEscape(string(l.ID)), nil)
		if readErr == nil && json.Unmarshal(text, &next) == nil && !next.live() {
			lost(err)
			return
		}
		log.Warn("no more renewals", "error", err)
		return
	}
}

// execute runs the program for one lease and returns its output.
func (w *provider) execute(ctx context.Context, l given) ([]byte, error) {
	command := exec.CommandContext(ctx, "/bin/sh", "-c", w.command) //nolint:gosec // that is what the user asked for
	command.Stdin = bytes.NewReader(l.Details.Payload)
	result, tail := &limited{most: gq.MaxPayloadBytes}, &lastBytes{most: tailBytes}
	command.Stdout, command.Stderr = result, io.MultiWriter(w.errors, tail)
	command.Env = append(plainEnviron(os.Environ()),
		"GQ_JOB_ID="+l.Job, "GQ_LEASE_ID="+string(l.ID), "GQ_KIND="+l.Kind, "GQ_ATTEMPT="+strconv.FormatInt(l.Attempt, 10))
	if trace := l.Details; trace.TraceParent != "" {
		command.Env = append(command.Env, "TRACEPARENT="+trace.TraceParent)
		if trace.TraceState != "" {
			command.Env = append(command.Env, "TRACESTATE="+trace.TraceState)
		}
	}
	endTogether(command)
	command.WaitDelay = w.grace
	err := command.Run()
	if ctx.Err() != nil {
		sweepUp(command)
	}
	switch {
	case ctx.Err() != nil:
		return nil, errors.New("the provider stopped")
	case result.over:
		return nil, fmt.Errorf("the program wrote more than %d bytes", result.most)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		return nil, errors.New(saying(err.Error(), tail.String()))
	}
	return result.data.Bytes(), nil
}
