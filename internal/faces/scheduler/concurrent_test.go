package scheduler

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/race"
)

// client is a worker's own connection.
type client struct {
	base func() string
	http *http.Client
}

func (c *client) do(method, path string, body any) (status int, out object, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return 0, nil, err
		}
	}
	r, err := http.NewRequestWithContext(context.Background(), method, c.base()+path, bytes.NewReader(text))
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

// Concurrent clients claim many jobs: every job is claimed exactly once.
func tellClaimedOnce(f *fixture) {
	clients, each := 20, 1000
	switch {
	case f.face != nil:
		each = 50 // fewer than the program gets
	case race.Share():
		each = 250
	}
	f.submit() // makes the queue an addon
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

// manyMore submits jobs to the addon, a thousand at a time if possible.
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

// nodes are servers on one store, which crash and restart.
type nodes struct {
	t     *testing.T
	place place
	flags []string

	mu sync.Mutex
	at []*process // guarded by mu
}

func (n *nodes) node(i int) *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.at[i%len(n.at)]
}

// crash kills a node and restarts it.
func (n *nodes) crash(i int) {
	n.node(i).kill()
	again := n.place.start(n.t, n.flags...)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[i] = again
}

func (n *nodes) client(i int) *client {
	transport := &http.Transport{}
	n.t.Cleanup(transport.CloseIdleConnections)
	return &client{base: func() string { return "http://" + n.node(i).address + Base }, http: &http.Client{Transport: transport}}
}

// ledger records the responses that workers got.
type ledger struct {
	mu       sync.Mutex
	approved map[string]string // lease to job
	released map[string]bool   // leases
	denied   int
}

// Sixty-four workers request leases concurrently. Some of them vanish, and servers are
// killed meanwhile: running jobs never exceed the capacity, in the end none is in use,
// and the facts contain everything that was answered.
func TestCapacityNeverExceeded(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, c := range []struct {
		name  string
		place int
		nodes int
	}{{"file", 0, 1}, {"postgres with two servers", 1, 2}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			capacityNeverExceeded(t, places[c.place].open(t), c.nodes)
		})
	}
}

const (
	totalCapacity = 70
	leaseWorkers  = 64
	leaseRounds   = 3
	crashes       = 3
)

func capacityNeverExceeded(t *testing.T, where place, count int) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	o := Options{Capacity: units(totalCapacity), LeaseTTL: time.Second, Requeue: true}
	servers := &nodes{t: t, place: where, flags: o.flags()}
	for range count {
		servers.at = append(servers.at, where.start(t, servers.flags...))
	}
	book := &ledger{approved: map[string]string{}, released: map[string]bool{}}
	var working sync.WaitGroup
	var done atomic.Int64
	for i := range leaseWorkers {
		c := servers.client(i)
		name, addon := fmt.Sprintf("w%d", i), fmt.Sprintf("addon%d", i%5)
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		working.Go(func() {
			for range leaseRounds {
				c.keepTrying(http.MethodPost, "/jobs/submit", submission("addon_id", addon, "cost_units", 1+random.Int64N(40)))
				c.oneJob(t, book, addon, name, random)
				done.Add(1)
			}
		})
	}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	watcher := servers.client(count - 1)
	watching.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			_, out, err := watcher.do(http.MethodGet, "/stats/snapshot", nil)
			if used, _ := member(out, "capacity")["used"].(float64); err == nil && used > totalCapacity {
				t.Errorf("%v of %d units are in use", used, totalCapacity)
			}
		}
	})
	for i := range crashes { // spread over the work
		for done.Load() < int64((i+1)*leaseWorkers*leaseRounds/(crashes+1)) {
			time.Sleep(tick)
		}
		servers.crash(i % count)
	}
	working.Wait()
	close(stop)
	watching.Wait()

	f := servers.fixture(0)
	deadline := time.Now().Add(time.Minute)
	for number(member(f.get("/stats/snapshot"), "capacity")["used"]) > 0 { // abandoned leases expire
		if time.Now().After(deadline) {
			t.Fatal("capacity stays in use")
		}
		time.Sleep(tick)
	}
	f.neverAbove(totalCapacity)
	book.agrees(f)
	t.Logf("%d leases were approved and %d denied, %d released; the servers were killed %d times", len(book.approved), book.denied, len(book.released), crashes)
	if len(book.approved) == 0 || book.denied == 0 || len(book.released) == len(book.approved) {
		t.Error("the run shows nothing: some leases must be approved, some denied, and some never released")
	}
	for i := 1; i < count; i++ { // all servers agree
		other := servers.fixture(i)
		for _, path := range []string{"/facts/job_runs", "/facts/lease_runs", "/facts/events", "/jobs", "/admin/capacity", "/stats/snapshot"} {
			if one, two := f.get(path), other.get(path); !reflect.DeepEqual(one, two) {
				t.Errorf("%s is\n%v on one server and\n%v on another", path, one, two)
			}
		}
		f.do(http.MethodPut, "/admin/capacity", object{"total": 5}, http.StatusOK)
		job := id(other.submit("addon_id", "late", "cost_units", 6))
		other.claim("addon_id", "late")
		if got := other.denied(job); got["reason"] != "Capacity exceeded: used=0, requested=6, capacity=5" {
			t.Errorf("the capacity was changed on one server, the denial of another is %v", got)
		}
	}
}

// fixture connects to one of the servers.
func (n *nodes) fixture(i int) *fixture { return n.node(i).fixture(n.t) }

// agrees compares the facts with the responses that workers got.
func (b *ledger) agrees(f *fixture) {
	f.Helper()
	jobs := map[any]object{}
	for _, r := range f.list("/facts/job_runs?limit=200", "job_runs") {
		jobs[r["job_id"]] = r
	}
	leases := map[any]object{}
	for _, r := range f.list("/facts/lease_runs?limit=200", "lease_runs") {
		leases[r["lease_id"]] = r
		if job := jobs[r["job_id"]]; job == nil || r["state"] == "ACTIVE" || (r["state"] == "RELEASED") != (job["state"] == "DONE" && job["lease_id"] == r["lease_id"]) {
			f.Errorf("a lease is %v, and its job %v", r, job)
		}
	}
	for lease, job := range b.approved {
		if r := leases[lease]; r == nil || r["job_id"] != job {
			f.Errorf("lease %s of job %s was approved, and is %v", lease, job, r)
		}
	}
	for lease := range b.released {
		if r := leases[lease]; r["state"] != "RELEASED" || r["release_status"] != "SUCCEEDED" {
			f.Errorf("lease %s was released, and is %v", lease, r)
		}
	}
}

// neverAbove adds up the leases as they began and ended, in commit order. A lease that
// was not renewed occupies nothing after its expiry, whenever that is recorded.
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
			live[lease] = grant{number(data["cost_units"]), instant(f.TB, data["expires_at"])}
			used := int64(0)
			for other, g := range live {
				if !g.end.After(instant(f.TB, e["ts"])) {
					delete(live, other)
				}
				used += live[other].cost
			}
			if most = max(most, used); used > capacity {
				f.Fatalf("with event %v %d of %d units are in use, by %v", e, used, capacity, live)
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

// keepTrying repeats a request until a server responds.
func (c *client) keepTrying(method, path string, body any) (status int, out object) {
	for {
		status, out, err := c.do(method, path, body)
		if err == nil && status < http.StatusInternalServerError {
			return status, out
		}
		time.Sleep(tick)
	}
}

// oneJob claims a job, gets its lease and releases it, or vanishes.
func (c *client) oneJob(t *testing.T, book *ledger, addon, name string, random *rand.Rand) {
	status, out := c.keepTrying(http.MethodPost, "/jobs/claim", object{"addon_id": addon, "worker_id": name})
	if status == http.StatusNoContent {
		return
	}
	job := id(member(out, "job"))
	for {
		status, out = c.keepTrying(http.MethodPost, "/lease/request", object{"job_id": job, "worker_id": name})
		if status == http.StatusConflict { // it was approved and the response was lost, or the claim expired
			return
		}
		if status != http.StatusOK {
			t.Errorf("lease: %d %v", status, out)
			return
		}
		if out["approved"] == true {
			break
		}
		if after, _ := out["retry_after_sec"].(float64); after < 1 {
			t.Errorf("a denial says %v", out)
		}
		book.mu.Lock()
		book.denied++
		book.mu.Unlock()
		time.Sleep(tick)
	}
	lease, _ := member(out, "lease")["lease_id"].(string)
	book.mu.Lock()
	book.approved[lease] = job
	book.mu.Unlock()
	if random.IntN(4) == 0 {
		return // killed
	}
	status, out = c.keepTrying(http.MethodPost, "/lease/"+lease+"/release", object{"job_id": job, "worker_id": name, "status": "SUCCEEDED"})
	switch status {
	case http.StatusOK:
		book.mu.Lock()
		book.released[lease] = true
		book.mu.Unlock()
	case http.StatusConflict: // too late
	default:
		t.Errorf("release: %d %v", status, out)
	}
}
