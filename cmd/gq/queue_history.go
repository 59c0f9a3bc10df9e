package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/wire"
)

func newQueueHistory(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "history [QUEUE...]", Short: "Show what happened in queues over time",
		Long: `Show what happened in queues by the minute, the hour or another step: how many jobs were
submitted, started and ended, and how long they waited and ran (the median and the 99th
percentile). Several queues are added up; without a name it is all queues. Minutes are
kept for 24 hours and hours for 31 days.`,
		Example: `  gq queue history mail
  gq queue history mail --step 15m --since 24h
  gq queue history --step day --since 744h --json`,
	}
	r := newRemote(p, c)
	var step, since string
	c.Flags().StringVar(&step, "step", "minute", "minute, hour, day, or a duration such as 5m or 6h")
	c.Flags().StringVar(&since, "since", "", "how far back, as a duration such as 24h (default 30 steps)")
	c.RunE = func(c *cobra.Command, args []string) error {
		q, err := readHistoryQuery(args, step, since)
		if err != nil {
			return err
		}
		return r.short(c.Context(), func(ctx context.Context, on queue) error {
			points, err := on.QueueHistory(ctx, q)
			if err != nil {
				return err
			}
			return r.print(wire.HistoryOf(points), func(s screen) { s.history(points, q.Step) })
		})
	}
	return c
}

func readHistoryQuery(queues []string, step, since string) (q gq.HistoryQuery, err error) {
	q.Queues = queues
	switch step {
	case "minute":
		q.Step = time.Minute
	case "hour":
		q.Step = time.Hour
	case "day":
		q.Step = 24 * time.Hour
	default:
		if q.Step, err = time.ParseDuration(step); err != nil || q.Step <= 0 {
			return q, cli.Invalid("step", "must be minute, hour, day, or a duration such as 5m")
		}
	}
	back := 30 * q.Step
	if since != "" {
		if back, err = time.ParseDuration(since); err != nil || back <= 0 {
			return q, cli.Invalid("since", "must be a duration such as 24h")
		}
	}
	q.Since = time.Now().Add(-back)
	return q, nil
}

// chartWidth is the length of the longest bar of a chart.
const chartWidth = 20

// history prints points with a bar for the jobs that ended.
func (s screen) history(points []gq.HistoryPoint, step time.Duration) {
	most := int64(1)
	for i := range points {
		most = max(most, points[i].Ended())
	}
	form := "15:04"
	if step >= time.Hour {
		form = "Jan 02 15:04"
	}
	rows := make([][]cell, len(points))
	for i := range points {
		v := &points[i]
		bar := strings.Repeat("#", int((v.Ended()*chartWidth+most-1)/most))
		rows[i] = []cell{
			text(v.Time.Local().Format(form)), number(v.Submitted), number(v.Started), number(v.Completed),
			number(v.Failed + v.DeadLettered), number(v.Retried), number(v.Cancelled), number(v.Lost),
			text(waitText(v.Wait)), text(waitText(v.Run)), text(bar),
		}
	}
	s.table([]string{"TIME", "SUBMITTED", "STARTED", "COMPLETED", "FAILED", "RETRIED", "CANCELLED", "LOST", "WAIT P50/P99", "RUN P50/P99", "ENDED"}, rows)
}

// waitText prints the median and the 99th percentile.
func waitText(l gq.Latency) string {
	if l.Count == 0 {
		return "-"
	}
	return roughly(l.P50) + "/" + roughly(l.P99)
}

// roughly prints a duration with about two digits, which is as exact as the percentiles are.
func roughly(d time.Duration) string {
	unit := time.Microsecond
	for unit*100 <= d {
		unit *= 10
	}
	return d.Round(unit).String()
}
