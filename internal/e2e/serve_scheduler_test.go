package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/spec"
)

// scheduling calls the scheduler API of a server.
func (s *served) scheduling(method, path string, body any) (status int, answer map[string]any, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.http+"/api/scheduler"+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer got.Body.Close()
	raw, err := io.ReadAll(got.Body)
	if err == nil && len(raw) > 0 {
		err = json.Unmarshal(raw, &answer)
	}
	return got.StatusCode, answer, err
}

// schedule makes a call that must succeed.
func (s *served) schedule(method, path string, body any) map[string]any {
	s.t.Helper()
	status, answer, err := s.scheduling(method, path, body)
	if err != nil || status >= 400 {
		s.t.Fatalf("%s %s: %d %v %v", method, path, status, answer, err)
	}
	return answer
}

type object = map[string]any

func TestServingTheScheduler(t *testing.T) {
	spec.Covers(t, "S-59", "S-88", "S-93", "S-140", "S-144")
	// A machine that stalls for longer than the hold of a claim proves nothing.
	for hold := 700 * time.Millisecond; hold < patience; hold *= 8 {
		if late := serveTheScheduler(t, hold); !late {
			return
		}
	}
	t.Error("claims ran out before their leases were asked for, however long they were kept")
}

// serveTheScheduler reports whether claims expired before the leases were requested.
func serveTheScheduler(t *testing.T, hold time.Duration) (late bool) {
	s := startServer(t, nil, "--store", "memory:", "--capacity", "40", "--scheduler-claim-hold", hold.String(), "--scheduler-lease-ttl", (2 * hold).String())
	submit := func(cost int) string {
		job := s.schedule(http.MethodPost, "/jobs/submit", object{
			"addon_id": "visuals", "job_type": "render", "priority": "HIGH", "cost_units": cost, "constraints": object{}, "payload": object{"n": 1},
		})
		return fmt.Sprint(cmdtest.Member(job, "job", "job_id"))
	}
	claim := func() string {
		return fmt.Sprint(cmdtest.Member(s.schedule(http.MethodPost, "/jobs/claim", object{"addon_id": "visuals", "worker_id": "w"}), "job", "job_id"))
	}
	request := func(job string) map[string]any {
		t.Helper()
		_, answer, err := s.scheduling(http.MethodPost, "/lease/request", object{"job_id": job})
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	state := func(job, want string) {
		t.Helper()
		cmdtest.WaitFor(t, job+" to be "+want, func() bool {
			return cmdtest.Member(s.schedule(http.MethodGet, "/jobs/"+job, nil), "job", "state") == want
		})
	}
	first, second := submit(30), submit(20)
	began := time.Now()
	claimed := []string{claim(), claim()}
	lease, denied := request(first), request(second)
	if time.Since(began) >= hold {
		return true
	}
	if claimed[0] != first || claimed[1] != second {
		t.Fatal("the wrong jobs were claimed")
	}
	if cmdtest.Member(lease, "approved") != true {
		t.Fatalf("the first lease: %v", lease)
	}
	if cmdtest.Member(denied, "reason") != "Capacity exceeded: used=30, requested=20, capacity=40" {
		t.Errorf("the second lease: %v", denied)
	}
	state(second, "QUEUED") // its claim expires
	state(first, "TIMEOUT") // as does the lease of the other
	if got := s.gq("job", "explain", submit(41)); got.status != cli.ExitOK {
		t.Errorf("explain: %+v", got)
	}
	if status, answer, err := s.scheduling(http.MethodGet, "/nothing", nil); err != nil || status != http.StatusNotFound || answer["code"] != "route_not_found" {
		t.Errorf("what is not there: %d %v %v", status, answer, err)
	}
	return false
}

// A server that is killed while working knows after its restart who runs what, how much
// capacity that uses, and what has happened.
func TestKilledScheduler(t *testing.T) {
	spec.Covers(t, "S-113", "S-142")
	dir := t.TempDir()
	start := func() *served { return startServer(t, nil, "--data", dir, "--capacity", "70") }
	s := start()
	leases := map[string]string{} // job to lease, as far as acknowledged
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			_, made, err := s.scheduling(http.MethodPost, "/jobs/submit", object{
				"addon_id": "a", "job_type": "t", "priority": "NORMAL", "cost_units": 1, "constraints": object{}, "payload": i,
			})
			if err != nil {
				return
			}
			_, _, _ = s.scheduling(http.MethodPost, "/jobs/claim", object{"addon_id": "a", "worker_id": "w"})
			job := fmt.Sprint(cmdtest.Member(made, "job", "job_id"))
			_, answer, err := s.scheduling(http.MethodPost, "/lease/request", object{"job_id": job, "ttl_sec": 600})
			if err != nil {
				return
			}
			if cmdtest.Member(answer, "approved") == true {
				leases[job] = fmt.Sprint(cmdtest.Member(answer, "lease", "lease_id"))
			}
			if i == 20 {
				close(stop)
			}
		}
	}()
	select {
	case <-stop:
	case <-time.After(patience):
		t.Fatal("the server is too slow")
	}
	s.Signal(syscall.SIGKILL)
	s.Ended()
	<-done

	s = start()
	running := 0
	for job, lease := range leases {
		got := s.schedule(http.MethodGet, "/jobs/"+job, nil)
		if cmdtest.Member(got, "job", "state") != "RUNNING" || cmdtest.Member(got, "job", "lease_id") != lease {
			t.Errorf("job %s runs no longer: %v", job, got)
		}
		if got := s.schedule(http.MethodGet, "/lease/"+lease, nil); cmdtest.Member(got, "lease", "state") != "ACTIVE" {
			t.Errorf("lease %s: %v", lease, got)
		}
	}
	rows, _ := s.schedule(http.MethodGet, "/facts/lease_runs?limit=200", nil)["lease_runs"].([]any)
	for _, row := range rows {
		if r, _ := row.(object); r["state"] == "ACTIVE" {
			running++
		}
	}
	snapshot := s.schedule(http.MethodGet, "/stats/snapshot", nil)
	// One lease may have been granted although the response was lost.
	if used := cmdtest.Member(snapshot, "capacity", "used"); running < len(leases) || running > len(leases)+1 || used != float64(running) || cmdtest.Member(snapshot, "leases", "active") != used {
		t.Errorf("%d leases were answered, %d run, and the snapshot is %v", len(leases), running, snapshot)
	}
	for job, lease := range leases {
		s.schedule(http.MethodPost, "/lease/"+lease+"/release", object{"job_id": job, "worker_id": "w", "status": "SUCCEEDED"})
	}
	if used := cmdtest.Member(s.schedule(http.MethodGet, "/stats/snapshot", nil), "capacity", "used"); used != float64(running-len(leases)) {
		t.Errorf("when all are released %v units are in use", used)
	}
}
