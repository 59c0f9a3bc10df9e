package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
)

// specFlags describe a job to be submitted.
type specFlags struct {
	payload, contentType string
	queue, priority      string
	delay                time.Duration
	at                   string
	key                  string
	after                []string
	tags                 []string
	callback             string
	correlation          string
	cost                 int64
	requires             []string
	limitKey, fairKey    string
	orderKey             string
	preset               string
	maxAttempts, weight  int
	timeout, ttl         time.Duration
	startWithin          time.Duration
	keep                 string
	unique               uniqueFlags
}

// add adds the flags for any job, and those that only a single job can have.
func (f *specFlags) add(flags *pflag.FlagSet, single bool) {
	flags.StringVar(&f.payload, "payload", "", "payload: text, @FILE, or - for standard input (default null)")
	flags.StringVar(&f.contentType, "content-type", "", "media type of the payload (default application/json if it is JSON, else text/plain or application/octet-stream)")
	flags.StringVar(&f.queue, "queue", "", "queue (default \""+gq.DefaultQueue+"\")")
	flags.StringVar(&f.priority, "priority", "", "CRITICAL, HIGH, NORMAL, LOW, BULK or 0 to 4 (default NORMAL)")
	if single {
		flags.DurationVar(&f.delay, "delay", 0, "earliest start, from now")
		flags.StringVar(&f.at, "at", "", "earliest start, such as 2030-01-31T12:00:00Z")
		flags.StringVar(&f.key, "key", "", "idempotency key: repeating the submission returns the first job")
		f.unique.add(flags)
		flags.StringSliceVar(&f.after, "after", nil, "ids of jobs that must complete first")
	}
	flags.StringArrayVar(&f.tags, "tag", nil, "a label, as name=value; may be repeated")
	flags.StringVar(&f.callback, "callback", "", "URL to call when the job has ended")
	flags.StringVar(&f.correlation, "correlation-id", "", "for traces and logs")
	flags.Int64Var(&f.cost, "cost", 0, "capacity that the job occupies while it is held")
	flags.StringSliceVar(&f.requires, "requires", nil, "capabilities that a worker must offer")
	flags.StringVar(&f.limitKey, "limit-key", "", "jobs with the same key share the queue's limits per key")
	flags.IntVar(&f.weight, "weight", 0, "how much of the rate of its limit key the job uses up (default 1)")
	flags.StringVar(&f.fairKey, "fair-key", "", "key that takes turns in a fair queue, such as a tenant")
	flags.StringVar(&f.orderKey, "order-key", "", "jobs with the same key run one after another, in the order of submission")
	flags.StringVar(&f.preset, "preset", "", "policy preset (default the queue's policy)")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "executions, the first included (default the queue's)")
	flags.DurationVar(&f.timeout, "execution-timeout", 0, "limit of one execution (default the queue's)")
	flags.DurationVar(&f.ttl, "lease-ttl", 0, "how long a silent worker keeps the job (default the queue's)")
	flags.StringVar(&f.keep, "keep", "", "how long to keep the finished job: none (for a minute, in which a lost answer can be asked for again), or a duration such as 24h (default the queue's)")
	flags.DurationVar(&f.startWithin, "start-within", 0, "cancel the job unless its first attempt has started by then, from now (default the queue's)")
}

// spec builds the job that the flags describe.
func (f *specFlags) spec(p process, typ string) (s gq.Spec, err error) {
	var faults []gq.Fault
	fault := func(field, format string, args ...any) {
		faults = append(faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	s = gq.Spec{
		Type: typ, Queue: f.queue, Key: gq.IdempotencyKey{Name: f.key}, Delay: f.delay,
		CostUnits: f.cost, Requires: f.requires, LimitKey: f.limitKey, FairKey: f.fairKey, OrderKey: f.orderKey, Weight: f.weight,
		Metadata: gq.Metadata{CorrelationID: f.correlation, CallbackURL: f.callback},
	}
	if s.Payload, err = f.read(p.stdin); err != nil {
		fault("payload", "%v", err)
	}
	if f.priority != "" {
		s.Metadata.Priority, err = enum.Parse[gq.Priority](strings.ToUpper(f.priority))
		faults = append(faults, errs.FaultsOf(err)...)
	}
	if f.at != "" {
		if s.RunAt, err = time.Parse(time.RFC3339, f.at); err != nil {
			fault("at", "%q is not an instant such as 2030-01-31T12:00:00Z", f.at)
		}
		if f.delay != 0 {
			fault("delay", "cannot be given together with --at; give one of them")
		}
	}
	for _, text := range f.after {
		id, err := gq.ParseJobID(text)
		if err != nil {
			fault("after", "%.64q is not the id of a job", text)
		}
		s.DependsOn = append(s.DependsOn, gq.Dependency{Kind: gq.DependencyAfter, Job: id})
	}
	var more []gq.Fault
	s.Metadata.Tags, more = readTags(f.tags)
	faults = append(faults, more...)
	faults = append(faults, errs.FaultsOf(f.override(&s))...)
	s.Unique, more = f.unique.rule()
	faults = append(faults, more...)
	if len(faults) > 0 {
		return s, &gq.InvalidError{Faults: faults}
	}
	return s, nil
}

// override sets the parts of the policy that flags name; the rest is the queue's.
func (f *specFlags) override(s *gq.Spec) (err error) {
	o := &s.Overrides
	if f.preset != "" {
		o.Preset, err = enum.Parse[gq.Preset](f.preset)
	}
	if f.keep != "" {
		var keep wire.Retention
		if fault := keep.UnmarshalText([]byte(f.keep)); fault != nil {
			err = errors.Join(err, cli.Invalid("keep", fmt.Sprintf("%.64q is neither none nor a duration such as 24h", f.keep)))
		}
		o.Retention = time.Duration(keep)
	}
	o.MaxAttempts, o.ExecutionTimeout, o.LeaseTTL, o.StartWithin = f.maxAttempts, f.timeout, f.ttl, f.startWithin
	return err
}

// read reads the payload. Unless a content type was given, the content determines it.
func (f *specFlags) read(stdin io.Reader) (p gq.Payload, err error) {
	p.ContentType = f.contentType
	name, isFile := strings.CutPrefix(f.payload, "@")
	switch {
	case f.payload == "":
		return p, nil
	case f.payload == "-":
		p.Data, err = io.ReadAll(io.LimitReader(stdin, gq.MaxPayloadBytes+1))
	case isFile:
		p.Data, err = readFile(name, gq.MaxPayloadBytes+1)
	default:
		p.Data = []byte(f.payload)
	}
	if err != nil {
		return p, err
	}
	if p.ContentType == "" {
		switch {
		case utf8.Valid(p.Data) && json.Valid(p.Data):
			p.ContentType = gq.JSON
		case utf8.Valid(p.Data):
			p.ContentType = "text/plain"
		default:
			p.ContentType = gq.OctetStream
		}
	}
	return p, nil
}

// readFile reads a file up to a size limit.
func readFile(name string, most int64) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	return io.ReadAll(io.LimitReader(file, most))
}

func readTags(given []string) (tags map[string]string, faults []gq.Fault) {
	for _, text := range given {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			faults = append(faults, gq.Fault{Field: "tag", Problem: fmt.Sprintf("%.64q is not name=value", text)})
			continue
		}
		if tags == nil {
			tags = map[string]string{}
		}
		tags[name] = value
	}
	return tags, faults
}

func newSubmit(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "submit TYPE",
		Short: "Submit a job",
		Long: `Submit a job and print its id once the job is durable. With --json the whole job
is printed.

If no server is reachable, for example during a restart, or the server cannot reach
its store, the command says so and retries for --retry-for. Retries never submit
the job twice: without --key the command uses a random idempotency key. A unique
job is not retried if its outcome is unknown.

With --wait the command waits until the job has ended and exits with its outcome.

` + cli.ExitHelp,
		Example: `  gq submit email.send --payload '{"to":"ada@example.com"}'
  gq submit report --payload @report.json --queue reports --priority HIGH
  tar c dir | gq submit archive --payload - --content-type application/x-tar
  gq submit invoice --key invoice-4711 --delay 10m --tag customer=7
  gq submit report --key nightly --unique waiting --on-collision replace
  gq submit sync --payload '{"customer":7}' --unique-by customer --on-collision debounce --delay 1m
  gq submit quote --start-within 10m --keep none
  gq submit second --after $(gq submit first) --wait`,
		Args: oneArgument("the type of the job"),
	}
	r := newRemote(p, c)
	var f specFlags
	var wait bool
	var timeout time.Duration
	f.add(c.Flags(), true)
	c.Flags().DurationVar(&r.patience, "retry-for", patient, "how long to retry while the server is unreachable; 0 is not at all")
	c.Flags().BoolVar(&wait, "wait", false, "wait until the job has ended")
	c.Flags().DurationVar(&timeout, "timeout", 0, "with --wait: give up after this long (default never)")
	c.Flags().SortFlags = false
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case r.patience < 0:
			return cli.Invalid("retry-for", fmt.Sprintf("%v is negative", r.patience))
		case r.patience == 0:
			r.patience = -1 // no retries; 0 would select the client's default
		}
		return r.long(c.Context(), func(ctx context.Context, q queue) error {
			return r.submit(ctx, q, &f, args[0], wait, timeout)
		})
	}
	return c
}

func (r *remote) submit(ctx context.Context, q queue, f *specFlags, typ string, wait bool, timeout time.Duration) error {
	spec, err := f.spec(r.process, typ)
	if err != nil {
		return err
	}
	answered := r.waits("store the job")
	submitted, err := q.Submit(ctx, spec)
	answered()
	if err != nil && !r.json {
		err = inFlags(typ, err)
	}
	if err != nil {
		return err
	}
	if submitted.Existing && !r.json { // JSON output says so itself
		note := "another job holds the key: this is that job"
		if !submitted.Same {
			note += ", and it was submitted with other content"
		}
		fmt.Fprintln(r.stderr, "gq:", note)
	}
	if !r.json {
		fmt.Fprintln(r.stdout, submitted.ID())
	}
	if wait {
		err := r.waitFor(ctx, q, submitted.ID(), timeout, !r.json, nil)
		if err != nil && err.Error() != "" && r.json { // otherwise the id would be lost
			err = fmt.Errorf("job %s was submitted: %w", submitted.ID(), err)
		}
		return err
	}
	if !r.json {
		return nil
	}
	return wire.EncodeJSON(r.stdout, wire.Submitted{Job: madeJob(ctx, q, &submitted), Existing: submitted.Existing, Same: submitted.Same})
}

// flagOf maps API fields to flags of gq submit with a different name.
var flagOf = map[string]string{
	"run_at": "at", "idempotency_key": "key", "tags": "tag", "callback_url": "callback", "correlation_id": "correlation-id",
	"cost_units": "cost", "limit_key": "limit-key", "fair_key": "fair-key", "order_key": "order-key", "content_type": "content-type", "depends_on": "after",
	"unique.while": "unique", "unique.on_collision": "on-collision", "unique.period": "unique-for", "unique.fields": "unique-by",
	"policy.max_attempts": "max-attempts", "policy.execution_timeout": "execution-timeout", "policy.lease_ttl": "lease-ttl", "policy.start_within": "start-within", "policy.retention": "keep",
}

// inFlags rewrites a validation error so that its faults name flags.
func inFlags(typ string, err error) error {
	faults := errs.FaultsOf(err)
	if len(faults) == 0 {
		return err
	}
	told := make([]gq.Fault, len(faults))
	for i, f := range faults {
		field, _, _ := strings.Cut(f.Field, "[")
		if flag, ok := flagOf[field]; ok {
			f.Field = flag
		}
		told[i] = f
	}
	return fmt.Errorf("submit %.80q: %w", typ, &gq.InvalidError{Faults: told})
}

// waitFor waits until a job has ended and prints how, in a view unless that is nil.
func (r *remote) waitFor(ctx context.Context, q queue, id gq.JobID, timeout time.Duration, quiet bool, v *view.View) error {
	waiting := ctx
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		waiting = limited
	}
	job, err := q.Wait(waiting, id)
	if err != nil {
		if waiting.Err() != nil && ctx.Err() == nil {
			return fmt.Errorf("job %s has not ended within %v: %w", id, timeout, gq.ErrTimeout)
		}
		return err
	}
	switch {
	case v != nil:
		err = r.print(v.Job(&job), func(s screen) { s.pairs(members(v.Job(&job))...) })
	case r.json:
		err = wire.EncodeJSON(r.stdout, wire.JobOf(&job))
	case quiet:
		fmt.Fprintf(r.stderr, "gq: job %s is %s\n", id, endText(&job))
	default:
		fmt.Fprintln(r.stdout, endText(&job))
	}
	if err == nil && job.State.Status != gq.StatusCompleted {
		return &cli.StatusError{Status: cli.ExitFailure}
	}
	return err
}

// endText describes how a job ended, on one line.
func endText(j *gq.Job) string {
	text := j.State.Status.String()
	switch {
	case j.State.Status == gq.StatusCompleted:
	case j.State.Failure != nil && j.State.Status != gq.StatusCancelled:
		text += ": " + oneLine(failureText(j.State.Failure), 200)
	case j.State.Reason != "":
		text += ": " + oneLine(j.State.Reason, 200)
	}
	return text
}
