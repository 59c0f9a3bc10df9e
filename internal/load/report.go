package load

import (
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/gopherqueue/gq/internal/rpc"
)

// Method is a call of the public service that is measured.
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

// A Sample is one request of the measured time.
type Sample struct {
	Start   uint32 // microseconds after the start of the measurement; in an open loop when it was due
	Latency uint32 // microseconds from Start to the answer
	Method  Method
	Code    codes.Code
}

// A JobSample is one job that ended.
type JobSample struct {
	Created    int64 // epoch milliseconds
	EndToEnd   int64 // milliseconds from submitted to ended, by the clock of the service
	TimeToWork int64 // milliseconds from submitted to started
}

// Latency summarises durations in milliseconds.
type Latency struct {
	P50  float64 `json:"p50_ms"`
	P95  float64 `json:"p95_ms"`
	P99  float64 `json:"p99_ms"`
	Max  float64 `json:"max_ms"`
	Mean float64 `json:"mean_ms"`
}

// MethodReport is what was measured of one method. Latencies are those of
// answers without error.
type MethodReport struct {
	Requests  int            `json:"requests"`
	PerSecond float64        `json:"per_second"`
	Latency   Latency        `json:"latency"`
	Errors    map[string]int `json:"errors,omitempty"` // by code
}

// JobsReport is what became of the accepted jobs, warm-up included.
type JobsReport struct {
	Accepted   int `json:"accepted"`
	Done       int `json:"done"`
	Failed     int `json:"failed"`
	Canceled   int `json:"canceled"`
	Lost       int `json:"lost"`       // accepted, and later unknown
	Unfinished int `json:"unfinished"` // had not ended when the patience ended

	PerSecond float64 `json:"per_second"` // jobs that were DONE within the measured time
	EndToEnd  Latency `json:"end_to_end"` // of these, submit to done
	Measured  int     `json:"measured"`   // their number
}

// Report is one measurement.
type Report struct {
	Settings   Settings                `json:"settings"`
	StartedAt  time.Time               `json:"started_at"`
	Seconds    float64                 `json:"seconds"`
	PerSecond  float64                 `json:"requests_per_second"` // answered without error
	Methods    map[string]MethodReport `json:"methods"`
	Jobs       JobsReport              `json:"jobs"`
	Violations int                     `json:"violations"` // wrong answers
	Examples   []string                `json:"violation_examples,omitempty"`
	Truncated  bool                    `json:"truncated"` // more samples than are kept

	Samples    []Sample    `json:"-"`
	JobSamples []JobSample `json:"-"`
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
		var took []float64
		for _, s := range r.Samples {
			if s.Method != m {
				continue
			}
			report.Requests++
			if s.Code == codes.OK {
				took = append(took, float64(s.Latency)/1000)
			} else {
				report.Errors[rpc.CodeName(s.Code)]++
			}
		}
		answered += len(took)
		report.PerSecond = float64(len(took)) / r.Seconds
		report.Latency = latencyOf(took)
		r.Methods[m.String()] = report
	}
	r.PerSecond = float64(answered) / r.Seconds
	var ends []float64
	for _, j := range r.JobSamples {
		ends = append(ends, float64(j.EndToEnd))
	}
	r.Jobs.Measured = len(ends)
	r.Jobs.PerSecond = float64(len(ends)) / r.Seconds
	r.Jobs.EndToEnd = latencyOf(ends)
}

// latencyOf sorts what it is given.
func latencyOf(ms []float64) (l Latency) {
	if len(ms) == 0 {
		return l
	}
	slices.Sort(ms)
	at := func(q float64) float64 { return ms[max(0, int(math.Ceil(q*float64(len(ms))))-1)] }
	sum := 0.0
	for _, v := range ms {
		sum += v
	}
	return Latency{P50: at(0.50), P95: at(0.95), P99: at(0.99), Max: ms[len(ms)-1], Mean: sum / float64(len(ms))}
}
