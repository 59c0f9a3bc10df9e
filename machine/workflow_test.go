package machine_test

import (
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

func TestWorkflowStatus(t *testing.T) {
	ended := func(status gq.Status, reason string) *gq.State { return &gq.State{Status: status, Reason: reason} }
	var (
		completed = ended(gq.StatusCompleted, "")
		failed    = ended(gq.StatusFailed, "")
		dead      = ended(gq.StatusDeadLetter, "attempts_exhausted")
		cancelled = ended(gq.StatusCancelled, "start_deadline")
		idle      = ended(gq.StatusCancelled, machine.ReasonNoFailure)
		waiting   = ended(gq.StatusPending, "")
	)
	for want, cases := range map[gq.WorkflowStatus][][]*gq.State{
		gq.WorkflowRunning:   {{waiting}, {failed, cancelled, waiting}},
		gq.WorkflowFailed:    {{failed}, {dead, completed}, {cancelled, failed, idle}},
		gq.WorkflowCancelled: {{cancelled}, {completed, cancelled, idle}},
		gq.WorkflowSucceeded: {{completed}, {completed, idle}, {}},
	} {
		for i, states := range cases {
			if got := machine.WorkflowStatus(states); got != want {
				t.Errorf("%s: case %d is %s", want, i, got)
			}
		}
	}
}

// A final job waits for all others, and only one for a failure has a gate, which FAN_IN opens. So if it
// follows another final job, whose failure is none of the workflow, it waits for that one by another kind.
func TestFinalDependencies(t *testing.T) {
	for final, want := range map[gq.Final]struct {
		kind    gq.DependencyKind
		gate    gq.Gate
		follows gq.DependencyKind // another final job at its end
	}{
		gq.OnEither:  {gq.DependencyFanIn, 0, gq.DependencyFanIn},
		gq.OnSuccess: {gq.DependencyAfter, 0, gq.DependencyFanIn},
		gq.OnFailure: {gq.DependencyFanIn, gq.GateFailure, gq.DependencyAfterAny},
	} {
		if kind, gate := machine.FinalDependency(final); kind != want.kind || gate != want.gate {
			t.Errorf("%s waits by %s with the gate %d, want %s and %d", final, kind, gate, want.kind, want.gate)
		}
		if kind := machine.FollowsFinal(final, gq.DependencyFanIn); kind != want.follows {
			t.Errorf("%s follows the end of a final job by %s, want %s", final, kind, want.follows)
		}
		if kind := machine.FollowsFinal(final, gq.DependencyAfter); kind != gq.DependencyAfter {
			t.Errorf("%s follows the success of a final job by %s", final, kind)
		}
	}
}
