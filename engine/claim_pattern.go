package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// A claim can name queues by patterns such as mail.*. The engine asks the store which of them have
// jobs, and claims from these. Each claim begins one queue later than the one before, so no queue
// waits for ever behind a busy one.

// patterns knows where the next claim by a pattern begins.
type patterns struct {
	mu   sync.Mutex
	last map[string]string // the queue that the last claim began with, by pattern; guarded by mu
}

// maxPatternsKnown is the number of patterns for which it is remembered.
const maxPatternsKnown = 10_000

func (p *patterns) after(pattern string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[pattern]
}

func (p *patterns) began(pattern, queue string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil || len(p.last) >= maxPatternsKnown {
		p.last = make(map[string]string)
	}
	p.last[pattern] = queue
}

// hasPattern reports whether one of the queues of a claim is a pattern.
func hasPattern(queues []string) bool {
	return slices.ContainsFunc(queues, func(q string) bool { _, ok := machine.QueuePrefix(q); return ok })
}

// claimAll makes claims that all name the same queues.
func (e *Engine) claimAll(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
	if !hasPattern(claims[0].Queues) {
		return e.store.Claim(ctx, claims)
	}
	answers := make([]store.Claimed, len(claims))
	for i, c := range claims {
		if err := e.claimMatching(ctx, c, &answers[i]); err != nil {
			if i == 0 {
				return nil, err
			}
			answers[i].Err = err // what the others got must not be lost
		}
	}
	return answers, nil
}

// claimMatching makes a claim with patterns. If a later step fails, it answers with what it has.
func (e *Engine) claimMatching(ctx context.Context, c store.Claim, answer *store.Claimed) error {
	seen := make(map[string]bool)
	want := c.N
	answer.Unlimited = true
	for _, name := range c.Queues {
		err := e.matching(ctx, name, func(queues []string) (more bool, err error) {
			c.Queues = slices.DeleteFunc(queues, func(q string) bool { return seen[q] })
			if len(c.Queues) == 0 {
				return true, nil
			}
			for _, q := range c.Queues {
				seen[q] = true
			}
			c.N = want - len(answer.Jobs)
			claimed, err := e.store.Claim(ctx, []store.Claim{c})
			if err != nil {
				return false, err
			}
			got := &claimed[0]
			answer.Jobs = append(answer.Jobs, got.Jobs...)
			answer.RetryAt = wake.Earlier(answer.RetryAt, got.RetryAt)
			answer.Unlimited = answer.Unlimited && got.Unlimited
			return len(answer.Jobs) < want, got.Err
		})
		if err != nil && len(answer.Jobs) == 0 {
			return err
		}
		if err != nil || len(answer.Jobs) == want {
			break
		}
	}
	if len(answer.Jobs) == want {
		answer.RetryAt = time.Time{}
	}
	return nil
}

// matchStep is the number of queues of a pattern that one claim of the store names.
const matchStep = 64

// matching calls visit with the queues of a pattern that may have jobs, some at a time, beginning
// behind the one that it began with the last time. A name without a * is its own pattern.
func (e *Engine) matching(ctx context.Context, pattern string, visit func(queues []string) (more bool, err error)) error {
	prefix, ok := machine.QueuePrefix(pattern)
	if !ok {
		_, err := visit([]string{pattern})
		return err
	}
	start := e.patterns.after(pattern)
	first := true
	for _, part := range [...]struct{ after, end string }{{start, ""}, {"", start}} {
		for after := part.after; ; {
			queues, err := e.store.Waiting(ctx, prefix, after, matchStep)
			if err != nil {
				return err
			}
			last := len(queues) < matchStep
			if len(queues) > 0 {
				after = queues[len(queues)-1]
			}
			if part.end != "" { // the rest has been visited
				if i := slices.IndexFunc(queues, func(q string) bool { return q > part.end }); i >= 0 {
					queues, last = queues[:i], true
				}
			}
			if len(queues) > 0 {
				if first {
					first = false
					e.patterns.began(pattern, queues[0])
				}
				if more, err := visit(queues); err != nil || !more {
					return err
				}
			}
			if last {
				break
			}
		}
		if start == "" {
			break
		}
	}
	return nil
}
