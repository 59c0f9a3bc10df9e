package scheduler

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

func parse(t testing.TB, job string) gq.JobID {
	t.Helper()
	id, err := gq.ParseJobID(job)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func types(events []object, name string) (all []string) {
	for _, e := range events {
		s, _ := e[name].(string)
		all = append(all, s)
	}
	return all
}

func tellEvents(f *fixture) {
	job := id(f.submit("priority", "HIGH"))
	path := "/jobs/" + job + "/events"
	if got := f.list(path, "events"); len(got) != 1 || got[0]["type"] != "JOB_SUBMITTED" || member(got[0], "data")["priority"] != "HIGH" {
		f.Errorf("after a submission the events are %v", got)
	}
	f.sleep(tick)
	f.claim()
	f.post("/jobs/"+job+"/status", object{"state": "PREPARING"})
	f.sleep(tick)
	f.post("/jobs/"+job+"/cancel", nil)
	for _, state := range []string{stateDone, stateFailed, stateTimeout, stateCanceled, stateRunning} {
		var other string
		if state == stateRunning {
			other, _ = f.runningFor(f.brief())
			f.sleep(f.brief())
			f.is(other, stateTimeout)
		} else {
			other, _ = f.in(state)
		}
		got := types(f.list("/jobs/"+other+"/events", "events"), "type")
		end := map[string][]string{
			stateDone: {"LEASE_RELEASED", "JOB_DONE"}, stateFailed: {"LEASE_RELEASED", "JOB_FAILED"}, stateTimeout: {"LEASE_RELEASED", "JOB_TIMEOUT"},
			stateRunning: {"LEASE_EXPIRED", "JOB_TIMEOUT"}, stateCanceled: {"JOB_CANCELED"},
		}[state]
		want := slices.Concat([]string{"JOB_SUBMITTED", "JOB_CLAIMED", "JOB_LEASE_PENDING", "LEASE_GRANTED", "JOB_RUNNING"}, end)
		if state == stateCanceled {
			want = slices.Concat(want[:1], end)
		}
		if !slices.Equal(got, want) {
			f.Errorf("a job that ended %s has the events %v, want %v", state, got, want)
		}
	}
	events := f.list(path, "events")
	if got, want := types(events, "type"), []string{"JOB_SUBMITTED", "JOB_CLAIMED", "JOB_PREPARING", "JOB_CANCELED"}; !slices.Equal(got, want) {
		f.Errorf("the events are %v, want %v", got, want)
	}
	if member(events[1], "data")["worker_id"] != worker {
		f.Errorf("the claim is %v", events[1])
	}
	var last time.Time
	for _, e := range events {
		f.hasKeys("an event", e, "ts", "type", "data")
		if _, is := e["data"].(object); !is {
			f.Errorf("the data of %v is no object", e)
		}
		ts := instant(f.TB, e["ts"])
		if ts.Before(last) {
			f.Errorf("%v comes behind %v", ts, last)
		}
		last = ts
	}
	f.hasKeys("the answer", f.get(path), "events")
}

// Every type of event is handled here, if only by being ignored.
func TestEventsTotal(t *testing.T) {
	for _, typ := range enum.All[gq.EventType]() {
		for _, lease := range []gq.LeaseState{0, gq.LeaseActive, gq.LeaseCompleted, gq.LeaseExpired, gq.LeaseCancelled} {
			e := gq.Event{Seq: 7, Type: typ, Status: gq.StatusRunning, LeaseState: lease, Detail: gq.DetailPreparing}
			if lease != 0 {
				e.Lease = "lease"
			}
			ids := map[uint64]bool{}
			for _, v := range entriesOf(&e) {
				if v.typ == "" || v.data == nil || ids[v.id] || v.id/2 != 7 {
					t.Errorf("%s with lease %s: %+v", typ, lease, v)
				}
				ids[v.id] = true
				if !strings.HasPrefix(string(v.typ), v.about+"_") || !slices.Contains(eventTypes(), string(v.typ)) {
					t.Errorf("%s is about a %s, or not listed", v.typ, v.about)
				}
			}
		}
	}
}

// The API's description lists every type of event, and no other.
func TestEventTypesAreListed(t *testing.T) {
	denial := machine.Denial{Used: 1, Requested: 2, Capacity: 2, Count: 1}
	timeout := &gq.Failure{Category: gq.CategoryTimeout}
	events := []gq.Event{
		{Type: gq.EventSubmitted}, {Type: gq.EventScheduled, Lease: "lease"}, {Type: gq.EventClaimed, Lease: "lease"}, {Type: gq.EventRenewed, Lease: "lease"},
		{Type: gq.EventPreparing, Status: gq.StatusClaimed, Detail: gq.DetailPreparing}, {Type: gq.EventPreparing, Status: gq.StatusClaimed, Detail: gq.DetailLeasePending},
		{Type: gq.EventStarted, Lease: "lease"}, {Type: gq.EventRetrying, Lease: "lease", LeaseState: gq.LeaseExpired, Elapsed: 1}, {Type: gq.EventCompleted, Lease: "lease", LeaseState: gq.LeaseCompleted, Elapsed: 1},
		{Type: gq.EventFailed, Status: gq.StatusFailed}, {Type: gq.EventFailed, Status: gq.StatusFailed, Failure: timeout}, {Type: gq.EventCancelled},
		{Type: gq.EventCancelRequested}, {Type: gq.EventCancelDelivered}, {Type: gq.EventUpdated}, {Type: gq.EventUpdated, Reason: denial.String()},
	}
	made := map[string]bool{}
	for i := range events {
		for _, v := range entriesOf(&events[i]) {
			made[string(v.typ)] = true
		}
	}
	if got, want := slices.Sorted(maps.Keys(made)), slices.Sorted(slices.Values(eventTypes())); !slices.Equal(got, want) {
		t.Errorf("events have the types\n%v, the description lists\n%v", got, want)
	}
}

func tellJobRuns(f *fixture) {
	row := func(job string) object {
		f.Helper()
		var mine []object
		for _, r := range f.list("/facts/job_runs?limit=2", "job_runs") {
			if r["job_id"] == job {
				mine = append(mine, r)
			}
		}
		if len(mine) != 1 {
			f.Fatalf("job %s has %d rows", job, len(mine))
		}
		f.hasKeys("a row of job_runs", mine[0], "job_id", "addon_id", "job_type", "priority", "cost_units", "state", "attempts", "created_at",
			"started_at", "finished_at", "claimed_by", "lease_id", "final_status", "error_text", "result_json", "metrics_json")
		return mine[0]
	}
	want := func(r object, want map[string]any) {
		f.Helper()
		for name, v := range want {
			if got := r[name]; !reflect.DeepEqual(got, f.decoded(v)) {
				f.Errorf("%s is %#v, want %#v", name, got, v)
			}
		}
	}
	f.submit("addon_id", "other")
	f.submit("addon_id", "other")
	j := f.submit("priority", "URGENT")
	job := id(j)
	r := row(job)
	want(r, map[string]any{
		"addon_id": "visuals", "job_type": "load30", "priority": "URGENT", "cost_units": 30, "state": "QUEUED", "attempts": 0, "created_at": j["created_at"],
		"started_at": nil, "finished_at": nil, "claimed_by": nil, "lease_id": nil, "final_status": nil, "error_text": nil, "result_json": nil, "metrics_json": nil,
	})
	f.claim()
	want(row(job), map[string]any{"state": "CLAIMED", "claimed_by": worker, "lease_id": nil, "started_at": nil})
	first := f.lease(job, "ttl_sec", seconds(f.brief()))
	want(row(job), map[string]any{"state": "RUNNING", "attempts": 1, "lease_id": first["lease_id"], "started_at": first["granted_at"], "final_status": nil})
	f.sleep(f.brief())
	want(row(job), map[string]any{"state": "QUEUED", "attempts": 1, "lease_id": first["lease_id"], "finished_at": nil, "claimed_by": nil})
	f.claim("worker_id", "second")
	want(row(job), map[string]any{"state": "CLAIMED", "claimed_by": "second", "lease_id": first["lease_id"]})
	second := f.lease(job)
	lease, _ := second["lease_id"].(string)
	f.sleep(tick)
	metrics := object{"runtime_ms": 41234, "peak_mem_mb": 2870, "load": 0.25, "node": "7", "warm": true, "deep": object{"a": []any{1, "2", nil}}}
	f.post("/lease/"+lease+"/release", holding(job, "worker_id", "second", "status", "SUCCEEDED", "result_data", object{"path": "x"}, "metrics", metrics))
	r = row(job)
	want(r, map[string]any{
		"state": "DONE", "attempts": 2, "lease_id": lease, "claimed_by": "second", "started_at": second["granted_at"], "final_status": "SUCCEEDED", "error_text": nil,
	})
	if !reflect.DeepEqual(member(r, "result_json"), object{"path": "x"}) || !reflect.DeepEqual(r["metrics_json"], f.decoded(metrics)) {
		f.Errorf("result %v, metrics %#v", r["result_json"], r["metrics_json"])
	}
	if instant(f.TB, r["finished_at"]).Sub(instant(f.TB, r["started_at"])) < tick {
		f.Errorf("started %v, finished %v", r["started_at"], r["finished_at"])
	}
	failed, lease := f.running("addon_id", "third")
	f.release(failed, lease, "FAILED", "error", "disk full")
	want(row(failed), map[string]any{"state": "FAILED", "final_status": "FAILED", "error_text": "disk full", "result_json": nil, "metrics_json": nil})
	if got := f.list("/facts/job_runs?addon_id=other", "job_runs"); len(got) != 2 {
		f.Errorf("the addon has %d rows, want 2", len(got))
	}
	for _, cursor := range []string{"x", "zz", "1"} {
		f.refused(http.MethodGet, "/facts/job_runs?cursor="+cursor, nil, http.StatusBadRequest, CodeInvalidCursor)
	}
	f.refused(http.MethodGet, "/facts/job_runs?state=QUEUED", nil, http.StatusBadRequest, CodeInvalidRequest)
}

func tellLeaseRuns(f *fixture) {
	job := id(f.submit())
	var leases []string
	ttls := []int64{seconds(f.brief()), seconds(f.brief()), 600}
	for i := range 3 { // all but the last expire
		f.claim()
		l := f.lease(job, "ttl_sec", ttls[i])
		leases = append(leases, fmt.Sprint(l["lease_id"]))
		f.sleep(tick)
		f.beat(job, leases[i])
		if i < 2 {
			f.sleep(f.brief())
			f.is(job, "QUEUED")
		}
	}
	f.submit() // has none
	other, last := f.running("addon_id", "audio", "cost_units", 7)
	f.sleep(tick)
	f.release(other, last, "CANCELED")
	rows := f.list("/facts/lease_runs?limit=2", "lease_runs")
	if got, want := types(rows, "lease_id"), append(slices.Clone(leases), last); !slices.Equal(got, want) {
		f.Fatalf("the leases are %v, want %v", got, want)
	}
	for i, r := range rows[:3] {
		f.hasKeys("a row of lease_runs", r, "lease_id", "job_id", "addon_id", "cost_units", "ttl_sec", "granted_at", "last_heartbeat_at",
			"released_at", "expires_at", "state", "release_status")
		state := "EXPIRED"
		if i == 2 {
			state = "ACTIVE"
		}
		granted, beat := instant(f.TB, r["granted_at"]), instant(f.TB, r["last_heartbeat_at"])
		if r["job_id"] != job || r["addon_id"] != "visuals" || number(r["cost_units"]) != 30 || number(r["ttl_sec"]) != ttls[i] || r["state"] != state ||
			r["released_at"] != nil || r["release_status"] != nil || beat.Sub(granted) < tick || instant(f.TB, r["expires_at"]).Sub(beat) != time.Duration(ttls[i])*time.Second {
			f.Errorf("lease %d is %v", i, r)
		}
	}
	r := rows[3]
	if r["state"] != "RELEASED" || r["release_status"] != "CANCELED" || instant(f.TB, r["released_at"]).Sub(instant(f.TB, r["granted_at"])) < tick {
		f.Errorf("a released lease is %v", r)
	}
	for _, r := range rows { // no lease without its job
		f.job(fmt.Sprint(r["job_id"]))
	}
	for _, cursor := range []string{"x", "zz", "e30", "eyJqIjoiYWJjIn0"} {
		f.refused(http.MethodGet, "/facts/lease_runs?cursor="+cursor, nil, http.StatusBadRequest, CodeInvalidCursor)
	}
}

func tellAudit(f *fixture) {
	job, lease := f.running("priority", "LOW")
	before := f.list("/facts/events", "events")
	f.release(job, lease, "SUCCEEDED")
	f.in(stateCanceled)
	rows := f.list("/facts/events?limit=3", "events")
	if !reflect.DeepEqual(rows[:len(before)], before) {
		f.Errorf("the rows %v became %v", before, rows)
	}
	last := int64(0)
	for i, r := range rows {
		f.hasKeys("a row of events", r, "id", "ts", "entity_type", "entity_id", "event_type", "data_json")
		if n := number(r["id"]); n <= last {
			f.Errorf("row %d has the id %d, behind %d", i, n, last)
		} else {
			last = n
		}
		if _, is := r["data_json"].(object); !is || instant(f.TB, r["ts"]).IsZero() || r["event_type"] == "" {
			f.Errorf("row %d is %v", i, r)
		}
		switch r["entity_type"] {
		case "JOB":
		case "LEASE":
			if r["entity_id"] != lease || member(r, "data_json")["job_id"] != job {
				f.Errorf("row %d is %v", i, r)
			}
		default:
			f.Errorf("row %d is about %v", i, r["entity_type"])
		}
	}
	want := []string{
		"JOB_SUBMITTED", "JOB_CLAIMED", "JOB_LEASE_PENDING", "LEASE_GRANTED", "JOB_RUNNING", "LEASE_RELEASED", "JOB_DONE",
		"JOB_SUBMITTED", "JOB_CANCELED",
	}
	if got := types(rows, "event_type"); !slices.Equal(got, want) {
		f.Errorf("the events are %v, want %v", got, want)
	}
	if got := member(rows[0], "data_json")["priority"]; got != "LOW" {
		f.Errorf("the submission's priority is %v", got)
	}
	// Reading can continue after any row.
	for i, r := range rows {
		page := f.get(fmt.Sprintf("/facts/events?limit=1&cursor=%v", r["id"]))
		got, _ := page["events"].([]any)
		if i+1 < len(rows) && (len(got) != 1 || !reflect.DeepEqual(got[0], any(rows[i+1]))) || i+1 == len(rows) && len(got) != 0 {
			f.Errorf("behind row %d comes %v", i, got)
		}
	}
	f.refused(http.MethodGet, "/facts/events?cursor=x", nil, http.StatusBadRequest, CodeInvalidCursor)
	f.refused(http.MethodGet, "/facts/events?limit=0", nil, http.StatusBadRequest, CodeInvalidRequest)
}

func tellList(f *fixture) {
	byState := map[string]string{}
	for _, s := range jobStateNames() {
		if s != stateQueued {
			byState[s], _ = f.in(s)
		}
	}
	byState[stateQueued], _ = f.in(stateQueued)
	for state, job := range byState {
		for _, limit := range []string{"1", "200"} {
			got := f.list("/jobs?limit="+limit+"&state="+state, "jobs")
			if len(got) != 1 || id(got[0]) != job || got[0]["state"] != state {
				f.Errorf("state %s lists %v, want %s", state, got, job)
			}
		}
	}
	page := f.get("/jobs")
	f.hasKeys("a page", page, "jobs", "next_cursor")
	if all, _ := page["jobs"].([]any); len(all) != 9 || page["next_cursor"] != nil {
		f.Errorf("all jobs are %d, next %v", len(all), page["next_cursor"])
	}
	f.sleep(tick)
	var times []string
	var ids []string
	for range 5 {
		j := f.submit("addon_id", "audio", "payload", object{"n": 1})
		times, ids = append(times, fmt.Sprint(j["created_at"])), append(ids, id(j))
		f.sleep(tick)
	}
	audio := f.list("/jobs?addon_id=audio&limit=2", "jobs")
	got := types(audio, "job_id")
	slices.Reverse(got)
	if !slices.Equal(got, ids) {
		f.Errorf("the addon's jobs are %v, want %v", got, ids)
	}
	for _, j := range audio {
		f.hasKeys("a listed job", j, intentKeys...)
		if member(j, "payload")["n"] == nil {
			f.Errorf("a listed job has the payload %v", j["payload"])
		}
	}
	page = f.get("/jobs?addon_id=audio&limit=2")
	if got, _ := page["jobs"].([]any); len(got) != 2 || page["next_cursor"] == nil {
		f.Errorf("a page of 2 has %d jobs, next %v", len(got), page["next_cursor"])
	}
	window := f.list("/jobs?created_after="+times[1]+"&created_before="+times[3], "jobs")
	if got := types(window, "job_id"); !slices.Equal(got, []string{ids[2], ids[1]}) {
		f.Errorf("from %s until %s: %v, want %v", times[1], times[3], got, ids[1:3])
	}
	for _, query := range []string{
		"limit=0", "limit=201", "limit=x", "limit=-1", "state=SLEEPING", "state=", "created_after=yesterday", "created_before=1", "addon_id=a%20b",
		"x=1", "limit=1&limit=2", "addon_id=%zz",
	} {
		f.refused(http.MethodGet, "/jobs?"+query, nil, http.StatusBadRequest, CodeInvalidRequest)
	}
	for _, cursor := range []string{"nonsense!", "abc", "1", "zz"} {
		f.refused(http.MethodGet, "/jobs?cursor="+cursor, nil, http.StatusBadRequest, CodeInvalidCursor)
	}
}

// A list is current: expired claims and leases are listed as such, although no sweep ran.
func tellListIsCurrent(f *fixture) {
	job, _ := f.runningFor(f.brief())
	held := id(f.submit())
	f.claim()
	f.sleep(f.brief())
	if got := f.list("/jobs?state=RUNNING", "jobs"); len(got) != 0 {
		f.Errorf("running are %v", got)
	}
	if got := f.list("/jobs?state=TIMEOUT", "jobs"); len(got) != 1 || id(got[0]) != job {
		f.Errorf("timed out are %v, want %s", got, job)
	}
	if got := f.list("/jobs?state=QUEUED", "jobs"); len(got) != 1 || id(got[0]) != held {
		f.Errorf("queued are %v, want %s", got, held)
	}
}

// The facts are about addons: they omit jobs of other interfaces, whose queues do not
// share the pool, without breaking pagination.
func TestFactsAreOfAddons(t *testing.T) {
	f := newFixture(t, Options{})
	for range 30 {
		if _, err := f.engine.Submit(t.Context(), gq.Spec{Type: "foreign", Queue: "native"}); err != nil {
			t.Fatal(err)
		}
	}
	own := id(f.submit())
	jobs, err := f.engine.Claim(t.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"native"}, N: 5})
	if err != nil || len(jobs) != 5 {
		t.Fatalf("%d jobs, %v", len(jobs), err)
	}
	if rows := f.list("/facts/job_runs?limit=10", "job_runs"); len(rows) != 1 || rows[0]["job_id"] != own {
		t.Errorf("job_runs: %v", rows)
	}
	if rows := f.list("/facts/lease_runs?limit=10", "lease_runs"); len(rows) != 0 {
		t.Errorf("lease_runs: %v", rows)
	}
	if rows := f.list("/facts/events?limit=10", "events"); len(rows) != 1 || rows[0]["entity_id"] != own {
		t.Errorf("events: %v", rows)
	}
}

// The last lease of a job that took the place of another one is that of the other until it runs itself, and every
// lease is listed once.
func TestFactsOfJobsPutOff(t *testing.T) {
	bubble(t, Options{Requeue: true}, func(f *fixture) {
		var olds, nexts, leases []string
		for _, end := range []func(lease string){
			func(string) { f.sleep(f.brief()) },
			func(lease string) { f.post("/lease/"+lease+"/cancel", nil) },
		} {
			job, lease := f.runningFor(f.brief())
			end(lease)
			f.is(job, stateQueued)
			next, err := f.engine.Reschedule(f.Context(), parse(f.TB, job), time.Now().Add(time.Hour))
			if err != nil || next.ID.String() == job {
				f.Fatalf("put off: %+v, %v", next, err)
			}
			olds, nexts, leases = append(olds, job), append(nexts, next.ID.String()), append(leases, lease)
		}
		check := func(when string, last []string, want ...string) {
			f.Helper()
			if got := types(f.list("/facts/lease_runs?limit=1", "lease_runs"), "lease_id"); !slices.Equal(got, want) {
				f.Errorf("%s: the leases are %v, want %v", when, got, want)
			}
			of := map[any]any{} // last lease by job
			for _, r := range f.list("/facts/job_runs?limit=1", "job_runs") {
				of[r["job_id"]] = r["lease_id"]
			}
			for i := range olds {
				if of[olds[i]] != leases[i] || of[nexts[i]] != last[i] {
					f.Errorf("%s: the last lease of job %d is %v, and of the one that took its place %v, want %s and %s", when, i, of[olds[i]], of[nexts[i]], leases[i], last[i])
				}
			}
		}
		check("put off", leases, leases...)
		f.sleep(time.Hour)
		runs := make([]string, len(nexts))
		for i := range nexts {
			if got := id(f.claim()); got != nexts[i] {
				f.Fatalf("claimed %s, want %s", got, nexts[i])
			}
			runs[i], _ = f.lease(nexts[i])["lease_id"].(string)
		}
		check("running again", runs, leases[0], runs[0], leases[1], runs[1])
	})
}

// A lease that was taken away from a job keeps its end when the job is cancelled later.
func TestLeaseEndsBeforeItsJob(t *testing.T) {
	bubble(t, Options{}, func(f *fixture) {
		for range 2 {
			job, lease := f.running()
			f.post("/lease/"+lease+"/cancel", nil)
			released := time.Now()
			f.sleep(tick)
			f.post("/jobs/"+job+"/cancel", nil)
			f.is(job, stateCanceled)
			rows := f.list("/facts/lease_runs", "lease_runs")
			if r := rows[len(rows)-1]; r["lease_id"] != lease || r["release_status"] != nil || !instant(f.TB, r["released_at"]).Equal(released.Truncate(time.Microsecond)) {
				f.Errorf("a lease that was released at %v is %v", released, r)
			}
		}
	})
}
