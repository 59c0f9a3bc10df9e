package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/quantity"
)

func newDoctor(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Find problems of an installation",
		Long: `Find problems of an installation: an unreachable or slow server; queues without
workers, paused or at their limits; jobs that no live worker can run, or that are held
by workers that are gone; pools that the silent fill; failed and dead-lettered jobs;
schedules that are paused, late or will never fire; submissions that were refused after
their transactions; webhook endpoints that refuse; clocks that disagree; a disk that is
nearly full; backups that are old; certificates that expire soon or cannot be reloaded;
servers and workers of different versions. On PostgreSQL also: old snapshots, with who
holds them and how to end them; dead rows that autovacuum does not keep up with;
connections and transaction ids that run out. The worst comes first, and what is wrong
many times is counted.

The exit status is 1 if there is a problem and 4 if the server is unreachable.
Notes do not change it; what the token may not read is one.`,
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
		found.sort()
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

// sort puts the worst first.
func (f *findings) sort() {
	rank := map[string]int{"fail": 0, "note": 1, "ok": 2}
	slices.SortStableFunc(f.all, func(a, b finding) int { return rank[a.Level] - rank[b.Level] })
}

func (s screen) findings(all []finding) {
	colours := map[string]string{"ok": green, "note": yellow, "fail": red}
	for _, f := range all {
		s.line("%s  %-10s %s", s.paint(colours[f.Level], fmt.Sprintf("%-4s", f.Level)), f.Check, clean(f.Text))
	}
}

const slowAnswer = 250 * time.Millisecond

// examine runs all checks. Only an error of the first call is returned: the server cannot be
// reached. Whatever else fails is a finding of its own.
func (f *findings) examine(ctx context.Context, q queue) error {
	began := time.Now()
	stats, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	level := "ok"
	took := time.Since(began)
	if took > slowAnswer {
		level = "note"
	}
	f.add(level, "server", "answers in %v", took.Round(100*time.Microsecond))
	f.clock(ctx, q, began, stats.Nodes)
	f.nodes(stats.Nodes)
	f.disk(&stats)
	f.server(stats.Server)
	f.database(stats.Database, f.snapshotAge)
	f.ended(&stats.Total)
	f.step("workers", func() error {
		workers, err := q.Workers(ctx)
		if err != nil {
			return err
		}
		f.workers(workers)
		f.versions(stats.Nodes, workers)
		queues, err := q.Queues(ctx)
		if err != nil {
			return err
		}
		f.step("queues", func() error { return f.queues(ctx, q, queues, stats.Queues, claimers(workers)) })
		f.step("jobs", func() error { return f.stranded(ctx, q, queues, stats.Queues, claimers(workers)) })
		f.step("leases", func() error { return f.held(ctx, q, queues, &stats, workers) })
		return nil
	})
	f.step("matching", func() error { return f.beacon(ctx, q, stats.Queues) })
	f.step("schedules", func() error {
		schedules, err := q.Schedules(ctx)
		f.schedules(schedules)
		return err
	})
	f.step("inbox", func() error {
		inbox, err := q.Inbox(ctx, "", 1)
		f.inbox(&inbox)
		return err
	})
	f.step("webhooks", func() error { return f.webhooks(ctx, q) })
	return nil
}

// step runs a check. Its error says nothing about the server, and what the token may not see is no
// problem of it.
func (f *findings) step(check string, run func() error) {
	err := run()
	if err == nil {
		return
	}
	level := "fail"
	if errs.KindOf(err) == gq.KindDenied {
		level = "note"
	}
	f.add(level, check, "could not be checked: %v", clean(strings.TrimSpace(err.Error())))
}

// manyDead is the number of dead letters that is a problem.
const manyDead = 100

// ended tells about jobs that ended badly.
func (f *findings) ended(total *gq.Count) {
	if n := total.By[gq.StatusFailed]; n > 0 {
		f.add("note", "failed", "%s; gq job list --state FAILED, gq job replay --state FAILED", quantity.Of(n, "failed job"))
	}
	if n := total.By[gq.StatusDeadLetter]; n >= manyDead {
		f.add("fail", "dead", "%s; gq dlq list shows why, and gq dlq purge removes them", quantity.Of(n, "dead job"))
	} else if n > 0 {
		f.add("note", "dead", "%s; gq dlq list", quantity.Of(n, "dead job"))
	}
}

// inboxLate is how long a submission may wait in the inbox. A notification that was lost is
// made up for within 15 seconds.
const inboxLate = 30 * time.Second

func (f *findings) inbox(inbox *gq.Inbox) {
	if inbox.Waiting > 0 && time.Since(inbox.Oldest) > inboxLate {
		f.add("fail", "inbox", "%s from transactions not taken in yet, the oldest written %s; see the servers' logs", quantity.Of(inbox.Waiting, "submission"), ago(inbox.Oldest))
	}
	if inbox.Refused > 0 {
		f.add("fail", "inbox", "%s refused after the transaction, the first because %s; gq inbox list", quantity.Of(inbox.Refused, "submission"), inbox.Submissions[0].Problem)
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
	f.add("ok", "workers", "%s, holding %s", quantity.Of(len(workers), "worker"), quantity.Of(running, "job"))
}

func (f *findings) schedules(all []gq.Schedule) {
	const late = gq.MissedAfter
	var paused, overdue, ended, never, refused group
	for i := range all {
		s := &all[i]
		switch {
		case s.Paused:
			paused.add(0, "%s is paused", s.Name)
		case !s.Next.IsZero() && time.Since(s.Next) > late:
			overdue.add(int64(time.Since(s.Next)), "%s should have fired %s", s.Name, ago(s.Next))
		case s.Next.IsZero() && !s.End.IsZero() && !time.Now().Before(s.End):
			ended.add(0, "%s ended %s and will not fire again; gq schedule delete %s", s.Name, ago(s.End), s.Name)
		case s.Next.IsZero():
			never.add(0, "%s will never fire: its calendar %q has no time left; change or delete it", s.Name, s.Cron)
		}
		if s.LastError != "" {
			refused.add(0, "%s could not submit its last job: %s", s.Name, clean(s.LastError))
		}
	}
	for _, g := range []struct {
		level string
		group
	}{{"fail", overdue}, {"fail", never}, {"fail", refused}, {"note", paused}, {"note", ended}} {
		f.group(g.level, "schedule", "schedules", g.group)
	}
	if len(all) > 0 {
		f.add("ok", "schedules", "%d", len(all))
	}
}

// groupShows is how many findings of one kind are listed; the rest are counted.
const groupShows = 3

// group is findings of one kind about different subjects.
type group struct{ found []ranked }

// ranked is a finding with how bad it is, compared with others of its group.
type ranked struct {
	weight int64
	text   string
}

func (g *group) add(weight int64, format string, args ...any) {
	g.found = append(g.found, ranked{weight, fmt.Sprintf(format, args...)})
}

// group adds a line for each of a few findings, the worst first, and one that counts the others.
func (f *findings) group(level, check, subjects string, g group) {
	slices.SortStableFunc(g.found, func(a, b ranked) int { return cmp.Compare(b.weight, a.weight) })
	for i := range g.found {
		if i == groupShows && len(g.found) > groupShows+1 {
			f.add(level, check, "and %d more %s like the one above", len(g.found)-i, subjects)
			return
		}
		f.add(level, check, "%s", g.found[i].text)
	}
}
