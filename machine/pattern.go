package machine

import (
	"fmt"
	"strings"

	"github.com/gopherqueue/gq"
)

// QueuePrefix returns what the names of the queues begin with that a claim asks for by a pattern,
// such as mail.*, and false for the name of a queue.
func QueuePrefix(pattern string) (prefix string, ok bool) { return strings.CutSuffix(pattern, "*") }

// CheckQueuePattern checks the name of a queue, or the beginning of one and a * for the rest.
func CheckQueuePattern(field, pattern string) error {
	prefix, ok := QueuePrefix(pattern)
	var f faults
	switch {
	case strings.Contains(prefix, "*"):
		f.add(field, "%.64q has a * that is not at the end; a pattern is the beginning of names and one *, such as mail.*", pattern)
	case !ok:
		checkQueueName(field, pattern, &f)
	case prefix != "":
		checkQueueName(field, prefix, &f)
	}
	return f.err()
}

// MaxPatterns is the number of patterns that one claim can name.
const MaxPatterns = 16

// CheckPatterns reports too many patterns in a claim.
func CheckPatterns(queues []string) error {
	n := 0
	for _, q := range queues {
		if _, ok := QueuePrefix(q); ok {
			n++
		}
	}
	if n > MaxPatterns {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "queues", Problem: fmt.Sprintf("%d patterns are more than %d", n, MaxPatterns)}}}
	}
	return nil
}
