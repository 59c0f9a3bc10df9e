package gq

import "fmt"

// DependencyKind says how a job depends on another one. The zero value is not a kind.
type DependencyKind uint8

const (
	DependencyAfter    DependencyKind = iota + 1 // runs after the other completed; ends if the other ends without success
	DependencyAfterAny                           // runs after at least one AFTER_ANY dependency ended, with or without success
	DependencyChain                              // like DependencyAfter, for the links of a chain
	DependencyFanOut                             // the other job spawned this one; does not wait
	DependencyFanIn                              // runs after the other ended, with or without success
	dependencyEnd
)

var dependencyNames = [...]string{"", "AFTER", "AFTER_ANY", "CHAIN", "FAN_OUT", "FAN_IN"}

func (k DependencyKind) String() string { return nameOf(dependencyNames[:], int(k)) }

// Valid reports whether k is one of the five kinds.
func (k DependencyKind) Valid() bool { return k >= DependencyAfter && k < dependencyEnd }

// Waits reports whether a job with this dependency waits for the other job. Only FAN_OUT,
// which records the job that spawned it, does not wait.
func (k DependencyKind) Waits() bool { return k.Valid() && k != DependencyFanOut }

// MarshalText returns the name.
func (k DependencyKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses a name.
func (k *DependencyKind) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(dependencyNames[:], name); ok {
		*k = DependencyKind(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"kind", fmt.Sprintf("%.64q is not one of %v", name, dependencyNames[1:])}}}
}

// Dependency names a job that another job depends on.
//
// A job can mix kinds. It runs when every AFTER, CHAIN and FAN_IN dependency is satisfied and,
// if it has AFTER_ANY dependencies, at least one of those has ended.
type Dependency struct {
	Kind DependencyKind
	Job  JobID
	Ref  string // instead of Job: the name of a job of the same graph (GraphJob.Ref), or of one spawned by the same call (Spec.Ref)
}
