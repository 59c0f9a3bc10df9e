package bench

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Report has all results. Its JSON form is stable: names are added but never changed.
// What could not be measured is null.
type Report struct {
	Version   string    `json:"version"` // of the program; set by the caller
	Store     string    `json:"store"`   // what was measured; set by the caller
	StartedAt time.Time `json:"started_at"`
	Seconds   float64   `json:"seconds"`
	GoVersion string    `json:"go_version"`
	OS        string    `json:"os"`
	Arch      string    `json:"arch"`
	Cores     int       `json:"cores"`
	MaxProcs  int       `json:"gomaxprocs"`
	Settings  Used      `json:"settings"`

	Busy      *bool    `json:"busy"`               // others used more than BusyPercent of the machine
	OthersCPU *float64 `json:"others_cpu_percent"` // of all CPU time
	Warnings  []string `json:"warnings"`

	Cycle   []Row          `json:"cycle"`
	Enqueue []Row          `json:"enqueue"`
	Backlog *BacklogResult `json:"backlog"`
	Filter  []FilterRow    `json:"filter"`
	Idle    *IdleResult    `json:"idle"`
	Worker  *WorkerResult  `json:"worker"`
	Server  *ServerResult  `json:"server"`

	cycle, enqueue rounds[Row]
	backlog        rounds[BacklogResult]
	filter         rounds[FilterRow]
	idle           rounds[IdleResult]
	worker         rounds[WorkerResult]
	server         rounds[ServerResult]
}

// BusyPercent is the share of CPU time above which other processes disturb a measurement.
const BusyPercent = 10

// Used has the settings of a report.
type Used struct {
	Scenarios []Scenario `json:"scenarios"`
	Callers   []int      `json:"callers"`
	Batch     int        `json:"batch"`
	Payload   int        `json:"payload_bytes"`
	Jobs      int        `json:"jobs"`
	Duration  float64    `json:"duration_seconds"`
	Backlog   int        `json:"backlog"`
	Idle      float64    `json:"idle_seconds"`
	Repeat    int        `json:"repeat"`
	Record    int64      `json:"record_bytes"`
}

func (s Settings) report() Used {
	return Used{
		Scenarios: s.Scenarios, Callers: s.Callers, Batch: s.Batch, Payload: s.Payload, Jobs: s.Jobs,
		Duration: s.Duration.Seconds(), Backlog: s.Backlog, Idle: s.Idle.Seconds(), Repeat: s.Repeat, Record: s.Record,
	}
}

// Latency is the distribution of call durations, in milliseconds.
type Latency struct {
	Calls uint64  `json:"calls"`
	P50   float64 `json:"p50"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Row is a cycle or enqueue measurement for one number of callers and one batch size.
type Row struct {
	Callers int `json:"callers"`
	Batch   int `json:"batch"` // jobs per call

	Jobs          int64   `json:"jobs"`
	Seconds       float64 `json:"seconds"`
	JobsPerSecond float64 `json:"jobs_per_second"`

	FloorSeconds       *float64 `json:"floor_seconds"` // replay of the commits of this run
	FloorJobsPerSecond *float64 `json:"floor_jobs_per_second"`
	Ratio              *float64 `json:"ratio"` // JobsPerSecond / FloorJobsPerSecond

	Enqueue  *Latency `json:"enqueue_ms"`
	Claim    *Latency `json:"claim_ms"`
	Complete *Latency `json:"complete_ms"`

	Commits     *float64 `json:"commits_per_job"`
	Syncs       *float64 `json:"fsyncs_per_job"`
	Events      float64  `json:"events_per_job"`
	CommitBytes *float64 `json:"commit_bytes_per_job"` // as passed to the database
	DiskBytes   *float64 `json:"disk_bytes_per_job"`   // on disk at the end

	CPU       *float64 `json:"cpu_microseconds_per_job"`       // of this process, callers included
	FloorCPU  *float64 `json:"floor_cpu_microseconds_per_job"` // of this process while it replayed
	RSS       *int64   `json:"rss_bytes"`                      // maximum, without the recorder
	LiveHeap  int64    `json:"live_heap_bytes"`                // after a garbage collection, with the store still open
	OthersCPU *float64 `json:"others_cpu_percent"`             // while this row was measured, including the floor

	Repeats Spread `json:"repeats"`
}

// Spread says how far apart the repetitions of a measurement were.
type Spread struct {
	Runs  int     `json:"runs"`
	Least float64 `json:"least"`
	Most  float64 `json:"most"`
}

// BacklogResult compares a queue that holds many jobs with an empty one.
type BacklogResult struct {
	Jobs              int      `json:"jobs"`
	FillJobsPerSecond float64  `json:"fill_jobs_per_second"`
	HeapPerJob        float64  `json:"live_heap_bytes_per_job"`
	DiskPerJob        *float64 `json:"disk_bytes_per_job"`

	Cycles []BacklogCycle `json:"cycles"`

	ReopenSeconds *float64 `json:"reopen_seconds"` // from Close to a store that responds; null if it keeps nothing
	CloseSeconds  *float64 `json:"close_seconds"`

	DrainCallers        int     `json:"drain_callers"`
	DrainBatch          int     `json:"drain_batch"`
	DrainJobsPerSecond  float64 `json:"drain_jobs_per_second"`
	DrainFirstPerSecond float64 `json:"drain_first_tenth_jobs_per_second"`
	DrainLastPerSecond  float64 `json:"drain_last_tenth_jobs_per_second"`

	OthersCPU *float64 `json:"others_cpu_percent"`
	Repeats   Spread   `json:"repeats"`
}

// BacklogCycle is the same cycle on an empty queue and on a full one.
type BacklogCycle struct {
	Callers int     `json:"callers"`
	Batch   int     `json:"batch"`
	Without float64 `json:"jobs_per_second_without"`
	With    float64 `json:"jobs_per_second_with"`
	Ratio   float64 `json:"ratio"`

	CPUWithout *float64 `json:"cpu_microseconds_per_job_without"` // of this process, callers included
	CPUWith    *float64 `json:"cpu_microseconds_per_job_with"`
}

// FilterRow is the same filtered claim on a queue without other jobs and behind many jobs
// that do not match.
type FilterRow struct {
	Filter       string   `json:"filter"` // type, capability or cost
	Callers      int      `json:"callers"`
	Ahead        int      `json:"jobs_ahead"`
	Without      float64  `json:"claims_per_second_without"`
	With         float64  `json:"claims_per_second_with"`
	Ratio        float64  `json:"ratio"`
	ClaimWithout *Latency `json:"claim_ms_without"`
	ClaimWith    *Latency `json:"claim_ms_with"`
	CPUWithout   *float64 `json:"cpu_microseconds_per_claim_without"`
	CPUWith      *float64 `json:"cpu_microseconds_per_claim_with"`
	Repeats      Spread   `json:"repeats"`
}

// IdleResult is the CPU time of an open store without calls, in percent of one core.
type IdleResult struct {
	Seconds  float64  `json:"seconds"`
	Queued   int      `json:"queued_jobs"`
	Delayed  int      `json:"delayed_jobs"`
	CPU      *float64 `json:"cpu_percent"`
	Baseline *float64 `json:"baseline_cpu_percent"` // the process without a store
	Repeats  Spread   `json:"repeats"`
}

// WorkerResult measures the worker runtime on the store.
type WorkerResult struct {
	Callers           int      `json:"callers"` // submitting callers, and slots of the worker
	BareJobsPerSecond float64  `json:"bare_jobs_per_second"`
	BareCPU           *float64 `json:"bare_cpu_microseconds_per_job"`
	Jobs              int64    `json:"jobs"`
	JobsPerSecond     float64  `json:"jobs_per_second"` // submitted, run by a handler and completed
	Ratio             float64  `json:"ratio"`           // relative to the bare cycle with as many callers and single-job calls
	CPU               *float64 `json:"cpu_microseconds_per_job"`

	ToStart *Latency `json:"submit_to_start_ms"` // one job at a time on an idle queue
	Commit  *Latency `json:"submit_ms"`          // the same submissions alone: one commit

	HeartbeatJobs    int      `json:"heartbeat_jobs"` // running at once
	HeartbeatTTL     float64  `json:"heartbeat_ttl_seconds"`
	HeartbeatCommits *float64 `json:"heartbeat_commits_per_second"`

	Graphs  []GraphRow `json:"graphs"`
	Repeats Spread     `json:"repeats"`
}

// GraphRow is a graph of jobs, submitted in one call and measured from that call to the
// end of the last job.
type GraphRow struct {
	Shape   string  `json:"shape"` // chain or fan-in
	Jobs    int     `json:"jobs"`
	Seconds float64 `json:"seconds"`
	PerJob  float64 `json:"microseconds_per_job"`
}

// ServerResult measures a server over the network, next to in-process baselines from the
// same run.
type ServerResult struct {
	Batch             int     `json:"batch"` // jobs per submission
	Slots             int     `json:"slots"` // of the worker
	NearJobs          int64   `json:"in_process_jobs"`
	NearJobsPerSecond float64 `json:"in_process_jobs_per_second"` // worker, engine and store in this process
	Jobs              int64   `json:"jobs"`
	JobsPerSecond     float64 `json:"jobs_per_second"` // worker here, over the Work stream
	Ratio             float64 `json:"ratio"`           // of the two

	Callers              int      `json:"callers"` // of unary calls
	EchoCalls            int64    `json:"echo_calls"`
	EchoCallsPerSecond   float64  `json:"echo_calls_per_second"` // bare gRPC server in this process
	Echo                 *Latency `json:"echo_ms"`
	SubmitCalls          int64    `json:"submit_calls"`
	SubmitCallsPerSecond float64  `json:"submit_calls_per_second"`
	Submit               *Latency `json:"submit_ms"`
	SubmitRatio          float64  `json:"submit_ratio"` // of the two

	ToStart       *Latency `json:"submit_to_start_ms"` // one job at a time on an idle queue
	ToStartSubmit *Latency `json:"submit_alone_ms"`    // the same submissions, until the response
	Repeats       Spread   `json:"repeats"`
}

// rounds collects the results of all rounds, for each position in a report.
type rounds[T any] [][]T

// reserve adds n positions and returns the first.
func (r *rounds[T]) reserve(n int) (first int) {
	first = len(*r)
	*r = append(*r, make([][]T, n)...)
	return first
}

func (r rounds[T]) add(place int, v T) { r[place] = append(r[place], v) }

// medians picks, for each position, the run with the median of a measure, so that all
// numbers of a result come from one run. For an even number of runs it picks the lower of
// the middle two.
func (r rounds[T]) medians(measure func(T) float64, spread func(*T) *Spread) []T {
	out := make([]T, 0, len(r))
	for _, runs := range r {
		sorted := slices.Clone(runs)
		slices.SortStableFunc(sorted, func(a, b T) int { return cmp.Compare(measure(a), measure(b)) })
		median := sorted[(len(sorted)-1)/2]
		*spread(&median) = Spread{len(sorted), measure(sorted[0]), measure(sorted[len(sorted)-1])}
		out = append(out, median)
	}
	return out
}

// finish reduces the rounds to results.
func (r *Report) finish() {
	byRatio := func(row Row) float64 {
		if row.Ratio != nil {
			return *row.Ratio
		}
		return row.JobsPerSecond
	}
	rowSpread := func(row *Row) *Spread { return &row.Repeats }
	r.Cycle = r.cycle.medians(byRatio, rowSpread)
	r.Enqueue = r.enqueue.medians(byRatio, rowSpread)
	r.Filter = r.filter.medians(func(f FilterRow) float64 { return f.Ratio }, func(f *FilterRow) *Spread { return &f.Repeats })
	if len(r.backlog) > 0 {
		r.Backlog = &r.backlog.medians(func(b BacklogResult) float64 { return b.Cycles[0].Ratio },
			func(b *BacklogResult) *Spread { return &b.Repeats })[0]
	}
	if len(r.idle) > 0 {
		r.Idle = &r.idle.medians(func(i IdleResult) float64 { return orZero(i.CPU) },
			func(i *IdleResult) *Spread { return &i.Repeats })[0]
	}
	if len(r.worker) > 0 {
		r.Worker = &r.worker.medians(func(w WorkerResult) float64 { return w.Ratio },
			func(w *WorkerResult) *Spread { return &w.Repeats })[0]
	}
	if len(r.server) > 0 {
		r.Server = &r.server.medians(func(s ServerResult) float64 { return s.Ratio },
			func(s *ServerResult) *Spread { return &s.Repeats })[0]
	}
}

func orZero(p *float64) float64 {
	if p == nil {
		return 0
	}
	return *p
}

// judge decides whether the machine was busy with other processes.
func (r *Report) judge(s span) {
	r.Warnings = []string{}
	r.OthersCPU = s.others
	switch {
	case s.others == nil:
		r.Warnings = append(r.Warnings, "it is unknown whether the machine was busy: there is no /proc/stat to read, the run was too short, or the server's share is not known")
	case *s.others > BusyPercent:
		r.Busy = new(true)
		r.Warnings = append(r.Warnings, fmt.Sprintf(
			"the machine was busy: others used %.0f %% of its CPU time during the run; repeat it before relying on a rate or a ratio", *s.others))
	default:
		r.Busy = new(false)
	}
}
