// Package spelling guesses which name is meant by one with a small mistake.
package spelling

// Nearest is the name that is meant by another, "" if none is near: one letter may
// be wrong, missing or too much in a short name, three in a long one.
func Nearest(name string, names []string) string {
	if len(name) > 64 {
		return ""
	}
	best, distance := "", 3
	switch {
	case len(name) < 4:
		distance = 2
	case len(name) >= 16:
		distance = 4
	}
	for _, n := range names {
		if d := edits(name, n); d < distance {
			best, distance = n, d
		}
	}
	return best
}

// edits is how many bytes have to be changed, added or removed.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		above := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := above
			if a[i] != b[j] {
				cost++
			}
			above = row[j+1]
			row[j+1] = min(cost, above+1, row[j]+1)
		}
	}
	return row[len(b)]
}
