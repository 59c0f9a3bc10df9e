package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/view"
	"github.com/gopherqueue/gq/internal/wire"
)

// maxEvents is the largest number of past events that gq events reads.
const maxEvents = 10_000

func newEvents(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "events",
		Short: "Show events of all jobs, or follow them",
		Long: `Show the last events of all jobs, oldest first, and with --follow new ones as they
occur. The flags that filter apply to both; --last counts events before they are filtered.
With --json one event a line; its seq is a place to go on from with --after.

` + viewHelp + `
Events that change no state of the view are left out, and --state takes its states.`,
		Example: `  gq events --follow --queue mail
  gq events --follow --event job.failed --event job.dead_lettered
  gq events --follow --json --after 81503 | jq -r .job_id`,
		Args: cli.NoArguments,
	}
	r := newRemote(p, c)
	var pick eventFilter
	var types, states []string
	flags := c.Flags()
	follow := flags.BoolP("follow", "f", false, "go on with new events until interrupted")
	last := flags.Int("last", 20, fmt.Sprintf("how many past events to read, 0 to %d", maxEvents))
	after := flags.Uint64("after", 0, "read the events after this number instead of the last ones")
	flags.StringArrayVar(&pick.queues, "queue", nil, "only events of this queue (repeat for several)")
	flags.StringArrayVar(&types, "event", nil, "only this event, such as job.failed (repeat for several)")
	flags.StringArrayVar(&states, "state", nil, "only events that left a job in this state (repeat for several)")
	flags.StringVar(&pick.worker, "worker", "", "only events of jobs that this worker held")
	job := flags.String("job", "", "only events of this job")
	var shown viewFlag
	shown.add(flags)
	c.MarkFlagsMutuallyExclusive("last", "after")
	c.RunE = func(c *cobra.Command, _ []string) error {
		err := errors.Join(pick.parse(types, states, *job, &shown), checkLast(*last))
		if err != nil {
			return err
		}
		if *follow {
			r.patience = patient
		}
		return r.long(c.Context(), func(ctx context.Context, q queue) error {
			from := *after
			if !c.Flags().Changed("after") {
				newest, err := q.LastEvent(ctx)
				if err != nil {
					return err
				}
				if from, err = firstKept(ctx, q, newest-min(newest, uint64(*last)), newest); err != nil {
					return err
				}
			}
			if *follow {
				return q.Follow(ctx, from, func(events []gq.Event) error { return r.printEvents(&pick, events) })
			}
			return r.pastEvents(ctx, q, from, &pick)
		})
	}
	return c
}

// firstKept returns the smallest number from a given one on, and up to the newest, after which all
// events are kept: retention may have removed those before.
func firstKept(ctx context.Context, q queue, from, newest uint64) (uint64, error) {
	for low, high := from, newest; ; {
		_, err := q.Events(ctx, from, 1)
		switch {
		case err == nil:
			high = from
		case errors.Is(err, gq.ErrGone):
			low = from + 1
		default:
			return 0, err
		}
		if low >= high {
			return high, nil
		}
		from = low + (high-low)/2
	}
}

func checkLast(n int) error {
	if n < 0 || n > maxEvents {
		return cli.Invalid("last", fmt.Sprintf("%d is not between 0 and %d", n, maxEvents))
	}
	return nil
}

// eventFilter selects events.
type eventFilter struct {
	queues []string
	worker string
	job    gq.JobID
	types  []gq.EventType
	states []gq.Status

	view   *view.View // nil is none
	viewed []string   // states of the view
}

func (f *eventFilter) parse(types, states []string, job string, shown *viewFlag) (err error) {
	f.view, err = shown.chosen()
	if f.view != nil {
		f.viewed, err = viewStates(f.view, states)
	}
	if shown.name != "" {
		states = nil
	}
	for _, name := range types {
		t, unknown := enum.Parse[gq.EventType](name)
		if unknown != nil {
			err = errors.Join(err, cli.Invalid("event", fmt.Sprintf("%.64q is not one of %v", name, enum.All[gq.EventType]())))
		}
		f.types = append(f.types, t)
	}
	for _, name := range states {
		s, unknown := enum.Parse[gq.Status](strings.ToUpper(name))
		if unknown != nil {
			err = errors.Join(err, cli.Invalid("state", fmt.Sprintf("%.64q is not one of %v", name, enum.All[gq.Status]())))
		}
		f.states = append(f.states, s)
	}
	if job != "" {
		id, parseErr := jobArg(job)
		f.job, err = id, errors.Join(err, parseErr)
	}
	return err
}

// of returns the events that the filter selects.
func (f *eventFilter) of(events []gq.Event) []gq.Event {
	var out []gq.Event
	for i := range events {
		e := &events[i]
		if (len(f.queues) == 0 || slices.Contains(f.queues, e.Queue)) &&
			(len(f.types) == 0 || slices.Contains(f.types, e.Type)) &&
			(len(f.states) == 0 || slices.Contains(f.states, e.Status)) &&
			(f.worker == "" || e.Worker == f.worker) && (f.job.IsZero() || e.Job == f.job) {
			out = append(out, *e)
		}
	}
	return out
}

// pastEvents prints the events up to the newest one.
func (r *remote) pastEvents(ctx context.Context, q queue, after uint64, pick *eventFilter) error {
	newest, err := q.LastEvent(ctx)
	for err == nil && after < newest {
		var events []gq.Event
		if events, err = q.Events(ctx, after, 1000); err != nil || len(events) == 0 {
			break
		}
		after = events[len(events)-1].Seq
		err = r.printEvents(pick, events)
	}
	return err
}

// eventSubject returns what an event is about, as wide as the id of a job.
func eventSubject(e *gq.Event) string {
	if e.Type.OfProvider() {
		return fmt.Sprintf("%-36s", oneLine(e.Worker, 36))
	}
	return e.Job.String()
}

// printEvents prints the events that a filter selects.
func (r *remote) printEvents(pick *eventFilter, events []gq.Event) error {
	if events = pick.of(events); pick.view != nil {
		return r.printViewed(pick.view, pick.viewed, events)
	}
	s := r.screen()
	for i := range events {
		e := &events[i]
		if r.json {
			if err := wire.EncodeJSON(r.stdout, wire.EventOf(e)); err != nil {
				return err
			}
			continue
		}
		state := fmt.Sprintf("%-11s", "") // a provider has no state of a job
		if !e.Type.OfProvider() {
			state = s.status(e.Status, 11)
		}
		if _, err := fmt.Fprintf(r.stdout, "%s  %s  %-20s %s  %-16s %-16s %s\n", s.paint(faint, e.Time.UTC().Format("15:04:05.000")),
			eventSubject(e), e.Type, state, oneLine(e.Queue, 40), oneLine(e.JobType, 40), oneLine(eventNote(e), 200)); err != nil {
			return err
		}
	}
	return nil
}
