package scheduler

import (
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"time"
)

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

var intentKeys = []string{
	"job_id", "addon_id", "job_type", "priority", "cost_units", "constraints", "payload", "state", "created_at", "updated_at",
	"claimed_by", "claim_expires_at", "lease_id", "attempts", "next_retry_at",
}

func tellSubmit(f *fixture) {
	body := submission("constraints", object{"cpu_heavy": true, "gpu_required": false})
	a := f.try(http.MethodPost, "/jobs/submit", body)
	if a.status != http.StatusCreated {
		f.Fatalf("submit: %d %s", a.status, a.raw)
	}
	f.hasKeys("the answer", a.body, "job")
	job := member(a.body, "job")
	f.hasKeys("a fresh job", job, intentKeys...)
	if !uuid.MatchString(id(job)) {
		f.Errorf("the job id is %q", id(job))
	}
	for name, want := range map[string]any{
		"addon_id": "visuals", "job_type": "load30", "priority": "NORMAL", "state": "QUEUED",
		"claimed_by": nil, "claim_expires_at": nil, "lease_id": nil, "next_retry_at": nil,
	} {
		if job[name] != want {
			f.Errorf("%s is %v, want %v", name, job[name], want)
		}
	}
	if number(job["cost_units"]) != 30 || number(job["attempts"]) != 0 {
		f.Errorf("cost_units %v, attempts %v", job["cost_units"], job["attempts"])
	}
	if want := (object{"cpu_heavy": true, "gpu_required": false}); !reflect.DeepEqual(member(job, "constraints"), want) {
		f.Errorf("constraints are %v, want %v", job["constraints"], want)
	}
	if job["created_at"] != job["updated_at"] {
		f.Errorf("created %v, updated %v", job["created_at"], job["updated_at"])
	}
	if other := f.submit(); id(other) == id(job) {
		f.Error("two jobs have one id")
	}
	f.sleep(tick)
	claimed := f.claim()
	if claimed["created_at"] != job["created_at"] || !instant(f.TB, claimed["updated_at"]).After(instant(f.TB, job["updated_at"])) {
		f.Errorf("a claim leaves created %v, updated %v; submitted with %v", claimed["created_at"], claimed["updated_at"], job["created_at"])
	}
}

func tellPayload(f *fixture) {
	for _, payload := range []string{
		`{"a":{"b":[1,2,{"c":null}]},"big":123456789012345678901234567890,"text":"<&>\u0000é","f":1.50}`,
		`null`, `[]`, `"text"`, `0`, `false`,
	} {
		body := fmt.Sprintf(`{"addon_id":"visuals","job_type":"t","priority":"LOW","cost_units":1,"constraints":{},"payload":%s}`, payload)
		job := member(f.do(http.MethodPost, "/jobs/submit", body, http.StatusCreated), "job")
		var want any
		decode(f.TB, payload, &want)
		for _, got := range []object{job, f.job(id(job))} {
			if !reflect.DeepEqual(got["payload"], want) {
				f.Errorf("payload %s reads %v", payload, got["payload"])
			}
		}
	}
}

func tellPriorities(f *fixture) {
	for _, p := range []string{"LOW", "NORMAL", "URGENT", "HIGH"} {
		if got := f.submit("priority", p)["priority"]; got != p {
			f.Errorf("priority %s reads %v", p, got)
		}
	}
	for _, p := range []any{"CRITICAL", "BULK", "urgent", "", "2", 2, nil, true, "NORMAL "} {
		f.refused(http.MethodPost, "/jobs/submit", submission("priority", p), http.StatusBadRequest, CodeInvalidRequest)
	}
	for _, want := range []string{"URGENT", "HIGH", "NORMAL", "LOW"} {
		if got := f.claim()["priority"]; got != want {
			f.Errorf("claimed %v, want %s", got, want)
		}
	}
}

func tellConstraints(f *fixture) {
	all := object{"cpu_heavy": true, "gpu_required": true, "network_heavy": false, "disk_write_heavy": true}
	job := f.submit("constraints", all)
	if !reflect.DeepEqual(member(job, "constraints"), all) {
		f.Errorf("constraints %v read %v", all, job["constraints"])
	}
	for name := range all {
		for _, wrong := range []any{"true", 1, object{}, []any{}} {
			f.refused(http.MethodPost, "/jobs/submit", submission("constraints", object{name: wrong}), http.StatusBadRequest, CodeInvalidRequest)
		}
	}
	f.refused(http.MethodPost, "/jobs/submit", submission("constraints", object{"tpu": true}), http.StatusBadRequest, CodeInvalidRequest)

	f.none() // the job needs a GPU
	f.none("constraints_capabilities", object{})
	f.none("constraints_capabilities", object{"gpu_available": false})
	f.none("constraints_capabilities", object{"gpu_available": nil, "vram_gb": 24, "gpu": true})
	if got := f.claim("constraints_capabilities", object{"vram_gb": 24, "gpu_available": true, "drivers": object{"cuda": []any{"12.8"}}}); id(got) != id(job) {
		f.Errorf("claimed %v", got)
	}
	// Absent means false: a worker without a GPU gets it.
	for _, c := range []any{object{"cpu_heavy": true}, object{}, object{"gpu_required": false}, absent} {
		job := f.submit("constraints", c)
		if got := f.claim("constraints_capabilities", object{"gpu_available": false}); id(got) != id(job) {
			f.Errorf("with constraints %v claimed %v", c, got)
		}
	}
}

func tellSubmitInvalid(f *fixture) {
	bad := map[string]any{
		"not JSON": `{"addon_id":`, "no body": ``, "an array": `[]`, "two values": `{} {}`,
		"twice":         `{"addon_id":"a","addon_id":"b","job_type":"t","priority":"LOW","cost_units":1,"payload":1}`,
		"unknown field": submission("job_tpye", "x"), "an id": submission("job_id", "x"),
		"addon with a space": submission("addon_id", "a b"), "long addon": submission("addon_id", string(make([]byte, 300))),
		"empty type": submission("job_type", ""), "cost as text": submission("cost_units", "30"), "cost as fraction": submission("cost_units", 1.5),
		"cost 0": submission("cost_units", 0), "cost -1": submission("cost_units", -1), "huge cost": submission("cost_units", 1<<41),
		"constraints as list": submission("constraints", []any{}), "key as number": submission("client_request_id", 7),
		"long key": submission("client_request_id", string(make([]byte, 2000))),
	}
	for _, name := range []string{"addon_id", "job_type", "priority", "cost_units", "payload"} {
		bad["no "+name] = submission(name, absent)
	}
	for _, name := range []string{"addon_id", "job_type", "priority", "cost_units"} {
		bad["null "+name] = submission(name, nil)
	}
	for name, body := range bad {
		f.Log(name)
		f.refused(http.MethodPost, "/jobs/submit", body, http.StatusBadRequest, CodeInvalidRequest)
	}
	if jobs := f.list("/jobs", "jobs"); len(jobs) != 0 {
		f.Errorf("refused submissions made %d jobs", len(jobs))
	}
	f.submit("cost_units", 1)
}

func tellIdempotency(f *fixture) {
	first := f.submit("client_request_id", "once")
	for _, body := range []object{submission("client_request_id", "once"), submission("client_request_id", "once", "cost_units", 7)} {
		p := f.refused(http.MethodPost, "/jobs/submit", body, http.StatusConflict, CodeDuplicate)
		if p["job_id"] != id(first) {
			f.Errorf("the conflict names %v, want %s", p["job_id"], id(first))
		}
	}
	if jobs := f.list("/jobs", "jobs"); len(jobs) != 1 {
		f.Errorf("there are %d jobs, want 1", len(jobs))
	}
	// Each addon has its own keys.
	f.submit("client_request_id", "once", "addon_id", "audio")
}

func tellIdempotencyOff(f *fixture) {
	a, b := f.submit("client_request_id", "once"), f.submit("client_request_id", "once")
	if id(a) == id(b) {
		f.Error("a repeated key found the first job although idempotency is off")
	}
}

func tellClaim(f *fixture) {
	f.none()
	first := f.submit("job_type", "render", "cost_units", 50)
	second := f.submit("cost_units", 40)
	f.none("addon_id", "audio")
	f.none("accept_job_types", []any{"other"})
	f.none("max_cost_units", 39)
	f.none("accept_job_types", []any{"render"}, "max_cost_units", 49)
	got := f.claim("max_cost_units", 40, "limit", 5)
	if id(got) != id(second) || got["state"] != "CLAIMED" || got["claimed_by"] != worker {
		f.Errorf("claimed %v, want %s for %s", got, id(second), worker)
	}
	if hold := instant(f.TB, got["claim_expires_at"]).Sub(instant(f.TB, got["updated_at"])); hold != time.Minute {
		f.Errorf("the claim of %v expires at %v, want a minute", got["updated_at"], got["claim_expires_at"])
	}
	f.is(id(first), "QUEUED") // limit 5 claims one
	a := f.post("/jobs/claim", claiming("limit", 5, "worker_id", "other", "accept_job_types", []any{"none", "render"}))
	f.hasKeys("the answer to a claim", a, "job")
	if got := member(a, "job"); id(got) != id(first) || got["claimed_by"] != "other" {
		f.Errorf("claimed %v", got)
	}
	f.none("accept_job_types", []any{})
	f.none("accept_job_types", nil, "max_cost_units", nil, "constraints_capabilities", nil, "limit", nil) // null is like absent
	for name, body := range map[string]object{
		"no addon": claiming("addon_id", absent), "no worker": claiming("worker_id", absent), "limit 0": claiming("limit", 0),
		"cost 0": claiming("max_cost_units", 0), "types as text": claiming("accept_job_types", "t"),
		"capabilities as text": claiming("constraints_capabilities", "gpu"), "capabilities as a list": claiming("constraints_capabilities", []any{"gpu_available"}),
		"capability as text": claiming("constraints_capabilities", object{"gpu_available": "yes"}),
		"empty type":         claiming("accept_job_types", []any{""}), "unknown field": claiming("x", 1),
	} {
		f.Log(name)
		f.refused(http.MethodPost, "/jobs/claim", body, http.StatusBadRequest, CodeInvalidRequest)
	}
}

func tellClaimExpires(f *fixture) {
	job := id(f.submit())
	f.claim()
	f.is(job, "CLAIMED")
	f.none("worker_id", "second")
	f.sleep(f.brief())
	got := f.job(job) // no sweep has run
	if got["state"] != "QUEUED" || got["claimed_by"] != nil || got["claim_expires_at"] != nil || number(got["attempts"]) != 0 {
		f.Errorf("after the claim ran out the job is %v", got)
	}
	if got := f.claim("worker_id", "second"); id(got) != job || got["claimed_by"] != "second" {
		f.Errorf("the second worker claimed %v", got)
	}
	// The first worker is too late for everything.
	f.refused(http.MethodPost, "/jobs/"+job+"/status", object{"state": "PREPARING", "worker_id": worker}, http.StatusConflict, CodeWorkerMismatch)
	f.refused(http.MethodPost, "/lease/request", object{"job_id": job, "worker_id": worker}, http.StatusConflict, CodeWorkerMismatch)
}

func tellClaimHoldConfigured(f *fixture) {
	job := id(f.submit("cost_units", 71))
	f.claim()
	for range 3 { // accepted reports renew it
		f.sleep(f.brief() / 2)
		f.post("/jobs/"+job+"/status", object{"state": "PREPARING"})
	}
	for range 3 { // and so do lease requests
		f.sleep(f.brief() / 2)
		f.denied(job)
	}
	f.sleep(f.brief())
	f.refused(http.MethodPost, "/jobs/"+job+"/status", object{"state": "PREPARING"}, http.StatusConflict, CodeTransition)
	f.refused(http.MethodPost, "/lease/request", object{"job_id": job}, http.StatusConflict, CodeJobNotClaimed)
	f.is(job, "QUEUED")
}

func tellGet(f *fixture) {
	job, lease := f.running()
	a := f.get("/jobs/" + job)
	f.hasKeys("a job", a, "job", "result")
	if a["result"] != nil {
		f.Errorf("a running job has the result %v", a["result"])
	}
	f.release(job, lease, "SUCCEEDED")
	if got := member(f.get("/jobs/"+job), "result"); got["status"] != "SUCCEEDED" {
		f.Errorf("the result is %v", got)
	}
	for _, unknown := range []string{"b5d4f3c2-1a0b-4c3d-8e9f-0a1b2c3d4e5f", "not-an-id", "00000000-0000-0000-0000-000000000000"} {
		for _, path := range []string{"", "/events"} {
			f.refused(http.MethodGet, "/jobs/"+unknown+path, nil, http.StatusNotFound, CodeJobNotFound)
		}
		f.refused(http.MethodPost, "/jobs/"+unknown+"/cancel", object{}, http.StatusNotFound, CodeJobNotFound)
		f.refused(http.MethodPost, "/jobs/"+unknown+"/status", object{"state": "PREPARING"}, http.StatusNotFound, CodeJobNotFound)
	}
}
