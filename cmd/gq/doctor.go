package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/faces/matching"
)

func newDoctor(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find problems of an installation",
		Long: `Find problems of an installation: an unreachable or slow server; queues without
workers, paused or at their limits; jobs that no live worker can run; failed and
dead-lettered jobs; schedules that are paused, late or will never fire; submissions
that were refused after their transactions; clocks that disagree; a disk that is
nearly full; servers and workers of different versions. On PostgreSQL also: old
snapshots, with who holds them and how to end them; dead rows that autovacuum does not
keep up with; connections and transaction ids that run out.

The exit status is 1 if there is a problem and 4 if the server is unreachable.
Notes do not change it.`,
		Example: "  gq doctor\n  gq doctor --json",
		Args:    cli.NoArguments,
	}
	r := newRemote(p, c)
	age := c.Flags().Duration("snapshot-age", oldSnapshot, "report transactions on PostgreSQL that have been open for longer than this")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *age <= 0 {
			return cli.Invalid("snapshot-age", "must be positive, such as 5m")
		}
		found := findings{snapshotAge: *age}
		err := r.short(c.Context(), func(ctx context.Context, q queue) error { return found.examine(ctx, q) })
		if err != nil {
			found.add("fail", "server", "%s", strings.TrimSpace(err.Error()))
		}
		printed := r.print(struct {
			Checks []finding `json:"checks"`
		}{found.all}, func(s screen) { s.findings(found.all) })
		switch {
		case printed != nil:
			return printed
		case err != nil:
			return &cli.StatusError{Status: cli.ExitOf(err)}
		case found.failed:
			return &cli.StatusError{Status: cli.ExitFailure}
		}
		return nil
	}
	return c
}

// finding is the result of one check.
type finding struct {
	Level string `json:"level"` // ok, note or fail
	Check string `json:"check"`
	Text  string `json:"text"`
}

type findings struct {
	all    []finding
	failed bool

	snapshotAge time.Duration // of a transaction on PostgreSQL that is reported
}

func (f *findings) add(level, check, format string, args ...any) {
	f.all = append(f.all, finding{level, check, fmt.Sprintf(format, args...)})
	f.failed = f.failed || level == "fail"
}

func (s screen) findings(all []finding) {
	colours := map[string]string{"ok": green, "note": yellow, "fail": red}
	for _, f := range all {
		s.line("%s  %-10s %s", s.paint(colours[f.Level], fmt.Sprintf("%-4s", f.Level)), f.Check, clean(f.Text))
	}
}

const slowAnswer = 250 * time.Millisecond

func (f *findings) examine(ctx context.Context, q queue) error {
	began := time.Now()
	stats, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	level := "ok"
	if took := time.Since(began); took > slowAnswer {
		level = "note"
	}
	f.add(level, "server", "answers in %v", time.Since(began).Round(100*time.Microsecond))
	f.clock(ctx, q, began, stats.Nodes)
	queues, err := q.Queues(ctx)
	if err != nil {
		return err
	}
	workers, err := q.Workers(ctx)
	if err != nil {
		return err
	}
	f.nodes(stats.Nodes)
	f.workers(workers)
	f.versions(stats.Nodes, workers)
	if err := f.queues(ctx, q, queues, stats.Queues, claimers(workers)); err != nil {
		return err
	}
	if err := f.stranded(ctx, q, queues, stats.Queues, claimers(workers)); err != nil {
		return err
	}
	if err := f.beacon(ctx, q, stats.Queues); err != nil {
		return err
	}
	f.disk(&stats)
	f.database(stats.Database, f.snapshotAge)
	if n := stats.Total.By[gq.StatusFailed]; n > 0 {
		f.add("note", "failed", "%s; gq job list --state FAILED, gq job replay --state FAILED", jobCount(n, "failed"))
	}
	if n := stats.Total.By[gq.StatusDeadLetter]; n > 0 {
		f.add("note", "dead", "%s; gq dlq list", jobCount(n, "dead"))
	}
	schedules, err := q.Schedules(ctx)
	if err != nil {
		return err
	}
	f.schedules(schedules)
	inbox, err := q.Inbox(ctx, "", 1)
	if err != nil {
		return err
	}
	f.inbox(&inbox)
	return nil
}

// inboxLate is how long a submission may wait in the inbox. A notification that was lost is
// made up for within 15 seconds.
const inboxLate = 30 * time.Second

func (f *findings) inbox(inbox *gq.Inbox) {
	if inbox.Waiting > 0 && time.Since(inbox.Oldest) > inboxLate {
		f.add("fail", "inbox", "%d submissions from transactions wait to be taken in, the oldest written %s; see the servers' logs", inbox.Waiting, ago(inbox.Oldest))
	}
	if inbox.Refused > 0 {
		f.add("fail", "inbox", "%d submissions were refused after their transactions, the first because %s; gq inbox list", inbox.Refused, inbox.Submissions[0].Problem)
	}
}

// clock compares the database's time with the local clock. The node that answers tells it as its
// own last sign of life; callers who may not see nodes have only the newest job.
func (f *findings) clock(ctx context.Context, q queue, began time.Time, nodes []gq.Node) {
	var newest time.Time
	for i := range nodes {
		if nodes[i].LastSeen.After(newest) {
			newest = nodes[i].LastSeen
		}
	}
	if behind := began.Sub(newest); !newest.IsZero() && behind > time.Second {
		f.add("note", "clock", "the server's clock is %v behind this one", behind.Round(time.Second))
		return
	}
	if newest.IsZero() {
		page, err := q.List(ctx, gq.Query{Limit: 1})
		if err != nil || len(page.Jobs) == 0 {
			return
		}
		newest = page.Jobs[0].State.CreatedAt
	}
	if ahead := time.Until(newest); ahead > time.Second {
		f.add("note", "clock", "the server's clock is at least %v ahead of this one", ahead.Round(time.Second))
	}
}

func (f *findings) nodes(nodes []gq.Node) {
	if len(nodes) > 1 {
		f.add("ok", "servers", "%d on one database", len(nodes))
	}
}

// versions tells if servers and workers were built from different releases.
func (f *findings) versions(nodes []gq.Node, workers []gq.LiveWorker) {
	servers, clients, layouts := map[string]int{}, map[string]int{}, map[string]int{}
	for i := range nodes {
		servers[nodes[i].Version]++
		layouts[fmt.Sprint("layout ", nodes[i].Layout)]++
	}
	if len(layouts) > 1 {
		f.add("note", "layouts", "servers that know different layouts of the tables share the database: %s; the upgrade is finished when the older ones are stopped", tally(layouts))
	}
	for i := range workers {
		if v := workers[i].Version; v != "" {
			clients[v]++
		}
	}
	if len(servers) > 1 {
		f.add("note", "versions", "servers of different versions share the database: %s; upgrade all of them soon", tally(servers))
	}
	maps.DeleteFunc(clients, func(v string, _ int) bool { return servers[v] > 0 })
	if len(clients) > 0 && len(servers) > 0 {
		f.add("note", "versions", "workers have other versions than the servers: workers %s, servers %s", tally(clients), tally(servers))
	}
}

// tally lists versions with how many have each.
func tally(versions map[string]int) string {
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(versions)) {
		parts = append(parts, fmt.Sprintf("%d × %s", versions[v], v))
	}
	return strings.Join(parts, ", ")
}

func (f *findings) workers(workers []gq.LiveWorker) {
	if len(workers) == 0 {
		f.add("note", "workers", "none has contacted a server in the last minute")
		return
	}
	running := 0
	for i := range workers {
		running += workers[i].Running
	}
	f.add("ok", "workers", "%d, which hold %d jobs", len(workers), running)
}

func (f *findings) queues(ctx context.Context, q queue, queues []gq.Queue, counts []gq.Count, workers []gq.LiveWorker) error {
	by := map[string]gq.Count{}
	for _, c := range counts {
		by[c.Queue] = c
	}
	bad := false
	for i := range queues {
		queue, count := &queues[i], by[queues[i].Name]
		ready := count.By[gq.StatusScheduled]
		served := false
		for _, w := range workers {
			for _, name := range w.Queues {
				served = served || gq.MatchQueue(name, queue.Name)
			}
		}
		switch {
		case queue.Paused && count.Live() > 0:
			f.add("note", "queue", "%s is paused with %s; gq queue resume %s", queue.Name, jobCount(count.Live(), "live"), queue.Name)
		case ready > 0 && !served:
			why, other, err := otherReason(ctx, q, queue.Name)
			switch {
			case err != nil:
				return err
			case other && why.Cause == gq.CauseNext: // a round or a worker is about to take it
				continue
			case other: // such as that of matching, whose jobs no worker claims
				f.add("note", "queue", "%s has %s; the oldest: %s", queue.Name, jobCount(ready, "ready"), clean(why.Summary))
				continue
			case queue.Name == matching.Queue && why.Summary != "":
				bad = true
				f.add("fail", "queue", "%s has %s and %s", queue.Name, jobCount(ready, "ready"), clean(why.Summary))
				continue
			}
			bad = true
			f.add("fail", "queue", "%s has %s that no worker asks for", queue.Name, jobCount(ready, "ready"))
		case queue.MaxDepth > 0 && count.Live() >= int64(queue.MaxDepth):
			bad = true
			f.add("fail", "queue", "%s is full: %d live jobs, and submissions are refused", queue.Name, count.Live())
		case queue.MaxRunning > 0 && ready > 0 && count.Held() >= int64(queue.MaxRunning):
			f.add("note", "queue", "%s runs as many jobs as it may, %d, and %d wait", queue.Name, queue.MaxRunning, ready)
		}
	}
	if !bad {
		f.add("ok", "queues", "%d", len(queues))
	}
	return nil
}

// otherReason explains the oldest ready job of a queue without workers. other is true if something else
// than a missing worker holds it up.
func otherReason(ctx context.Context, q queue, name string) (why gq.Reason, other bool, err error) {
	page, err := q.List(ctx, gq.Query{Queue: name, Statuses: []gq.Status{gq.StatusScheduled}, OldestFirst: true, Limit: 1})
	if err != nil || len(page.Jobs) == 0 {
		return why, false, err
	}
	x, err := q.Explain(ctx, page.Jobs[0].State.ID)
	if err != nil {
		if errors.Is(err, gq.ErrNotFound) {
			err = nil
		}
		return why, false, err
	}
	missing := x.Cause == gq.CauseNoWorker || slices.ContainsFunc(x.Also, func(r gq.Reason) bool { return r.Cause == gq.CauseNoWorker })
	return x.Reason, !missing, nil
}

func (f *findings) schedules(all []gq.Schedule) {
	const late = gq.MissedAfter
	for i := range all {
		s := &all[i]
		switch {
		case s.Paused:
			f.add("note", "schedule", "%s is paused", s.Name)
		case !s.Next.IsZero() && time.Since(s.Next) > late:
			f.add("fail", "schedule", "%s should have fired %s", s.Name, ago(s.Next))
		case s.Next.IsZero() && !s.End.IsZero() && !time.Now().Before(s.End):
			f.add("note", "schedule", "%s ended %s and will not fire again; gq schedule delete %s", s.Name, ago(s.End), s.Name)
		case s.Next.IsZero():
			f.add("fail", "schedule", "%s will never fire: its calendar %q has no time left; change or delete it", s.Name, s.Cron)
		}
		if s.LastError != "" {
			f.add("fail", "schedule", "%s could not submit its last job: %s", s.Name, clean(s.LastError))
		}
	}
	if len(all) > 0 {
		f.add("ok", "schedules", "%d", len(all))
	}
}

// jobCount returns a number of jobs in a state, such as 1 ready job.
func jobCount(n int64, state string) string {
	if n == 1 {
		return "1 " + state + " job"
	}
	return fmt.Sprintf("%d %s jobs", n, state)
}
