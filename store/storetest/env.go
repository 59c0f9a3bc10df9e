package storetest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// start is when every case begins: a time with nanoseconds, to detect stores that round.
var start = time.Date(2026, time.March, 1, 12, 0, 0, 123456789, time.UTC)

// env has a store, its clock, and helpers for what cases do most. A helper ends the case if
// the store wrongly returns an error.
type env struct {
	testing.TB
	clause  string
	backend Backend
	cfg     store.Config
	clock   *Clock
	s       store.Store
	random  *rand.Rand // the same in every run of the case
}

func newEnv(t testing.TB, b Backend, c Case) *env {
	t.Helper()
	name := fnv.New64a()
	fmt.Fprint(name, c.Name)
	return &env{
		TB: t, clause: c.Clause, backend: b,
		clock:  NewClock(start),
		random: rand.New(rand.NewPCG(name.Sum64(), 1)),
	}
}

// open opens the store. Helpers that need a store open it with the default configuration.
func (e *env) open(change ...func(*store.Config)) {
	e.Helper()
	e.cfg = store.Config{Clock: e.clock}
	for _, f := range change {
		f(&e.cfg)
	}
	e.s = e.backend.Open(e.TB, e.cfg)
	e.Cleanup(func() {
		if err := e.s.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
	})
}

func (e *env) store() store.Store {
	e.Helper()
	if e.s == nil {
		e.open()
	}
	return e.s
}

// reopen closes the store and opens its data again.
func (e *env) reopen() {
	e.Helper()
	e.s = e.backend.Reopen(e.TB, e.store(), e.cfg)
}

// Errorf reports a violation of the clause.
func (e *env) Errorf(format string, args ...any) {
	e.Helper()
	e.TB.Errorf("%s\nclause: %s", fmt.Sprintf(format, args...), e.clause)
}

// Fatalf reports a violation of the clause and ends the case.
func (e *env) Fatalf(format string, args ...any) {
	e.Helper()
	e.TB.Fatalf("%s\nclause: %s", fmt.Sprintf(format, args...), e.clause)
}

// check ends the case if a whole call failed.
func (e *env) check(call string, err error) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", call, err)
	}
}

// is fails unless err is want.
func (e *env) is(what string, err error, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("%s: error %v, want %v", what, err, want)
	}
}

// equal fails unless two values are equal. Times are equal if they are the same instant,
// and nil slices and maps equal empty ones.
func (e *env) equal(what string, got, want any) {
	e.Helper()
	if reflect.DeepEqual(got, want) { // fast path
		return
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		e.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// now returns the time of the store's clock.
func (e *env) now() time.Time { return e.clock.Now() }

// id returns a new job id.
func (e *env) id() gq.JobID {
	var raw [16]byte
	for i := range raw {
		raw[i] = byte(e.random.Uint32())
	}
	return machine.NewJobID(raw)
}

// setting changes one field of a spec.
type setting func(*gq.Spec)

// spec returns a job of queue "q" and type "work".
func (e *env) spec(settings ...setting) gq.Spec {
	s := gq.Spec{ID: e.id(), Queue: "q", Type: "work", Policy: machine.DefaultPolicy()}
	for _, set := range settings {
		set(&s)
	}
	return s.WithDefaults()
}

func (e *env) specs(n int, settings ...setting) []gq.Spec {
	specs := make([]gq.Spec, n)
	for i := range specs {
		specs[i] = e.spec(settings...)
	}
	return specs
}

func inQueue(name string) setting            { return func(s *gq.Spec) { s.Queue = name } }
func ofType(name string) setting             { return func(s *gq.Spec) { s.Type = name } }
func at(p gq.Priority) setting               { return func(s *gq.Spec) { s.Metadata.Priority = p } }
func delayed(d time.Duration) setting        { return func(s *gq.Spec) { s.Delay = d } }
func costing(units int64) setting            { return func(s *gq.Spec) { s.CostUnits = units } }
func requiring(capability ...string) setting { return func(s *gq.Spec) { s.Requires = capability } }
func under(change func(*gq.Policy)) setting  { return func(s *gq.Spec) { change(&s.Policy) } }

func keyed(name string, fingerprint uint64) setting {
	return func(s *gq.Spec) { s.Key = gq.IdempotencyKey{Name: name, Fingerprint: fingerprint} }
}

func depends(kind gq.DependencyKind, on ...gq.JobID) setting {
	return func(s *gq.Spec) {
		for _, id := range on {
			s.DependsOn = append(s.DependsOn, gq.Dependency{Kind: kind, Job: id})
		}
	}
}

// tryInsert submits groups and returns the result of each.
func (e *env) tryInsert(groups ...store.Group) []store.Inserted {
	e.Helper()
	answers, err := e.store().Insert(e.Context(), groups)
	e.check("Insert", err)
	if len(answers) != len(groups) {
		e.Fatalf("Insert answered %d of %d groups", len(answers), len(groups))
	}
	for i, a := range answers {
		if a.Err == nil && len(a.Jobs) != len(groups[i].Jobs) {
			e.Fatalf("Insert placed %d of the %d jobs of group %d", len(a.Jobs), len(groups[i].Jobs), i)
		}
	}
	return answers
}

// insert submits one group, which must be accepted.
func (e *env) insert(specs ...gq.Spec) []gq.State {
	e.Helper()
	answer := e.tryInsert(store.Group{Jobs: specs})[0]
	e.check("Insert", answer.Err)
	states := make([]gq.State, len(specs))
	for i, p := range answer.Jobs {
		states[i] = p.State
	}
	return states
}

// each submits jobs in one call, each in its own group.
func (e *env) each(specs ...gq.Spec) []gq.State {
	e.Helper()
	groups := make([]store.Group, len(specs))
	for i, s := range specs {
		groups[i] = store.One(s)
	}
	states := make([]gq.State, len(specs))
	for i, answer := range e.tryInsert(groups...) {
		e.check("Insert", answer.Err)
		states[i] = answer.Jobs[0].State
	}
	return states
}

// add submits one job, to which the store may give an id of its own.
func (e *env) add(settings ...setting) gq.State {
	e.Helper()
	return e.minted(e.spec(settings...))[0]
}

// minted submits one group, to whose jobs the store may give ids of its own.
func (e *env) minted(specs ...gq.Spec) []gq.State {
	e.Helper()
	answer := e.tryInsert(store.Group{Jobs: specs, Mint: true})[0]
	e.check("Insert", answer.Err)
	states := make([]gq.State, len(specs))
	for i, p := range answer.Jobs {
		states[i] = p.State
	}
	return states
}

// refusal is the reason why a group was not inserted.
type refusal struct{ err error }

// fields lists the fields that the refusal names.
func (r refusal) fields() []string { return fields(r.err) }

// refused submits one group, which must be refused.
func (e *env) refused(want error, specs ...gq.Spec) refusal {
	e.Helper()
	err := e.tryInsert(store.Group{Jobs: specs})[0].Err
	e.is("Insert", err, want)
	return refusal{err}
}

// asking changes one field of a claim.
type asking func(*store.Claim)

func from(queues ...string) asking         { return func(c *store.Claim) { c.Queues = queues } }
func by(worker string) asking              { return func(c *store.Claim) { c.Worker = worker } }
func types(names ...string) asking         { return func(c *store.Claim) { c.Types = names } }
func offering(capability ...string) asking { return func(c *store.Claim) { c.Offers = capability } }
func upTo(cost int64) asking               { return func(c *store.Claim) { c.MaxCost = cost } }
func lasting(ttl time.Duration) asking     { return func(c *store.Claim) { c.TTL = ttl } }
func with(parts gq.Parts) asking           { return func(c *store.Claim) { c.Parts = parts } }
func holding(c *store.Claim)               { c.Hold = true }

func claimOf(n int, asks ...asking) store.Claim {
	c := store.Claim{Filter: store.Filter{Queues: []string{"q"}}, N: n, Worker: "worker"}
	for _, ask := range asks {
		ask(&c)
	}
	return c
}

// tryClaim makes claims in one call and returns the result of each.
func (e *env) tryClaim(claims ...store.Claim) []store.Claimed {
	e.Helper()
	answers, err := e.store().Claim(e.Context(), claims)
	e.check("Claim", err)
	if len(answers) != len(claims) {
		e.Fatalf("Claim answered %d of %d claims", len(answers), len(claims))
	}
	if e.backend.Late {
		e.lookAgain(claims, answers)
	}
	return answers
}

// lookAgain claims again, because a store with Backend.Late may show new jobs late.
func (e *env) lookAgain(claims []store.Claim, answers []store.Claimed) {
	e.Helper()
	for i := range answers {
		got := len(answers[i].Jobs)
		if answers[i].Err != nil || got == claims[i].N {
			continue
		}
		again := claims[i]
		again.N -= got
		found, err := e.store().Claim(e.Context(), []store.Claim{again})
		e.check("Claim", err)
		answers[i].Jobs = append(answers[i].Jobs, found[0].Jobs...)
		answers[i].RetryAt, answers[i].KeyRate, answers[i].Err = found[0].RetryAt, found[0].KeyRate, found[0].Err
	}
}

// claim claims up to n jobs of queue "q".
func (e *env) claim(n int, asks ...asking) []gq.Job {
	e.Helper()
	answer := e.tryClaim(claimOf(n, asks...))[0]
	e.check("Claim", answer.Err)
	return answer.Jobs
}

// one claims a job, which must exist.
func (e *env) one(asks ...asking) gq.Job {
	e.Helper()
	jobs := e.claim(1, asks...)
	if len(jobs) != 1 {
		e.Fatalf("Claim found %d jobs, want 1", len(jobs))
	}
	return jobs[0]
}

// none fails if a claim finds a job.
func (e *env) none(when string, asks ...asking) {
	e.Helper()
	if jobs := e.claim(1, asks...); len(jobs) != 0 {
		e.Fatalf("%s a claim found job %s (%s), want nothing", when, jobs[0].Spec.ID, jobs[0].State.Status)
	}
}

// claimed fails unless a claim for n jobs finds exactly these, in this order.
func (e *env) claimed(what string, n int, want []gq.JobID, asks ...asking) {
	e.Helper()
	if got := idsOf(e.claim(n, asks...)); !slices.Equal(got, want) {
		e.Fatalf("%s: claimed %s, want %s", what, briefs(got), briefs(want))
	}
}

func idsOf(jobs []gq.Job) []gq.JobID {
	ids := make([]gq.JobID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.State.ID
	}
	return ids
}

func stateIDs(states []gq.State) []gq.JobID {
	ids := make([]gq.JobID, len(states))
	for i, s := range states {
		ids[i] = s.ID
	}
	return ids
}

// briefs formats ids briefly, for one line.
func briefs(ids []gq.JobID) []string {
	out := make([]string, 0, len(ids))
	for i, id := range ids {
		if i == 20 {
			return append(out, fmt.Sprintf("and %d more", len(ids)-i))
		}
		out = append(out, id.String()[:8])
	}
	return out
}

// cancelledContext returns a context that has ended.
func cancelledContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
