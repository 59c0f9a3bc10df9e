package match

import (
	"fmt"
	"slices"

	"github.com/gopherqueue/gq"
)

// Kind is the class of work that a job needs and a provider can do. The zero value is not
// a kind.
type Kind uint8

const (
	AI      Kind = iota + 1 // inference: models and precisions matter
	Quantum                 // circuits: gates, depth and width matter
	kindEnd
)

var kindNames = [...]string{"", "AI", "QUANTUM"}

// Kinds lists every kind.
func Kinds() []Kind { return []Kind{AI, Quantum} }

// ParseKind parses the name of a kind.
func ParseKind(name string) (Kind, error) {
	i, err := parse("kind", kindNames[:], name)
	return Kind(i), err
}

func (k Kind) String() string { return nameOf(kindNames[:], int(k)) }

// Valid reports whether k is a kind.
func (k Kind) Valid() bool { return k >= AI && k < kindEnd }

// MarshalText returns the name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText parses a name.
func (k *Kind) UnmarshalText(text []byte) error {
	parsed, err := ParseKind(string(text))
	if err == nil {
		*k = parsed
	}
	return err
}

// Status is the status of a provider. Only an active one gets jobs. The zero value is not
// a status.
type Status uint8

const (
	Active    Status = iota + 1 // in good standing
	Jailed                      // barred for a violation
	Suspended                   // barred for now
	Retired                     // gone for good
	statusEnd
)

var statusNames = [...]string{"", "ACTIVE", "JAILED", "SUSPENDED", "RETIRED"}

// Statuses lists every status.
func Statuses() []Status { return []Status{Active, Jailed, Suspended, Retired} }

// ParseStatus parses the name of a status.
func ParseStatus(name string) (Status, error) {
	i, err := parse("status", statusNames[:], name)
	return Status(i), err
}

func (s Status) String() string { return nameOf(statusNames[:], int(s)) }

// Valid reports whether s is a status.
func (s Status) Valid() bool { return s >= Active && s < statusEnd }

// MarshalText returns the name.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText parses a name.
func (s *Status) UnmarshalText(text []byte) error {
	parsed, err := ParseStatus(string(text))
	if err == nil {
		*s = parsed
	}
	return err
}

// parse finds a name in a list whose first entry stands for "not set".
func parse(field string, names []string, name string) (int, error) {
	if i := slices.Index(names[1:], name); i >= 0 {
		return i + 1, nil
	}
	return 0, &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: notOneOf(name, names)}}}
}

func notOneOf(name string, names []string) string {
	return fmt.Sprintf("%.64q is not one of %v", name, names[1:])
}

func nameOf(names []string, i int) string {
	if i > 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}
