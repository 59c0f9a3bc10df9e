package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/wire"
)

func newStats(p process) *cobra.Command {
	c := &cobra.Command{
		Use: "stats", Short: "Count jobs by queue and state",
		Long:    "Count jobs by queue and state, and show the condition of the store.",
		Example: "  gq stats\n  gq stats --json | jq .total",
		Args:    cli.NoArguments,
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			stats, err := q.Stats(ctx)
			if err != nil {
				return err
			}
			return r.print(wire.StatsOf(&stats), func(s screen) { s.stats(&stats) })
		})
	}
	return c
}

func (s screen) stats(stats *gq.Stats) {
	head := []string{"QUEUE"}
	for _, st := range enum.All[gq.Status]() {
		head = append(head, st.String())
	}
	var rows [][]cell
	total := stats.Total
	total.Queue = "all"
	for _, c := range append(slices.Clip(stats.Queues), total) {
		row := []cell{text(c.Queue)}
		for _, st := range enum.All[gq.Status]() {
			n := number(c.By[st])
			if c.By[st] == 0 {
				n.colour = faint
			}
			row = append(row, n)
		}
		rows = append(rows, row)
	}
	s.table(head, rows)
	s.line("")
	pairs := [][2]string{{"workers", fmt.Sprint(stats.Workers)}}
	if stats.Commits > 0 {
		pairs = append(pairs, [2]string{"commits", fmt.Sprint(stats.Commits)}, [2]string{"syncs", fmt.Sprint(stats.Syncs)})
	}
	if stats.DiskBytes > 0 {
		pairs = append(pairs, [2]string{"on disk", bytesText(stats.DiskBytes)})
	}
	if stats.DiskReserve > 0 {
		pairs = append(pairs, [2]string{"free", bytesText(stats.DiskFree) + " with a reserve of " + bytesText(stats.DiskReserve)})
	}
	s.pairs(pairs...)
	s.nodes(stats.Nodes)
}

// nodes lists the servers on one database.
func (s screen) nodes(nodes []gq.Node) {
	if len(nodes) < 2 {
		return
	}
	rows := make([][]cell, len(nodes))
	for i, n := range nodes {
		rows[i] = []cell{
			text(clean(n.ID)), text(clean(n.Host)), number(n.PID), text(clean(n.Version)),
			number(n.Workers), text(ago(n.Started)), text(ago(n.LastSeen)),
		}
	}
	s.line("")
	s.table([]string{"NODE", "HOST", "PID", "VERSION", "WORKERS", "STARTED", "SEEN"}, rows)
}

func bytesText(n uint64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	}
}

func newWorkers(p process) *cobra.Command {
	c := &cobra.Command{Use: "worker", Short: "Show workers", Example: "  gq worker list"}
	list := &cobra.Command{
		Use: "list", Short: "List workers that contacted a server of the database in the last minute", Example: "  gq worker list --json", Args: cli.NoArguments,
	}
	r := newRemote(p, list)
	list.RunE = func(c *cobra.Command, _ []string) error {
		return r.short(c.Context(), func(ctx context.Context, q queue) error {
			workers, err := q.Workers(ctx)
			if err != nil {
				return err
			}
			return r.print(wire.WorkersOf(workers), func(s screen) {
				rows := make([][]cell, len(workers))
				for i, w := range workers {
					types := strings.Join(w.Types, ",")
					if types == "" {
						types = "any"
					}
					rows[i] = []cell{
						text(clean(w.Name)), text(clean(strings.Join(w.Queues, ","))), text(oneLine(types, 60)),
						number(w.Running), number(w.Waiting), text(ago(w.LastSeen)), text(clean(w.Version)), text(clean(w.Node)),
					}
				}
				s.table([]string{"WORKER", "QUEUES", "TYPES", "RUNNING", "WAITING", "SEEN", "VERSION", "NODE"}, rows)
			})
		})
	}
	c.AddCommand(list)
	return c
}
