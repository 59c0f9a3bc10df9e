// Package quantity writes a number with what it counts: 1 job, 2 jobs.
package quantity

import "fmt"

// Of returns the number with the singular for 1 and the plural otherwise. Without a plural that is
// the singular with an s.
func Of[N ~int | ~int64 | ~uint64](n N, one string, many ...string) string {
	switch {
	case n == 1:
	case len(many) > 0:
		one = many[0]
	default:
		one += "s"
	}
	return fmt.Sprintf("%d %s", n, one)
}
