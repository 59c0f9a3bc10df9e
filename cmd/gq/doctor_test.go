package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

// installation is an installation with made-up facts.
type installation struct {
	queue
	stats     gq.Stats
	workers   []gq.LiveWorker
	schedules []gq.Schedule
	jobs      []gq.Job
	limits    gq.Queue // of its queue
	used      int64    // of the pool gpu; 0 is all of it
}

func (p installation) Stats(context.Context) (gq.Stats, error)              { return p.stats, nil }
func (p installation) Workers(context.Context) ([]gq.LiveWorker, error)     { return p.workers, nil }
func (p installation) Schedules(context.Context) ([]gq.Schedule, error)     { return p.schedules, nil }
func (p installation) Inbox(context.Context, string, int) (gq.Inbox, error) { return gq.Inbox{}, nil }

// List returns jobs that are held or not, by the page.
func (p installation) List(_ context.Context, q gq.Query) (page gq.Page, err error) {
	after := 0
	if q.Cursor != "" {
		if after, err = strconv.Atoi(q.Cursor); err != nil {
			return page, err
		}
	}
	for i := after; i < len(p.jobs); i++ {
		l := p.jobs[i].State.Lease
		if held := l != nil && l.State != gq.LeaseCancelled; len(q.Statuses) > 0 && slices.Contains(q.Statuses, gq.StatusRunning) != held {
			continue
		}
		if len(page.Jobs) == q.Limit {
			page.Next = strconv.Itoa(i)
			break
		}
		page.Jobs = append(page.Jobs, p.jobs[i])
	}
	return page, nil
}

func (p installation) Queues(context.Context) ([]gq.Queue, error) {
	return []gq.Queue{{Name: "mail", Pool: "gpu", MaxDepth: p.limits.MaxDepth, MaxRunning: p.limits.MaxRunning}}, nil
}

func (p installation) Pools(context.Context) ([]gq.Pool, error) {
	used := p.used
	if used == 0 {
		used = 8
	}
	return []gq.Pool{{Name: "gpu", Capacity: 8, Used: used}, {Name: "free", Capacity: 1}}, nil
}

// hold adds held jobs of a worker whose last heartbeat was some time ago.
func (p *installation) hold(n int, worker string, silent time.Duration, units int64, ttl ...time.Duration) {
	for range n {
		p.stats.Total.By[gq.StatusRunning]++
		p.jobs = append(p.jobs, gq.Job{
			Spec:  gq.Spec{Queue: "mail", Type: "send", Requires: []string{"smtp"}},
			State: gq.State{CreatedAt: time.Now(), Lease: &gq.Lease{Worker: worker, HeartbeatAt: time.Now().Add(-silent), ExpiresAt: time.Now().Add(time.Hour), TTL: slices.Max(append(ttl, 0)), CostUnits: units}},
		})
	}
}

// Silent workers are found behind many jobs of others, and where there are too many the user learns it.
func TestDoctorReadsManyHeldJobs(t *testing.T) {
	for jobs, want := range map[int]string{
		3 * heldSample: "fail leases workers that are gone hold 2 running jobs, the longest w2",
		heldMost:       "note leases only 20000 of 20002 running jobs were looked at for silent workers",
	} {
		p := installation{workers: []gq.LiveWorker{{Name: "w", Queues: []string{"mail"}}}}
		p.hold(jobs, "w", time.Second, 0)
		p.hold(2, "w2", silentAfter+time.Minute, 0)
		queues, err := p.Queues(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var found findings
		if err := found.held(t.Context(), p, queues, &p.stats, p.workers); err != nil {
			t.Fatal(err)
		}
		if len(found.all) != 1 || !strings.HasPrefix(fmt.Sprintf("%s %s %s", found.all[0].Level, found.all[0].Check, found.all[0].Text), want) {
			t.Errorf("%d jobs: %+v, want %s", jobs, found.all, want)
		}
	}
}

// Each check finds its problem, and nothing else does.
func TestDoctorFinds(t *testing.T) {
	now := time.Now()
	ready := func(n int64) gq.Stats {
		var c gq.Count
		c.Queue = "mail"
		c.By[gq.StatusScheduled] = n
		return gq.Stats{Queues: []gq.Count{c}, Total: c, DiskFree: 100 << 30, DiskReserve: 384 << 20, Nodes: []gq.Node{{Version: "v1", LastSeen: now}}}
	}
	worker := gq.LiveWorker{Name: "w", Queues: []string{"mail"}, Types: []string{"send"}, Offers: []string{"smtp"}, MaxCost: 5, Version: "v1"}
	job := func(change func(*gq.Spec)) gq.Job {
		j := gq.Job{Spec: gq.Spec{Queue: "mail", Type: "send"}, State: gq.State{CreatedAt: now}}
		change(&j.Spec)
		return j
	}
	database := func(change func(*gq.Database)) *gq.Database {
		d := &gq.Database{
			Bytes: 1 << 30, Autovacuum: true, Connections: 79, MaxConnections: 100, TransactionAge: wraparoundNear, OldestDatabase: "shop",
			Tables: []gq.DatabaseTable{{Name: "ready", Bytes: 1 << 20, DeadRows: manyDeadRows, VacuumAfter: 50}},
			Snapshots: []gq.DatabaseSnapshot{{
				Holder: gq.HolderSession, Name: "report", PID: 77, Role: "alice", Database: "shop", State: "idle in transaction",
				Since: now.Add(-4 * time.Minute), Age: 2 * oldInTransactions,
			}},
		}
		change(d)
		return d
	}
	for _, test := range []struct {
		name   string
		change func(p *installation)
		level  string
		check  string
		says   string
	}{
		{"healthy", func(*installation) {}, "", "", ""},
		{"runnable", func(p *installation) {
			p.stats, p.jobs = ready(1), []gq.Job{job(func(s *gq.Spec) { s.Requires, s.CostUnits = []string{"smtp"}, 5 })}
		}, "", "", ""},
		{"type", func(p *installation) {
			p.stats, p.jobs = ready(2), []gq.Job{job(func(s *gq.Spec) { s.Type = "fax" }), job(func(*gq.Spec) {})}
		}, "fail", "jobs", "1 of 2 ready jobs in queue mail cannot run: no live worker handles type fax; gq job explain"},
		{"the only job", func(p *installation) {
			p.stats, p.jobs = ready(1), []gq.Job{job(func(s *gq.Spec) { s.Type = "fax" })}
		}, "fail", "jobs", "1 of 1 ready job in queue mail cannot run: no live worker handles type fax; gq job explain"},
		{"capability", func(p *installation) {
			p.stats, p.jobs = ready(1), []gq.Job{job(func(s *gq.Spec) { s.Requires = []string{"gpu"} })}
		}, "fail", "jobs", "no live worker offers all of gpu"},
		{"cost", func(p *installation) {
			p.stats, p.jobs = ready(1), []gq.Job{job(func(s *gq.Spec) { s.CostUnits = 6 })}
		}, "fail", "jobs", "no live worker accepts a cost of 6"},
		{"no worker", func(p *installation) { p.stats, p.workers[0].Queues = ready(3), []string{"other"} }, "fail", "queue", "mail has 3 ready jobs that no worker asks for"},
		{"a full queue", func(p *installation) { p.stats, p.limits.MaxDepth = ready(1), 1 }, "fail", "queue", "mail is full: 1 live job, and submissions are refused"},
		{"a queue at its limit", func(p *installation) {
			p.stats, p.limits.MaxRunning = ready(1), 2
			p.stats.Queues[0].By[gq.StatusRunning] = 2
		}, "note", "queue", "mail runs as many jobs as it may, 2, and has 1 waiting job"},
		{"failed jobs", func(p *installation) { p.stats.Total.By[gq.StatusFailed] = 4 }, "note", "failed", "4 failed jobs; gq job list"},
		{"a failed job", func(p *installation) { p.stats.Total.By[gq.StatusFailed] = 1 }, "note", "failed", "1 failed job; gq job list"},
		{"dead letters", func(p *installation) { p.stats.Total.By[gq.StatusDeadLetter] = 4 }, "note", "dead", "4 dead jobs; gq dlq list"},
		{"many dead letters", func(p *installation) { p.stats.Total.By[gq.StatusDeadLetter] = manyDead }, "fail", "dead", "100 dead jobs; gq dlq list"},
		{"a worker that is gone", func(p *installation) { p.hold(1, "w2", silentAfter+time.Minute, 0) }, "fail", "leases", "workers that are gone hold 1 running job, the longest w2, whose last sign of life was 6m"},
		{"a worker that went silent", func(p *installation) { p.hold(1, "w2", quietAfter+time.Minute, 0) }, "note", "leases", "silent workers hold 1 running job, the longest w2, whose last sign of life was 2m"},
		{"a worker with long leases that is gone", func(p *installation) { p.hold(1, "w2", 40*time.Minute, 0, time.Hour) }, "fail", "leases", "workers that are gone hold 1 running job, the longest w2"},
		{"a worker between heartbeats of a long lease", func(p *installation) { p.hold(2, "w2", 39*time.Minute, 0, time.Hour) }, "note", "leases", "silent workers hold 2 running jobs, the longest w2"},
		{"a worker between heartbeats", func(p *installation) { p.hold(1, "w2", quietAfter-20*time.Second, 0) }, "", "", ""},
		{"a silent worker", func(p *installation) { p.hold(1, "w", silentAfter+time.Minute, 0) }, "", "", ""},
		{"a pool full of silence", func(p *installation) { p.hold(2, "w", 20*time.Hour, 4) }, "fail", "pool", "pool gpu is full, and workers without a sign of life hold 8 of its 8 units, the longest w since 20h"},
		{"a pool full of long leases", func(p *installation) { p.hold(2, "w", 30*time.Minute, 4, 24*time.Hour) }, "note", "pool", "pool gpu is full, and workers without a sign of life hold 8 of its 8 units"},
		{"a pool with no room for what waits", func(p *installation) {
			p.hold(2, "w", 20*time.Hour, 3)
			p.used, p.jobs = 6, append(p.jobs, job(func(s *gq.Spec) { s.CostUnits = 5 }), job(func(s *gq.Spec) { s.CostUnits = 3 }), job(func(*gq.Spec) {}))
		}, "fail", "pool", "pool gpu has no room for the jobs that wait (2 free, and the cheapest needs 3), and workers without a sign of life hold 6 of its 8 units, the longest w since 20h"},
		{"a pool with room for a job that waits", func(p *installation) {
			p.hold(2, "w", 20*time.Hour, 3)
			p.used, p.jobs = 6, append(p.jobs, job(func(s *gq.Spec) { s.CostUnits = 5 }), job(func(s *gq.Spec) { s.CostUnits = 2 }))
		}, "", "", ""},
		{"a pool with room, and nothing waits", func(p *installation) {
			p.hold(2, "w", 20*time.Hour, 3)
			p.used = 7
		}, "", "", ""},
		{"backups", func(p *installation) {
			p.stats.Server = &gq.ServerState{Backups: true, LastBackup: now.Add(-backupOld + time.Minute)}
		}, "", "", ""},
		{"no backup", func(p *installation) { p.stats.Server = &gq.ServerState{Backups: true} }, "fail", "backup", "there is none"},
		{"an old backup", func(p *installation) {
			p.stats.Server = &gq.ServerState{Backups: true, LastBackup: now.Add(-backupOld - time.Minute)}
		}, "fail", "backup", "the newest is of 2d"},
		{"a good certificate", func(p *installation) {
			p.stats.Server = &gq.ServerState{CertificateExpires: now.Add(certificateSoon + time.Hour)}
		}, "", "", ""},
		{"a certificate near its end", func(p *installation) {
			p.stats.Server = &gq.ServerState{CertificateExpires: now.Add(certificateSoon - time.Hour)}
		}, "note", "tls", "expires in 13d"},
		{"a certificate at its end", func(p *installation) {
			p.stats.Server = &gq.ServerState{CertificateExpires: now.Add(certificateClose - time.Hour)}
		}, "fail", "tls", "expires in 2d"},
		{"an expired certificate", func(p *installation) { p.stats.Server = &gq.ServerState{CertificateExpires: now.Add(-time.Hour)} }, "fail", "tls", "expired 1h"},
		{"a bad certificate file", func(p *installation) {
			p.stats.Server = &gq.ServerState{CertificateExpires: now.Add(certificateSoon + time.Hour), CertificateProblem: "garbage"}
		}, "fail", "tls", "cannot be used, and the old ones stay in use until"},
		{"full disk", func(p *installation) { p.stats.DiskFree, p.stats.DiskRefuses = 0, gq.RefusesWrites }, "fail", "disk", "0 B are free where the store is, which has 0 B and keeps 384.0 MiB in reserve; submissions, claims and all other changes are refused"},
		{"no space for jobs", func(p *installation) { p.stats.DiskFree, p.stats.DiskRefuses = 383<<20, gq.RefusesSubmissions }, "fail", "disk", "in reserve; submissions are refused; free"},
		{"hardly any space", func(p *installation) { p.stats.DiskFree = 512<<20 - 1 }, "fail", "disk", "submissions are refused soon"},
		{"no space for a small store", func(p *installation) { p.stats.DiskFree, p.stats.DiskReserve = 5<<20, 4<<20 }, "fail", "disk", "refused soon"},
		{"no disk", func(p *installation) { p.stats.DiskFree, p.stats.DiskReserve = 0, 0 }, "", "", ""},
		{"low disk", func(p *installation) { p.stats.DiskFree = diskLow - 1 }, "note", "disk", "are free where the store is"},
		{"a store that fills its disk", func(p *installation) { p.stats.DiskBytes = 101 << 30 }, "note", "disk", "are free where the store is"},
		{"healthy database", func(p *installation) { p.stats.Database = database(func(*gq.Database) {}) }, "", "", ""},
		{"old session", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) { d.Snapshots[0].Since = now.Add(-6 * time.Minute) })
		}, "note", "snapshot", `session 77 (application "report", role alice, database shop, idle in transaction) has held a snapshot since 6m`},
		{"very old session", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) { d.Snapshots[0].Since = now.Add(-2 * time.Hour) })
		}, "fail", "snapshot", "SELECT pg_terminate_backend(77)"},
		{"prepared transaction", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) {
				d.Snapshots[0] = gq.DatabaseSnapshot{Holder: gq.HolderPrepared, Name: "it's", Since: now.Add(-6 * time.Minute)}
			})
		}, "note", "snapshot", "ROLLBACK PREPARED 'it''s'"},
		{"forgotten slot", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) {
				d.Snapshots[0] = gq.DatabaseSnapshot{Holder: gq.HolderSlot, Name: "feed", State: "inactive", Age: oldInTransactions}
			})
		}, "note", "snapshot", "pg_drop_replication_slot('feed')"},
		{"used slot", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) {
				d.Snapshots[0] = gq.DatabaseSnapshot{Holder: gq.HolderSlot, Name: "feed", State: "active", Age: oldInTransactions - 1}
			})
		}, "", "", ""},
		{"slow standby", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) {
				d.Snapshots[0] = gq.DatabaseSnapshot{Holder: gq.HolderStandby, Name: "b", Age: oldInTransactions}
			})
		}, "note", "snapshot", "hot_standby_feedback"},
		{"hidden sessions", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) { d.Hidden = 3 })
		}, "note", "snapshot", "3 sessions of other database roles cannot be read; GRANT pg_read_all_stats"},
		{"a hidden session", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) { d.Hidden = 1 })
		}, "note", "snapshot", "1 session of other database roles cannot be read"},
		{"no autovacuum", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) { d.Autovacuum = false })
		}, "fail", "vacuum", "autovacuum is off"},
		{"slow autovacuum", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) { d.Tables[0].DeadRows = manyDeadRows + 1 })
		}, "note", "vacuum", "behind on table ready: 100001 dead rows"},
		{"many connections", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) { d.Connections = 80 })
		}, "note", "connections", "80 of 100 connections"},
		{"no connections left", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) { d.Connections = 95 })
		}, "fail", "connections", "95 of 100 connections"},
		{"old transaction ids", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) { d.TransactionAge = wraparoundNear + 1 })
		}, "note", "wraparound", "database shop is 1000000001 transactions old"},
		{"last transaction ids", func(p *installation) {
			p.stats.Database = database(func(d *gq.Database) { d.TransactionAge = wraparoundClose + 1 })
		}, "fail", "wraparound", "VACUUM (FREEZE)"},
		{"servers of two versions", func(p *installation) {
			p.stats.Nodes = append(p.stats.Nodes, gq.Node{Version: "v2", LastSeen: now})
			p.workers[0].Version = "v2"
		}, "note", "versions", "servers of different versions"},
		{"worker of another version", func(p *installation) { p.workers[0].Version = "v0" }, "note", "versions", "workers have other versions"},
		{"clock behind", func(p *installation) { p.stats.Nodes[0].LastSeen = now.Add(-time.Hour) }, "note", "clock", "behind this one"},
		{"clock ahead", func(p *installation) { p.stats.Nodes[0].LastSeen = now.Add(time.Hour) }, "note", "clock", "ahead of this one"},
		{"paused schedule", func(p *installation) { p.schedules[0].Paused = true }, "note", "schedule", "nightly is paused"},
		{"late schedule", func(p *installation) { p.schedules[0].Next = now.Add(-time.Hour) }, "fail", "schedule", "nightly should have fired"},
		{"ended schedule", func(p *installation) {
			p.schedules[0].Next, p.schedules[0].End = time.Time{}, now.Add(-time.Hour)
		}, "note", "schedule", "nightly ended"},
		{"impossible schedule", func(p *installation) {
			p.schedules[0].Next, p.schedules[0].Cron = time.Time{}, "0 0 30 2 *"
		}, "fail", "schedule", `nightly will never fire: its calendar "0 0 30 2 *"`},
		{"refused firing", func(p *installation) { p.schedules[0].LastError = "queue full" }, "fail", "schedule", "could not submit its last job: queue full"},
	} {
		p := installation{stats: ready(0), workers: []gq.LiveWorker{worker}, schedules: []gq.Schedule{{Name: "nightly", Next: now.Add(time.Hour)}}}
		test.change(&p)
		found := findings{snapshotAge: oldSnapshot}
		if err := found.examine(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		matched := 0
		for _, f := range found.all {
			switch {
			case f.Level == "ok" || f.Check == "server": // a slow machine answers late
			case f.Level == test.level && f.Check == test.check && strings.Contains(f.Text, test.says):
				matched++
			default:
				t.Errorf("%s: unexpected %+v", test.name, f)
			}
		}
		if want := min(len(test.check), 1); matched != want {
			t.Errorf("%s: %d findings of %d: %+v", test.name, matched, want, found.all)
		}
		if found.failed != (test.level == "fail") {
			t.Errorf("%s: failed is %v", test.name, found.failed)
		}
	}
}

// manyQueued is an installation with very many queues that no worker serves.
type manyQueued struct {
	installation
	queues []gq.Queue
	calls  *int
}

func (m manyQueued) Queues(context.Context) ([]gq.Queue, error) { return m.queues, nil }
func (m manyQueued) List(_ context.Context, q gq.Query) (gq.Page, error) {
	*m.calls++
	at := time.Now().Add(-2 * time.Hour)
	if q.Queue != "" {
		return gq.Page{}, nil
	}
	return gq.Page{Jobs: []gq.Job{{Spec: gq.Spec{Queue: "q7"}, State: gq.State{ScheduledAt: at}}, {Spec: gq.Spec{Queue: "q5"}, State: gq.State{ScheduledAt: at.Add(time.Hour)}}}}, nil
}

func (m manyQueued) Inbox(context.Context, string, int) (gq.Inbox, error) {
	return gq.Inbox{}, gq.ErrTimeout
}

// Doctor groups what it finds, worst first, with few calls, and goes on after a check that fails.
func TestDoctorGroups(t *testing.T) {
	const n = 100_000
	calls := 0
	m := manyQueued{installation{stats: gq.Stats{DiskFree: 100 << 30, DiskReserve: 1}}, nil, &calls}
	for i := range n {
		c := gq.Count{Queue: fmt.Sprint("q", i)}
		c.By[gq.StatusScheduled] = 1
		if i == 9 {
			c.By[gq.StatusScheduled] = 3
		}
		m.stats.Queues = append(m.stats.Queues, c)
		m.queues = append(m.queues, gq.Queue{Name: c.Queue})
	}
	for i := range 100 {
		m.schedules = append(m.schedules, gq.Schedule{Name: fmt.Sprint("s", i), Paused: true})
	}
	found := findings{snapshotAge: oldSnapshot}
	m.stats.Nodes = []gq.Node{{LastSeen: time.Now()}}
	if err := found.examine(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	found.sort()
	var text []string
	for _, f := range found.all {
		if f.Check != "server" { // a slow machine answers late
			text = append(text, f.Level+" "+f.Check+" "+f.Text)
		}
	}
	want := []string{
		"fail queue 100000 queues have 100002 ready jobs that no worker asks for, the longest waiting: q7 (1 ready job, the oldest since 2h00m), q5 (1 ready job, the oldest since 1h00m), q9 (3 ready jobs), …",
		"fail inbox could not be checked: timed out",
		"note workers none has contacted a server in the last minute",
		"note schedule s0 is paused", "note schedule s1 is paused", "note schedule s2 is paused", "note schedule and 97 more schedules like the one above",
		"ok disk 100.0 GiB are free", "ok schedules 100",
	}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Error(diff)
	}
	if calls > otherReasons+2 {
		t.Errorf("%d calls", calls)
	}
}

// Of many findings of one kind the worst are listed, and the others counted.
func TestDoctorListsTheWorst(t *testing.T) {
	now := time.Now()
	p := installation{stats: gq.Stats{Nodes: []gq.Node{{LastSeen: now}}}}
	m := manyQueued{p, nil, new(int)}
	for i, late := range []time.Duration{2, 3, 90, 1, 4, 80, 5} {
		m.schedules = append(m.schedules, gq.Schedule{Name: fmt.Sprint("s", i), Next: now.Add(-late * time.Hour)})
	}
	for i, live := range []int64{7, 8, 900, 9, 10, 11, 800} {
		c := gq.Count{Queue: fmt.Sprint("q", i)}
		c.By[gq.StatusRunning] = live
		m.stats.Queues = append(m.stats.Queues, c)
		m.queues = append(m.queues, gq.Queue{Name: c.Queue, MaxDepth: 5})
	}
	var found findings
	found.schedules(m.schedules)
	if err := found.queues(t.Context(), m, m.queues, m.stats.Queues, nil); err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, f := range found.all {
		text = append(text, f.Check+" "+strings.Join(strings.Fields(f.Text)[:min(3, len(strings.Fields(f.Text)))], " "))
	}
	want := []string{
		"schedule s2 should have", "schedule s5 should have", "schedule s6 should have", "schedule and 4 more", "schedules 7",
		"queue q2 is full:", "queue q6 is full:", "queue q5 is full:", "queue and 4 more",
	}
	if diff := cmp.Diff(want, text); diff != "" {
		t.Error(diff)
	}
}

// What the token of the caller may not read is no problem of the server.
func TestDoctorWithoutRights(t *testing.T) {
	var found findings
	found.step("inbox", func() error { return gq.ErrDenied.Errorf("this token lacks the scope read on all queues") })
	want := []finding{{"note", "inbox", "could not be checked: this token lacks the scope read on all queues"}}
	if diff := cmp.Diff(want, found.all); diff != "" || found.failed {
		t.Errorf("failed %t: %s", found.failed, diff)
	}
}

// An endpoint that refuses is told with its reason, long before deliveries are given up.
func TestDoctorEndpoints(t *testing.T) {
	var found findings
	found.endpoints([]*pb.Delivery{
		{Url: "http://a/", Attempts: 1, Reason: "503"}, {Url: "http://b/", Attempts: 2, Reason: "refused"},
		{Url: "http://b/", Attempts: 3, Reason: "connection refused"}, {Url: "http://c/"}, {Url: "http://d/", Attempts: 1},
	})
	want := []finding{
		{"fail", "webhook", "http://b/ refuses deliveries: 2 wait, and attempt 3 of one failed: connection refused; gq webhook list --state pending"},
		{"note", "webhook", "http://a/ refuses deliveries: 1 wait, and attempt 1 of one failed: 503; gq webhook list --state pending"},
	}
	if diff := cmp.Diff(want, found.all); diff != "" {
		t.Error(diff)
	}
}

// TestDoctorNamesTheHolderOfASnapshot holds a snapshot on a real database.
func TestDoctorNamesTheHolderOfASnapshot(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	server := startServer(t, nil, "--store", url)
	conn := connectTo(t, url)
	if _, err := conn.Exec(t.Context(), "SET application_name = 'nightly report'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"); err != nil {
		t.Fatal(err)
	}
	said := func(text string) bool {
		out := server.gq("doctor", "--snapshot-age", "1ms")
		if !strings.Contains(out.stdout, "in tables of the queue") {
			t.Fatalf("%+v", out)
		}
		return strings.Contains(out.stdout, text)
	}
	who := fmt.Sprintf("session %d (application \"nightly report\"", conn.PgConn().PID())
	cmdtest.WaitFor(t, "the finding", func() bool { return said(who) && said(fmt.Sprintf("pg_terminate_backend(%d)", conn.PgConn().PID())) })
	if _, err := conn.Exec(t.Context(), "ROLLBACK"); err != nil {
		t.Fatal(err)
	}
	cmdtest.WaitFor(t, "the end of the finding", func() bool { return !said(who) })
	if out := server.gq("doctor"); strings.Contains(out.stdout, "snapshot") {
		t.Errorf("%+v", out)
	}
	if out := server.gq("doctor", "--snapshot-age", "0s"); out.status != 2 || !strings.Contains(out.stderr, "snapshot-age") {
		t.Errorf("%+v", out)
	}
}
