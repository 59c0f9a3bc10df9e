package scheduler

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/spec"
)

// A story is a course of requests and what must come of them. It says nothing of
// who answers, so that the same ones are told to the face in a bubble of its own
// time and, as anyone could from outside, to the built program over a directory
// and over a database.
type story struct {
	name    string
	Covers  []string
	options Options
	tell    func(f *fixture)
}

// Stories wait for real time where a server is a process. It is long enough for
// some requests on a machine that has other things to do.
const (
	brief = 3 * time.Second       // a hold or time to live that is to run out
	tick  = 10 * time.Millisecond // what is seen in timestamps
)

func units(n int64) *int64 { return &n }

var stories = []story{
	{"routes", []string{"S-02", "S-03", "S-144"}, Options{}, tellRoutes},
	{"no such route", []string{"S-01"}, Options{}, tellNoSuchRoute},
	{"bodies", []string{"S-07"}, Options{MaxBody: 2 << 20}, tellBodies},
	{"timestamps", []string{"S-05"}, Options{}, tellTimestamps},

	{"submit", []string{"S-04", "S-18", "S-19", "S-20", "S-23", "S-27", "S-28", "S-29", "S-41", "S-42", "S-43", "S-44"}, Options{}, tellSubmit},
	{"payload", []string{"S-21"}, Options{}, tellPayload},
	{"priorities", []string{"S-09", "S-10"}, Options{}, tellPriorities},
	{"constraints", []string{"S-16", "S-17", "S-57"}, Options{}, tellConstraints},
	{"submit invalid", []string{"S-08", "S-45", "S-46"}, Options{}, tellSubmitInvalid},
	{"idempotency", []string{"S-47"}, Options{}, tellIdempotency},
	{"idempotency off", []string{"S-48"}, Options{NoIdempotency: true}, tellIdempotencyOff},
	{"claim", []string{"S-06", "S-24", "S-25", "S-49", "S-50", "S-52", "S-53", "S-54", "S-55", "S-56", "S-58"}, Options{}, tellClaim},
	{"claim expires", []string{"S-59", "S-60"}, Options{ClaimHold: brief}, tellClaimExpires},
	{"claim hold configured", nil, Options{ClaimHold: brief}, tellClaimHoldConfigured},
	{"get", []string{"S-61", "S-62", "S-63"}, Options{}, tellGet},

	{"status transitions", []string{"S-11", "S-12", "S-22", "S-64", "S-65", "S-66", "S-67", "S-69", "S-70", "S-141"}, Options{}, tellStatusTransitions},
	{"status invalid", []string{"S-68"}, Options{}, tellStatusInvalid},
	{"cancel at once", []string{"S-71", "S-72", "S-75"}, Options{}, tellCancelAtOnce},
	{"cancel running", []string{"S-73", "S-74"}, Options{}, tellCancelRunning},
	{"cancel running lost", nil, Options{}, tellCancelRunningLost},

	{"lease", []string{"S-26", "S-30", "S-31", "S-32", "S-33", "S-35", "S-88", "S-89", "S-90", "S-95", "S-111"}, Options{}, tellLease},
	{"lease request invalid", nil, Options{}, tellLeaseRequestInvalid},
	{"denial", []string{"S-91", "S-92", "S-93", "S-94", "S-96", "S-97", "S-130", "S-131"}, Options{}, tellDenial},
	{"dearer than all", nil, Options{}, tellDearerThanAll},
	{"capacity", nil, Options{Capacity: units(100)}, tellCapacity},
	{"heartbeat", []string{"S-34", "S-98", "S-99", "S-100", "S-101", "S-102"}, Options{}, tellHeartbeat},
	{"release", []string{"S-14", "S-15", "S-36", "S-37", "S-38", "S-39", "S-40", "S-103", "S-104", "S-106", "S-107", "S-109", "S-110"}, Options{}, tellRelease},
	{"release invalid", nil, Options{}, tellReleaseInvalid},
	{"release nested", nil, Options{}, tellReleaseNested},
	{"lease states", []string{"S-13", "S-108", "S-112", "S-139", "S-140"}, Options{}, tellLeaseStates},
	{"requeue", nil, Options{Requeue: true, LeaseTTL: brief}, tellRequeue},

	{"events", []string{"S-83", "S-84", "S-85", "S-86", "S-87", "S-128"}, Options{}, tellEvents},
	{"job runs", []string{"S-105", "S-114", "S-115", "S-116", "S-117", "S-118", "S-119", "S-120"}, Options{Requeue: true}, tellJobRuns},
	{"lease runs", []string{"S-121", "S-122", "S-123", "S-124"}, Options{Requeue: true}, tellLeaseRuns},
	{"audit", []string{"S-125", "S-126", "S-127"}, Options{}, tellAudit},
	{"list", []string{"S-76", "S-77", "S-78", "S-79", "S-80", "S-81", "S-82"}, Options{}, tellList},
	{"list is current", nil, Options{ClaimHold: brief}, tellListIsCurrent},
	{"counts", []string{"S-129", "S-132", "S-133"}, Options{}, tellCounts},
	{"series", []string{"S-134", "S-135", "S-136", "S-137"}, Options{}, tellSeries},

	{"restart", []string{"S-113", "S-142"}, Options{}, tellRestart},
	{"guardrails", []string{"S-143"}, Options{}, tellGuardrails("TIMEOUT")},
	{"guardrails with requeue", []string{"S-143"}, Options{Requeue: true}, tellGuardrails("QUEUED")},
	{"guardrails without idempotency", []string{"S-143"}, Options{NoIdempotency: true}, tellGuardrails("TIMEOUT")},
	{"guardrails with other times", []string{"S-143"}, Options{ClaimHold: brief, LeaseTTL: brief}, tellGuardrails("TIMEOUT")},
	{"guardrails with little capacity", []string{"S-143"}, Options{Capacity: units(30)}, tellGuardrails("TIMEOUT")},
	{"claimed once", []string{"S-51", "S-138"}, Options{ClaimHold: time.Hour}, tellClaimedOnce},
}

// The stories in a bubble, where time passes only when everyone waits for it. No
// sweep runs.
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

// The stories through the built program, from outside.
func TestThroughTheProgram(t *testing.T) {
	for _, where := range places {
		t.Run(where.name, func(t *testing.T) {
			for _, s := range stories {
				t.Run(s.name, func(t *testing.T) {
					if len(s.Covers) > 0 {
						spec.Covers(t, s.Covers...)
					}
					if s.name != "claimed once" { // which leaves the others no time
						t.Parallel()
					}
					s.tell(where.open(t).serve(t, s.options))
				})
			}
		})
	}
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
