package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/wire"
)

func newSchedule(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "schedule",
		Short: "Show and set schedules",
		Long:  "Show and set schedules, which submit jobs periodically.\n\n" + cli.ExitHelp,
		Example: `  gq schedule set nightly --cron '30 2 * * *' --time-zone Europe/Berlin --type report
  gq schedule set ping --every 30s --type ping --missed skip
  gq schedule list`,
	}
	c.AddCommand(newScheduleList(p), newScheduleShow(p), newScheduleSet(p), newScheduleDeclare(p),
		newScheduleChange(p, "pause", "Keep a schedule from firing", queue.PauseSchedule),
		newScheduleChange(p, "resume", "End the pause of a schedule; slots that passed are not made up for", queue.ResumeSchedule),
		newScheduleTrigger(p), newScheduleBackfill(p), newScheduleDelete(p))
	return c
}

func newScheduleList(p process) *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List schedules", Example: "  gq schedule list --json", Args: cli.NoArguments}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			all, err := q.Schedules(ctx)
			if err != nil {
				return err
			}
			out := wire.Schedules{Schedules: make([]wire.Schedule, len(all))}
			rows := make([][]cell, len(all))
			for i := range all {
				s := &all[i]
				out.Schedules[i] = wire.ScheduleOf(s)
				rows[i] = []cell{
					text(s.Name),
					{yes(s.Paused), yellow},
					text(slotsText(s)), text(clean(s.Template.Type)),
					text(ago(s.Next)), text(ago(s.Last)), number(s.Fired),
				}
			}
			return r.print(out, func(s screen) {
				s.table([]string{"SCHEDULE", "PAUSED", "SLOTS", "TYPE", "NEXT", "LAST", "FIRED"}, rows)
			})
		})
	}
	return c
}

func slotsText(s *gq.Schedule) string {
	if s.Cron == "" {
		return "every " + s.Every.String()
	}
	return strings.TrimSpace(clean(s.Cron) + " " + clean(s.TimeZone))
}

func (r *remote) showSchedule(s *gq.Schedule) error {
	return r.print(wire.ScheduleOf(s), func(to screen) {
		to.pairs(
			[2]string{"schedule", s.Name},
			[2]string{"slots", slotsText(s)},
			[2]string{"paused", yes(s.Paused)},
			[2]string{"missed", s.Missed.String()},
			[2]string{"overlap", s.Overlap.String()},
			[2]string{"jitter", durationText(s.Jitter)},
			[2]string{"end", instant(s.End)},
			[2]string{"type", clean(s.Template.Type)},
			[2]string{"queue", clean(s.Template.Queue)},
			[2]string{"payload", preview(s.Template.Payload.Data, s.Template.Payload.ContentType)},
			[2]string{"next", instant(s.Next)},
			[2]string{"last", instant(s.Last)},
			[2]string{"last job", idText(s.LastJob)},
			[2]string{"fired", fmt.Sprint(s.Fired)},
			[2]string{"skipped", fmt.Sprint(s.Skipped)},
			[2]string{"last error", clean(s.LastError)},
		)
	})
}

func newScheduleShow(p process) *cobra.Command {
	c := &cobra.Command{Use: "show NAME", Short: "Show a schedule", Example: "  gq schedule show nightly", Args: oneArgument("the name of a schedule")}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			s, err := q.Schedule(ctx, args[0])
			if err != nil {
				return err
			}
			return r.showSchedule(&s)
		})
	}
	return c
}

func newScheduleSet(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "set NAME",
		Short: "Create or replace a schedule",
		Long: `Create a schedule, or replace the definition of an existing one.

A cron expression has five fields: minute, hour, day of month, month, day of week; or six
with the second first; or one of @hourly, @daily, @weekly, @monthly, @yearly.

A slot that no server fires within a minute counts as missed, because all servers
were down or too busy. --missed says what happens then: once fires the latest
missed slot, skip fires none, all fires them all up to --missed-limit.

--overlap says what a slot does while the job of the last slot is live: allow
submits the next job, skip skips the slot, queue-one submits a job that waits
until the running one has ended unless one already waits, cancel-running cancels
the live job first.

In a JSON payload, {{slot}} becomes the time of the slot in UTC and {{slot_date}}
its date in the schedule's time zone.`,
		Example: `  gq schedule set nightly --cron '30 2 * * *' --time-zone Europe/Berlin --type report
  gq schedule set ping --every 30s --type ping --payload '{"host":"db"}' --missed skip
  gq schedule set report --cron @hourly --type report --payload '{"hour":"{{slot}}"}' --overlap skip --jitter 5m`,
		Args: oneArgument("the name of a schedule"),
	}
	return scheduleDefinition(p, c, queue.PutSchedule)
}

func newScheduleDeclare(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "declare NAME",
		Short: "Create a schedule, or change what no operator has changed",
		Long: `Create a schedule or change its definition, for scripts that run at every
deployment. The flags are those of gq schedule set. A setting changes only if it
still has the value of the last declaration: what somebody has changed since
then, such as a pause, stays. The times (--cron, --every and --time-zone) are one
setting, and so is what describes the job.

A declaration that is invalid together with what an operator has set is refused,
and so is one that has alternated with a different one within an hour.`,
		Example: "  gq schedule declare nightly --cron '30 2 * * *' --time-zone Europe/Berlin --type report",
		Args:    oneArgument("the name of a schedule"),
	}
	return scheduleDefinition(p, c, queue.DeclareSchedule)
}

// scheduleDefinition adds the flags of a schedule to a command that puts or declares one.
func scheduleDefinition(p process, c *cobra.Command, put func(queue, context.Context, gq.Schedule) (gq.Schedule, error)) *cobra.Command {
	r := newRemote(p, c)
	var f specFlags
	var typ, cron, zone, start, end, missed, overlap string
	var every, jitter time.Duration
	var limit int
	var paused bool
	flags := c.Flags()
	flags.StringVar(&typ, "type", "", "type of the jobs")
	flags.StringVar(&cron, "cron", "", "cron expression")
	flags.DurationVar(&every, "every", 0, "interval, instead of --cron")
	flags.StringVar(&zone, "time-zone", "", "time zone of --cron, such as Europe/Berlin (default UTC)")
	flags.StringVar(&start, "start", "", "no slot before this instant (default now)")
	flags.StringVar(&end, "end", "", "no slot after this instant")
	flags.DurationVar(&jitter, "jitter", 0, "delay each job by a part of this, which depends on the name and the slot")
	flags.StringVar(&overlap, "overlap", "", "what a slot does while the last job is live: allow, skip, queue-one or cancel-running (default allow)")
	flags.StringVar(&missed, "missed", "", "what to do about slots missed by more than a minute: once, skip or all (default once)")
	flags.IntVar(&limit, "missed-limit", 0, "with --missed all: how many slots to fire at most (default 100)")
	flags.BoolVar(&paused, "paused", false, "do not fire until resumed")
	f.add(flags, false)
	flags.SortFlags = false
	c.RunE = func(c *cobra.Command, args []string) error {
		s := gq.Schedule{Name: args[0], Cron: cron, Every: every, TimeZone: zone, Jitter: jitter, MissedLimit: limit, Paused: paused}
		var err error
		if cron == "" && every == 0 {
			return cli.Invalid("calendar", "give --cron or --every")
		}
		if typ == "" {
			return cli.Invalid("type", "give --type, the type of the jobs")
		}
		if missed != "" {
			if s.Missed, err = enum.Parse[gq.MissedRule](missed); err != nil {
				return err
			}
		}
		if overlap != "" {
			if s.Overlap, err = enum.Parse[gq.OverlapRule](overlap); err != nil {
				return err
			}
		}
		if s.Start, err = instantFlag("start", start); err != nil {
			return err
		}
		if s.End, err = instantFlag("end", end); err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			if s.Template, err = f.spec(r.process, typ); err != nil {
				return err
			}
			set, err := put(q, ctx, s)
			if err != nil {
				return err
			}
			return r.showSchedule(&set)
		})
	}
	return c
}

func newScheduleChange(p process, verb, short string, change func(queue, context.Context, string) (gq.Schedule, error)) *cobra.Command {
	c := &cobra.Command{Use: verb + " NAME", Short: short, Example: "  gq schedule " + verb + " nightly", Args: oneArgument("the name of a schedule")}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, args []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			s, err := change(q, ctx, args[0])
			if err != nil {
				return err
			}
			return r.print(wire.ScheduleOf(&s), func(to screen) { to.line("%s %sd", s.Name, verb) })
		})
	}
	return c
}

func newScheduleDelete(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "delete NAME", Short: "Delete a schedule; the jobs it has submitted stay", Example: "  gq schedule delete nightly\n  gq schedule delete nightly --yes",
		Args: oneArgument("the name of a schedule"),
	}
	r := newRemote(p, c)
	yes := yesFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := r.confirm(*yes, "Delete the schedule "+args[0]+" for good?"); err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			if err := q.DeleteSchedule(ctx, args[0]); err != nil {
				return err
			}
			return r.print(struct {
				Deleted string `json:"deleted"`
			}{args[0]}, func(to screen) { to.line("%s deleted", args[0]) })
		})
	}
	return c
}
