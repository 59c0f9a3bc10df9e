package store

import (
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// uniqueFaults reports members of a group that would replace or postpone each other, or
// replace the same job.
func uniqueFaults(g Group) (faults []gq.Fault) {
	var keys map[gq.IdempotencyKey]int
	replaced := make(map[gq.JobID]int)
	for i := range g.Jobs {
		s := &g.Jobs[i]
		if first, twice := replaced[s.Replaces]; twice && !s.Replaces.IsZero() {
			faults = append(faults, gq.Fault{Field: fmt.Sprintf("jobs[%d].replaces", i), Problem: fmt.Sprintf("jobs[%d] replaces that job already", first)})
		}
		replaced[s.Replaces] = i
		if s.Key.Name == "" {
			continue
		}
		key := KeyOf(s)
		first, twice := keys[key]
		if twice && s.Unique.OnCollision > gq.Existing {
			faults = append(faults, gq.Fault{
				Field:   fmt.Sprintf("jobs[%d].unique.on_collision", i),
				Problem: fmt.Sprintf("jobs[%d] has the same key, and jobs of one submission cannot %s each other; give them different keys", first, s.Unique.OnCollision),
			})
		}
		if keys == nil {
			keys = make(map[gq.IdempotencyKey]int)
		}
		if !twice {
			keys[key] = i
		}
	}
	return faults
}

// KeyOf returns the key of a spec without its fingerprint.
func KeyOf(s *gq.Spec) gq.IdempotencyKey {
	return gq.IdempotencyKey{Scope: s.Key.Scope, Name: s.Key.Name}
}

// Renamed names in dependencies the jobs that stand for others. The second result is false if that
// changes nothing.
func Renamed(deps []gq.Dependency, stands map[gq.JobID]gq.JobID) (_ []gq.Dependency, changed bool) {
	if len(stands) == 0 {
		return deps, false
	}
	out := slices.Clone(deps)
	for i := range out {
		for to, ok := stands[out[i].Job]; ok && to != out[i].Job; to, ok = stands[to] {
			out[i].Job, changed = to, true
		}
	}
	return out, changed
}

// Standing returns the job that stands for one: next returns the job that took the place of
// another, zero for none. A chain of more than [gq.MaxReplacements] is refused with
// [gq.ErrInvalid], so that a commit reads no more jobs than that for a dependency.
func Standing(id gq.JobID, next func(gq.JobID) (gq.JobID, error)) (gq.JobID, error) {
	last := id
	for range gq.MaxReplacements + 1 {
		to, err := next(last)
		if err != nil || to.IsZero() || to == last { // the id of an existing job may be submitted again with its key
			return last, err
		}
		last = to
	}
	return last, &gq.InvalidError{Faults: []gq.Fault{{
		Field: "depends_on", Problem: fmt.Sprintf("job %s was replaced more than %d times; name the job that has its place now", id, gq.MaxReplacements),
	}}}
}

// CheckKeyTime refuses a key that could outlive its job: its idempotency window, or the period
// for which the job is unique, is longer than the job is kept after its end.
func CheckKeyTime(s *gq.Spec, r Retention, prefix string) []gq.Fault {
	field, lasts := "policy.idempotency_window", s.Policy.IdempotencyWindow
	if s.Unique.While != 0 {
		field, lasts = "unique.period", s.Unique.Period
	}
	if !machine.OwnKey(s.Key) {
		return nil // it need not outlive its job
	}
	kept := r.Shortest()
	if own := s.Policy.Retention; own > 0 {
		kept = own
	}
	if lasts > kept {
		return []gq.Fault{{Field: prefix + field, Problem: fmt.Sprintf("%v is longer than finished jobs are kept (%v)", lasts, kept)}}
	}
	return nil
}

// Authorized asks Authorize about the queue of a job that the group would change.
func (g *Group) Authorized(queue string) error {
	if g.Authorize == nil {
		return nil
	}
	return g.Authorize(queue)
}

// ReplacedTwice refuses a group with two jobs that would replace the same one.
func ReplacedTwice(id gq.JobID) error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: "unique", Problem: fmt.Sprintf("two jobs of this submission would replace job %s", id)}}}
}

// RunAt returns the earliest run time of a new job that a collision may have postponed.
func RunAt(s *gq.Spec, notBefore, now time.Time) time.Time {
	run := machine.FirstRun(s, now)
	if notBefore.After(run) {
		run = notBefore
	}
	return run
}
