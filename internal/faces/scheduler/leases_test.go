package scheduler

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

var leaseKeys = []string{
	"lease_id", "job_id", "addon_id", "cost_units", "ttl_sec", "state", "granted_at", "last_heartbeat_at", "expires_at",
}

func tellLease(f *fixture) {
	job := id(f.submit())
	f.claim()
	f.sleep(tick)
	got := f.post("/lease/request", object{
		"job_id": job, "addon_id": "visuals", "job_type": "load30", "cost_units": 30, "priority": "NORMAL",
		"constraints": object{"cpu_heavy": true, "gpu_required": false}, "ttl_sec": 45,
	})
	f.hasKeys("an approval", got, "approved", "lease")
	lease := member(got, "lease")
	f.hasKeys("a lease", lease, leaseKeys...)
	leaseID, _ := lease["lease_id"].(string)
	if !uuid.MatchString(leaseID) || lease["job_id"] != job || lease["addon_id"] != "visuals" || lease["state"] != "ACTIVE" {
		f.Errorf("the lease is %v", lease)
	}
	if number(lease["cost_units"]) != 30 || number(lease["ttl_sec"]) != 45 {
		f.Errorf("the lease is %v", lease)
	}
	granted := instant(f.TB, lease["granted_at"])
	shown := f.job(job)
	if !granted.Equal(instant(f.TB, shown["updated_at"])) || instant(f.TB, lease["expires_at"]).Sub(granted) != 45*time.Second {
		f.Errorf("granted at %v until %v, and the job was updated at %v", granted, lease["expires_at"], shown["updated_at"])
	}
	if shown["state"] != "RUNNING" || shown["lease_id"] != leaseID || number(shown["attempts"]) != 1 || shown["next_retry_at"] != nil {
		f.Errorf("the job is %v", shown)
	}
	if read := f.get("/lease/" + leaseID); !reflect.DeepEqual(member(read, "lease"), lease) {
		f.Errorf("the lease reads %v, was %v", read, lease)
	}
	f.sleep(tick)
	result := member(f.release(job, leaseID, "SUCCEEDED"), "result")
	if result["started_at"] != lease["granted_at"] {
		f.Errorf("the run started at %v, the lease was granted at %v", result["started_at"], lease["granted_at"])
	}
}

func tellLeaseRequestInvalid(f *fixture) {
	job := id(f.submit())
	f.refused(http.MethodPost, "/lease/request", object{"job_id": job}, http.StatusConflict, CodeJobNotClaimed)
	f.claim()
	for _, body := range []any{
		object{},
		object{"job_id": "x"},
		object{"job_id": nil},
		object{"job_id": 7},
		``, `{`,
		object{"job_id": job, "ttl_sec": 0},
		object{"job_id": job, "ttl_sec": -1},
		object{"job_id": job, "ttl_sec": 86401},
		object{"job_id": job, "ttl_sec": "30"},
		object{"job_id": job, "cost_units": 0},
		object{"job_id": job, "priority": "SOON"},
		object{"job_id": job, "x": 1},
		// Requests that contradict the record.
		object{"job_id": job, "addon_id": "audio"},
		object{"job_id": job, "job_type": "other"},
		object{"job_id": job, "cost_units": 29},
		object{"job_id": job, "priority": "URGENT"},
		object{"job_id": job, "constraints": object{"cpu_heavy": false}},
		object{"job_id": job, "constraints": object{"cpu_heavy": true, "gpu_required": true}},
	} {
		f.refused(http.MethodPost, "/lease/request", body, http.StatusBadRequest, CodeInvalidRequest)
	}
	f.is(job, "CLAIMED")
	f.refused(http.MethodPost, "/lease/request", object{"job_id": "b5d4f3c2-1a0b-4c3d-8e9f-0a1b2c3d4e5f"}, http.StatusNotFound, CodeJobNotFound)
	f.refused(http.MethodPost, "/lease/request", object{"job_id": job, "worker_id": "other"}, http.StatusConflict, CodeWorkerMismatch)
	f.lease(job, "worker_id", worker)
	f.refused(http.MethodPost, "/lease/request", object{"job_id": job}, http.StatusConflict, CodeTransition)
}

func tellDenial(f *fixture) {
	f.runningFor(f.brief(), "cost_units", 30)
	f.runningFor(time.Hour, "cost_units", 30)
	job := id(f.submit("cost_units", 30))
	f.claim()
	f.used(60)
	got := f.denied(job)
	f.hasKeys("a denial", got, "approved", "retry_after_sec", "reason")
	if number(got["retry_after_sec"]) != 10 || got["reason"] != "Capacity exceeded: used=60, requested=30, capacity=70" {
		f.Errorf("the denial is %v", got)
	}
	shown := f.job(job)
	if again := instant(f.TB, shown["next_retry_at"]).Sub(instant(f.TB, shown["updated_at"])); shown["state"] != "LEASE_PENDING" || again != 10*time.Second {
		f.Errorf("after a denial the job is %v, want LEASE_PENDING for 10s", shown)
	}
	if shown["lease_id"] != nil || number(shown["attempts"]) != 0 {
		f.Errorf("after a denial the job is %v", shown)
	}
	f.sleep(f.brief())
	f.lease(job) // the first lease has expired meanwhile
	f.is(job, "RUNNING")
	f.used(60)
	// An exact fit is approved, one unit more is not.
	over := id(f.submit("cost_units", 11, "job_type", "eleven"))
	exact := id(f.submit("cost_units", 10, "job_type", "ten"))
	f.claim("accept_job_types", []any{"eleven"})
	f.claim("accept_job_types", []any{"ten"})
	f.denied(over)
	f.lease(exact)
	f.used(70)
}

func tellDenialInAudit(f *fixture) {
	_, first := f.runningFor(time.Hour, "cost_units", 60)
	job := id(f.submit("cost_units", 30))
	f.claim()
	told := func(want ...object) {
		f.Helper()
		path := "/jobs/" + job + "/events"
		for _, source := range []string{path, "/facts/events"} {
			kind, content := "type", "data"
			if source != path {
				kind, content = "event_type", "data_json"
			}
			var got []object
			for _, e := range f.list(source, "events") {
				if e[kind] != "LEASE_DENIED" {
					continue
				}
				data := member(e, content)
				if source != path && (e["entity_type"] != "JOB" || e["entity_id"] != job) || data["worker_id"] != worker {
					f.Errorf("%s: %v", source, e)
				}
				all := object{}
				for _, name := range []string{"used", "requested", "capacity", "count"} {
					all[name] = int(number(data[name]))
				}
				got = append(got, all)
			}
			if !reflect.DeepEqual(got, want) {
				f.Errorf("%s: %v, want %v", source, got, want)
			}
		}
		for _, kind := range types(f.list(path, "events"), "type") {
			if kind == "JOB_UPDATED" {
				f.Errorf("a denial shows as %s", kind)
			}
		}
	}
	denied := func(used, capacity, count int) object {
		return object{"used": used, "requested": 30, "capacity": capacity, "count": count}
	}
	f.denied(job)
	told(denied(60, 70, 1))
	f.denied(job)
	f.denied(job)
	told(denied(60, 70, 3))
	f.do(http.MethodPut, "/admin/capacity", object{"total": 80}, http.StatusOK)
	f.denied(job)
	told(denied(60, 70, 3), denied(60, 80, 1))
	f.denied(job)
	told(denied(60, 70, 3), denied(60, 80, 2))
	f.post("/lease/"+first+"/cancel", nil)
	f.lease(job)
	told(denied(60, 70, 3), denied(60, 80, 2))
	want := []string{
		"JOB_SUBMITTED", "JOB_CLAIMED", "JOB_LEASE_PENDING", "LEASE_DENIED", "LEASE_DENIED", "LEASE_GRANTED", "JOB_RUNNING",
	}
	if got := types(f.list("/jobs/"+job+"/events", "events"), "type"); !slices.Equal(got, want) {
		f.Errorf("the events are %v, want %v", got, want)
	}
}

func tellDearerThanAll(f *fixture) {
	job := id(f.submit("cost_units", 71))
	f.claim()
	if got := f.denied(job); got["reason"] != "Capacity exceeded: used=0, requested=71, capacity=70" {
		f.Errorf("the denial is %v", got)
	}
	f.do(http.MethodPut, "/admin/capacity", object{"total": 71}, http.StatusOK)
	f.lease(job)
}

func tellCapacity(f *fixture) {
	total := func(want int64) {
		f.Helper()
		if got := member(f.get("/admin/capacity"), "capacity"); number(got["total"]) != want {
			f.Errorf("the capacity is %v, want %d", got, want)
		}
	}
	total(100)
	job, lease := f.running("cost_units", 60)
	for _, body := range []any{object{}, object{"total": -1}, object{"total": "7"}, object{"total": nil}, object{"totl": 7}, ``} {
		f.refused(http.MethodPut, "/admin/capacity", body, http.StatusBadRequest, CodeInvalidRequest)
	}
	f.do(http.MethodPut, "/admin/capacity", object{"total": 50}, http.StatusOK) // less than is in use
	f.used(60)
	other := id(f.submit("cost_units", 1))
	f.claim()
	f.denied(other)
	f.release(job, lease, "SUCCEEDED")
	f.lease(other)
	total(50)
	// A change at run time survives a restart; another configuration replaces it.
	again := f.again(Options{Capacity: units(100)})
	if got := member(again.get("/admin/capacity"), "capacity"); number(got["total"]) != 50 {
		f.Errorf("after a restart the capacity is %v, want 50", got)
	}
	again = again.again(Options{Capacity: units(120)})
	if got := member(again.get("/admin/capacity"), "capacity"); number(got["total"]) != 120 {
		f.Errorf("configured anew the capacity is %v, want 120", got)
	}
}

func tellHeartbeat(f *fixture) {
	job, lease := f.runningFor(f.brief())
	for range 6 { // twice the TTL
		f.sleep(f.brief() / 3)
		before := instant(f.TB, member(f.get("/lease/"+lease), "lease")["last_heartbeat_at"])
		got := f.beat(job, lease, "progress", 0.65, "message", "rendering step 23/35")
		f.hasKeys("the answer to a heartbeat", got, "lease", "job")
		l := member(got, "lease")
		f.hasKeys("a lease", l, leaseKeys...)
		beat := instant(f.TB, l["last_heartbeat_at"])
		if l["state"] != "ACTIVE" || beat.Sub(before) < f.brief()/3 || instant(f.TB, l["expires_at"]).Sub(beat) != f.brief() {
			f.Errorf("after a heartbeat, the last one at %v, the lease is %v", before, l)
		}
		if j := member(got, "job"); j["state"] != "RUNNING" || j["note"] != "rendering step 23/35" {
			f.Errorf("after a heartbeat the job is %v", j)
		}
	}
	path := "/lease/" + lease + "/heartbeat"
	for _, body := range []any{
		object{},
		holding(job, "worker_id", absent), holding(job, "job_id", absent), holding("x"), holding(job, "progress", 2),
		holding(job, "progress", "x"), holding(job, "message", 7), holding(job, "x", 1), ``,
	} {
		f.refused(http.MethodPost, path, body, http.StatusBadRequest, CodeInvalidRequest)
	}
	other := id(f.submit())
	f.refused(http.MethodPost, path, holding(other), http.StatusConflict, CodeJobMismatch)
	f.refused(http.MethodPost, path, holding(job, "worker_id", "other"), http.StatusConflict, CodeWorkerMismatch)
	for _, unknown := range []string{"b5d4f3c2-1a0b-4c3d-8e9f-0a1b2c3d4e5f", "x"} {
		f.refused(http.MethodPost, "/lease/"+unknown+"/heartbeat", holding(job), http.StatusNotFound, CodeLeaseNotFound)
	}
	f.release(job, lease, "SUCCEEDED")
	f.refused(http.MethodPost, path, holding(job), http.StatusConflict, CodeLeaseNotActive)

	job, lease = f.runningFor(f.brief(), "addon_id", "audio")
	f.sleep(f.brief())
	f.refused(http.MethodPost, "/lease/"+lease+"/heartbeat", holding(job), http.StatusConflict, CodeLeaseNotActive)
	f.is(job, "TIMEOUT")
}

func tellRelease(f *fixture) {
	for status, state := range map[string]string{"SUCCEEDED": "DONE", "FAILED": "FAILED", "CANCELED": "CANCELED", "TIMEOUT": "TIMEOUT"} {
		job, lease := f.running()
		f.used(30)
		f.sleep(tick)
		body := holding(job, "status", status, "result_data", object{"path": "/runtime/out.jpg", "n": []any{1, nil}}, "metrics", object{"runtime_ms": 41234})
		var wanted any
		if status != "SUCCEEDED" {
			wanted = "it went wrong"
			body["error"] = wanted
		}
		got := f.post("/lease/"+lease+"/release", body)
		f.hasKeys("the answer to a release", got, "lease", "job", "result")
		if l := member(got, "lease"); l["state"] != "RELEASED" || l["lease_id"] != lease {
			f.Errorf("released as %s the lease is %v", status, l)
		}
		if j := member(got, "job"); j["state"] != state || j["lease_id"] != lease || j["claimed_by"] != worker {
			f.Errorf("released as %s the job is %v", status, j)
		}
		result := member(got, "result")
		f.hasKeys("a result", result, "job_id", "status", "result_data", "error", "started_at", "finished_at", "attempts")
		var data any
		decode(f.TB, `{"path": "/runtime/out.jpg", "n": [1, null]}`, &data)
		if result["status"] != status || result["error"] != wanted || !reflect.DeepEqual(result["result_data"], data) || number(result["attempts"]) != 1 {
			f.Errorf("released as %s the result is %v", status, result)
		}
		if ran := instant(f.TB, result["finished_at"]).Sub(instant(f.TB, result["started_at"])); ran < tick {
			f.Errorf("the run took %v, want %v", ran, tick)
		}
		if again := f.get("/jobs/" + job); !reflect.DeepEqual(again["result"], got["result"]) || !reflect.DeepEqual(again["job"], got["job"]) {
			f.Errorf("a job reads %v after %v", again, got)
		}
		f.used(0)
		// Repeating the same call returns the same response, another call does not.
		if again := f.post("/lease/"+lease+"/release", body); !reflect.DeepEqual(again, got) {
			f.Errorf("the same release again answers %v, before %v", again, got)
		}
		for _, other := range []object{
			changed(body, "result_data", nil), changed(body, "metrics", object{}), changed(body, "status", "FAILED", "error", "x"),
		} {
			f.refused(http.MethodPost, "/lease/"+lease+"/release", other, http.StatusConflict, CodeLeaseNotActive)
		}
		f.used(0) // nothing is given back twice
	}
}

func tellReleaseInvalid(f *fixture) {
	job, lease := f.running()
	path := "/lease/" + lease + "/release"
	for _, body := range []any{
		object{},
		holding(job), holding(job, "status", "DONE"), holding(job, "status", "succeeded"), holding(job, "status", 1), holding(job, "status", nil),
		holding(job, "status", "SUCCEEDED", "error", 7), holding(job, "status", "FAILED", "error", 7), holding(job, "status", "FAILED", "metrics", []any{}),
		holding(job, "status", "FAILED", "metrics", "x"), holding(job, "status", "SUCCEEDED", "result_data", "x"), holding(job, "status", "SUCCEEDED", "result_data", []any{}), holding(job, "status", "SUCCEEDED", "x", 1), holding("x", "status", "SUCCEEDED"),
		holding(job, "status", "SUCCEEDED", "worker_id", absent), ``,
	} {
		f.refused(http.MethodPost, path, body, http.StatusBadRequest, CodeInvalidRequest)
	}
	other := id(f.submit())
	f.refused(http.MethodPost, path, holding(other, "status", "SUCCEEDED"), http.StatusConflict, CodeJobMismatch)
	f.refused(http.MethodPost, path, holding(job, "status", "SUCCEEDED", "worker_id", "other"), http.StatusConflict, CodeWorkerMismatch)
	f.refused(http.MethodPost, "/lease/b5d4f3c2-1a0b-4c3d-8e9f-0a1b2c3d4e5f/release", holding(job, "status", "SUCCEEDED"), http.StatusNotFound, CodeLeaseNotFound)
	f.is(job, "RUNNING")
	f.used(30)
	// A long text is kept completely.
	long := strings.Repeat("so much went wrong. ", 1000)
	f.release(job, lease, "FAILED", "error", long)
	if got := member(f.get("/jobs/"+job), "result")["error"]; got != long {
		f.Errorf("an error of %d bytes reads %.40v…", len(long), got)
	}
}

// A worker may report a warning with its success. Every reader of the result sees the text.
func tellReleaseWithWarning(f *fixture) {
	row := func(job string) object {
		f.Helper()
		for _, r := range f.list("/facts/job_runs", "job_runs") {
			if r["job_id"] == job {
				return r
			}
		}
		f.Fatalf("job %s has no row", job)
		return nil
	}
	for _, c := range []struct {
		said, read any
	}{
		{"2 of 35 frames were skipped", "2 of 35 frames were skipped"},
		{strings.Repeat("a frame was skipped. ", 1000), strings.Repeat("a frame was skipped. ", 1000)},
		{"", nil}, {nil, nil}, {absent, nil},
	} {
		for _, data := range []any{object{"path": "/out.jpg"}, nil} {
			job, lease := f.running()
			said := []any{"error", c.said, "result_data", data, "metrics", object{"frames": 33}}
			got := f.release(job, lease, "SUCCEEDED", said...)
			result := member(got, "result")
			if member(got, "job")["state"] != "DONE" || result["status"] != "SUCCEEDED" || result["error"] != c.read || !reflect.DeepEqual(result["result_data"], data) {
				f.Errorf("a success with the error %.40v: %.300v", c.said, got)
			}
			if read := f.get("/jobs/" + job); !reflect.DeepEqual(read["result"], got["result"]) {
				f.Errorf("released as %.300v, the job reads %.300v", got, read)
			}
			if r := row(job); r["error_text"] != c.read || r["final_status"] != "SUCCEEDED" || !reflect.DeepEqual(r["result_json"], data) || number(member(r, "metrics_json")["frames"]) != 33 {
				f.Errorf("its row is %.300v", r)
			}
			if again := f.release(job, lease, "SUCCEEDED", said...); !reflect.DeepEqual(again, got) {
				f.Errorf("the same release again answers %.300v, before %.300v", again, got)
			}
			f.refused(http.MethodPost, "/lease/"+lease+"/release", holding(job, append(slices.Clone(said), "status", "SUCCEEDED", "error", "another")...), http.StatusConflict, CodeLeaseNotActive)
		}
	}
	f.used(0)
}

// What is kept with a success is limited, and the refusal names what is too long.
func tellReleaseTooLong(f *fixture) {
	job, lease := f.running()
	long := strings.Repeat("x", 1<<20)
	for field, said := range map[string][]any{
		"error":       {"error", long, "result_data", object{"a": 1}},
		"result_data": {"error", "short", "result_data", object{"a": long}},
	} {
		got := f.refused(http.MethodPost, "/lease/"+lease+"/release", holding(job, append(said, "status", "SUCCEEDED")...), http.StatusBadRequest, CodeInvalidRequest)
		if text := fmt.Sprint(got); !strings.Contains(text, field+":") {
			f.Errorf("the refusal of a long %s is %.300s", field, text)
		}
	}
	f.release(job, lease, "SUCCEEDED")
}

// A result that looks like an encoded report is still only a result.
func tellReleaseNested(f *fixture) {
	for _, data := range []any{object{"result_data": json1, "metrics": json1}, object{"error": "x"}, object{}, nil} {
		job, lease := f.running()
		f.release(job, lease, "SUCCEEDED", "result_data", data)
		got := member(f.get("/jobs/"+job), "result")
		if !reflect.DeepEqual(got["result_data"], data) || got["error"] != nil {
			f.Errorf("result data %v reads %v", data, got)
		}
	}
}

const json1 = "1"

func tellLeaseStates(f *fixture) {
	job, lease := f.runningFor(f.brief())
	state := func(want string) {
		f.Helper()
		if got := member(f.get("/lease/"+lease), "lease"); got["state"] != want {
			f.Errorf("the lease is %v, want %s", got, want)
		}
	}
	state("ACTIVE")
	f.runningFor(time.Hour, "cost_units", 1)
	for _, j := range f.list("/jobs?state=RUNNING", "jobs") {
		l, _ := j["lease_id"].(string)
		if got := member(f.get("/lease/"+l), "lease"); got["state"] != "ACTIVE" || got["job_id"] != id(j) {
			f.Errorf("running job %s has the lease %v", id(j), got)
		}
	}
	f.sleep(f.brief()) // no sweep has run
	state("EXPIRED")
	f.is(job, "TIMEOUT")
	f.used(1)
	f.refused(http.MethodPost, "/lease/"+lease+"/release", holding(job, "status", "SUCCEEDED"), http.StatusConflict, CodeLeaseNotActive)
	f.is(job, "TIMEOUT")
	if got := member(f.get("/jobs/"+job), "result"); got["status"] != "TIMEOUT" || got["error"] == nil {
		f.Errorf("the result is %v", got)
	}

	job, lease = f.runningFor(f.brief())
	f.sleep(f.brief())
	// The late release is the first to notice.
	f.refused(http.MethodPost, "/lease/"+lease+"/release", holding(job, "status", "SUCCEEDED"), http.StatusConflict, CodeLeaseNotActive)
	f.is(job, "TIMEOUT")

	job, lease = f.running()
	f.release(job, lease, "SUCCEEDED")
	state("RELEASED")
	if got := member(f.get("/lease/"+strings.ToUpper(lease)), "lease"); got["lease_id"] != lease {
		f.Errorf("in capitals lease %s is %v", lease, got)
	}
	f.refused(http.MethodGet, "/lease/"+lease+"?x=1", nil, http.StatusBadRequest, CodeInvalidRequest)
	for _, unknown := range []string{"b5d4f3c2-1a0b-4c3d-8e9f-0a1b2c3d4e5f", "x"} {
		f.refused(http.MethodGet, "/lease/"+unknown, nil, http.StatusNotFound, CodeLeaseNotFound)
	}
}

// A claimed job has no lease in this API, although a lease holds it internally.
func TestClaimIsNoLease(t *testing.T) {
	bubble(t, Options{}, func(f *fixture) {
		job := id(f.submit())
		f.claim()
		held, err := f.engine.Get(f.Context(), parse(f.TB, job), 0)
		if err != nil {
			f.Fatal(err)
		}
		inside := string(held.State.Lease.ID)
		f.refused(http.MethodGet, "/lease/"+inside, nil, http.StatusNotFound, CodeLeaseNotFound)
		f.refused(http.MethodPost, "/lease/"+inside+"/release", holding(job, "status", "SUCCEEDED"), http.StatusNotFound, CodeLeaseNotFound)
		f.refused(http.MethodPost, "/lease/"+inside+"/heartbeat", holding(job), http.StatusNotFound, CodeLeaseNotFound)
		f.is(job, "CLAIMED")
	})
}

func tellRequeue(f *fixture) {
	job := id(f.submit())
	f.claim()
	first, _ := f.lease(job)["lease_id"].(string) // the configured default
	f.sleep(tick)
	f.beat(job, first)
	f.sleep(f.brief())
	got := f.job(job)
	if got["state"] != "QUEUED" || got["claimed_by"] != nil || got["lease_id"] != nil || number(got["attempts"]) != 1 {
		f.Errorf("after its lease ran out the job is %v", got)
	}
	f.used(0)
	f.claim("worker_id", "second")
	second, _ := f.lease(job, "ttl_sec", 60)["lease_id"].(string)
	if second == first {
		f.Error("the second lease is the first one")
	}
	f.used(30)
	f.refused(http.MethodPost, "/lease/"+first+"/release", holding(job, "status", "SUCCEEDED"), http.StatusConflict, CodeLeaseNotActive)
	f.refused(http.MethodPost, "/lease/"+first+"/heartbeat", holding(job), http.StatusConflict, CodeLeaseNotActive)
	f.used(30)
	old := member(f.get("/lease/"+first), "lease")
	if beat := instant(f.TB, old["last_heartbeat_at"]); old["state"] != "EXPIRED" || beat.Sub(instant(f.TB, old["granted_at"])) < tick || instant(f.TB, old["expires_at"]).Sub(beat) != f.brief() {
		f.Errorf("the first lease reads %v", old)
	}
	got = f.post("/lease/"+second+"/release", holding(job, "worker_id", "second", "status", "SUCCEEDED"))
	if r := member(got, "result"); r["status"] != "SUCCEEDED" || number(r["attempts"]) != 2 {
		f.Errorf("the result is %v", r)
	}
}

// Two jobs lose their third lease at the same time, the one unseen and the other in a worker's
// call. Both end as TIMEOUT, everywhere.
func tellRequeueEnds(f *fixture) {
	jobs := []string{id(f.submit()), id(f.submit())}
	var leases []string
	for n := range 3 {
		leases = nil
		for range jobs {
			lease, _ := f.lease(id(f.claim()))["lease_id"].(string)
			leases = append(leases, lease)
		}
		f.sleep(f.brief())
		if n < 2 {
			for _, job := range jobs {
				f.is(job, "QUEUED")
			}
		}
	}
	f.refused(http.MethodPost, "/lease/"+leases[1]+"/heartbeat", holding(jobs[1]), http.StatusConflict, CodeLeaseNotActive)
	for _, job := range jobs {
		got := f.get("/jobs/" + job)
		if r := member(got, "result"); member(got, "job")["state"] != "TIMEOUT" || r["status"] != "TIMEOUT" || number(r["attempts"]) != 3 || r["error"] == nil {
			f.Errorf("after three lost leases: %v", got)
		}
		events := types(f.list("/jobs/"+job+"/events", "events"), "type")
		if want := []string{"LEASE_EXPIRED", "JOB_TIMEOUT"}; !slices.Equal(events[len(events)-2:], want) {
			f.Errorf("its events are %v, want %v at the end", events, want)
		}
		if got := f.list("/jobs?state=TIMEOUT", "jobs"); len(got) != len(jobs) {
			f.Errorf("%d jobs are listed as TIMEOUT, want %d", len(got), len(jobs))
		}
	}
	for _, r := range f.list("/facts/job_runs", "job_runs") {
		if r["state"] != "TIMEOUT" || r["final_status"] != "TIMEOUT" || r["error_text"] == nil {
			f.Errorf("its row is %v", r)
		}
	}
	for _, r := range f.list("/facts/lease_runs", "lease_runs") {
		if r["state"] != "EXPIRED" || r["release_status"] != nil {
			f.Errorf("a lost lease is %v", r)
		}
	}
	f.none()
	f.used(0)
}
