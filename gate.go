package gq

import "fmt"

// Gate is what a job of a workflow waits for besides its dependencies. The zero value is
// nothing.
type Gate uint8

const (
	GateSignal    Gate = iota + 1 // a signal from outside completes the job; no worker runs it
	GateFailure                   // runs only if one of its FAN_IN dependencies ended without success; otherwise it is cancelled
	GateSignalled                 // only in a state: the signal came before the dependencies had ended
	gateEnd
)

var gateNames = [...]string{"", "SIGNAL", "FAILURE", "SIGNALLED"}

func (g Gate) String() string {
	if g == 0 {
		return ""
	}
	return nameOf(gateNames[:], int(g))
}

// Valid reports whether g is zero or one of the gates.
func (g Gate) Valid() bool { return g < gateEnd }

// MarshalText returns the name.
func (g Gate) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText parses a name.
func (g *Gate) UnmarshalText(text []byte) error {
	name := string(text)
	if name == "" {
		*g = 0
		return nil
	}
	if i, ok := indexOf(gateNames[:], name); ok {
		*g = Gate(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"gate", fmt.Sprintf("%.64q is not one of %v", name, gateNames[1:])}}}
}
