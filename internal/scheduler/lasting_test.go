package scheduler

import (
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/spec"
	"github.com/gopherqueue/gq/store/local"
)

// What is known of jobs, leases, capacity and history outlives the process.
func TestRestart(t *testing.T) {
	spec.Covers(t, "S-113", "S-142")
	dir := t.TempDir()
	open := func() (*fixture, func()) {
		s, err := local.Open(dir, local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return over(t, s, Options{}), func() {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	f, stop := open()
	done, lease := f.running()
	f.release(done, lease, "SUCCEEDED", "result_data", object{"path": "x"}, "metrics", object{"ms": 1})
	failed, lease := f.in(stateRunning)
	f.release(failed, lease, "FAILED", "error", "it broke")
	f.in(stateLeasePending)
	running, held := f.running("addon_id", "audio", "cost_units", 30)
	f.submit("client_request_id", "once")
	f.do(http.MethodPut, "/admin/capacity", object{"total": 40}, http.StatusOK)
	if err := f.engine.Sample(t.Context(), Pool); err != nil {
		t.Fatal(err)
	}
	reads := []string{
		"/jobs", "/jobs/" + done, "/jobs/" + done + "/events", "/jobs/" + running, "/lease/" + held, "/stats/snapshot",
		"/facts/job_runs", "/facts/lease_runs", "/facts/events", "/admin/capacity", "/stats/timeseries?metric=leases_active&bucket=1d&range=1d",
	}
	var before []object
	for _, path := range reads {
		before = append(before, f.get(path))
	}
	stop()

	f, stop = open()
	defer stop()
	for i, path := range reads {
		if after := f.get(path); !reflect.DeepEqual(after, before[i]) {
			t.Errorf("%s was\n%v, after a restart\n%v", path, before[i], after)
		}
	}
	f.refused(http.MethodPost, "/jobs/submit", submission("client_request_id", "once"), http.StatusConflict, CodeDuplicate)
	f.beat(running, held)
	f.release(running, held, "SUCCEEDED")
	f.used(0)
}

// No option turns the guardrails off.
func TestGuardrails(t *testing.T) {
	spec.Covers(t, "S-143")
	tiny := int64(30)
	for name, o := range map[string]Options{
		"default": {}, "requeue": {Requeue: true}, "no idempotency": {NoIdempotency: true}, "other times": {ClaimHold: time.Second, LeaseTTL: time.Second},
		"little capacity": {Capacity: &tiny},
	} {
		bubble(t, o, func(f *fixture) {
			job := id(f.submit())
			f.refused(http.MethodPost, "/jobs/"+job+"/status", object{"state": "RUNNING"}, http.StatusConflict, CodeTransition)
			f.claim()
			f.none("worker_id", "second") // claimed once
			for _, state := range []string{"RUNNING", "DONE", "FAILED", "CANCELED", "TIMEOUT"} {
				f.refused(http.MethodPost, "/jobs/"+job+"/status", object{"state": state}, http.StatusConflict, CodeTransition)
			}
			f.lease(job) // needed to run
			f.is(job, "RUNNING")
			time.Sleep(30 * time.Second) // without a heartbeat
			if got := f.job(job)["state"]; got != "TIMEOUT" && (!o.Requeue || got != "QUEUED") {
				f.Errorf("%s: without heartbeats the job is %v", name, got)
			}
			f.used(0)
			other, lease := f.running("addon_id", "audio")
			f.release(other, lease, "SUCCEEDED")
			f.is(other, "DONE")
			if got := f.list("/jobs/"+other+"/events", "events"); len(got) != 7 {
				f.Errorf("%s: the life of a job left %d events, want 7", name, len(got))
			}
		})
	}
}
