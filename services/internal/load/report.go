package load

import (
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/gopherqueue/gq/services/internal/rpc"
)

// Method is a measured method of the public service.
type Method uint8

// The methods, in the order of reports.
const (
	Submit Method = iota
	Status
	Result
	methods
)

var methodNames = [...]string{Submit: "SubmitJob", Status: "GetJobStatus", Result: "GetJobResult"}

func (m Method) String() string { return methodNames[m] }

// MethodNames lists the measured methods.
func MethodNames() []string { return methodNames[:] }

// A Sample is one request that was due in the measured time.
type Sample struct {
	Start   uint32 // microseconds since the measurement began; in an open loop when it was due
	Latency uint32 // microseconds from Start to the answer
	Method  Method
	Code    codes.Code
}

// An Outcome is what happened to a measured job.
type Outcome uint8

// The outcomes of a job.
const (
	Done     Outcome = iota
	Failed           // ended, but not DONE
	Lost             // accepted, but later unknown
	Censored         // had not ended at the end of the drain
)

var outcomeNames = [...]string{Done: "done", Failed: "failed", Lost: "lost", Censored: "censored"}

func (o Outcome) String() string { return outcomeNames[o] }

// A JobSample is one job whose submit was due in the measured time.
type JobSample struct {
	Created    int64 // epoch milliseconds
	EndToEnd   int64 // milliseconds from submitted to ended, by the service's clock; in an open loop from when the submit was due
	TimeToWork int64 // milliseconds from submitted to started
	Outcome    Outcome
}

// Latency summarises durations in milliseconds. Some may be lower bounds: of jobs or
// requests that had not ended by the end of the wait, or never will. Then a figure that
// is at least AtLeast is a lower bound too.
type Latency struct {
	P50     float64 `json:"p50_ms"`
	P95     float64 `json:"p95_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
	Mean    float64 `json:"mean_ms"`
	Open    int     `json:"open,omitempty"`        // how many are lower bounds
	AtLeast float64 `json:"at_least_ms,omitempty"` // the smallest of them
}

// Bound reports whether a figure of l is only a lower bound.
func (l Latency) Bound(figure float64) bool { return l.Open > 0 && figure >= l.AtLeast }

// MethodReport is the measurement of one method. Requests and latencies are of all
// requests due in the measured time. A request that failed or was never sent counts as
// slower than every answer.
type MethodReport struct {
	Requests  int            `json:"requests"`
	PerSecond float64        `json:"per_second"` // answered without error within the measured time
	Latency   Latency        `json:"latency"`
	Errors    map[string]int `json:"errors,omitempty"` // by code
}

// JobsReport counts the accepted jobs, including those of the warm-up.
type JobsReport struct {
	Accepted       int `json:"accepted"`
	Done           int `json:"done"`
	Failed         int `json:"failed"`
	Canceled       int `json:"canceled"`
	CanceledByLoad int `json:"canceled_by_load"` // canceled by the generator because they still waited at the end of the drain
	Lost           int `json:"lost"`             // accepted, but later unknown
	Unfinished     int `json:"unfinished"`       // had not ended when the patience ran out
	HeldBack       int `json:"held_back"`        // submits replaced by GetJobStatus because MaxTracked jobs were open

	Finished  int     `json:"finished"`   // DONE within the measured time
	PerSecond float64 `json:"per_second"` // of these
	Measured  int     `json:"measured"`   // jobs in EndToEnd: those whose submit was due in the measured time
	EndToEnd  Latency `json:"end_to_end"` // submit to done
	Window    Window  `json:"window"`
}

// Window counts the jobs whose submit was due in the measured time. Accepted is the sum
// of the others except Canceled, which is part of Censored.
type Window struct {
	Accepted      int `json:"accepted"`
	EndedInWindow int `json:"ended_in_window"` // DONE within the measured time
	EndedAfter    int `json:"ended_after"`     // DONE after it
	Failed        int `json:"failed"`
	Lost          int `json:"lost"`
	Censored      int `json:"censored"` // had not ended at the end of the drain
	Canceled      int `json:"canceled"` // those of them that the generator canceled
}

// Report is one measurement.
type Report struct {
	Settings      Settings                `json:"settings"`
	StartedAt     time.Time               `json:"started_at"`
	Seconds       float64                 `json:"seconds"`
	DrainSeconds  float64                 `json:"drain_seconds"`       // until the last job had ended, or the drain was over
	PerSecond     float64                 `json:"requests_per_second"` // answered without error within the measured time
	Unsent        int                     `json:"unsent"`              // due requests of an open loop that were never made
	Methods       map[string]MethodReport `json:"methods"`
	Jobs          JobsReport              `json:"jobs"`
	Errors        map[string]int          `json:"errors,omitempty"`         // of requests in warm-up and measured time, by code
	ErrorExamples map[string]string       `json:"error_examples,omitempty"` // the first message of each code
	Violations    int                     `json:"violations"`               // wrong answers
	Examples      []string                `json:"violation_examples,omitempty"`
	Truncated     bool                    `json:"truncated"` // there were more samples than are kept

	Samples    []Sample    `json:"-"`
	JobSamples []JobSample `json:"-"`

	answered [methods]int // without error within the measured time
	unsent   [methods]int
}

// Correct reports whether every answer was right and every job accounted for.
func (r *Report) Correct() bool {
	return r.Violations == 0 && r.Jobs.Lost == 0 && r.Jobs.Unfinished == 0
}

func (r *Report) summarise() {
	r.Methods = make(map[string]MethodReport)
	answered := 0
	for m := range methods {
		report := MethodReport{Errors: map[string]int{}}
		var took durations
		for _, s := range r.Samples {
			if s.Method != m {
				continue
			}
			report.Requests++
			if ms := float64(s.Latency) / 1000; s.Code == codes.OK {
				took.known = append(took.known, ms)
			} else {
				took.never = append(took.never, ms)
				report.Errors[rpc.CodeName(s.Code)]++
			}
		}
		for range r.unsent[m] {
			took.never = append(took.never, 0)
		}
		r.Unsent += r.unsent[m]
		answered += r.answered[m]
		report.PerSecond = float64(r.answered[m]) / r.Seconds
		report.Latency = took.summary()
		r.Methods[m.String()] = report
	}
	r.PerSecond = float64(answered) / r.Seconds
	var took durations
	for _, j := range r.JobSamples {
		switch ms := float64(j.EndToEnd); j.Outcome {
		case Done:
			took.known = append(took.known, ms)
		case Censored:
			took.open = append(took.open, ms)
		default:
			took.never = append(took.never, ms)
		}
	}
	r.Jobs.Measured = len(r.JobSamples)
	r.Jobs.PerSecond = float64(r.Jobs.Finished) / r.Seconds
	r.Jobs.EndToEnd = took.summary()
}

// durations are in milliseconds from start to end.
type durations struct {
	known []float64 // those that have ended
	open  []float64 // those that had not ended by then
	never []float64 // those that can never end: longer than all others, and than this
}

// summary treats lower bounds as values: a percentile of lower bounds is a lower bound
// of the percentile, and exact if all bounds are above it.
func (d durations) summary() (l Latency) {
	all := slices.Concat(d.known, d.open)
	longest := 0.0
	for _, ms := range slices.Concat(all, d.never) {
		longest = max(longest, ms)
	}
	for range d.never {
		all = append(all, longest)
	}
	if len(all) == 0 {
		return l
	}
	slices.Sort(all)
	at := func(q float64) float64 { return all[max(0, int(math.Ceil(q*float64(len(all))))-1)] }
	sum := 0.0
	for _, v := range all {
		sum += v
	}
	l = Latency{P50: at(0.50), P95: at(0.95), P99: at(0.99), Max: all[len(all)-1], Mean: sum / float64(len(all))}
	if l.Open = len(d.open) + len(d.never); l.Open > 0 {
		l.AtLeast = longest
		for _, ms := range d.open {
			l.AtLeast = min(l.AtLeast, ms)
		}
	}
	return l
}
