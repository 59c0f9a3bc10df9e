package scheduler

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

func decode(t testing.TB, text string, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		t.Fatal(err)
	}
}

// in creates a job in a state and returns its id and its lease, if it has one.
func (f *fixture) in(state string) (job, lease string) {
	f.Helper()
	job = id(f.submit("cost_units", 1))
	move := func(to string) { f.post("/jobs/"+job+"/status", object{"state": to}) }
	take := func() {
		if got := id(f.claim()); got != job {
			f.Fatalf("claimed %s, want %s", got, job)
		}
	}
	run := func() {
		take()
		lease, _ = f.lease(job)["lease_id"].(string)
	}
	switch state {
	case stateQueued:
	case stateClaimed:
		take()
	case statePreparing, stateLeasePending:
		take()
		move(state)
	case stateRunning:
		run()
	case stateCanceled:
		f.post("/jobs/"+job+"/cancel", object{"reason": "unwanted"})
	default:
		run()
		f.release(job, lease, map[string]string{stateDone: "SUCCEEDED", stateFailed: "FAILED", stateTimeout: "TIMEOUT"}[state])
	}
	f.is(job, state)
	return job, lease
}

// Tries every report in every state: checks what is allowed, and that nothing else
// changes anything.
func tellStatusTransitions(f *fixture) {
	allowed := map[string][]string{
		stateClaimed:      {stateClaimed, statePreparing, stateLeasePending},
		statePreparing:    {statePreparing, stateLeasePending},
		stateLeasePending: {stateLeasePending},
		stateRunning:      {stateRunning},
	}
	states := jobStateNames()
	if len(states) != 9 {
		f.Errorf("there are %d states, want 9", len(states))
	}
	for _, from := range states {
		for _, to := range states {
			job, lease := f.in(from)
			before := f.job(job)
			body := object{"state": to, "note": "warming", "progress": 0.15}
			if slices.Contains(allowed[from], to) {
				if got := member(f.post("/jobs/"+job+"/status", body), "job"); got["state"] != to || got["note"] != "warming" {
					f.Errorf("from %s to %s: %v", from, to, got)
				}
			} else {
				f.refused(http.MethodPost, "/jobs/"+job+"/status", body, http.StatusConflict, CodeTransition)
				if after := f.job(job); after["updated_at"] != before["updated_at"] || after["state"] != from {
					f.Errorf("from %s to %s: refused, but %v became %v", from, to, before, after)
				}
			}
			switch from {
			case stateRunning:
				f.release(job, lease, "SUCCEEDED")
			case stateQueued, stateClaimed, statePreparing, stateLeasePending:
				f.post("/jobs/"+job+"/cancel", nil)
			}
		}
	}
}

func tellStatusInvalid(f *fixture) {
	job, _ := f.in(stateClaimed)
	for _, body := range []any{
		object{},
		object{"state": "SLEEPING"},
		object{"state": 3},
		object{"state": nil},
		object{"state": "PREPARING", "progress": "half"},
		object{"state": "PREPARING", "progress": 1.5},
		object{"state": "PREPARING", "progress": -0.1},
		object{"state": "PREPARING", "note": 1},
		object{"state": "PREPARING", "x": 1},
		`nothing`, ``,
	} {
		f.refused(http.MethodPost, "/jobs/"+job+"/status", body, http.StatusBadRequest, CodeInvalidRequest)
	}
	f.is(job, stateClaimed)
	got := member(f.post("/jobs/"+job+"/status", object{"state": "PREPARING", "progress": 0.15, "worker_id": worker}), "job")
	if got["progress"] != nil {
		f.Errorf("progress of a job that does not run is shown: %v", got["progress"])
	}
	f.refused(http.MethodPost, "/jobs/"+job+"/status", object{"state": "PREPARING", "worker_id": "other"}, http.StatusConflict, CodeWorkerMismatch)
	f.lease(job)
	got = member(f.post("/jobs/"+job+"/status", object{"state": "RUNNING", "progress": 0.5}), "job")
	if got["progress"] != json.Number("0.5") {
		f.Errorf("progress 0.5 of a running job reads %v", got["progress"])
	}
}

func tellCancelAtOnce(f *fixture) {
	for _, state := range []string{stateQueued, stateClaimed, statePreparing, stateLeasePending} {
		job, _ := f.in(state)
		got := f.post("/jobs/"+job+"/cancel", object{"reason": "user aborted"})
		f.hasKeys("the answer to a cancel", got, "job")
		if got := member(got, "job"); got["state"] != stateCanceled || got["cancel_requested"] != nil {
			f.Errorf("a cancel in %s leaves %v", state, got)
		}
		f.none()
		f.refused(http.MethodPost, "/lease/request", object{"job_id": job}, http.StatusConflict, CodeJobFinished)
		f.refused(http.MethodPost, "/jobs/"+job+"/status", object{"state": "PREPARING"}, http.StatusConflict, CodeTransition)
		// Repeating it is allowed and changes nothing.
		if again := f.post("/jobs/"+job+"/cancel", nil); member(again, "job")["state"] != stateCanceled {
			f.Errorf("a second cancel answers %v", again)
		}
		result := member(f.get("/jobs/"+job), "result")
		if result["status"] != "CANCELED" || result["error"] != "user aborted" || result["started_at"] != nil {
			f.Errorf("the result of a cancelled job is %v", result)
		}
	}
	f.used(0)
	for _, state := range []string{stateDone, stateFailed, stateTimeout} {
		job, _ := f.in(state)
		f.refused(http.MethodPost, "/jobs/"+job+"/cancel", object{"reason": "late"}, http.StatusConflict, CodeJobFinished)
		f.is(job, state)
	}
	job, _ := f.in(stateQueued)
	f.refused(http.MethodPost, "/jobs/"+job+"/cancel", object{"reason": 7}, http.StatusBadRequest, CodeInvalidRequest)
	f.refused(http.MethodPost, "/jobs/"+job+"/cancel?now=1", object{}, http.StatusBadRequest, CodeInvalidRequest)
	f.is(job, stateQueued)
	f.post("/jobs/"+job+"/cancel", object{"reason": nil})
}

func tellCancelRunning(f *fixture) {
	for _, status := range []string{"CANCELED", "SUCCEEDED", "FAILED"} {
		job, lease := f.in(stateRunning)
		got := member(f.post("/jobs/"+job+"/cancel", object{"reason": "user aborted"}), "job")
		if got["state"] != stateRunning || got["cancel_requested"] != true {
			f.Errorf("a cancel of a running job leaves %v", got)
		}
		if got := member(f.beat(job, lease), "job"); got["cancel_requested"] != true || got["state"] != stateRunning {
			f.Errorf("a heartbeat after a cancel shows %v", got)
		}
		f.used(1) // it runs until its worker reports otherwise
		ended := f.release(job, lease, status, "result_data", object{"half": 1})
		if got := member(ended, "job"); got["state"] != stateCanceled {
			f.Errorf("a release as %s after a cancel leaves %v", status, got)
		}
		if got := member(ended, "result"); got["status"] != "CANCELED" {
			f.Errorf("a release as %s after a cancel has the result %v", status, got)
		}
		f.used(0)
	}
}

func tellCancelRunningLost(f *fixture) {
	job, lease := f.runningFor(f.brief())
	f.post("/jobs/"+job+"/cancel", object{"reason": "user aborted"})
	f.sleep(f.brief())
	f.is(job, stateCanceled)
	if got := member(f.get("/lease/"+lease), "lease"); got["state"] != "EXPIRED" {
		f.Errorf("the lease is %v", got)
	}
	f.used(0)
}
