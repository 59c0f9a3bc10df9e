package bench

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// memory has no floor unless it is wrapped in replaying.
type memory struct{ change func(store.Store) store.Store }

func (m memory) Open(_ string, onCommit func([]byte)) (store.Store, error) {
	s, err := local.OpenMemory(local.Options{OnCommit: onCommit})
	if err != nil {
		return nil, err
	}
	if m.change != nil {
		return m.change(s), nil
	}
	return s, nil
}

func (memory) Remove(string) error { return nil }
func (memory) Keeps() bool         { return false }

type replaying struct {
	memory
	commits *int
}

func (r replaying) Replay(commits [][]byte) (time.Duration, error) {
	*r.commits += len(commits)
	return local.Replay("", commits)
}

type directory string

func (d directory) Open(name string, onCommit func([]byte)) (store.Store, error) {
	return local.Open(filepath.Join(string(d), name), local.Options{OnCommit: onCommit})
}

func (d directory) Replay(commits [][]byte) (time.Duration, error) {
	dir := filepath.Join(string(d), "floor")
	elapsed, err := local.Replay(dir, commits)
	return elapsed, errors.Join(err, os.RemoveAll(dir))
}

func (d directory) Remove(name string) error { return os.RemoveAll(filepath.Join(string(d), name)) }
func (d directory) Keeps() bool              { return true }

const smallJobs = 40

// small returns settings that finish quickly.
func small(scenarios ...Scenario) Settings {
	s := DefaultSettings()
	s.Scenarios, s.Callers, s.Batch = scenarios, []int{1, 8}, 7
	s.Jobs, s.Backlog, s.Idle = smallJobs, 200, 10*time.Millisecond
	return s
}

// places are memory: and file:.
var places = map[string]func(*testing.T) Place{
	"Memory": func(*testing.T) Place { return replaying{commits: new(int)} },
	"File": func(t *testing.T) Place {
		t.Helper()
		dir := t.TempDir()
		t.Cleanup(func() {
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("the run left %v behind (%v)", left, err)
			}
		})
		return directory(dir)
	},
}

func measure(t *testing.T, p Place, s Settings) Report {
	t.Helper()
	r, err := Run(t.Context(), p, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*math.Max(math.Abs(a), math.Abs(b)) }

func checkRow(t *testing.T, r Row, calls ...*Latency) {
	t.Helper()
	if r.Jobs != smallJobs {
		t.Errorf("%s: %d jobs, want %d", shape(r.Callers, r.Batch), r.Jobs, smallJobs)
	}
	if !near(r.JobsPerSecond, float64(r.Jobs)/r.Seconds) {
		t.Errorf("%v jobs/s is not %d jobs in %v s", r.JobsPerSecond, r.Jobs, r.Seconds)
	}
	if !near(*r.FloorJobsPerSecond, float64(r.Jobs) / *r.FloorSeconds) {
		t.Errorf("a floor of %v jobs/s is not %d jobs in %v s", *r.FloorJobsPerSecond, r.Jobs, *r.FloorSeconds)
	}
	if !near(*r.Ratio, r.JobsPerSecond / *r.FloorJobsPerSecond) {
		t.Errorf("ratio %v is not %v / %v", *r.Ratio, r.JobsPerSecond, *r.FloorJobsPerSecond)
	}
	for _, l := range calls {
		wanted := uint64(math.Ceil(smallJobs / float64(r.Batch)))
		if l.Calls != wanted || l.P50 <= 0 || l.P50 > l.P95 || l.P95 > l.P99 || l.P99 > l.Max {
			t.Errorf("%s: latency %+v, want ascending percentiles of %d calls", shape(r.Callers, r.Batch), *l, wanted)
		}
	}
	if *r.Commits <= 0 || *r.Syncs <= 0 || *r.CommitBytes <= 100 || *r.DiskBytes <= 0 || r.LiveHeap <= 0 {
		t.Errorf("%s: a cost is missing: %+v", shape(r.Callers, r.Batch), r)
	}
}

func shapes(rows []Row) (got [][2]int) {
	for _, r := range rows {
		got = append(got, [2]int{r.Callers, r.Batch})
	}
	return got
}

func TestCycle(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			p := place(t)
			r := measure(t, p, small(Cycle))
			want := [][2]int{{1, 1}, {8, 1}, {1, 7}, {8, 7}}
			if got := shapes(r.Cycle); !slices.Equal(got, want) {
				t.Fatalf("rows with callers and batches %v, want %v", got, want)
			}
			for _, row := range r.Cycle {
				checkRow(t, row, row.Enqueue, row.Claim, row.Complete)
				if row.Events != 4 {
					t.Errorf("%v events per job, want 4: submitted, scheduled, started, completed", row.Events)
				}
			}
			if first := r.Cycle[0]; *first.Commits != 3 {
				t.Errorf("one caller with single calls made %v commits per job, want one for each of its 3 calls", *first.Commits)
			}
		})
	}
}

func TestEnqueue(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			p := place(t)
			for _, row := range measure(t, p, small(Enqueue)).Enqueue {
				checkRow(t, row, row.Enqueue)
				if row.Claim != nil || row.Complete != nil || row.Events != 2 {
					t.Errorf("enqueue alone: %+v, want no other calls and 2 events per job", row)
				}
			}
		})
	}
}

func TestFloorReplaysTheRow(t *testing.T) {
	commits := 0
	s := small(Cycle)
	s.Callers, s.Batch = []int{1}, 1
	r := measure(t, replaying{commits: &commits}, s)
	if want := int(*r.Cycle[0].Commits * smallJobs); commits != want {
		t.Errorf("the floor wrote %d commits, the row %d", commits, want)
	}
}

func TestNoFloor(t *testing.T) {
	for _, row := range measure(t, memory{}, small(Cycle)).Cycle {
		if row.Ratio != nil || row.FloorJobsPerSecond != nil || row.JobsPerSecond <= 0 {
			t.Errorf("without a floor: %+v", row)
		}
	}
}

func TestBacklog(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			p := place(t)
			r := *measure(t, p, small(Backlog)).Backlog
			if len(r.Cycles) != 2 || r.Jobs != 200 {
				t.Fatalf("%+v, want single and batched cycles with 200 jobs queued", r)
			}
			for _, c := range r.Cycles {
				if c.Callers != 8 || !near(c.Ratio, c.With/c.Without) || c.Ratio <= 0 {
					t.Errorf("%+v, want 8 callers and the quotient of both rates", c)
				}
			}
			if r.DrainFirstPerSecond <= 0 || r.DrainLastPerSecond <= 0 || r.DrainJobsPerSecond <= 0 || r.FillJobsPerSecond <= 0 {
				t.Errorf("%+v: a rate is missing", r)
			}
			if reopened := r.ReopenSeconds != nil; reopened != p.Keeps() {
				t.Errorf("reopened: %v, want %v", reopened, p.Keeps())
			}
		})
	}
}

func TestFilter(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			p := place(t)
			r := measure(t, p, small(Filter))
			var got []string
			for _, row := range r.Filter {
				got = append(got, row.Filter)
				if row.Ahead != 200 || !near(row.Ratio, row.With/row.Without) || row.Ratio <= 0 {
					t.Errorf("%+v, want 200 jobs ahead and the quotient of both rates", row)
				}
				if row.ClaimWith.Calls != smallJobs || row.ClaimWithout.Calls != smallJobs {
					t.Errorf("%d and %d claims, want %d each", row.ClaimWith.Calls, row.ClaimWithout.Calls, smallJobs)
				}
			}
			if want := []string{"type", "type", "capability", "capability", "cost", "cost"}; !slices.Equal(got, want) {
				t.Errorf("filters %v, want %v", got, want)
			}
		})
	}
}

// Each filter must skip the backlog for its own reason, or it would measure another one.
func TestFiltersDifferInOneRespect(t *testing.T) {
	for _, f := range filters() {
		job, other := f.job(), ahead()
		differences := 0
		for _, differs := range []bool{
			job.Type != other.Type, job.CostUnits != other.CostUnits, !slices.Equal(job.Requires, other.Requires),
		} {
			if differs {
				differences++
			}
		}
		if differences != 1 || f.allows(&other) || !f.allows(&job) {
			t.Errorf("filter by %s: the jobs ahead differ in %d respects, want 1", f.name, differences)
		}
	}
}

func TestByDuration(t *testing.T) {
	s := small(Cycle, Filter)
	s.Jobs, s.Duration, s.Callers = 0, 10*time.Millisecond, []int{4}
	r := measure(t, replaying{commits: new(int)}, s)
	for _, row := range r.Cycle {
		if row.Jobs == 0 || row.Seconds < s.Duration.Seconds() {
			t.Errorf("%d jobs in %v s, want some and at least %v", row.Jobs, row.Seconds, s.Duration)
		}
	}
	for _, row := range r.Filter {
		if row.ClaimWith.Calls == 0 || row.ClaimWithout.Calls == 0 {
			t.Errorf("filter by %s: no claims", row.Filter)
		}
	}
}

func TestIdle(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			p := place(t)
			r := measure(t, p, small(Idle)).Idle
			if r.Queued == 0 || r.Delayed == 0 || r.Seconds != 0.01 {
				t.Errorf("%+v, want a store with jobs watched for 10 ms", *r)
			}
			if _, ok := processTime(); ok && (r.CPU == nil || r.Baseline == nil) {
				t.Errorf("%+v: CPU time is missing", *r)
			}
		})
	}
}

func TestRepeat(t *testing.T) {
	s := small(Cycle, Idle)
	s.Repeat, s.Callers = 3, []int{1}
	var steps []string
	s.Progress = func(done, total int, what string) {
		if done != len(steps) || total != 3*3 {
			t.Errorf("step %d of %d, want %d of 9", done, total, len(steps))
		}
		steps = append(steps, what)
	}
	r := measure(t, replaying{commits: new(int)}, s)
	for _, row := range r.Cycle {
		if n := row.Repeats; n.Runs != 3 || n.Least > *row.Ratio || n.Most < *row.Ratio {
			t.Errorf("ratio %v of %+v, want the median of 3", *row.Ratio, n)
		}
	}
	if len(steps) != 9 || steps[0] != "cycle, 1 caller, single calls" || steps[0] != steps[3] {
		t.Errorf("steps %q, want the same 3 three times", steps)
	}
}

func TestRecordingEndsARow(t *testing.T) {
	s := small(Cycle)
	s.Callers, s.Batch, s.Jobs, s.Record = []int{1}, 1, 1_000_000, 5000
	r := measure(t, replaying{commits: new(int)}, s)
	if row := r.Cycle[0]; row.Jobs == 0 || row.Jobs > 100 || row.Ratio == nil {
		t.Errorf("%+v, want a few jobs and their floor", row)
	}
	if !slices.ContainsFunc(r.Warnings, func(w string) bool { return strings.Contains(w, "recorded") }) {
		t.Errorf("warnings %q do not say why the row ended", r.Warnings)
	}
}

func TestCancelled(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	s := small(Scenarios()...)
	s.Jobs, s.Duration = 0, time.Hour
	s.Progress = func(int, int, string) { time.AfterFunc(20*time.Millisecond, cancel) }
	if _, err := Run(ctx, directory(dir), s); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled run ended with %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("a cancelled run left %v behind (%v)", left, err)
	}
}

func TestSettingsReportEveryFault(t *testing.T) {
	if err := DefaultSettings().Validate(); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	bad := Settings{Scenarios: []Scenario{"none"}, Callers: []int{0}, Jobs: -1, Payload: -1}
	var fields []string
	for _, f := range errs.FaultsOf(bad.Validate()) {
		fields = append(fields, f.Field)
	}
	want := []string{"scenario", "callers", "batch", "payload", "jobs", "duration", "backlog", "idle", "repeat", "record"}
	if !slices.Equal(fields, want) {
		t.Errorf("faults of %v, want %v", fields, want)
	}
	if _, err := Run(t.Context(), memory{}, bad); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("Run with them ended with %v", err)
	}
}

func TestLastEvent(t *testing.T) {
	s, err := memory{}.Open("", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	for jobs := range 20 {
		got, err := lastEvent(t.Context(), s)
		if err != nil || got != uint64(2*jobs) {
			t.Fatalf("%d jobs: last event %d (%v), want %d", jobs, got, err, 2*jobs)
		}
		if _, err := fill(t.Context(), s, plainJob(), 1, 1); err != nil {
			t.Fatal(err)
		}
	}
}

func TestQuota(t *testing.T) {
	q := newQuota(10, 0, nil)
	var got []int
	for range 5 {
		got = append(got, q.take(4))
	}
	if want := []int{4, 4, 2, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("10 jobs in fours: %v, want %v", got, want)
	}
	late := newQuota(0, -time.Second, nil)
	if first, second := late.take(4), late.take(4); first != 4 || second != 0 {
		t.Errorf("when the time is up: %d jobs, then %d; want 4 for the first and no more", first, second)
	}
}
