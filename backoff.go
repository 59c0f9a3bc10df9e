package gq

import (
	"fmt"
	"time"
)

// Strategy is how the delay before a retry grows. The zero value is not a
// strategy.
type Strategy uint8

// The strategies.
const (
	StrategyConstant    Strategy = iota + 1 // the initial delay, every time
	StrategyLinear                          // the initial delay times the number of the retry
	StrategyExponential                     // each delay is the one before times the multiplier
	StrategyCustom                          // an application's function; only inside a Go program
	strategyEnd
)

var strategyNames = [...]string{"", "constant", "linear", "exponential", "custom"}

func (s Strategy) String() string { return nameOf(strategyNames[:], int(s)) }

// Valid reports whether s is a strategy.
func (s Strategy) Valid() bool { return s >= StrategyConstant && s < strategyEnd }

// MarshalText is the name.
func (s Strategy) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a name.
func (s *Strategy) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(strategyNames[:], name); ok {
		*s = Strategy(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"strategy", fmt.Sprintf("%.64q is not one of %v", name, strategyNames[1:])}}}
}

// Jitter is how delays are spread, so that jobs that failed together do not
// come back together. The zero value is not a jitter.
type Jitter uint8

// The jitters.
const (
	JitterNone  Jitter = iota + 1 // the delay as it stands
	JitterTenth                   // up to a tenth more or less, never above the maximum
	JitterFull                    // anything from zero up to the delay
	JitterHash                    // up to a tenth more or less, drawn from the job id; see HashBackoff
	jitterEnd
)

var jitterNames = [...]string{"", "none", "tenth", "full", "hash"}

func (j Jitter) String() string { return nameOf(jitterNames[:], int(j)) }

// Valid reports whether j is a jitter.
func (j Jitter) Valid() bool { return j >= JitterNone && j < jitterEnd }

// MarshalText is the name.
func (j Jitter) MarshalText() ([]byte, error) { return []byte(j.String()), nil }

// UnmarshalText reads a name.
func (j *Jitter) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(jitterNames[:], name); ok {
		*j = Jitter(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"jitter", fmt.Sprintf("%.64q is not one of %v", name, jitterNames[1:])}}}
}

// Backoff is the delay before each retry, as data. It is comparable.
type Backoff struct {
	Strategy   Strategy
	Initial    time.Duration // before the first retry
	Max        time.Duration // no delay is longer; only JitterHash may add its tenth to it
	Multiplier float64       // StrategyExponential: factor from one delay to the next, at least 1
	Jitter     Jitter
	Custom     string // StrategyCustom: the name under which the application registered its function
}
