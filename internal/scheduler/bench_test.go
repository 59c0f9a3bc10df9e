package scheduler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store/local"
)

const connections = 64

// BenchmarkRoundTrips measures calls over connections of their own next to a bare
// echo of the same body, which is what net/http and encoding/json cost alone.
func BenchmarkRoundTrips(b *testing.B) {
	claim := `{"addon_id":"visuals","worker_id":"w","limit":1,"accept_job_types":["load30","render_image"],"max_cost_units":40,"constraints_capabilities":{"gpu_available":false}}`
	b.Run("echo", func(b *testing.B) {
		s := httptest.NewServer(http.HandlerFunc(echo))
		defer s.Close()
		roundTrips(b, s.URL, func(int) (string, string) { return "/", claim })
	})
	for _, waiting := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("claim/beside=%d", waiting), func(b *testing.B) {
			f := benched(b)
			f.fill(b, "others", waiting)
			f.fill(b, "visuals", b.N)
			roundTrips(b, f.url, func(int) (string, string) { return Base + "/jobs/claim", claim })
		})
	}
	b.Run("lease", func(b *testing.B) {
		f := benched(b)
		ids := f.claimed(b, b.N)
		roundTrips(b, f.url, func(i int) (string, string) {
			return Base + "/lease/request", `{"job_id":"` + ids[i].String() + `","addon_id":"visuals","job_type":"load30","cost_units":30,"priority":"NORMAL","constraints":{},"ttl_sec":3600}`
		})
	})
	b.Run("snapshot", func(b *testing.B) {
		f := benched(b)
		f.claimed(b, 10_000)
		roundTrips(b, f.url, func(int) (string, string) { return Base + "/stats/snapshot", "" })
	})
}

func echo(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	var v map[string]any
	if err == nil {
		err = json.Unmarshal(raw, &v)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		return // the client has left
	}
}

// roundTrips makes b.N calls over many connections.
func roundTrips(b *testing.B, url string, call func(i int) (path, body string)) {
	b.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var next atomic.Int64
	b.SetParallelism(connections)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			path, body := call(int(next.Add(1) - 1))
			method := http.MethodPost
			if body == "" {
				method = http.MethodGet
			}
			r, err := http.NewRequestWithContext(b.Context(), method, url+path, bytes.NewReader([]byte(body)))
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			answer, err := client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			raw, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close() // read to its end
			if answer.StatusCode != http.StatusOK {
				b.Errorf("%s: %d %s", path, answer.StatusCode, raw)
				return
			}
		}
	})
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
}

type bench struct {
	engine *engine.Engine
	face   *Face
	url    string
}

func benched(b *testing.B) *bench {
	b.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	capacity := int64(gq.MaxCapacity)
	face, err := New(e, Options{Capacity: &capacity})
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(face)
	b.Cleanup(server.Close)
	return &bench{e, face, server.URL}
}

// fill submits jobs.
func (f *bench) fill(b *testing.B, addon string, n int) {
	b.Helper()
	if err := f.face.addon(b.Context(), addon); err != nil {
		b.Fatal(err)
	}
	for n > 0 {
		specs := make([]gq.Spec, min(n, 1000))
		for i := range specs {
			specs[i] = gq.Spec{Queue: addon, Type: "load30", CostUnits: 30, Policy: f.face.policy, Payload: gq.Payload{Data: []byte(`{"model":"sdxl"}`), ContentType: gq.JSON}}
		}
		if _, err := f.engine.SubmitBatch(b.Context(), specs); err != nil {
			b.Fatal(err)
		}
		n -= len(specs)
	}
}

// claimed submits jobs and claims them.
func (f *bench) claimed(b *testing.B, n int) (ids []gq.JobID) {
	b.Helper()
	f.fill(b, "visuals", n)
	for len(ids) < n {
		jobs, err := f.engine.Claim(b.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{"visuals"}, N: min(n-len(ids), 1000), Hold: true, TTL: 0})
		if err != nil {
			b.Fatal(err)
		}
		for i := range jobs {
			ids = append(ids, jobs[i].State.ID)
		}
	}
	return ids
}
