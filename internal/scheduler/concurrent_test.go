package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// client is a worker's own connection.
type client struct {
	base string
	http *http.Client
}

// serving starts a server over the fixture's face.
func (f *fixture) serving() (connect func() *client) {
	s := httptest.NewServer(f.face)
	f.Cleanup(s.Close)
	return func() *client {
		t := &http.Transport{}
		f.Cleanup(t.CloseIdleConnections)
		return &client{base: s.URL + Base, http: &http.Client{Transport: t}}
	}
}

func (c *client) do(method, path string, body any) (status int, out object, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	r, err := http.NewRequestWithContext(context.Background(), method, c.base+path, bytes.NewReader(text))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.http.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil || len(raw) == 0 {
		return answer.StatusCode, nil, err
	}
	return answer.StatusCode, out, json.Unmarshal(raw, &out)
}

// Twenty clients claim a thousand jobs each: every job is claimed exactly once.
func tellClaimedOnce(f *fixture) {
	clients, each := 20, 1000
	if f.face != nil {
		each = 50 // the many are for the program
	}
	f.submit() // the queue is an addon's from now on
	f.manyMore(clients*each - 1)
	var (
		claiming sync.WaitGroup
		mu       sync.Mutex
		by       = map[string]string{} // job to worker
	)
	for i := range clients {
		c := f.connect()
		name := fmt.Sprintf("w%d", i)
		claiming.Go(func() {
			for {
				status, out, err := c.do(http.MethodPost, "/jobs/claim", object{"addon_id": "visuals", "worker_id": name, "limit": 3})
				if err != nil || status != http.StatusOK && status != http.StatusNoContent {
					f.Errorf("claim: %d %v %v", status, out, err)
					return
				}
				if status == http.StatusNoContent {
					return
				}
				job := member(out, "job")
				mu.Lock()
				if other, twice := by[id(job)]; twice {
					f.Errorf("job %s was claimed by %s and %s", id(job), other, name)
				}
				by[id(job)] = name
				mu.Unlock()
				if job["claimed_by"] != name {
					f.Errorf("%s got a job that is claimed by %v", name, job["claimed_by"])
				}
			}
		})
	}
	claiming.Wait()
	if len(by) != clients*each {
		f.Errorf("%d jobs were claimed, want %d", len(by), clients*each)
	}
}

// manyMore submits jobs to the addon, a thousand at a time where there is a way.
func (f *fixture) manyMore(n int) {
	f.Helper()
	if f.face != nil {
		for range n {
			f.submit()
		}
		return
	}
	for ; n > 0; n -= min(n, 1000) {
		jobs := make([]object, min(n, 1000))
		for i := range jobs {
			jobs[i] = object{"queue": "visuals", "type": "load30", "cost_units": 30, "payload": object{"model": "sdxl"}}
		}
		r := f.request(http.MethodPost, "/v1/jobs/batch", encoded(object{"jobs": jobs}))
		r.Header.Set("Content-Type", "application/json")
		if a := f.send(r); a.status != http.StatusOK {
			f.Fatalf("submit many: %d %.300s", a.status, a.raw)
		}
	}
}

// Many workers ask for leases at once, some of them vanish: what runs never costs
// more than there is, and in the end nothing is in use.
func TestCapacityNeverExceeded(t *testing.T) {
	workers, rounds := 64, 6
	if testing.Short() || raceEnabled {
		rounds = 3
	}
	f := newFixture(t, Options{LeaseTTL: 300 * time.Millisecond, Requeue: true})
	f.face.settings.DenialRetry = 10 * time.Millisecond
	connect := f.serving()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	const capacity = 70

	stop := make(chan struct{})
	var watching sync.WaitGroup
	watcher := connect()
	watching.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, out, err := watcher.do(http.MethodGet, "/stats/snapshot", nil)
			used, _ := member(out, "capacity")["used"].(float64)
			if err != nil || used > capacity {
				t.Errorf("%v of %d units are in use (%v)", used, capacity, err)
			}
		}
	})

	var working sync.WaitGroup
	for i := range workers {
		c := connect()
		name := fmt.Sprintf("w%d", i)
		addon := fmt.Sprintf("addon%d", i%5)
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		working.Go(func() {
			for range rounds {
				cost := 1 + random.Int64N(40)
				status, out, err := c.do(http.MethodPost, "/jobs/submit", submission("addon_id", addon, "cost_units", cost))
				if err != nil || status != http.StatusCreated {
					t.Errorf("submit: %d %v %v", status, out, err)
					return
				}
				c.oneJob(t, addon, name, random)
			}
		})
	}
	working.Wait()
	close(stop)
	watching.Wait()
	deadline := time.Now().Add(20 * time.Second)
	for { // what was left behind runs out
		_, out, err := watcher.do(http.MethodGet, "/stats/snapshot", nil)
		if err != nil {
			t.Fatal(err)
		}
		if used, _ := member(out, "capacity")["used"].(float64); used == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("capacity stays in use: %v", out)
		}
		time.Sleep(20 * time.Millisecond) // leases of a real server run out in real time
	}
	f.neverAbove(capacity)
}

// neverAbove adds up the leases as they began and ended, in the order of the
// commits. A lease that nobody prolonged occupies nothing from its end on, whenever
// that is recorded.
func (f *fixture) neverAbove(capacity int64) {
	f.Helper()
	type grant struct {
		cost int64
		end  time.Time
	}
	live, ended := map[any]grant{}, map[any]bool{}
	most, granted := int64(0), 0
	for _, e := range f.list("/facts/events?limit=200", "events") {
		lease, data := e["entity_id"], member(e, "data_json")
		switch e["event_type"] {
		case "LEASE_GRANTED":
			granted++
			live[lease] = grant{number(data["cost_units"]), instant(f.T, data["expires_at"])}
			used := int64(0)
			for other, g := range live {
				if !g.end.After(instant(f.T, e["ts"])) {
					delete(live, other)
				}
				used += live[other].cost
			}
			if most = max(most, used); used > capacity {
				f.Fatalf("with event %v %d of %d units are in use", e["id"], used, capacity)
			}
		case "LEASE_RELEASED", "LEASE_EXPIRED":
			if ended[lease] {
				f.Errorf("lease %v ends twice", lease)
			}
			ended[lease] = true
			delete(live, lease)
		}
	}
	if len(ended) != granted || len(live) != 0 {
		f.Errorf("%d leases were granted, %d ended, and %v live", granted, len(ended), live)
	}
	f.Logf("%d leases, at most %d of %d units at once", granted, most, capacity)
}

// oneJob claims a job, gets its lease and releases it, or vanishes.
func (c *client) oneJob(t *testing.T, addon, name string, random *rand.Rand) {
	status, out, err := c.do(http.MethodPost, "/jobs/claim", object{"addon_id": addon, "worker_id": name})
	if err != nil || status == http.StatusNoContent {
		return
	}
	job := member(out, "job")
	for {
		status, out, err = c.do(http.MethodPost, "/lease/request", object{"job_id": id(job), "worker_id": name})
		if err != nil || status != http.StatusOK {
			t.Errorf("lease: %d %v %v", status, out, err)
			return
		}
		if out["approved"] == true {
			break
		}
		if after, _ := out["retry_after_sec"].(float64); after < 1 {
			t.Errorf("a denial says %v", out)
		}
	}
	lease, _ := member(out, "lease")["lease_id"].(string)
	if random.IntN(4) == 0 {
		return // killed
	}
	status, out, err = c.do(http.MethodPost, "/lease/"+lease+"/release", object{"job_id": id(job), "worker_id": name, "status": "SUCCEEDED"})
	if err != nil || status != http.StatusOK && status != http.StatusConflict {
		t.Errorf("release: %d %v %v", status, out, err)
	}
}
