package matching_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// tables are those of the specification's section 10, with their columns in order.
var tables = map[string][]string{
	"jobs": {
		"id", "kind", "spec", "state", "priority_cache", "enqueue_ts", "attempts", "ttl_abs", "ttl_rel_deadline",
		"requester", "size_bytes", "max_fee", "tier", "last_error", "tombstoned",
	},
	"leases":          {"id", "job_id", "provider_id", "attempt", "t_start", "t_deadline", "renew_by", "status"},
	"job_index":       {"kind", "state", "priority_cache"},
	"provider_quotas": {"provider_id", "leases_active", "units_epoch_used", "windows"},
}

// movable is a clock that only tests advance, so that no lease expires on a slow machine.
type movable struct {
	begin time.Time
	ahead atomic.Int64
}

func (c *movable) Now() time.Time { return c.begin.Add(time.Duration(c.ahead.Load())) }

// counting counts how often jobs are listed, and how often by the index of waiting jobs.
type counting struct {
	*postgres.Store
	lists, indexed atomic.Int64
	backwards      atomic.Bool // the index has the last jobs first
}

func (c *counting) WaitingJobs(ctx context.Context, p *match.Priority, n int) ([]gq.JobID, bool, error) {
	ids, ok, err := c.Store.WaitingJobs(ctx, p, n)
	if ok && len(ids) > 0 {
		c.indexed.Add(1)
	}
	if c.backwards.Load() {
		slices.Reverse(ids)
	}
	return ids, ok, err
}

func (c *counting) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	c.lists.Add(1)
	return c.Store.List(ctx, q)
}

// reports is a server on PostgreSQL with a separate SQL reader.
type reports struct {
	*fixture
	store    *counting
	clock    *movable
	conn     *pgx.Conn
	settings match.Settings
	jobs     []string
	leases   []string
	seen     map[string]bool // states and statuses in the compared rows
}

func newReports(t *testing.T, set match.Settings) *reports {
	t.Helper()
	return newReportsAt(t, pgtest.Database(t), set)
}

func newReportsAt(t *testing.T, url string, set match.Settings) *reports {
	t.Helper()
	clock := &movable{begin: time.Now()}
	const kept = 40 * 24 * time.Hour
	s, err := postgres.Open(t.Context(), url, store.Config{
		Clock: clock, Retention: store.Retention{Completed: kept, Cancelled: kept, Failed: kept, DeadLetter: kept},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	r := &reports{store: &counting{Store: s}, clock: clock, conn: conn, settings: set, seen: map[string]bool{}}
	r.fixture = over(t, r.store, matching.Options{}, matchmaker.Options{Settings: &r.settings})
	return r
}

// later advances the clock. It starts another server, since one reads the clock at most
// once a second; the new server records what is due.
func (r *reports) later(by time.Duration, providers ...string) {
	r.Helper()
	r.clock.ahead.Add(int64(by))
	r.fixture = over(r.T, r.store, matching.Options{}, matchmaker.Options{Settings: &r.settings})
	if _, err := r.engine.Sweep(r.Context(), r.clock.Now()); err != nil {
		r.Fatal(err)
	}
	for _, p := range providers {
		r.must("POST", "/providers/"+p+"/heartbeat", "{}")
	}
}

func (r *reports) submit(format string, more ...any) string {
	r.Helper()
	id := r.must("POST", "/jobs", fmt.Sprintf(format, more...))["id"].(string)
	r.jobs = append(r.jobs, id)
	return id
}

// round runs a round and returns its leases by job.
func (r *reports) round(want int) map[string]string {
	r.Helper()
	given := make(map[string]string)
	for _, a := range r.must("POST", "/rounds", "")["assignments"].([]any) {
		id := a.(object)["lease_id"].(string)
		given[a.(object)["job_id"].(string)] = id
		r.leases = append(r.leases, id)
	}
	if len(given) != want {
		r.Fatalf("%d assignments, want %d", len(given), want)
	}
	return given
}

func (r *reports) verb(lease, verb, body string) {
	r.Helper()
	r.must("POST", "/leases/"+lease+"/"+verb, body)
}

// table reads a view.
func (r *reports) table(name string) (all []object) {
	r.Helper()
	rows, err := r.conn.Query(r.Context(), "SELECT to_jsonb(v) FROM gq_matching."+name+" AS v")
	if err != nil {
		r.Fatal(err)
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		r.Fatalf("%s: %v", name, err)
	}
	for _, text := range texts {
		var row object
		if err := json.Unmarshal([]byte(text), &row); err != nil {
			r.Fatal(err)
		}
		all = append(all, row)
	}
	return all
}

// answered returns what the face says about everything, in the form of the tables, and
// where it contradicts itself.
func (r *reports) answered() (out map[string][]object, different string) {
	r.Helper()
	out = make(map[string][]object)
	live := make(map[string]float64)
	pick := func(name string, from object) {
		row := make(object)
		for _, column := range tables[name] {
			value, ok := from[column]
			if !ok {
				r.Fatalf("the face says nothing of %s.%s: %v", name, column, from)
			}
			row[column] = value
		}
		out[name] = append(out[name], row)
	}
	epoch := r.must("GET", "/beacon", "")["epoch_id"]
	providers := r.must("GET", "/providers", "")["providers"].([]any)
	for _, id := range r.jobs {
		if status, job := r.call("GET", "/jobs/"+id, ""); status == 200 {
			pick("jobs", job)
		}
	}
	for _, id := range r.leases {
		if status, lease := r.call("GET", "/leases/"+id, ""); status == 200 {
			lease["id"] = lease["lease_id"]
			pick("leases", lease)
			if lease["status"] == "ACTIVE" || lease["status"] == "RENEWED" {
				live[lease["provider_id"].(string)]++
			}
		}
	}
	for _, p := range providers {
		p := p.(object)
		if id := p["id"].(string); p["leases_active"] != live[id] {
			different += fmt.Sprintf("the face counts %v leases of %s, and %v are live\n", p["leases_active"], id, live[id])
		}
		pick("provider_quotas", object{
			"provider_id": p["id"], "leases_active": p["leases_active"],
			"units_epoch_used": object{"AI": p["ai_units_used"], "QUANTUM": p["quantum_units_used"]},
			"windows":          object{"epoch_id": epoch, "cooldown_until": p["cooldown_until"]},
		})
	}
	jobs := slices.Clone(out["jobs"])
	slices.SortFunc(jobs, func(a, b object) int {
		return cmp.Or(
			strings.Compare(a["kind"].(string), b["kind"].(string)), strings.Compare(a["state"].(string), b["state"].(string)),
			cmp.Compare(b["priority_cache"].(float64), a["priority_cache"].(float64)),
		)
	})
	for _, job := range jobs {
		pick("job_index", job)
	}
	return out, different
}

// equal checks that every table agrees with the face. A server that was not scheduled
// believes that time has passed, so a difference is checked again.
func (r *reports) equal(when string) {
	r.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		face, different := r.answered()
		for name, columns := range tables {
			want, got := face[name], r.table(name)
			if name != "job_index" { // which is about order
				byKey := func(a, b object) int { return strings.Compare(a[columns[0]].(string), b[columns[0]].(string)) }
				slices.SortFunc(want, byKey)
				slices.SortFunc(got, byKey)
			}
			if len(want) != len(got) {
				different += fmt.Sprintf("gq_matching.%s has %d rows, the face answers %d\n", name, len(got), len(want))
				continue
			}
			for i := range want {
				r.seen[fmt.Sprint(name, " ", got[i]["state"])], r.seen[fmt.Sprint(name, " ", got[i]["status"])] = true, true
				if !reflect.DeepEqual(got[i], want[i]) {
					different += fmt.Sprintf("gq_matching.%s has\n%v\nand the face answers\n%v\n", name, got[i], want[i])
				}
			}
		}
		if different == "" {
			return
		}
		r.Logf("%s, once more: %s", when, different)
		if time.Now().After(deadline) {
			r.Fatalf("%s: %s", when, different)
		}
	}
}

// TestTables reads the specified tables with SQL and compares them with the face's
// responses, row by row, after jobs have gone through every transition.
func TestTables(t *testing.T) {
	spec.Covers(t, "M-114", "M-115", "M-116", "M-118")
	set := match.DefaultSettings()
	set.AckTimeout = 120_000
	set.Priority.FeeWeight, set.Priority.FeeRef, set.Priority.Tiers["GOLD"] = 333_333_333, 777_777, 123_456_789
	r := newReports(t, set)
	for name, want := range tables {
		rows, err := r.conn.Query(t.Context(), `
			SELECT column_name::text FROM information_schema.columns
			WHERE table_schema = 'gq_matching' AND table_name = $1 ORDER BY ordinal_position`, name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := pgx.CollectRows(rows, pgx.RowTo[string]); err != nil || !slices.Equal(got, want) {
			t.Errorf("gq_matching.%s has the columns %v, want %v (%v)", name, got, want, err)
		}
	}
	r.must("POST", "/beacon", `{"chain_id":"c","epoch_id":7,"block_height":1,"beacon":"aa"}`)
	r.register("p1")
	r.equal("with one provider and no job")

	var many []string // more than fits into one attribute, in multi-byte letters
	for i := range 40 {
		many = append(many, fmt.Sprintf("%q", strings.Repeat("ä", 20+i)))
	}
	done := r.submit(`{"kind":"AI","spec":{"model":"m"},"requester":"anna","tier":"GOLD","max_fee":500001,"size_bytes":12345,"units":3}`)
	renewed := r.submit(`{"kind":"QUANTUM","spec":{"gates":["h"],"depth":2,"width":3},"requester":"béla","units":5}`)
	failed := r.submit(`{"kind":"AI","tier":"PREMIUM","max_fee":900000,"ttl_abs":200}`)
	declined := r.submit(`{"kind":"AI","payload":{"prompt":"hi"}}`)
	silent := r.submit(`{"kind":"QUANTUM","tier":"PRO","max_fee":1}`)
	r.submit(`{"kind":"AI","spec":{"model":"nobody has it"},"regions":[%s]}`, strings.Join(many, ","))
	cancelled := r.submit(`{"kind":"AI","max_fee":3}`)
	refused := r.submit(`{"kind":"AI","max_fee":4}`)
	for name, attributes := range map[string]map[string]string{
		"none": nil, "no JSON": {"matching.0": "{"}, "no object": {"matching.0": "[]"}, "no size": {"matching.0": `{"size_bytes":"x"}`},
	} {
		_, err := r.engine.Submit(t.Context(), gq.Spec{Queue: matchmaker.DefaultQueue, Type: "AI", Policy: gq.PresetAI.Policy(), Attributes: attributes})
		if err != nil {
			t.Fatalf("a job that asks for %s: %v", name, err)
		}
	}
	r.equal("with jobs that wait")

	given := r.round(7)
	r.equal("with leases")
	var all int // jobs that take part in no round count too
	if err := r.conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM gq.live) + (SELECT count(*) FROM gq.done)").Scan(&all); err != nil || all != len(r.jobs)+4 {
		t.Errorf("there are %d jobs, want %d: %v", all, len(r.jobs)+4, err)
	}
	var runs int
	if err := r.conn.QueryRow(t.Context(), "SELECT count(*) FROM gq_scheduler.scheduler_job_runs").Scan(&runs); err != nil || runs != 0 {
		t.Errorf("the scheduler's view has %d jobs of matching: %v", runs, err)
	}
	for _, job := range []string{done, renewed, failed, refused} {
		r.verb(given[job], "ack", "{}")
	}
	r.verb(given[renewed], "renew", "{}")
	r.verb(given[done], "complete", `{"output_digest":"`+strings.Repeat("ab", 32)+`"}`)
	r.verb(given[failed], "fail", `{"reason":"out of memory"}`)
	r.verb(given[declined], "decline", "{}")
	id, err := gq.ParseJobID(cancelled)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.engine.Cancel(t.Context(), id, "enough"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.engine.Fail(t.Context(), gq.LeaseRef{ID: gq.LeaseID(given[refused])}, gq.Failure{Category: gq.CategoryPermanent, Code: "bad_input"}); err != nil {
		t.Fatal(err)
	}
	r.later(130 * time.Second)    // silent is not acknowledged, failed may run again
	r.later(20*time.Second, "p1") // silent may run again too
	r.submit(`{"kind":"QUANTUM","units":2}`)
	given = r.round(3) // and the provider's account is written
	r.verb(given[failed], "ack", "{}")
	r.verb(given[silent], "ack", "{}")
	r.equal("with second attempts")

	r.later(time.Minute, "p1") // failed has outlived its own lifetime
	r.register("p2")
	r.must("POST", "/beacon", `{"chain_id":"c","epoch_id":8,"block_height":2,"beacon":"bb"}`)
	r.must("PUT", "/policy", `{"priority":{"w_fee_ppb":1,"w_size_ppb":900000000,"tiers":{"PRO":5}},"lease":{"ai_secs":500,"renew_alpha":0.123456789}}`)
	r.submit(`{"kind":"AI","size_bytes":1000000,"units":9}`)
	r.must("POST", "/providers/p1/status", `{"status":"JAILED","reason":"audit"}`)
	for _, lease := range r.round(5) {
		r.verb(lease, "ack", "{}")
	}
	r.equal("under another policy, in another epoch, with a provider in jail")

	r.later(3*time.Hour, "p2") // every lease has expired, or its job has
	r.submit(`{"kind":"AI"}`)
	r.round(1)
	r.equal("with leases that ran out")
	for _, state := range []string{
		"jobs QUEUED", "jobs ASSIGNED", "jobs COMPLETED", "jobs FAILED", "jobs EXPIRED", "jobs CANCELLED",
		"leases ACTIVE", "leases RENEWED", "leases CANCELLED", "leases EXPIRED", "leases COMPLETED",
	} {
		if !r.seen[state] {
			t.Errorf("nothing was %s when it was compared: %v", state, slices.Collect(maps.Keys(r.seen)))
		}
	}

	r.later(2*24*time.Hour, "p2") // all jobs have ended
	r.equal("when all have ended")
	if n := len(r.table("jobs")); n != len(r.jobs) {
		t.Errorf("%d of %d jobs are kept", n, len(r.jobs))
	}
	r.later(8*24*time.Hour, "p2")
	r.must("PUT", "/policy", `{"ack_timeout_ms":5000,"lease":{"ai_secs":600,"renew_alpha":0.6}}`) // the settings that are part of presets
	r.submit(`{"kind":"AI"}`)
	r.submit(`{"kind":"QUANTUM"}`)
	for _, lease := range r.round(2) {
		r.verb(lease, "ack", "{}")
	}
	r.equal("beyond the horizon")
	if n := len(r.table("jobs")); n != 2 {
		t.Errorf("%d jobs are told of beyond the horizon, want the newest two", n)
	}
}

// TestJobIndex checks that rounds take jobs in the order of the index and by it, without
// searching the waiting jobs. A test of store/postgres checks its plan.
func TestJobIndex(t *testing.T) {
	spec.Covers(t, "M-117")
	set := match.DefaultSettings()
	set.BatchSize, set.Starvation.Every, set.AckTimeout = 5, 0, 120_000
	// Nothing else decides whether rounds use the index: no lock of autovacuum, and no slow machine.
	r := newReportsAt(t, pgtest.Own(t, "autovacuum=off").Database(t), set)
	r.store.LimitJobIndex(time.Hour, time.Hour)
	for i := range 30 {
		kind := "AI"
		if i%3 == 0 {
			kind = "QUANTUM"
		}
		r.submit(`{"kind":%q,"max_fee":%d,"size_bytes":%d,"requester":"r%d"}`, kind, 1000*(i*7%30), 100_000*(i*11%30), i%4)
	}
	r.must("POST", "/providers", strings.Replace(fmt.Sprintf(provider, "p1"), `"AI",`, "", 1)) // it serves QUANTUM
	r.equal("before the first round")
	lists := r.store.lists.Load()
	for waiting := 10; waiting > 0; waiting -= 5 {
		var first []object
		for _, row := range r.table("job_index") {
			if row["kind"] == "QUANTUM" && row["state"] == "QUEUED" {
				first = append(first, row)
			}
		}
		if len(first) != waiting {
			t.Fatalf("%d jobs wait, want %d", len(first), waiting)
		}
		given := r.round(5)
		cached := make(map[float64]bool)
		for job := range given {
			cached[r.must("GET", "/jobs/"+job, "")["priority_cache"].(float64)] = true
		}
		for _, row := range first[:5] {
			if !cached[row["priority_cache"].(float64)] {
				t.Errorf("a round took %v, not %v, which is among the first five of %v", cached, row, first)
			}
		}
	}
	if n := r.store.lists.Load() - lists; n > 0 {
		t.Errorf("jobs were listed %d times by rounds", n)
	}
	if n := r.store.indexed.Load(); n != 2 {
		t.Errorf("two rounds read the index %d times", n)
	}
	r.must("PUT", "/policy", `{"priority":{"w_fee_ppb":0,"w_age_ppb":0}}`) // other weights make another index
	r.register("p2")
	given := r.round(5)
	var first []object
	for _, row := range r.table("jobs") {
		if row["state"] == "QUEUED" || given[row["id"].(string)] != "" {
			first = append(first, row)
		}
	}
	slices.SortFunc(first, func(a, b object) int {
		return cmp.Or(
			cmp.Compare(b["priority_cache"].(float64), a["priority_cache"].(float64)), cmp.Compare(a["enqueue_ts"].(float64), b["enqueue_ts"].(float64)),
			strings.Compare(a["id"].(string), b["id"].(string)),
		)
	})
	for _, row := range first[:5] {
		if given[row["id"].(string)] == "" {
			t.Errorf("under another policy a round did not take %v, which is among the first five of %v", row, first)
		}
	}
	if n := r.store.indexed.Load(); n != 3 {
		t.Errorf("three rounds read the index %d times", n)
	}
	r.equal("after three rounds")
	// What the index says counts: with another order other jobs are taken.
	r.store.backwards.Store(true)
	given = r.round(5)
	for _, row := range first[10:15] { // five were taken, and it reads the next ten
		if given[row["id"].(string)] == "" {
			t.Errorf("with an index that runs backwards a round took %v, and not %v", given, row)
		}
	}
}

// The view of leases runs no procedural code per commit, however many jobs a commit has
// and however many leases are queried.
func TestLeasesViewReadsEachCommitOnce(t *testing.T) {
	set := match.DefaultSettings()
	set.AckTimeout, set.Eligibility.HeartbeatTimeout = 50_000, 100_000
	set.Quotas.LeasesMax, set.Quotas.AIUnitsPerEpoch, set.Quotas.RequesterMax = 1000, 1_000_000, 10_000
	r := newReports(t, set)
	r.register("p1")
	const jobs = 60
	for range jobs {
		r.must("POST", "/jobs", `{"kind":"AI"}`)
	}
	for given := 0; given < jobs; {
		n := len(r.must("POST", "/rounds", "")["assignments"].([]any))
		if n == 0 {
			t.Fatalf("%d of %d jobs were assigned", given, jobs)
		}
		given += n
	}
	rows, calls, segments := 0, 0, 0
	err := pgx.BeginFunc(t.Context(), r.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL track_functions = 'all'"); err != nil {
			return err
		}
		if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM (SELECT * FROM gq_matching.leases OFFSET 0) AS v").Scan(&rows); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), `SELECT (SELECT coalesce(sum(f.calls), 0)::integer FROM pg_stat_xact_user_functions AS f JOIN pg_proc AS p ON p.oid = f.funcid JOIN pg_language AS l ON l.oid = p.prolang WHERE l.lanname = 'plpgsql'), (SELECT count(*) FROM gq.segment)`).Scan(&calls, &segments)
	})
	if err != nil {
		t.Fatal(err)
	}
	if rows != jobs || calls > segments {
		t.Errorf("%d leases of %d jobs: %d commits, and %d calls of PL/pgSQL functions", rows, jobs, segments, calls)
	}
}

// A lease of a job that took the place of another one has the attempts of both, in the table and on the face.
func TestTablesOfJobsPutOff(t *testing.T) {
	set := match.DefaultSettings()
	set.AckTimeout = 120_000
	r := newReports(t, set)
	r.must("POST", "/beacon", `{"chain_id":"c","epoch_id":7,"block_height":1,"beacon":"aa"}`)
	r.register("p1")
	two := []string{r.submit(`{"kind":"AI"}`), r.submit(`{"kind":"AI","max_fee":3}`)}
	given := r.round(2)
	for _, job := range two {
		r.verb(given[job], "ack", "{}")
		r.verb(given[job], "fail", `{"reason":"out of memory"}`)
	}
	r.later(5*time.Minute, "p1")
	for i, job := range two {
		id, err := gq.ParseJobID(job)
		if err != nil {
			t.Fatal(err)
		}
		next, err := r.engine.Reschedule(t.Context(), id, r.clock.Now().Add(time.Minute))
		if err != nil || next.ID == id {
			t.Fatalf("put off: %+v, %v", next, err)
		}
		two[i] = next.ID.String()
		r.jobs = append(r.jobs, two[i])
	}
	r.later(2*time.Minute, "p1")
	given = r.round(2)
	r.equal("with leases of jobs that were put off")
	for i, verb := range []string{"complete", "fail"} {
		r.verb(given[two[i]], "ack", "{}")
		r.verb(given[two[i]], verb, map[string]string{"fail": `{"reason":"out of memory"}`, "complete": `{"output_digest":"` + strings.Repeat("ab", 32) + `"}`}[verb])
	}
	r.equal("after they have ended")
	for _, job := range two {
		if got := r.must("GET", "/leases/"+given[job], "")["attempt"]; got != 1.0 {
			t.Errorf("the lease has attempt %v, want 1", got)
		}
	}
}
