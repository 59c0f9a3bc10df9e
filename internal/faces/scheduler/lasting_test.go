package scheduler

import (
	"net/http"
	"reflect"
	"strings"
	"time"
)

// Jobs, leases, capacity and history survive the process, however it ended.
func tellRestart(f *fixture) {
	done, lease := f.running()
	f.release(done, lease, "SUCCEEDED", "result_data", object{"path": "x"}, "metrics", object{"ms": 1})
	failed, lease := f.in(stateRunning)
	f.release(failed, lease, "FAILED", "error", "it broke")
	f.in(stateLeasePending)
	running, held := f.runningFor(time.Hour, "addon_id", "audio", "cost_units", 30)
	f.submit("client_request_id", "once")
	f.do(http.MethodPut, "/admin/capacity", object{"total": 40}, http.StatusOK)
	reads := []string{
		"/jobs", "/jobs/" + done, "/jobs/" + done + "/events", "/jobs/" + running, "/lease/" + held, "/stats/snapshot",
		"/facts/job_runs", "/facts/lease_runs", "/facts/events", "/admin/capacity", "/stats/timeseries?metric=leases_active&bucket=1d&range=1d",
	}
	var before []object
	today := time.Now().UTC().YearDay()
	for _, path := range reads {
		before = append(before, f.get(path))
	}
	f = f.again(Options{})
	for i, path := range reads {
		after := f.get(path)
		if strings.HasPrefix(path, "/stats/timeseries") && time.Now().UTC().YearDay() != today {
			continue // another day is another point
		}
		if !reflect.DeepEqual(after, before[i]) {
			f.Errorf("%s was\n%v, after a restart\n%v", path, before[i], after)
		}
	}
	f.refused(http.MethodPost, "/jobs/submit", submission("client_request_id", "once"), http.StatusConflict, CodeDuplicate)
	f.beat(running, held)
	f.release(running, held, "SUCCEEDED")
	f.used(0)
}

// No option turns the guardrails off.
func tellGuardrails(lost string) func(*fixture) {
	return func(f *fixture) {
		job := id(f.submit())
		f.refused(http.MethodPost, "/jobs/"+job+"/status", object{"state": "RUNNING"}, http.StatusConflict, CodeTransition)
		f.claim()
		f.none("worker_id", "second") // claimed once
		for _, state := range []string{"RUNNING", "DONE", "FAILED", "CANCELED", "TIMEOUT"} {
			f.refused(http.MethodPost, "/jobs/"+job+"/status", object{"state": state}, http.StatusConflict, CodeTransition)
		}
		f.lease(job, "ttl_sec", seconds(f.brief())) // required to run
		f.is(job, "RUNNING")
		f.sleep(f.brief()) // without a heartbeat
		f.is(job, lost)
		f.used(0)
		other, lease := f.running("addon_id", "audio")
		f.release(other, lease, "SUCCEEDED")
		f.is(other, "DONE")
		if got := f.list("/jobs/"+other+"/events", "events"); len(got) != 7 {
			f.Errorf("the life of a job left %d events, want 7", len(got))
		}
	}
}
