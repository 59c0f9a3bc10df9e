package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/internal/testing/taskqueuetest"
	"github.com/gopherqueue/gq/worker"
)

// How many jobs run before the server is idle. make test-idle does the long run.
var (
	idleNativeJobs = flag.Int("idle-native-jobs", 2000, "jobs of the native API")
	idleJobs       = flag.Int("idle-jobs", 300, "jobs of the scheduler, of matching and of the task queue each")
)

const (
	idleMost     = 1.0              // percent of a core
	idleWindow   = 12 * time.Second // covers everything that runs every ten seconds
	idlePatience = 5 * time.Minute  // for work that follows the last job
)

// TestIdleServerUsesNoCPU runs jobs of every face, on every store, and then measures the
// CPU time of the server and its database while nothing happens. It counts only their
// processes, so other load on the machine does not matter.
func TestIdleServerUsesNoCPU(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("the CPU time of other processes is read from /proc, which this system lacks")
	}
	t.Parallel() // it mostly waits
	for _, kind := range []string{"memory", "file", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			store, database := "memory:", 0
			switch kind {
			case "file":
				store = "file:" + filepath.Join(t.TempDir(), "data")
			case "postgres":
				store = pgtest.Own(t).Database(t)
				database = postmaster(t, store)
			}
			s := startServer(t, nil, "--store", store, "--taskqueue-slots", "32", "--capacity", "1000000")
			c, err := client.New(s.grpc, client.Options{RetryFor: crashPatience})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			began := time.Now()
			runNative(t, c, *idleNativeJobs)
			runScheduler(t, s, *idleJobs)
			runTaskQueue(t, s, *idleJobs)
			runMatching(t, s, *idleJobs)
			cmdtest.WaitFor(t, "all jobs to end", func() bool {
				stats, err := c.Stats(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				return stats.Total.Live() == 0
			})
			ran := time.Since(began)
			c.Close()
			http.DefaultClient.CloseIdleConnections()
			if database != 0 && clusterTime(t, database) < 100*time.Millisecond {
				t.Fatal("the jobs took the database no time: it is not this server's")
			}

			var server, beside float64
			for deadline := time.Now().Add(idlePatience); ; {
				before, were := cpuTime(t, s.Command.Process.Pid), clusterTime(t, database)
				start := time.Now()
				rest(t.Context(), idleWindow)
				took := time.Since(start)
				server = 100 * float64(cpuTime(t, s.Command.Process.Pid)-before) / float64(took)
				beside = 100 * float64(clusterTime(t, database)-were) / float64(took)
				if server <= idleMost && beside <= idleMost {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("an idle server uses %.2f %% of a core and its database %.2f %%, want at most %v each", server, beside, idleMost)
				}
			}
			t.Logf("%d native jobs and %d of each other face in %v; idle then: server %.2f %% of a core, database %.2f %%",
				*idleNativeJobs, *idleJobs, ran.Round(time.Second), server, beside)
		})
	}
}

// cpuTime returns the CPU time of a process.
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	own, _, _, err := times(pid)
	if err != nil {
		t.Fatal(err)
	}
	return own
}

// times returns the CPU time of a process and of its ended children, and its parent.
func times(pid int) (own, ended time.Duration, parent int, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, 0, err
	}
	_, rest, _ := bytes.Cut(text, []byte(") ")) // after the name, which may contain spaces
	f := strings.Fields(string(rest))
	const tick = time.Second / 100 // USER_HZ is 100 wherever Go runs
	number := func(i int) int {
		n, bad := strconv.Atoi(f[i])
		if bad != nil {
			err = bad
		}
		return n
	}
	return tick * time.Duration(number(11)+number(12)), tick * time.Duration(number(13)+number(14)), number(1), err
}

// postmaster returns the main process of a database server.
func postmaster(t testing.TB, url string) int {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var dir string
	if err := conn.QueryRow(t.Context(), "SHOW data_directory").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// clusterTime returns the CPU time of the processes of a database server, including ended
// ones; 0 without a server.
func clusterTime(t testing.TB, postmaster int) time.Duration {
	t.Helper()
	if postmaster == 0 {
		return 0
	}
	own, ended, _, err := times(postmaster)
	if err != nil {
		t.Fatal(err)
	}
	all := own + ended
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			if own, _, parent, err := times(pid); err == nil && parent == postmaster {
				all += own
			}
		}
	}
	return all
}

func runNative(t *testing.T, c *client.Client, n int) {
	t.Helper()
	var done atomic.Int64
	all := make(chan struct{})
	w := worker.New(c, worker.Config{Slots: 200, Logger: slog.New(slog.DiscardHandler)})
	w.HandleFunc("go", func(context.Context, *worker.Run) error {
		if done.Add(1) == int64(n) {
			close(all)
		}
		return nil
	})
	working, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	specs := make([]gq.Spec, 500)
	for i := range specs {
		specs[i] = gq.Spec{Type: "go"}
	}
	for sent := 0; sent < n; sent += len(specs) {
		if _, err := c.SubmitBatch(t.Context(), specs[:min(len(specs), n-sent)]); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-all:
	case <-time.After(crashSettling):
		t.Errorf("%d of %d jobs have run", done.Load(), n)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// spread makes n calls, a few at a time, and fails the test at the first error.
func spread(t *testing.T, n int, call func() error) {
	t.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var calling sync.WaitGroup
	var failed sync.Once
	var fault error
	for range 32 {
		calling.Go(func() {
			for left.Add(-1) >= 0 {
				if err := call(); err != nil {
					failed.Do(func() { fault = err })
					return
				}
			}
		})
	}
	calling.Wait()
	if fault != nil {
		t.Fatal(fault)
	}
}

func runScheduler(t *testing.T, s *served, n int) {
	t.Helper()
	call := func(path string, body object) (object, error) {
		status, answer, err := s.scheduling(http.MethodPost, path, body)
		if err == nil && status >= 400 {
			err = fmt.Errorf("%s: %d %v", path, status, answer)
		}
		return answer, err
	}
	spread(t, n, func() error {
		_, err := call("/jobs/submit", object{
			"addon_id": "visuals", "job_type": "render", "priority": "HIGH", "cost_units": 1, "constraints": object{}, "payload": object{"n": 1},
		})
		if err != nil {
			return err
		}
		claimed, err := call("/jobs/claim", object{"addon_id": "visuals", "worker_id": "w"})
		if err != nil {
			return err
		}
		job := cmdtest.Member(claimed, "job", "job_id")
		lease, err := call("/lease/request", object{"job_id": job})
		if err != nil || cmdtest.Member(lease, "approved") != true {
			return fmt.Errorf("lease: %v %w", lease, err)
		}
		_, err = call(fmt.Sprintf("/lease/%v/release", cmdtest.Member(lease, "lease", "lease_id")), object{"job_id": job, "worker_id": "w", "status": "SUCCEEDED"})
		return err
	})
}

func runTaskQueue(t *testing.T, s *served, n int) {
	t.Helper()
	conn := taskqueuetest.Dial(t, s.grpc)
	defer conn.Close()
	c := publicpb.NewTaskQueuePublicServiceClient(conn)
	spread(t, n, func() error { // the server runs them itself
		_, err := c.SubmitJob(t.Context(), &publicpb.SubmitJobRequest{Spec: &publicpb.JobSpec{JobType: "x"}})
		return err
	})
}

func runMatching(t *testing.T, s *served, n int) {
	t.Helper()
	// Long timeouts, so that no lease and no provider expires on a busy machine.
	s.matching(http.MethodPut, "/policy", `{"quotas":{"leases_max_per_provider":1000},"eligibility":{"heartbeat_timeout_secs":3600},`+
		`"ack_timeout_ms":600000,"lease":{"ai_secs":3600,"quantum_secs":3600}}`)
	s.matching(http.MethodPost, "/providers", anyProvider)
	post := func(path, body string) error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.http+"/api/matching"+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode >= 400 {
			err = fmt.Errorf("%s: %d %s", path, answer.StatusCode, text)
		}
		return err
	}
	const atOnce = 500 // waiting jobs, few enough that none waits too long
	done := map[string]bool{}
	deadline := time.Now().Add(crashSettling + time.Duration(n)*50*time.Millisecond)
	for sent := 0; len(done) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d jobs were matched", len(done), n)
		}
		if more := min(n-sent, len(done)+atOnce-sent); more > 0 {
			spread(t, more, func() error { return post("/jobs", `{"kind":"AI"}`) })
			sent += more
		}
		if err := post("/providers/p/heartbeat", ""); err != nil {
			t.Fatal(err)
		}
		type given struct {
			ID     string `json:"lease_id"`
			Job    string `json:"job_id"`
			Acked  bool   `json:"acked"`
			Status string `json:"status"`
		}
		var answer struct{ Leases []given }
		if err := json.Unmarshal([]byte(s.matching(http.MethodGet, "/providers/p/leases", "")), &answer); err != nil {
			t.Fatal(err)
		}
		fresh := make(chan given, len(answer.Leases))
		for _, l := range answer.Leases {
			if (l.Status == "ACTIVE" || l.Status == "RENEWED") && !l.Acked && !done[l.Job] {
				fresh <- l
				done[l.Job] = true
			}
		}
		spread(t, len(fresh), func() error {
			l := <-fresh
			err := post("/leases/"+l.ID+"/ack", `{"provider_id":"p"}`)
			if err != nil {
				return err
			}
			return post("/leases/"+l.ID+"/complete", `{"provider_id":"p","output_digest":"`+strings.Repeat("ab", 32)+`"}`)
		})
	}
}
