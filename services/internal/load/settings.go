// Package load puts a task queue under load and measures it from outside, only through
// its public service and in the same way for every design.
//
// It checks every answer and follows every accepted job to its end, since a measurement
// of wrong answers is worthless. Job latency covers all jobs submitted in the measured
// time, including those that ended after it. Jobs that did not end in time count with
// the time they had taken by then, and figures that depend on them are lower bounds.
package load

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Settings configure a measurement. They are stored with the results.
type Settings struct {
	Targets     []string      `json:"targets"`     // public addresses, in the order of their nodes
	Rate        float64       `json:"rate"`        // requests started per second; 0 is a closed loop
	Concurrency int           `json:"concurrency"` // clients; in an open loop the maximum number of concurrent requests
	Connections int           `json:"connections"` // to all targets together
	Warmup      time.Duration `json:"warmup_ns"`
	Duration    time.Duration `json:"duration_ns"`
	Work        time.Duration `json:"work_ns"` // simulated by each job
	Payload     uint32        `json:"payload_bytes"`
	Mix         Mix           `json:"mix"`
	Seed        uint64        `json:"seed"`
	MaxTracked  int           `json:"max_tracked"` // limit on open jobs; above it GetJobStatus replaces SubmitJob
	Drain       time.Duration `json:"drain_ns"`    // how long jobs may take to end after the run; the rest are censored and canceled
	Token       string        `json:"-"`           // sent with every call
	TLS         *tls.Config   `json:"-"`           // nil means no encryption
	Blind       bool          `json:"blind"`       // do not follow accepted jobs: only for comparison with a bare server
}

// DefaultSettings is a short closed loop.
func DefaultSettings() Settings {
	return Settings{
		Concurrency: 16, Connections: 6, Warmup: time.Second, Duration: 5 * time.Second, Payload: 256,
		Mix: Mix{Submit: 1, Status: 1, Result: 1}, Seed: 1, MaxTracked: 50_000, Drain: time.Minute,
	}
}

const (
	maxConcurrency = 10_000
	maxDuration    = time.Hour
)

// Validate reports every fault.
func (s Settings) Validate() error {
	var faults []error
	fault := func(bad bool, format string, args ...any) {
		if bad {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	fault(len(s.Targets) == 0, "targets: none given")
	fault(s.Rate < 0, "rate: %v is negative", s.Rate)
	fault(s.Concurrency < 1 || s.Concurrency > maxConcurrency, "concurrency: %d is not between 1 and %d", s.Concurrency, maxConcurrency)
	fault(s.Connections < 1 || s.Connections > 1000, "connections: %d is not between 1 and 1000", s.Connections)
	fault(s.Warmup < 0 || s.Warmup > maxDuration, "warmup: %v is not between 0 and %v", s.Warmup, maxDuration)
	fault(s.Duration <= 0 || s.Duration > maxDuration, "duration: %v is not above 0 and up to %v", s.Duration, maxDuration)
	fault(s.Work < 0 || s.Work > maxDuration, "work: %v is not between 0 and %v", s.Work, maxDuration)
	fault(s.MaxTracked < 1, "max-tracked: %d is less than 1", s.MaxTracked)
	fault(s.Drain < 0, "drain: %v is negative", s.Drain)
	fault(s.Mix.Submit < 1, "mix: without submits there is nothing to ask for")
	fault(s.Mix.Status < 0 || s.Mix.Result < 0, "mix: a weight is negative")
	return errors.Join(faults...)
}

// Mix is the relative frequency of each request.
type Mix struct{ Submit, Status, Result int }

// ParseMix reads "submit=1,status=2,result=1"; missing ones are 0.
func ParseMix(text string) (Mix, error) {
	var m Mix
	for part := range strings.SplitSeq(text, ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(weight)
		if err != nil || n < 0 || n > 1000 {
			return Mix{}, fmt.Errorf("mix: %q is not NAME=WEIGHT with a weight from 0 to 1000", part)
		}
		switch name {
		case "submit":
			m.Submit = n
		case "status":
			m.Status = n
		case "result":
			m.Result = n
		default:
			return Mix{}, fmt.Errorf("mix: %q is not one of submit, status, result", name)
		}
	}
	return m, nil
}

func (m Mix) String() string {
	return fmt.Sprintf("submit=%d,status=%d,result=%d", m.Submit, m.Status, m.Result)
}

// MarshalText returns the form that ParseMix reads.
func (m Mix) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (m *Mix) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMix(string(text))
	return err
}

// pick draws a method for u, uniform in [0,1).
func (m Mix) pick(u float64) Method {
	at := u * float64(m.Submit+m.Status+m.Result)
	switch {
	case at < float64(m.Submit):
		return Submit
	case at < float64(m.Submit+m.Status):
		return Status
	default:
		return Result
	}
}
