package postgres_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// shown is a row of gq.jobs, with an empty value for NULL.
type shown struct {
	ID                                      [16]byte
	Queue, Type, State, Detail              string
	Priority, EffectivePriority             string
	Attempt, MaxAttempts, Waits             int
	CreatedAt, UpdatedAt, RunAt             time.Time
	ScheduledAt, StartedAt, CompletedAt     time.Time
	Worker, LeaseID                         string
	LeaseExpiresAt                          time.Time
	Error, ErrorCode, Reason                string
	Requester, LimitKey, OrderKey, Workflow string
	Ref                                     string
	Tags                                    map[string]string
	CorrelationID                           string
	Sequence                                int64
}

const shownColumns = `id, queue, type, state, coalesce(detail, ''), priority, effective_priority, attempt, max_attempts, waits, created_at,
	updated_at, coalesce(run_at, '0001-01-01T00:00:00Z'), coalesce(scheduled_at, '0001-01-01T00:00:00Z'), coalesce(started_at, '0001-01-01T00:00:00Z'),
	coalesce(completed_at, '0001-01-01T00:00:00Z'), coalesce(worker, ''), coalesce(lease_id, ''), coalesce(lease_expires_at, '0001-01-01T00:00:00Z'),
	coalesce(error, ''), coalesce(error_code, ''), coalesce(reason, ''), coalesce(requester, ''), coalesce(limit_key, ''), coalesce(order_key, ''),
	coalesce(workflow::text, ''), coalesce(ref, ''), tags, coalesce(correlation_id, ''), sequence`

func selectJobs(t *testing.T, conn *pgx.Conn, where string) map[gq.JobID]shown {
	t.Helper()
	rows, err := conn.Query(t.Context(), "SELECT "+shownColumns+" FROM gq.jobs "+where, pgx.QueryExecModeExec)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[shown])
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[gq.JobID]shown)
	for _, row := range found {
		if _, twice := out[row.ID]; twice {
			t.Errorf("gq.jobs has two rows for %s", gq.JobID(row.ID))
		}
		for _, at := range []*time.Time{&row.CreatedAt, &row.UpdatedAt, &row.RunAt, &row.ScheduledAt, &row.StartedAt, &row.CompletedAt, &row.LeaseExpiresAt} {
			*at = at.UTC()
		}
		out[row.ID] = row
	}
	return out
}

// show is what the view should show of a job.
func show(j *gq.Job) shown {
	s := &j.State
	micro := func(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }
	row := shown{
		ID: s.ID, Queue: j.Spec.Queue, Type: j.Spec.Type, State: s.Status.String(), Detail: s.Detail.String(),
		Priority: j.Metadata.Priority.String(), EffectivePriority: s.Priority().String(), Attempt: s.Attempt, MaxAttempts: s.Bound, Waits: s.Waits,
		CreatedAt: micro(s.CreatedAt), UpdatedAt: micro(s.UpdatedAt), RunAt: micro(s.RunAt), ScheduledAt: micro(s.ScheduledAt),
		StartedAt: micro(s.StartedAt), CompletedAt: micro(s.CompletedAt), Reason: s.Reason, Requester: j.Spec.Requester,
		LimitKey: j.Spec.LimitKey, OrderKey: j.Spec.OrderKey, Ref: j.Spec.Ref, Tags: j.Metadata.Tags,
		CorrelationID: j.Metadata.CorrelationID, Sequence: int64(s.Sequence),
	}
	if s.AnyOpen {
		row.Waits++
	}
	if s.Failure != nil {
		row.Error, row.ErrorCode = s.Failure.Message, s.Failure.Code
	}
	if s.Lease != nil && s.Attempting() {
		row.Worker, row.LeaseID, row.LeaseExpiresAt = s.Lease.Worker, string(s.Lease.ID), micro(s.Lease.ExpiresAt)
	}
	if !j.Spec.Workflow.IsZero() {
		row.Workflow = j.Spec.Workflow.String()
	}
	if row.Tags == nil {
		row.Tags = map[string]string{}
	}
	return row
}

// everyJob lists the jobs of a store, which may be in any queue.
func everyJob(t *testing.T, s *postgres.Store) map[gq.JobID]shown {
	t.Helper()
	out := make(map[gq.JobID]shown)
	for q := (gq.Query{Limit: store.MaxPage}); ; {
		page, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for i := range page.Jobs {
			out[page.Jobs[i].State.ID] = show(&page.Jobs[i])
		}
		if q.Cursor = page.Next; q.Cursor == "" {
			return out
		}
	}
}

// detailed is a job that uses every part of the format.
func detailed(queue string) gq.Spec {
	spec := newSpec(queue)
	spec.Payload = gq.Payload{Data: []byte("\x00\xff"), ContentType: gq.OctetStream}
	spec.Policy = gq.PresetResilient.Policy()
	spec.Policy.MaxAttempts, spec.Policy.StartWithin, spec.Policy.Retention, spec.Policy.Aging = 7, time.Hour, 48*time.Hour, time.Minute
	spec.Policy.Backoff.Initial = time.Hour
	spec.Delay, spec.CostUnits, spec.Requires = time.Nanosecond, 3, []string{"a", "gpu"}
	spec.Requester, spec.Tier, spec.MaxFee, spec.LimitKey, spec.FairKey, spec.Weight, spec.OrderKey = "anna", "PRO", 300, "tenant-1", "f", 2, "line"
	spec.Attributes = map[string]string{"a": "1", "b": strings.Repeat("long ", 60)}
	spec.Metadata = gq.Metadata{Priority: gq.PriorityLow, Tags: map[string]string{"team": "blå", "k": "v"}, CorrelationID: "c-1", CallbackURL: "https://example.org"}
	return spec
}

// TestViewOfJobs compares gq.jobs with the lists of the API, for jobs in every state that
// share rows or have their own, with every part of a spec, small and large.
func TestViewOfJobs(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	furnish(t, s)
	conn := connect(t, url)
	apply := func(r store.Ref, f store.Apply) {
		t.Helper()
		out, err := s.Update(t.Context(), []store.Update{{Ref: r, Apply: f, Settles: r.Lease != ""}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	claim := func(queue string, n int, hold bool) []gq.Job {
		t.Helper()
		c := claimFrom(queue, n)
		c.Hold, c.Offers = hold, []string{"a", "gpu"}
		out, err := s.Claim(t.Context(), []store.Claim{c})
		if err != nil || len(out[0].Jobs) != n {
			t.Fatal(err, out)
		}
		return out[0].Jobs
	}
	for i := range 3 { // alone, so that their ids are made from their numbers
		spec := newSpec("minted")
		spec.Metadata.Tags = map[string]string{"i": fmt.Sprint(i)}
		if out, err := s.Insert(t.Context(), []store.Group{{Mint: true, Jobs: []gq.Spec{spec}}}); err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
	}
	claim("minted", 1, true)
	for i, preset := range enum.All[gq.Preset]() {
		short, long := newSpec("presets"), newSpec("presets")
		short.Policy, long.Policy = preset.Policy(), preset.Policy()
		long.Policy.MaxAttempts += 10 + i
		mustInsert(t, s, short, long)
	}
	keyed, named := detailed("detailed"), detailed("detailed")
	keyed.Key = gq.IdempotencyKey{Scope: "s", Name: "käy", Fingerprint: 1 << 63}
	keyed.Unique = gq.UniqueRule{While: gq.WhileLive, OnCollision: gq.Refuse, Fields: []string{"x", "y"}}
	keyed.DependsOn = []gq.Dependency{{Kind: gq.DependencyAfterAny, Job: named.ID}}
	named.Ref, named.Workflow = "step", gq.WorkflowID(newSpec("").ID)
	mustInsert(t, s, named)
	mustInsert(t, s, keyed)
	failures := []gq.Failure{
		{Category: gq.CategoryTemporary, Code: "busy", Message: "späte\nZeile"},
		{Category: gq.CategoryPermanent, Message: "never"},
	}
	once := newSpec("failing")
	once.Policy.MaxAttempts = 1
	again := newSpec("failing")
	again.Policy.Backoff.Initial, again.Policy.Backoff.Max = time.Hour, time.Hour
	mustInsert(t, s, once, again, likewise(again), newSpec("failing"))
	for i, j := range claim("failing", 4, false) {
		apply(store.Ref{Lease: j.State.Lease.ID}, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Fail(s, j.State.Lease.Ref(), failures[i/3], machine.Draw{U: 0.5}, now)
		})
	}
	mustInsert(t, s, newSpec("lost"), newSpec("lost"))
	for i, j := range claim("lost", 2, true) { // given back before the start, one of them until just now
		apply(store.Ref{Lease: j.State.Lease.ID}, func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
			return machine.Release(s, j.State.Lease.Ref(), time.Duration(1+i)*time.Nanosecond, "", now)
		})
	}
	delayed := newSpec("later")
	delayed.RunAt = time.Now().Add(24 * time.Hour)
	mustInsert(t, s, delayed)
	changed := gq.Metadata{Priority: gq.PriorityHigh, Tags: map[string]string{"new": "tag"}, CorrelationID: "c-2"}
	out, err := s.Update(t.Context(), []store.Update{{Ref: store.Ref{Job: delayed.ID}, Metadata: &changed, Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
		return machine.Update(s, changed.Priority, now)
	}}})
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	for range 100 { // claimed and completed together, so that they share rows
		mustInsert(t, s, newSpec("shared-rows"))
	}
	for _, j := range claim("shared-rows", 90, false)[:70] {
		if j.State.Sequence%5 > 0 {
			apply(store.Ref{Lease: j.State.Lease.ID}, completing(j).Apply)
		}
	}
	var many []gq.Spec
	for range 10_000 {
		many = append(many, newSpec("many"))
	}
	mustInsert(t, s, many...)
	done := claim("many", 500, false)
	updates := make([]store.Update, len(done))
	for i := range done {
		updates[i] = completing(done[i])
		updates[i].Settles = true
	}
	if _, err := s.Update(t.Context(), updates); err != nil {
		t.Fatal(err)
	}
	process := conn.PgConn().PID()
	var began time.Duration
	var got map[gq.JobID]shown
	want := everyJob(t, s)
	for again := true; again; { // until no retry fell due while both were read
		before := want
		began = processorTime(process)
		got = selectJobs(t, conn, "")
		t.Logf("%d rows in %v of processor time", len(got), processorTime(process)-began)
		want = everyJob(t, s)
		again = !cmp.Equal(before, want)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%d jobs, and gq.jobs has %d rows (-API +view):\n%.4000s", len(want), len(got), diff)
	}
	began = processorTime(process)
	if _, err := conn.Exec(t.Context(), "SELECT queue, state, count(*) FROM gq.jobs GROUP BY 1, 2"); err != nil {
		t.Fatal(err)
	}
	t.Logf("counted in %v", processorTime(process)-began)
	states := make(map[string]int)
	for _, row := range want {
		states[row.State]++
	}
	for _, status := range enum.All[gq.Status]() {
		n := 0
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM gq.jobs WHERE state = $1", status.String()).Scan(&n); err != nil || n != states[status.String()] || n == 0 {
			t.Errorf("%d jobs are %v, want %d and at least one (%v)", n, status, states[status.String()], err)
		}
	}
	one := selectJobs(t, conn, "WHERE queue = 'failing' AND state = 'RETRYING'")
	maps.DeleteFunc(want, func(_ gq.JobID, row shown) bool { return row.Queue != "failing" || row.State != "RETRYING" })
	if diff := cmp.Diff(want, one); diff != "" || len(want) != 2 {
		t.Errorf("%d jobs of a queue in a state (-API +view):\n%s", len(want), diff)
	}
}

// likewise is another job that is alike.
func likewise(spec gq.Spec) gq.Spec {
	spec.ID = newSpec("").ID
	return spec
}

// TestViewOfJobsThatExpired lets jobs expire that share rows or have their own.
func TestViewOfJobsThatExpired(t *testing.T) {
	url := pgtest.Database(t)
	clock := newCalendar()
	s := open(t, url, store.Config{Clock: clock, Retention: store.Retention{Completed: time.Hour, Cancelled: time.Hour, Failed: time.Hour, DeadLetter: time.Hour}})
	defer s.Close()
	complete := func(n int) {
		t.Helper()
		for range n {
			mustInsert(t, s, newSpec("q"))
		}
		out, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", n)})
		if err != nil || len(out[0].Jobs) != n {
			t.Fatal(err, out)
		}
		var updates []store.Update
		for _, j := range out[0].Jobs {
			updates = append(updates, completing(j))
		}
		if _, err := s.Update(t.Context(), updates); err != nil {
			t.Fatal(err)
		}
	}
	complete(1)
	complete(20)
	clock.pass(2 * time.Hour)
	complete(1)
	complete(10)
	conn := connect(t, url)
	for _, left := range []int{32, 11} {
		if want, got := everyJob(t, s), selectJobs(t, conn, ""); len(want) != left || !cmp.Equal(want, got) {
			t.Errorf("%d jobs are left and the view shows %d, want %d", len(want), len(got), left)
		}
		if _, _, err := s.Collect(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
	}
}

// TestViewsReadText reads bytes that text cannot hold.
func TestViewsReadText(t *testing.T) {
	url := pgtest.Database(t)
	if _, err := postgres.MigrateUp(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	for bytes, want := range map[string]string{
		"blå € 😀": "blå € 😀", "": "", "nul \x00": `nul \000`, "broken \xff\xc3(": `broken \377\303(`, "\xed\xa0\x80": `\355\240\200`,
	} {
		var got string
		if err := conn.QueryRow(t.Context(), "SELECT gq.read_text($1)", []byte(bytes)).Scan(&got); err != nil || got != want {
			t.Errorf("%q reads %q, want %q (%v)", bytes, got, want, err)
		}
	}
}

// TestViewsAreMadeAnew opens databases with the views of an earlier program, with none, and
// with some that this program may not replace.
func TestViewsAreMadeAnew(t *testing.T) {
	url := pgtest.Database(t)
	start := func() {
		t.Helper()
		if err := open(t, url, store.Config{}).Close(); err != nil {
			t.Fatal(err)
		}
	}
	pending := func(want bool) {
		t.Helper()
		if l, err := postgres.MigrateStatus(t.Context(), url); err != nil || l.Pending() != want {
			t.Errorf("the layout is %+v, pending %v, want %v (%v)", l, l.Pending(), want, err)
		}
	}
	readable := func() {
		t.Helper()
		for _, view := range everyView {
			execute(t, url, "SELECT * FROM "+view)
		}
	}
	start()
	readable()
	for name, sql := range map[string]string{
		"of an earlier program": `
			DROP SCHEMA gq_matching CASCADE; DROP SCHEMA gq_scheduler CASCADE; DROP VIEW gq.jobs;
			CREATE VIEW gq.jobs AS SELECT 1 AS kind; CREATE VIEW gq.job_index AS SELECT kind FROM gq.jobs;
			CREATE VIEW gq.scheduler_events AS SELECT 1 AS id; CREATE VIEW gq.leases AS SELECT * FROM gq.matching_leases()`,
		"of another program": `COMMENT ON VIEW gq.jobs IS 'another'; DROP VIEW gq_scheduler.scheduler_events`,
		"none":               "DROP SCHEMA gq_matching CASCADE; DROP SCHEMA gq_scheduler CASCADE; DROP VIEW gq.jobs",
	} {
		execute(t, url, sql)
		pending(true)
		start()
		pending(false)
		readable()
		if t.Failed() {
			t.Fatalf("with the views %s", name)
		}
	}
	execute(t, url, "GRANT SELECT ON gq.jobs, gq_matching.leases TO PUBLIC; COMMENT ON VIEW gq.jobs IS 'another'")
	start()
	var may int
	if err := connect(t, url).QueryRow(t.Context(), `
		SELECT count(*) FROM information_schema.table_privileges WHERE grantee = 'PUBLIC' AND table_schema || '.' || table_name IN ('gq.jobs', 'gq_matching.leases')`,
	).Scan(&may); err != nil || may != 2 {
		t.Errorf("everybody may read %d views, want the same two as before (%v)", may, err)
	}

	execute(t, url, "DROP SCHEMA gq_matching CASCADE; DROP VIEW gq.jobs; CREATE SCHEMA gq_matching; CREATE TABLE gq_matching.jobs (mine integer)")
	start() // without the views
	pending(true)
	_, err := postgres.MigrateUp(t.Context(), url)
	if err == nil || !strings.Contains(err.Error(), "gq_matching") || !strings.Contains(err.Error(), "one of them has tables") {
		t.Errorf("a schema with somebody's table: %v", err)
	}
	execute(t, url, "SELECT mine FROM gq_matching.jobs; DROP SCHEMA gq_matching CASCADE")
	if _, err := postgres.MigrateUp(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	pending(false)
	readable()
}

// TestViewsWithoutRights opens a store as a role that owns the tables and may create no schema.
func TestViewsWithoutRights(t *testing.T) {
	url := pgtest.Database(t)
	execute(t, url, `
		CREATE ROLE lesser LOGIN;
		CREATE SCHEMA gq AUTHORIZATION lesser; CREATE SCHEMA gq_matching AUTHORIZATION lesser; CREATE SCHEMA gq_scheduler AUTHORIZATION lesser`)
	conn := connect(t, url)
	defer func() { execute(t, url, "DROP OWNED BY lesser CASCADE; DROP ROLE lesser") }()
	lesser := withParameter(url, "options="+"-c%20role%3Dlesser")
	sql, err := postgres.MigrateDump("")
	if err != nil {
		t.Fatal(err)
	}
	sql = strings.Replace(sql, "CREATE SCHEMA IF NOT EXISTS gq;", "", 1)
	if _, err := conn.Exec(t.Context(), "SET ROLE lesser; "+sql); err != nil {
		t.Fatal(err)
	}
	execute(t, url, "DROP SCHEMA gq_matching, gq_scheduler CASCADE; DROP VIEW gq.jobs")
	s := open(t, lesser, store.Config{}) // works without the views
	defer s.Close()
	mustInsert(t, s, newSpec("q"))
	if _, err := postgres.MigrateUp(t.Context(), lesser); err == nil || !strings.Contains(err.Error(), "permission denied") || !strings.Contains(err.Error(), "may create schemas") {
		t.Errorf("a role that may create no schema made views: %v", err)
	}
	execute(t, url, "CREATE SCHEMA gq_matching AUTHORIZATION lesser; CREATE SCHEMA gq_scheduler AUTHORIZATION lesser")
	if err := open(t, lesser, store.Config{}).Close(); err != nil {
		t.Fatal(err)
	}
	if rows := selectJobs(t, connect(t, url), ""); len(rows) != 1 {
		t.Errorf("gq.jobs has %d rows, want 1", len(rows))
	}
}

// TestViewsHaveANumber fails if views.sql changes without a new number.
func TestViewsHaveANumber(t *testing.T) {
	sum := sha256.Sum256([]byte(postgres.ViewsSource))
	const number, of = 1, "4bf34d2e9c54e6c7"
	if got := hex.EncodeToString(sum[:8]); postgres.ViewsNumber != number || got != of {
		t.Errorf("views.sql with number %d has the hash %s, and number %d had %s: raise viewsNumber, and write both here", postgres.ViewsNumber, got, number, of)
	}
}

// TestNewerViewsAreLeft opens a database with the views of a later program.
func TestNewerViewsAreLeft(t *testing.T) {
	url := pgtest.Database(t)
	for _, insist := range []bool{false, true} {
		if err := open(t, url, store.Config{}).Close(); err != nil {
			t.Fatal(err)
		}
		execute(t, url, fmt.Sprintf("DROP VIEW gq.jobs; CREATE VIEW gq.jobs AS SELECT 1 AS newer; COMMENT ON VIEW gq.jobs IS 'The views have the number %d.'", postgres.ViewsNumber+1))
		if l, err := postgres.MigrateStatus(t.Context(), url); err != nil || l.Pending() {
			t.Errorf("newer views are pending: %+v, %v", l, err)
		}
		if insist {
			if _, err := postgres.MigrateUp(t.Context(), url); err != nil {
				t.Fatal(err)
			}
		} else if err := open(t, url, store.Config{}).Close(); err != nil {
			t.Fatal(err)
		}
		execute(t, url, "SELECT newer FROM gq.jobs")
		execute(t, url, fmt.Sprintf("COMMENT ON VIEW gq.jobs IS 'The views have the number %d.'", postgres.ViewsNumber-1))
	}
	if err := open(t, url, store.Config{}).Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, url, "SELECT queue FROM gq.jobs")
}

// TestViewsWithDependents makes views on which somebody has made his own. It must say so, and the
// layout must not wait for them.
func TestViewsWithDependents(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	if err := s.ViewsError(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, url, "CREATE VIEW public.report AS SELECT queue FROM gq.jobs; COMMENT ON VIEW gq.jobs IS ''")
	names := func(err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "view public.report depends on view") || !strings.Contains(err.Error(), "create it again afterwards") {
			t.Errorf("the error does not name the dependent view: %v", err)
		}
	}
	s = open(t, url, store.Config{})
	names(s.ViewsError())
	mustInsert(t, s, newSpec("q"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := postgres.MigrateUp(t.Context(), url)
	names(err)
	if !before.Pending() {
		t.Errorf("the layout before: %+v", before)
	}
	next := before.Current + 1
	names(postgres.MigrateFurther(t.Context(), url, next, fmt.Sprintf("INSERT INTO gq.migration (version, oldest) VALUES (%d, 1)", next)))
	var version int
	if err := connect(t, url).QueryRow(t.Context(), "SELECT max(version) FROM gq.migration").Scan(&version); err != nil || version != next {
		t.Errorf("the layout is %d after the views failed, want %d (%v)", version, next, err)
	}
	execute(t, url, fmt.Sprintf("DROP VIEW public.report; DELETE FROM gq.migration WHERE version = %d", next))
	if _, err := postgres.MigrateUp(t.Context(), url); err != nil {
		t.Error(err)
	}
}

// TestViewsKeepGrants makes views anew on which others have rights of every kind.
func TestViewsKeepGrants(t *testing.T) {
	url := pgtest.Database(t)
	if err := open(t, url, store.Config{}).Close(); err != nil {
		t.Fatal(err)
	}
	execute(t, url, `
		CREATE ROLE view_reader; CREATE ROLE view_granter;
		GRANT SELECT ON gq.jobs, gq_matching.leases TO PUBLIC;
		GRANT SELECT, REFERENCES ON gq.jobs TO view_granter WITH GRANT OPTION;
		GRANT SELECT (job_id, state) ON gq_scheduler.scheduler_job_runs TO view_reader`)
	defer func() {
		execute(t, url, "DROP OWNED BY view_reader, view_granter; DROP ROLE view_reader, view_granter")
	}()
	conn := connect(t, url)
	rights := func() []string {
		t.Helper()
		rows, err := conn.Query(t.Context(), `
			SELECT c.relname || ' ' || coalesce(c.relacl::text, '') || coalesce(string_agg(t.attname || t.attacl::text, ' ' ORDER BY t.attname), '')
			FROM pg_class AS c LEFT JOIN pg_attribute AS t ON t.attrelid = c.oid AND t.attacl IS NOT NULL
			WHERE c.oid = ANY ('{gq.jobs,gq_matching.leases,gq_scheduler.scheduler_job_runs}'::regclass[])
			GROUP BY c.oid, c.relname, c.relacl::text ORDER BY 1`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	want := rights()
	execute(t, url, `
		DROP VIEW gq_scheduler.scheduler_events; CREATE VIEW gq_scheduler.scheduler_events AS SELECT 1 AS gone;
		GRANT SELECT (gone) ON gq_scheduler.scheduler_events TO view_reader;
		COMMENT ON VIEW gq.jobs IS 'another'`)
	s := open(t, url, store.Config{})
	defer s.Close()
	if got := rights(); !slices.Equal(got, want) || s.ViewsError() != nil {
		t.Errorf("the rights are\n%s\nand were\n%s\n(%v)", strings.Join(got, "\n"), strings.Join(want, "\n"), s.ViewsError())
	}
	execute(t, url, "SELECT queue FROM gq.jobs")
}

// TestViewsOfASchemaOfItsOwn checks the names beside schemas with every kind of name.
func TestViewsOfASchemaOfItsOwn(t *testing.T) {
	url := pgtest.Database(t)
	conn := connect(t, url)
	for schema, beside := range map[string]string{
		"shop": "shop", awkward: awkward, strings.Repeat("x", 52): strings.Repeat("x", 52),
		strings.Repeat("y", 63): strings.Repeat("y", 44),
	} {
		s := open(t, inSchema(url, schema), store.Config{})
		mustInsert(t, s, newSpec("q"))
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		var jobs int
		if err := conn.QueryRow(t.Context(), "SELECT count(id) FROM "+pgx.Identifier{schema, "jobs"}.Sanitize()).Scan(&jobs); err != nil || jobs != 1 {
			t.Errorf("%s has %d jobs, want 1 (%v)", schema, jobs, err)
		}
		for suffix, view := range map[string]string{"_matching": "provider_quotas", "_scheduler": "scheduler_events"} {
			var found string
			err := conn.QueryRow(t.Context(), "SELECT schemaname FROM pg_views WHERE viewname = $1 AND starts_with(schemaname, $2)", view, beside).Scan(&found)
			if exact := beside == schema; err != nil || !strings.HasSuffix(found, suffix) || exact && found != schema+suffix || len(found) > 63 {
				t.Errorf("beside %s, %s is in %q (%v)", schema, view, found, err)
			}
		}
	}
}

// TestViewsInParallel reads every view with parallel workers, which a large database uses.
func TestViewsInParallel(t *testing.T) {
	url := pgtest.Database(t)
	s := open(t, url, store.Config{})
	defer s.Close()
	furnish(t, s)
	if _, err := s.PutDocs(t.Context(), []store.Doc{{Kind: "matching", Name: "configured", Data: []byte(matchingPolicy)}}); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, url)
	if _, err := conn.Exec(t.Context(), "SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')"); err != nil {
		t.Fatal(err)
	}
	for _, view := range everyView {
		if _, err := conn.Exec(t.Context(), "SELECT * FROM "+view); err != nil {
			t.Errorf("%s: %v", view, err)
		}
	}
}

var everyView = []string{
	"gq.jobs", "gq_scheduler.scheduler_job_runs", "gq_scheduler.scheduler_lease_runs", "gq_scheduler.scheduler_events",
	"gq_matching.jobs", "gq_matching.leases", "gq_matching.provider_quotas",
}
