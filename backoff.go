package gq

import (
	"fmt"
	"time"
)

// Strategy says how the delay before a retry grows. The zero value is not a strategy.
type Strategy uint8

const (
	StrategyConstant    Strategy = iota + 1 // the initial delay, every time
	StrategyLinear                          // the initial delay times the number of the retry
	StrategyExponential                     // the previous delay times the multiplier
	StrategyCustom                          // a function of the program; only in embedded queues
	strategyEnd
)

var strategyNames = [...]string{"", "constant", "linear", "exponential", "custom"}

func (s Strategy) String() string { return nameOf(strategyNames[:], int(s)) }

// Valid reports whether s is a strategy.
func (s Strategy) Valid() bool { return s >= StrategyConstant && s < strategyEnd }

// MarshalText returns the name.
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses a name.
func (s *Strategy) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(strategyNames[:], name); ok {
		*s = Strategy(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"strategy", fmt.Sprintf("%.64q is not one of %v", name, strategyNames[1:])}}}
}

// Jitter says how delays vary, so that jobs that failed together do not retry together. The
// zero value is not a jitter.
type Jitter uint8

const (
	JitterNone  Jitter = iota + 1 // the exact delay
	JitterTenth                   // up to a tenth more or less, never above the maximum
	JitterFull                    // between zero and the delay
	JitterHash                    // up to a tenth more or less, derived from the job id
	jitterEnd
)

var jitterNames = [...]string{"", "none", "tenth", "full", "hash"}

func (j Jitter) String() string { return nameOf(jitterNames[:], int(j)) }

// Valid reports whether j is a jitter.
func (j Jitter) Valid() bool { return j >= JitterNone && j < jitterEnd }

// MarshalText returns the name.
func (j Jitter) MarshalText() ([]byte, error) { return []byte(j.String()), nil }

// UnmarshalText parses a name.
func (j *Jitter) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(jitterNames[:], name); ok {
		*j = Jitter(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"jitter", fmt.Sprintf("%.64q is not one of %v", name, jitterNames[1:])}}}
}

// Backoff describes the delay before each retry. It is comparable.
type Backoff struct {
	Strategy   Strategy
	Initial    time.Duration // before the first retry
	Max        time.Duration // longest delay; JitterHash can exceed it by a tenth
	Multiplier float64       // StrategyExponential: growth factor, at least 1
	Jitter     Jitter
	Custom     string // StrategyCustom: name in OpenOptions.Backoffs
}
