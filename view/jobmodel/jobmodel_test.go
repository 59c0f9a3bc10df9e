package jobmodel_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/view/jobmodel"
)

// states are those of section 2 of the job model, and the state of a dependency of section 6,
// copied by hand.
var states = strings.Fields(`PENDING SCHEDULED DELAYED RUNNING COMPLETED FAILED RETRYING DEAD_LETTER CANCELLED`)

// Every status reads as one of the states of the document, and every state lists its statuses.
func TestStates(t *testing.T) {
	spec.Covers(t, "J-03", "J-137")
	for _, s := range enum.All[gq.Status]() {
		state := jobmodel.StateOf(&gq.State{Status: s})
		if !slices.Contains(states, string(state)) || !slices.Contains(state.Statuses(), s) {
			t.Errorf("%v reads %q, which lists %v", s, state, state.Statuses())
		}
		if want := s.String(); s != gq.StatusClaimed && string(state) != want {
			t.Errorf("%v reads %q", s, state)
		}
	}
	var listed []string
	for _, s := range jobmodel.States() {
		listed = append(listed, string(s))
	}
	if !slices.Equal(listed, states) {
		t.Errorf("the states are %q, want %q", listed, states)
	}
	if got := jobmodel.Scheduled.Statuses(); !slices.Equal(got, []gq.Status{gq.StatusScheduled, gq.StatusClaimed, gq.StatusRetrying}) {
		t.Errorf("SCHEDULED lists %v", got)
	}
	lost := gq.State{Status: gq.StatusRetrying, Lease: &gq.Lease{State: gq.LeaseExpired}}
	if got := jobmodel.StateOf(&lost); got != "SCHEDULED" {
		t.Errorf("a job whose holder lost it before an execution reads %s", got)
	}
	if got := jobmodel.State("CLAIMED").Statuses(); got != nil {
		t.Errorf("CLAIMED lists %v", got)
	}
}

// A job that a worker holds without having started it is SCHEDULED since it became so, and the
// attempt before it is named from the end of that attempt on.
func TestHeldJob(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	j := gq.Job{Spec: gq.Spec{Policy: gq.PresetJobModel.Policy()}, State: gq.State{
		Status: gq.StatusScheduled, Attempt: 1, CreatedAt: at, ScheduledAt: at.Add(time.Second), UpdatedAt: at.Add(time.Second),
		Lease: &gq.Lease{ID: "first", Attempt: 1, State: gq.LeaseCompleted},
	}}
	waiting := jobmodel.Of(&j)
	j.State.Status, j.State.UpdatedAt = gq.StatusClaimed, at.Add(time.Minute)
	j.State.Lease = &gq.Lease{ID: "second", State: gq.LeaseActive, Previous: "first"}
	held := jobmodel.Of(&j)
	a, _ := json.Marshal(waiting)
	b, _ := json.Marshal(held)
	if string(a) != string(b) || held.PreviousAttemptID != "first" || held.State != jobmodel.Scheduled {
		t.Errorf("before and after the claim:\n%s\n%s", a, b)
	}
}

// The limits are those of the policy that the job has now.
func TestTimeouts(t *testing.T) {
	now := gq.PresetSemantics.Policy()
	j := gq.Job{Spec: gq.Spec{Policy: gq.PresetJobModel.Policy()}, State: gq.State{Status: gq.StatusScheduled, Policy: &now}}
	if got, want := jobmodel.Of(&j).Timeouts, (jobmodel.Timeouts{Execution: jobmodel.Duration(30 * time.Minute), Visibility: jobmodel.Duration(5 * time.Second)}); got != want {
		t.Errorf("the timeouts are %+v, want %+v", got, want)
	}
}

func TestContents(t *testing.T) {
	for _, test := range []struct {
		payload gq.Payload
		want    string
	}{
		{gq.Payload{Data: []byte(`{"n":12345678901234567890}`), ContentType: gq.JSON}, `{"n":12345678901234567890}`},
		{gq.Payload{Data: []byte(`7`), ContentType: "text/plain"}, `"Nw=="`},
		{gq.Payload{Data: []byte{0xff}, ContentType: gq.JSON}, `"/w=="`},
		{gq.Payload{}, ``},
	} {
		if got := jobmodel.Of(&gq.Job{Spec: gq.Spec{Payload: test.payload}}).Payload; string(got) != test.want {
			t.Errorf("%q is shown as %s", test.payload.Data, got)
		}
	}
}

// A signal goes the way of every other job, and a lost hold is no change.
func TestHistory(t *testing.T) {
	type e = gq.Event
	for _, test := range []struct {
		name   string
		events []gq.Event
		want   string
	}{
		{"held, lost, started, renewed", []e{
			{Type: gq.EventSubmitted, Status: gq.StatusPending},
			{Type: gq.EventScheduled, Status: gq.StatusScheduled},
			{Type: gq.EventClaimed, Status: gq.StatusClaimed, Lease: "1"},
			{Type: gq.EventPreparing, Status: gq.StatusClaimed, Lease: "1"},
			{Type: gq.EventScheduled, Status: gq.StatusScheduled, Lease: "1", LeaseState: gq.LeaseExpired},
			{Type: gq.EventClaimed, Status: gq.StatusClaimed, Lease: "2"},
			{Type: gq.EventRetrying, Status: gq.StatusRetrying, Lease: "2", LeaseState: gq.LeaseExpired, Detail: gq.DetailClaimed},
			{Type: gq.EventScheduled, Status: gq.StatusScheduled, Detail: gq.DetailClaimed},
			{Type: gq.EventClaimed, Status: gq.StatusClaimed, Lease: "3"},
			{Type: gq.EventStarted, Status: gq.StatusRunning, Lease: "3", Detail: gq.DetailClaimed},
			{Type: gq.EventRetrying, Status: gq.StatusRetrying, Lease: "3", LeaseState: gq.LeaseCompleted}, // at once
			{Type: gq.EventScheduled, Status: gq.StatusScheduled},
			{Type: gq.EventStarted, Status: gq.StatusRunning, Lease: "4"},
			{Type: gq.EventRenewed, Status: gq.StatusRunning, Lease: "4"},
			{Type: gq.EventCancelRequested, Status: gq.StatusRunning, Lease: "4"},
			{Type: gq.EventCancelDelivered, Status: gq.StatusRunning, Lease: "4"},
			{Type: gq.EventUpdated, Status: gq.StatusRunning},
			{Type: gq.EventCompleted, Status: gq.StatusCompleted, Lease: "4"},
		}, "PENDING SCHEDULED RUNNING RETRYING SCHEDULED RUNNING COMPLETED"},
		{"an earlier version's: held, lost, started, renewed", []e{
			{Type: gq.EventSubmitted, Status: gq.StatusPending},
			{Type: gq.EventScheduled, Status: gq.StatusScheduled},
			{Type: gq.EventClaimed, Status: gq.StatusClaimed, Lease: "1"},
			{Type: gq.EventPreparing, Status: gq.StatusClaimed, Lease: "1"},
			{Type: gq.EventScheduled, Status: gq.StatusScheduled, Lease: "1", LeaseState: gq.LeaseExpired},
			{Type: gq.EventClaimed, Status: gq.StatusClaimed, Lease: "2"},
			{Type: gq.EventRetrying, Status: gq.StatusRetrying, Lease: "2", LeaseState: gq.LeaseExpired},
			{Type: gq.EventScheduled, Status: gq.StatusScheduled},
			{Type: gq.EventClaimed, Status: gq.StatusClaimed, Lease: "3"},
			{Type: gq.EventRetrying, Status: gq.StatusRetrying, Lease: "3", LeaseState: gq.LeaseExpired},
			{Type: gq.EventScheduled, Status: gq.StatusScheduled},
			{Type: gq.EventClaimed, Status: gq.StatusClaimed, Lease: "4"},
			{Type: gq.EventStarted, Status: gq.StatusRunning, Lease: "4"},
			{Type: gq.EventRetrying, Status: gq.StatusRetrying, Lease: "4", LeaseState: gq.LeaseCompleted}, // at once
			{Type: gq.EventScheduled, Status: gq.StatusScheduled},
			{Type: gq.EventClaimed, Status: gq.StatusClaimed, Lease: "5"},
			{Type: gq.EventStarted, Status: gq.StatusRunning, Lease: "5"},
			{Type: gq.EventRenewed, Status: gq.StatusRunning, Lease: "5"},
			{Type: gq.EventCancelRequested, Status: gq.StatusRunning, Lease: "5"},
			{Type: gq.EventCancelDelivered, Status: gq.StatusRunning, Lease: "5"},
			{Type: gq.EventUpdated, Status: gq.StatusRunning},
			{Type: gq.EventCompleted, Status: gq.StatusCompleted, Lease: "5"},
		}, "PENDING SCHEDULED RUNNING RETRYING SCHEDULED RUNNING COMPLETED"},
		{"signal", []e{
			{Type: gq.EventSubmitted, Status: gq.StatusPending},
			{Type: gq.EventUpdated, Status: gq.StatusPending},
			{Type: gq.EventCompleted, Status: gq.StatusCompleted},
		}, "PENDING SCHEDULED RUNNING COMPLETED"},
		{"signal that did not come", []e{
			{Type: gq.EventSubmitted, Status: gq.StatusPending},
			{Type: gq.EventFailed, Status: gq.StatusFailed, Reason: "signal_timeout"},
		}, "PENDING SCHEDULED RUNNING FAILED"},
		{"dependency that failed", []e{
			{Type: gq.EventSubmitted, Status: gq.StatusPending},
			{Type: gq.EventFailed, Status: gq.StatusFailed, Reason: "dependency"},
		}, "PENDING FAILED"},
	} {
		var got []string
		for _, e := range jobmodel.History(test.events) {
			got = append(got, string(e.State))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s: %v, want %s", test.name, got, test.want)
		}
	}
}
