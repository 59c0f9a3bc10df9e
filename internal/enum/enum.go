// Package enum lists and parses the values of the enumerations of package gq.
package enum

import "encoding"

// All lists every valid value in order.
func All[T interface {
	~uint8
	Valid() bool
}]() (all []T) {
	for v := range 256 {
		if t := T(v); t.Valid() {
			all = append(all, t)
		}
	}
	return all
}

// Parse parses a name.
func Parse[T any, P interface {
	*T
	encoding.TextUnmarshaler
}](name string) (v T, err error) {
	err = P(&v).UnmarshalText([]byte(name))
	return v, err
}
