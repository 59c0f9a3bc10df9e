package scheduler

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/spec"
)

// A story is a sequence of requests with the expected responses. It does not depend on
// the server, so the same stories run against the face in a bubble and, from outside,
// against the built program on a directory and on a database.
type story struct {
	name    string
	Covers  []string
	options Options
	tell    func(f *fixture)
}

// Against a process, stories wait in real time. That is long enough for some requests on
// a loaded machine; on an overloaded one a story is repeated with longer times.
const (
	brief = 3 * time.Second       // a hold or TTL that should expire
	tick  = 10 * time.Millisecond // resolution of timestamps
)

func units(n int64) *int64 { return new(n) }

var stories = []story{
	{name: "routes", Covers: []string{"S-02", "S-03", "S-144"}, options: Options{}, tell: tellRoutes},
	{name: "no such route", Covers: []string{"S-01"}, options: Options{}, tell: tellNoSuchRoute},
	{name: "bodies", Covers: []string{"S-07"}, options: Options{MaxBody: 2 << 20}, tell: tellBodies},
	{name: "timestamps", Covers: []string{"S-05"}, options: Options{}, tell: tellTimestamps},

	{name: "submit", Covers: []string{"S-04", "S-18", "S-19", "S-20", "S-23", "S-27", "S-28", "S-29", "S-41", "S-42", "S-43", "S-44"}, options: Options{}, tell: tellSubmit},
	{name: "payload", Covers: []string{"S-21"}, options: Options{}, tell: tellPayload},
	{name: "priorities", Covers: []string{"S-09", "S-10"}, options: Options{}, tell: tellPriorities},
	{name: "constraints", Covers: []string{"S-16", "S-17", "S-57"}, options: Options{}, tell: tellConstraints},
	{name: "submit invalid", Covers: []string{"S-08", "S-45", "S-46"}, options: Options{}, tell: tellSubmitInvalid},
	{name: "idempotency", Covers: []string{"S-47"}, options: Options{}, tell: tellIdempotency},
	{name: "idempotency off", Covers: []string{"S-48"}, options: Options{NoIdempotency: true}, tell: tellIdempotencyOff},
	{name: "claim", Covers: []string{"S-06", "S-24", "S-25", "S-49", "S-50", "S-52", "S-53", "S-54", "S-55", "S-56", "S-58"}, options: Options{}, tell: tellClaim},
	{name: "claim expires", Covers: []string{"S-59", "S-60"}, options: Options{ClaimHold: brief}, tell: tellClaimExpires},
	{name: "claim hold configured", Covers: nil, options: Options{ClaimHold: brief}, tell: tellClaimHoldConfigured},
	{name: "get", Covers: []string{"S-61", "S-62", "S-63"}, options: Options{}, tell: tellGet},

	{name: "status transitions", Covers: []string{"S-11", "S-12", "S-22", "S-64", "S-65", "S-66", "S-67", "S-69", "S-70", "S-141"}, options: Options{}, tell: tellStatusTransitions},
	{name: "status invalid", Covers: []string{"S-68"}, options: Options{}, tell: tellStatusInvalid},
	{name: "cancel at once", Covers: []string{"S-71", "S-72", "S-75"}, options: Options{}, tell: tellCancelAtOnce},
	{name: "cancel running", Covers: []string{"S-73", "S-74"}, options: Options{}, tell: tellCancelRunning},
	{name: "cancel running lost", Covers: nil, options: Options{}, tell: tellCancelRunningLost},

	{name: "lease", Covers: []string{"S-26", "S-30", "S-31", "S-32", "S-33", "S-35", "S-88", "S-89", "S-90", "S-95", "S-111"}, options: Options{}, tell: tellLease},
	{name: "lease list", Covers: nil, options: Options{}, tell: tellLeaseList},
	{name: "lease cancel", Covers: nil, options: Options{}, tell: tellLeaseCancel},
	{name: "lease request invalid", Covers: nil, options: Options{}, tell: tellLeaseRequestInvalid},
	{name: "denial", Covers: []string{"S-91", "S-92", "S-93", "S-94", "S-96", "S-97", "S-130", "S-131"}, options: Options{}, tell: tellDenial},
	{name: "denial in the audit", Covers: []string{"S-128"}, options: Options{}, tell: tellDenialInAudit},
	{name: "dearer than all", Covers: nil, options: Options{}, tell: tellDearerThanAll},
	{name: "capacity", Covers: nil, options: Options{Capacity: units(100)}, tell: tellCapacity},
	{name: "heartbeat", Covers: []string{"S-34", "S-98", "S-99", "S-100", "S-101", "S-102"}, options: Options{}, tell: tellHeartbeat},
	{name: "release", Covers: []string{"S-14", "S-15", "S-36", "S-37", "S-38", "S-39", "S-40", "S-103", "S-104", "S-106", "S-107", "S-109", "S-110"}, options: Options{}, tell: tellRelease},
	{name: "release invalid", Covers: nil, options: Options{}, tell: tellReleaseInvalid},
	{name: "release with warning", Covers: []string{"S-39", "S-120"}, options: Options{}, tell: tellReleaseWithWarning},
	{name: "release too long", Covers: nil, options: Options{}, tell: tellReleaseTooLong},
	{name: "release nested", Covers: nil, options: Options{}, tell: tellReleaseNested},
	{name: "lease states", Covers: []string{"S-13", "S-108", "S-112", "S-139", "S-140"}, options: Options{}, tell: tellLeaseStates},
	{name: "requeue", Covers: nil, options: Options{Requeue: true, LeaseTTL: brief}, tell: tellRequeue},
	{name: "requeue ends", Covers: []string{"S-140"}, options: Options{Requeue: true, LeaseTTL: brief}, tell: tellRequeueEnds},

	{name: "events", Covers: []string{"S-83", "S-84", "S-85", "S-86", "S-87", "S-128"}, options: Options{}, tell: tellEvents},
	{name: "job runs", Covers: []string{"S-105", "S-114", "S-115", "S-116", "S-117", "S-118", "S-119", "S-120"}, options: Options{Requeue: true}, tell: tellJobRuns},
	{name: "lease runs", Covers: []string{"S-121", "S-122", "S-123", "S-124"}, options: Options{Requeue: true}, tell: tellLeaseRuns},
	{name: "audit", Covers: []string{"S-125", "S-126", "S-127"}, options: Options{}, tell: tellAudit},
	{name: "list", Covers: []string{"S-76", "S-77", "S-78", "S-79", "S-80", "S-81", "S-82"}, options: Options{}, tell: tellList},
	{name: "list is current", Covers: nil, options: Options{ClaimHold: brief}, tell: tellListIsCurrent},
	{name: "counts", Covers: []string{"S-129", "S-132", "S-133"}, options: Options{}, tell: tellCounts},
	{name: "series", Covers: []string{"S-134", "S-135", "S-136", "S-137"}, options: Options{}, tell: tellSeries},

	{name: "restart", Covers: []string{"S-113", "S-142"}, options: Options{}, tell: tellRestart},
	{name: "guardrails", Covers: []string{"S-143"}, options: Options{}, tell: tellGuardrails("TIMEOUT")},
	{name: "guardrails with requeue", Covers: []string{"S-143"}, options: Options{Requeue: true}, tell: tellGuardrails("QUEUED")},
	{name: "guardrails without idempotency", Covers: []string{"S-143"}, options: Options{NoIdempotency: true}, tell: tellGuardrails("TIMEOUT")},
	{name: "guardrails with other times", Covers: []string{"S-143"}, options: Options{ClaimHold: brief, LeaseTTL: brief}, tell: tellGuardrails("TIMEOUT")},
	{name: "guardrails with little capacity", Covers: []string{"S-143"}, options: Options{Capacity: units(30)}, tell: tellGuardrails("TIMEOUT")},
	{name: "claimed once", Covers: []string{"S-51", "S-138"}, options: Options{ClaimHold: time.Hour}, tell: tellClaimedOnce},
}

// Runs the stories in a bubble, where time passes only when everyone waits. No sweep
// runs.
func TestStories(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			if len(s.Covers) > 0 {
				spec.Covers(t, s.Covers...)
			}
			bubble(t, s.options, s.tell)
		})
	}
}

// Runs the stories through the built program, from outside.
func TestThroughTheProgram(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the program many times")
	}
	for _, where := range places {
		t.Run(where.name, func(t *testing.T) {
			for _, s := range stories {
				t.Run(s.name, func(t *testing.T) {
					if len(s.Covers) > 0 {
						spec.Covers(t, s.Covers...)
					}
					if s.name != "claimed once" { // which would starve the others
						t.Parallel()
					}
					s.tellOutside(t, where.open)
				})
			}
		})
	}
}

// attempt is a test whose failures are collected and may be discarded.
type attempt struct {
	testing.TB
	mu     sync.Mutex
	faults []string // guarded by mu
}

func (a *attempt) fault(text string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.faults = append(a.faults, text)
}

func (a *attempt) Error(args ...any)                 { a.fault(fmt.Sprint(args...)) }
func (a *attempt) Errorf(format string, args ...any) { a.fault(fmt.Sprintf(format, args...)) }

func (a *attempt) Fatal(args ...any) {
	a.Error(args...)
	runtime.Goexit()
}

func (a *attempt) Fatalf(format string, args ...any) {
	a.Errorf(format, args...)
	runtime.Goexit()
}

// tellOutside runs a story against the program. If something expired early because the
// requests took too long, it runs the story again with longer times. On a machine that
// keeps up, every story runs once.
func (s *story) tellOutside(t *testing.T, open func(t testing.TB) place) {
	t.Helper()
	for short := brief; ; short *= 3 {
		a := &attempt{TB: t}
		where, began := open(t), time.Now()
		var f *fixture
		told := make(chan struct{})
		go func() {
			defer close(told)
			f = where.serve(a, s.options.slower(short))
			f.short, began = short, time.Now()
			s.tell(f)
		}()
		<-told
		busy := f != nil && f.timed && time.Since(began)-f.slept > short/2
		if len(a.faults) > 0 && busy && short < 9*brief {
			t.Logf("the requests took %v, so it is told again: %s", time.Since(began)-f.slept, strings.Join(a.faults, "\n"))
			continue
		}
		for _, fault := range a.faults {
			t.Error(fault)
		}
		return
	}
}

// slower returns options with longer times instead of brief.
func (o Options) slower(short time.Duration) Options {
	for _, d := range []*time.Duration{&o.ClaimHold, &o.LeaseTTL} {
		if *d == brief {
			*d = short
		}
	}
	return o
}

// Every requirement of the scheduler API has a story.
func TestStoriesComplete(t *testing.T) {
	told := map[string]bool{}
	for _, s := range stories {
		for _, id := range s.Covers {
			told[id] = true
		}
	}
	all := slices.DeleteFunc(spec.All(), func(r spec.Requirement) bool { return !strings.HasPrefix(r.ID, "S-") })
	if len(all) != 144 {
		t.Errorf("there are %d requirements, want 144", len(all))
	}
	for _, r := range all {
		if !told[r.ID] {
			t.Errorf("%s has no story", r.ID)
		}
	}
}
