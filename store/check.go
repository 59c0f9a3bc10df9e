package store

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// CheckGroup reports everything that is wrong with a group in itself, before a
// store takes any lock: every field of every job, and its size.
// What a group refers to is for the store to check, with [machine.CheckGraph].
func CheckGroup(g Group, l gq.Limits) error {
	if len(g.Jobs) == 1 {
		return machine.CheckSpec(&g.Jobs[0], l)
	}
	var faults []gq.Fault
	if len(g.Jobs) == 0 || len(g.Jobs) > gq.MaxGroupJobs {
		faults = append(faults, gq.Fault{Field: "jobs", Problem: fmt.Sprintf("a group has 1 to %d jobs, this one %d", gq.MaxGroupJobs, len(g.Jobs))})
		return &gq.InvalidError{Faults: faults}
	}
	size := 0
	for i := range g.Jobs {
		size += len(g.Jobs[i].Payload.Data)
		for _, f := range errs.FaultsOf(machine.CheckSpec(&g.Jobs[i], l)) {
			f.Field = fmt.Sprintf("jobs[%d].%s", i, f.Field)
			faults = append(faults, f)
		}
	}
	faults = append(faults, uniqueFaults(g)...)
	if size > gq.MaxGroupBytes {
		faults = append(faults, gq.Fault{Field: "jobs", Problem: fmt.Sprintf("the payloads have %d bytes together, more than %d", size, gq.MaxGroupBytes)})
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// CheckRunTimes refuses a group with a job that may not run before its lifetime
// is over, as [machine.CheckRunAt] does for one. A store calls it with the time of
// its commit. Members for which exists reports true are jobs already; their times
// were checked when they were made.
func CheckRunTimes(g Group, now time.Time, exists func(i int) bool) error {
	var faults []gq.Fault
	for i := range g.Jobs {
		if g.Jobs[i].RunAt.IsZero() || exists(i) {
			continue
		}
		for _, f := range errs.FaultsOf(machine.CheckRunAt(&g.Jobs[i], now)) {
			if len(g.Jobs) > 1 {
				f.Field = fmt.Sprintf("jobs[%d].%s", i, f.Field)
			}
			faults = append(faults, f)
		}
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// CheckUpdate reports every fault in what an update stores in addition to the state.
func CheckUpdate(u *Update, l gq.Limits, r Retention) error {
	var faults []gq.Fault
	limit := func(field string, data []byte, most int) {
		if len(data) > most {
			faults = append(faults, gq.Fault{
				Field: field, Problem: fmt.Sprintf("%d bytes are more than the limit of %d", len(data), most),
			})
		}
	}
	limit("result", u.Result, l.ResultBytes)
	limit("checkpoint", u.Checkpoint, l.CheckpointBytes)
	if u.Metadata != nil {
		faults = append(faults, errs.FaultsOf(machine.CheckMetadata(*u.Metadata))...)
	}
	faults = append(faults, errs.FaultsOf(CheckSpawn(u.Spawn, l))...)
	for i := range u.Spawn {
		faults = append(faults, CheckKeyTime(&u.Spawn[i], r, fmt.Sprintf("spawn[%d].", i))...)
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// CheckSpawn is CheckGroup for the children of an update, if it has any.
func CheckSpawn(specs []gq.Spec, l gq.Limits) error {
	if len(specs) == 0 {
		return nil
	}
	faults := errs.FaultsOf(CheckGroup(Group{Jobs: specs}, l))
	for i, f := range faults {
		if len(specs) == 1 {
			faults[i].Field = "spawn[0]." + f.Field
		} else {
			faults[i].Field = "spawn" + strings.TrimPrefix(f.Field, "jobs")
		}
	}
	for i := range specs {
		if specs[i].OrderKey != "" {
			faults = append(faults, gq.Fault{
				Field:   fmt.Sprintf("spawn[%d].order_key", i),
				Problem: "a job that another one spawns cannot have an order key; submit it by itself",
			})
		}
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// CheckPool reports a queue whose pool does not exist, as a fault of the queue.
func CheckPool(q gq.Queue, exists bool) error {
	if q.Pool == "" || exists {
		return nil
	}
	return &gq.InvalidError{Faults: []gq.Fault{{Field: "pool", Problem: fmt.Sprintf("there is no pool %q", q.Pool)}}}
}

// TooManyQueues refuses a queue beyond [gq.MaxQueues].
func TooManyQueues(queue string) error {
	return fmt.Errorf("queue %s would be one more than %d: %w", queue, gq.MaxQueues, gq.ErrTooMany)
}

// QueueInUse refuses to delete a queue with live jobs; nil if it has none.
func QueueInUse(c gq.Count) error {
	if c.Live() == 0 {
		return nil
	}
	var by []string
	for s := gq.StatusPending; s < gq.StatusCompleted; s++ {
		if n := c.By[s]; n > 0 {
			by = append(by, fmt.Sprintf("%d %s", n, s))
		}
	}
	return gq.ErrQueueInUse.Errorf("queue %s has %d live jobs (%s); cancel them or wait until they have ended", c.Queue, c.Live(), strings.Join(by, ", "))
}

// NoQueue is the error of a call about a queue that does not exist.
func NoQueue(name string) error { return gq.ErrNotFound.Errorf("queue %.80q not found", name) }

// CheckKeys reports everything that is wrong with a query of keys and fills in its limit.
func CheckKeys(q *KeyQuery) error {
	if q.Limit == 0 {
		q.Limit = DefaultPage
	}
	faults := errs.FaultsOf(machine.CheckQueueName(q.Queue))
	if q.Limit < 1 || q.Limit > MaxPage {
		faults = append(faults, gq.Fault{Field: "limit", Problem: fmt.Sprintf("%d is not between 1 and %d", q.Limit, MaxPage)})
	}
	if len(q.Names) > MaxPage {
		faults = append(faults, gq.Fault{Field: "keys", Problem: fmt.Sprintf("%d are more than %d", len(q.Names), MaxPage)})
	}
	for i, name := range q.Names {
		faults = append(faults, errs.FaultsOf(machine.CheckName(fmt.Sprintf("keys[%d]", i), name))...)
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// TooManyKeys refuses limits of a key beyond [gq.MaxQueueKeys].
func TooManyKeys(queue string) error {
	return fmt.Errorf("queue %s has limits for %d keys already; remove some, or set the queue's key_limit or key_rate, which count for any number of keys: %w", queue, gq.MaxQueueKeys, gq.ErrTooMany)
}

// NoKey is the error of a call that removes the limits of a key which has none.
func NoKey(k gq.QueueKey) error {
	return gq.ErrNotFound.Errorf("key %.80q of queue %.80q has no limits of its own", k.Key, k.Queue)
}

// CheckWaiting reports a limit of [Store.Waiting] that is out of range.
func CheckWaiting(limit int) error {
	if limit < 1 || limit > MaxPage {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "limit", Problem: fmt.Sprintf("%d is not between 1 and %d", limit, MaxPage)}}}
	}
	return nil
}

// CheckClaim reports everything that is wrong with a claim.
func CheckClaim(c Claim) error {
	faults := c.Filter.faults()
	add := func(field, format string, args ...any) {
		faults = append(faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if c.N < 1 || c.N > MaxClaim {
		add("n", "%d is not between 1 and %d", c.N, MaxClaim)
	}
	if c.Worker == "" || len(c.Worker) > gq.MaxNameBytes {
		add("worker", "must have 1 to %d bytes", gq.MaxNameBytes)
	}
	if c.TTL < 0 || c.TTL > gq.MaxDuration {
		add("ttl", "%v is not between 0 and %v", c.TTL, gq.MaxDuration)
	}
	if c.DefaultTTL < 0 || c.DefaultTTL > gq.MaxDuration {
		add("default_ttl", "%v is not between 0 and %v", c.DefaultTTL, gq.MaxDuration)
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// MaxClaim is the largest number of jobs one claim may ask for.
const MaxClaim = 1000

// Check reports everything that is wrong with a filter.
func (f Filter) Check() error {
	if faults := f.faults(); len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

func (f Filter) faults() (faults []gq.Fault) {
	if len(f.Queues) == 0 {
		faults = append(faults, gq.Fault{Field: "queues", Problem: "name at least one queue"})
	}
	for i, q := range f.Queues {
		for _, fault := range errs.FaultsOf(machine.CheckQueueName(q)) {
			fault.Field = fmt.Sprintf("queues[%d]", i)
			faults = append(faults, fault)
		}
	}
	if f.MaxCost < 0 {
		faults = append(faults, gq.Fault{Field: "max_cost", Problem: fmt.Sprintf("%d is negative; 0 is no limit", f.MaxCost)})
	}
	return faults
}

// CheckQuery reports everything that is wrong with a query and fills in its limit.
func CheckQuery(q *gq.Query) error {
	var faults []gq.Fault
	if q.Limit == 0 {
		q.Limit = DefaultPage
	}
	if q.Limit < 1 || q.Limit > MaxPage {
		faults = append(faults, gq.Fault{Field: "limit", Problem: fmt.Sprintf("%d is not between 1 and %d", q.Limit, MaxPage)})
	}
	if q.MaxScan < 0 {
		faults = append(faults, gq.Fault{Field: "max_scan", Problem: fmt.Sprintf("%d is negative", q.MaxScan)})
	}
	if q.Queue != "" {
		faults = append(faults, errs.FaultsOf(machine.CheckQueueName(q.Queue))...)
	}
	if q.Picks() {
		faults = append(faults, gq.Fault{Field: "types", Problem: "a store does not know jobs by type, tag or key; the engine picks them"})
	}
	for i, s := range q.Statuses {
		if !s.Valid() {
			faults = append(faults, gq.Fault{Field: fmt.Sprintf("statuses[%d]", i), Problem: s.String() + " is not a state"})
		}
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// MaxKeyed is how many keys one look-up reads: each name in each scope. A query that names its types
// never reaches it.
const MaxKeyed = gq.MaxQueryKeys * (gq.MaxQueryTypes + 1)

// CheckKeyed rejects a look-up of too many keys, in the scopes that it names or that the store
// knows.
func CheckKeyed(scopes int, names []string) error {
	problem := ""
	switch n := len(names); {
	case n > gq.MaxQueryKeys:
		problem = fmt.Sprintf("%d are more than %d", n, gq.MaxQueryKeys)
	case n*scopes > MaxKeyed:
		problem = fmt.Sprintf("%d cannot be looked for among jobs of all types, of which there are more than %d; name the types, or at most %d keys", n, MaxKeyed/n, max(MaxKeyed/scopes, 1))
	default:
		return nil
	}
	return &gq.InvalidError{Faults: []gq.Fault{{Field: "keys", Problem: problem}}}
}

// Selects reports whether a claim with this filter may get a job, as far as its spec tells.
func (f Filter) Selects(s *gq.Spec) bool {
	if !slices.Contains(f.Queues, s.Queue) || len(f.Types) > 0 && !slices.Contains(f.Types, s.Type) || f.MaxCost > 0 && s.CostUnits > f.MaxCost {
		return false
	}
	return !slices.ContainsFunc(s.Requires, func(c string) bool { return !slices.Contains(f.Offers, c) })
}
