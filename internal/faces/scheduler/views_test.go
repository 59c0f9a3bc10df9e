package scheduler

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
)

// movable is a clock that tests advance.
type movable struct{ ahead atomic.Int64 }

func (c *movable) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// factColumns are the specified tables, key first.
var factColumns = map[string][]string{
	"scheduler_job_runs": {
		"job_id", "addon_id", "job_type", "priority", "cost_units", "state", "attempts", "created_at", "started_at", "finished_at",
		"claimed_by", "lease_id", "final_status", "error_text", "result_json", "metrics_json",
	},
	"scheduler_lease_runs": {
		"lease_id", "job_id", "addon_id", "cost_units", "ttl_sec", "granted_at", "last_heartbeat_at", "released_at", "expires_at",
		"state", "release_status",
	},
	"scheduler_events": {"id", "ts", "entity_type", "entity_id", "event_type", "data_json"},
}

// TestFactTables reads the facts with SQL and compares them with the face's responses,
// row by row, after jobs have gone through every transition.
func TestFactTables(t *testing.T) {
	spec.Covers(t, "S-114", "S-115", "S-116", "S-117", "S-118", "S-119", "S-120", "S-122", "S-123", "S-124", "S-126", "S-127")
	url := pgtest.Database(t)
	clock := &movable{}
	s, err := postgres.Open(t.Context(), url, store.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	f := over(t, s, Options{Requeue: true})

	table := func(name string) map[string]object {
		t.Helper()
		rows, err := conn.Query(t.Context(), "SELECT to_jsonb(v) FROM gq_scheduler."+name+" AS v")
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out := make(map[string]object)
		for _, text := range texts {
			d := json.NewDecoder(strings.NewReader(text))
			d.UseNumber()
			var row object
			if err := d.Decode(&row); err != nil {
				t.Fatal(err)
			}
			if got, want := slices.Sorted(maps.Keys(row)), slices.Sorted(slices.Values(factColumns[name])); !slices.Equal(got, want) {
				t.Fatalf("%s has the columns %v, want %v", name, got, want)
			}
			key := text[:0]
			switch k := row[factColumns[name][0]].(type) {
			case string:
				key = k
			case json.Number:
				key = k.String()
			}
			if out[key] != nil {
				t.Errorf("%s has two rows for %s", name, key)
			}
			out[key] = plainStamps(t, row)
		}
		return out
	}
	compare := func(when string) {
		t.Helper()
		// Events first: reading them makes the store number what was committed, and only
		// then do the views list an event and its lease.
		for _, path := range []string{"events", "job_runs", "lease_runs"} {
			name := "scheduler_" + path
			answered := make(map[string]object)
			for _, row := range f.list("/facts/"+path+"?limit=100", path) {
				key, is := row[factColumns[name][0]].(string)
				if !is {
					key = row[factColumns[name][0]].(json.Number).String()
				}
				answered[key] = plainStamps(t, row)
			}
			selected := table(name)
			for key, row := range answered {
				if !reflect.DeepEqual(selected[key], row) {
					t.Errorf("%s: %s has\n%v\nand the face answers\n%v", when, name, selected[key], row)
				}
			}
			if len(answered) == 0 || len(selected) != len(answered) {
				t.Errorf("%s: %s has %d rows and the face answers %d", when, name, len(selected), len(answered))
			}
		}
	}

	for _, state := range jobStateNames() {
		job, lease := f.in(state)
		if state == stateClaimed || state == statePreparing || state == stateLeasePending {
			f.post("/jobs/"+job+"/cancel", nil) // otherwise the next one claims it
		}
		if state == stateQueued {
			f.claim()
			f.post("/jobs/"+job+"/cancel", object{"reason": "enough"})
		}
		if lease != "" && state == stateRunning {
			f.post("/lease/"+lease+"/heartbeat", object{"job_id": job, "worker_id": worker})
		}
	}
	compare("after one in every state")

	f.do(http.MethodPut, "/admin/capacity", object{"total": 80}, http.StatusOK)
	dear := id(f.submit("cost_units", 81))
	f.claim()
	f.denied(dear)
	f.denied(dear)
	compare("with a denied lease")
	f.do(http.MethodPut, "/admin/capacity", object{"total": 79}, http.StatusOK)
	f.denied(dear)
	compare("with another denied lease")
	f.denied(dear)
	f.denied(dear)
	compare("with three denials")
	f.post("/jobs/"+dear+"/cancel", object{"reason": "too dear"})
	compare("after denials")
	var counts []any
	for _, e := range f.list("/jobs/"+dear+"/events", "events") {
		if e["type"] == "LEASE_DENIED" {
			counts = append(counts, int(number(member(e, "data")["count"])))
		}
	}
	if !reflect.DeepEqual(counts, []any{2, 3}) {
		t.Errorf("the denials were counted as %v", counts)
	}

	job := id(f.submit("priority", "URGENT", "cost_units", 2))
	f.claim()
	lease, _ := f.lease(job)["lease_id"].(string)
	f.do(http.MethodPost, "/lease/"+lease+"/release", object{
		"job_id": job, "worker_id": worker, "status": "SUCCEEDED",
		"result_data": object{"frames": 3, "parts": []any{"a", nil}}, "metrics": object{"runtime_ms": 12.5},
	}, http.StatusOK)
	for _, warning := range []any{"2 of 35 frames were skipped", "", nil} {
		job, lease := f.running()
		f.release(job, lease, "SUCCEEDED", "error", warning, "result_data", object{"frames": 3})
	}
	compare("after successes with warnings")
	waiting := id(f.submit("addon_id", "late", "cost_units", 1, "priority", "LOW"))
	f.claim("addon_id", "late")
	f.lease(waiting)
	compare("with one that runs")
	clock.ahead.Add(int64(time.Hour)) // and it expires
	compare("with one that ran out")
	clock.ahead.Add(int64(time.Hour)) // until its backoff ends
	f.claim("addon_id", "late")
	compare("with one that ran out and was claimed again")
	second, _ := f.lease(waiting)["lease_id"].(string)
	compare("with two leases")
	f.release(waiting, second, "FAILED")
	for range 2 {
		job, lease := f.running("addon_id", "late")
		f.post("/lease/"+lease+"/cancel", nil)
		if next, err := f.engine.Reschedule(t.Context(), parse(t, job), clock.Now().Add(time.Hour)); err != nil || next.ID.String() == job {
			t.Fatalf("put off: %+v, %v", next, err)
		}
	}
	compare("with jobs that were put off")
	clock.ahead.Add(int64(time.Hour))
	f.lease(id(f.claim("addon_id", "late")))
	compare("at the end")
}

// plainStamps parses times, which SQL and the face format differently.
func plainStamps(t testing.TB, row object) object {
	t.Helper()
	out := maps.Clone(row)
	for name, value := range row {
		if text, is := value.(string); is && (strings.HasSuffix(name, "_at") || name == "ts") {
			at, err := time.Parse(time.RFC3339Nano, text)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = at.UTC().Format(time.RFC3339Nano)
		}
	}
	return out
}

// The view of leases runs no procedural code per commit, however many jobs a commit has,
// and lists only jobs of addons, as the face does.
func TestLeaseRunsReadEachCommitOnce(t *testing.T) {
	url := pgtest.Database(t)
	s, err := postgres.Open(t.Context(), url, store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	f := over(t, s, Options{Capacity: units(gq.MaxCapacity)})
	addon, _ := f.submit()["addon_id"].(string)
	const jobs = 100
	for _, queue := range []string{addon, "foreign"} {
		specs := make([]gq.Spec, jobs)
		for i := range specs {
			specs[i] = gq.Spec{Queue: queue, Type: "t"}
		}
		if _, err := f.engine.SubmitBatch(t.Context(), specs); err != nil {
			t.Fatal(err)
		}
		for claimed := 0; claimed < jobs; {
			got, err := f.engine.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{queue}, N: jobs, Wait: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			claimed += len(got)
		}
	}
	if _, err := f.engine.LastEvent(t.Context()); err != nil { // numbers the events
		t.Fatal(err)
	}
	rows, runs, foreign, calls, segments := 0, 0, 0, 0, 0
	err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SET LOCAL track_functions = 'all'"); err != nil {
			return err
		}
		if err := tx.QueryRow(t.Context(), "SELECT count(*), count(*) FILTER (WHERE addon_id = 'foreign') FROM (SELECT * FROM gq_scheduler.scheduler_lease_runs OFFSET 0) AS v").Scan(&rows, &foreign); err != nil {
			return err
		}
		if err := tx.QueryRow(t.Context(), `SELECT (SELECT coalesce(sum(f.calls), 0)::integer FROM pg_stat_xact_user_functions AS f JOIN pg_proc AS p ON p.oid = f.funcid JOIN pg_language AS l ON l.oid = p.prolang WHERE l.lanname = 'plpgsql'), (SELECT count(*) FROM gq.segment)`).Scan(&calls, &segments); err != nil {
			return err
		}
		return tx.QueryRow(t.Context(), "SELECT count(*) FROM gq_scheduler.scheduler_job_runs").Scan(&runs)
	})
	if err != nil {
		t.Fatal(err)
	}
	if rows < jobs || foreign > 0 || calls > segments {
		t.Errorf("%d leases, %d of them foreign: %d commits, and %d calls of PL/pgSQL functions", rows, foreign, segments, calls)
	}
	if runs != jobs+1 {
		t.Errorf("%d jobs of addons, want %d", runs, jobs+1)
	}
}
