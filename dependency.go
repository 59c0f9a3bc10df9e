package gq

import "fmt"

// DependencyKind is what one job has to do with another. The zero value is not
// a kind.
type DependencyKind uint8

// The kinds.
const (
	DependencyAfter    DependencyKind = iota + 1 // runs once the other has completed; shares its bad end
	DependencyAfterAny                           // runs once any of its AFTER_ANY dependencies has ended, however
	DependencyChain                              // the link behind the other: like After
	DependencyFanOut                             // was spawned by the other; does not wait for it
	DependencyFanIn                              // runs once the other has ended, however
	dependencyEnd
)

var dependencyNames = [...]string{"", "AFTER", "AFTER_ANY", "CHAIN", "FAN_OUT", "FAN_IN"}

func (k DependencyKind) String() string { return nameOf(dependencyNames[:], int(k)) }

// Valid reports whether k is one of the five kinds.
func (k DependencyKind) Valid() bool { return k >= DependencyAfter && k < dependencyEnd }

// Waits reports whether a job may not run before such a dependency allows it.
// FAN_OUT alone does not wait: it records who spawned the job.
func (k DependencyKind) Waits() bool { return k.Valid() && k != DependencyFanOut }

// MarshalText is the name.
func (k DependencyKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads a name.
func (k *DependencyKind) UnmarshalText(text []byte) error {
	name := string(text)
	if i, ok := indexOf(dependencyNames[:], name); ok {
		*k = DependencyKind(i)
		return nil
	}
	return &InvalidError{Faults: []Fault{{"kind", fmt.Sprintf("%.64q is not one of %v", name, dependencyNames[1:])}}}
}

// Dependency names a job that another one depends on.
//
// ErrorKinds may be mixed. A job then runs when every AFTER, CHAIN and FAN_IN
// dependency is satisfied and, where it has AFTER_ANY dependencies, at least
// one of those has ended: the AFTER_ANY dependencies of a job are one group
// that counts as one.
type Dependency struct {
	Kind DependencyKind
	Job  JobID
	Ref  string // instead of Job: a job of the same graph, see GraphJob
}
