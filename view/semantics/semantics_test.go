package semantics_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/view/semantics"
)

// Every status reads as one of the four states, with and without a lease that expired, and every
// state lists its statuses.
func TestStates(t *testing.T) {
	spec.Covers(t, "Q-21", "Q-25", "Q-26", "Q-27", "Q-28")
	expired := &gq.Lease{State: gq.LeaseExpired}
	completed := &gq.Lease{State: gq.LeaseCompleted}
	seen := map[gq.Status]bool{}
	for _, test := range []struct {
		want  semantics.State
		state gq.State
	}{
		{"Ready", gq.State{Status: gq.StatusPending}},
		{"Ready", gq.State{Status: gq.StatusDelayed}},
		{"Ready", gq.State{Status: gq.StatusScheduled}},
		{"Ready", gq.State{Status: gq.StatusScheduled, Lease: completed}},
		{"Ready", gq.State{Status: gq.StatusRetrying, Lease: completed}},
		{"InFlight", gq.State{Status: gq.StatusScheduled, Lease: expired}},
		{"InFlight", gq.State{Status: gq.StatusRetrying, Lease: expired}},
		{"InFlight", gq.State{Status: gq.StatusClaimed}},
		{"InFlight", gq.State{Status: gq.StatusRunning}},
		{"Succeeded", gq.State{Status: gq.StatusCompleted}},
		{"Failed", gq.State{Status: gq.StatusFailed}},
		{"Failed", gq.State{Status: gq.StatusDeadLetter, Lease: expired}},
		{"Failed", gq.State{Status: gq.StatusCancelled, Lease: expired}},
	} {
		seen[test.state.Status] = true
		if got := semantics.StateOf(&test.state); got != test.want || !slices.Contains(got.Statuses(), test.state.Status) {
			t.Errorf("%v with lease %+v reads %q, which lists %v", test.state.Status, test.state.Lease, got, got.Statuses())
		}
	}
	for _, s := range enum.All[gq.Status]() {
		if !seen[s] {
			t.Errorf("no row for %v", s)
		}
	}
	if got := semantics.States(); !slices.Equal(got, []semantics.State{"Ready", "InFlight", "Succeeded", "Failed"}) {
		t.Errorf("the states are %q", got)
	}
	if got := semantics.State("RUNNING").Statuses(); got != nil {
		t.Errorf("RUNNING lists %v", got)
	}
}

// The members of a job, as its life goes on.
func TestJob(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	policy := gq.PresetSemantics.Policy()
	active := &gq.Lease{ID: "t", Version: 2, State: gq.LeaseActive, ExpiresAt: at.Add(9 * time.Second), TTL: 9 * time.Second}
	lost, over := *active, *active
	lost.State, over.State = gq.LeaseExpired, gq.LeaseCompleted
	type job = semantics.Job
	for _, test := range []struct {
		name  string
		state gq.State
		want  job
	}{
		{"fresh", gq.State{Status: gq.StatusScheduled, RunAt: at}, job{State: "Ready"}},
		{"delayed", gq.State{Status: gq.StatusDelayed, RunAt: at}, job{State: "Ready", RetryAt: at}},
		{"given back with a delay before its first start", gq.State{Status: gq.StatusRetrying, Version: 1, Lease: &over, RunAt: at}, job{State: "Ready", LeaseVersion: 1, RetryAt: at}},
		{"leased again", gq.State{Status: gq.StatusRunning, Attempt: 2, Faults: 1, Version: 2, Lease: active, RunAt: at},
			job{State: "InFlight", Retries: 1, LeaseToken: "t", LeaseVersion: 2, LeaseExpiresAt: active.ExpiresAt, LeaseTTL: semantics.Duration(9 * time.Second)}},
		{"expired, not reclaimed", gq.State{Status: gq.StatusScheduled, Attempt: 2, Faults: 1, Version: 2, Lease: &lost, RunAt: at},
			job{State: "InFlight", Retries: 1, LeaseToken: "t", LeaseVersion: 2, LeaseExpiresAt: active.ExpiresAt, LeaseTTL: semantics.Duration(9 * time.Second)}},
		{"nacked", gq.State{Status: gq.StatusRetrying, Attempt: 2, Faults: 2, Version: 2, Lease: &over, RunAt: at},
			job{State: "Ready", Retries: 2, LeaseVersion: 2, RetryAt: at}},
		{"nacked, and claimable again", gq.State{Status: gq.StatusScheduled, Attempt: 2, Faults: 2, Version: 2, Lease: &over, RunAt: at},
			job{State: "Ready", Retries: 2, LeaseVersion: 2, RetryAt: at}},
		{"exhausted", gq.State{Status: gq.StatusDeadLetter, Attempt: 4, Faults: 4, Version: 2, Lease: &over, RunAt: at}, job{State: "Failed", Retries: 3, LeaseVersion: 2}},
		{"failed for good at once", gq.State{Status: gq.StatusFailed, Attempt: 1, Faults: 1, Version: 1, Lease: &over}, job{State: "Failed", LeaseVersion: 1}},
		{"cancelled", gq.State{Status: gq.StatusCancelled}, job{State: "Failed", Reason: "cancelled"}},
		{"cancelled before its second retry", gq.State{
			Status: gq.StatusCancelled, Attempt: 2, Bound: 4, Faults: 2, Version: 2, Lease: &over, CompletedAt: at, Cancellation: gq.Cancellation{RequestedAt: at},
		}, job{State: "Failed", Reason: "cancelled", Retries: 2, LeaseVersion: 2}},
		{"cancelled during its first retry, which fails", gq.State{
			Status: gq.StatusCancelled, Attempt: 2, Bound: 4, Faults: 2, Version: 2, Lease: &over, CompletedAt: at.Add(1), Cancellation: gq.Cancellation{RequestedAt: at},
		}, job{State: "Failed", Reason: "cancelled", Retries: 1, LeaseVersion: 2}},
	} {
		test.want.MaxRetries, test.want.ExecutionTimeout = 3, semantics.Duration(30*time.Minute)
		if test.want.LeaseTTL == 0 {
			test.want.LeaseTTL = semantics.Duration(5 * time.Second)
		}
		if got := semantics.Of(&gq.Job{Spec: gq.Spec{Policy: policy}, State: test.state}); got != test.want {
			t.Errorf("%s:\n got %+v\nwant %+v", test.name, got, test.want)
		}
	}
}

func TestHistory(t *testing.T) {
	failure := &gq.Failure{Category: gq.CategoryTemporary}
	history := []gq.Event{
		{Type: gq.EventSubmitted, Status: gq.StatusPending},
		{Type: gq.EventScheduled, Status: gq.StatusScheduled},
		{Type: gq.EventClaimed, Status: gq.StatusClaimed, Lease: "1", Version: 1, LeaseState: gq.LeaseActive},
		{Type: gq.EventPreparing, Status: gq.StatusClaimed, Lease: "1", Version: 1, LeaseState: gq.LeaseActive},
		{Type: gq.EventStarted, Status: gq.StatusRunning, Lease: "1", Version: 1, LeaseState: gq.LeaseActive, Detail: gq.DetailClaimed},
		{Type: gq.EventRetrying, Status: gq.StatusRetrying, Lease: "1", Version: 1, LeaseState: gq.LeaseCompleted, Failure: failure},
		{Type: gq.EventScheduled, Status: gq.StatusScheduled},
		{Type: gq.EventStarted, Status: gq.StatusRunning, Lease: "2", Version: 2, LeaseState: gq.LeaseActive},
		{Type: gq.EventRetrying, Status: gq.StatusRetrying, Lease: "2", Version: 2, LeaseState: gq.LeaseExpired, Failure: failure},
		{Type: gq.EventScheduled, Status: gq.StatusScheduled},
		{Type: gq.EventClaimed, Status: gq.StatusClaimed, Lease: "3", Version: 3, LeaseState: gq.LeaseActive},
		{Type: gq.EventScheduled, Status: gq.StatusScheduled, Lease: "3", Version: 3, LeaseState: gq.LeaseCancelled},
		{Type: gq.EventStarted, Status: gq.StatusRunning, Lease: "4", Version: 4, LeaseState: gq.LeaseActive},
		{Type: gq.EventCancelRequested, Status: gq.StatusRunning, Lease: "4", Version: 4, LeaseState: gq.LeaseActive},
		{Type: gq.EventCompleted, Status: gq.StatusCompleted, Lease: "4", Version: 4, LeaseState: gq.LeaseCompleted},
		{Type: gq.EventCancelled, Status: gq.StatusCancelled},
	}
	var got, parts []string
	text := func(e semantics.Event) string {
		return strings.TrimSpace(string(e.State) + " " + e.Trigger + " " + string(e.LeaseToken) + e.Reason)
	}
	for _, e := range semantics.History(history) {
		got = append(got, text(e))
	}
	for i := range history { // as a stream shows them
		for _, e := range semantics.History(history[i : i+1]) {
			parts = append(parts, text(e))
		}
	}
	want := []string{
		"Ready Enqueue", "InFlight Claim 1", "Ready Nack", "InFlight Claim 2", "InFlight Lease Timeout 2", "InFlight Claim 3", "Ready", "InFlight Claim 4", "Succeeded Ack", "Failed  cancelled",
	}
	if !slices.Equal(got, want) || !slices.Equal(parts, want) {
		t.Errorf("at once        %q\nevent by event %q\nwant           %q", got, parts, want)
	}
	got = nil
	for i := range history {
		history[i].Detail = gq.DetailNone // as an earlier version stored it
	}
	for _, e := range semantics.History(history) {
		got = append(got, text(e))
	}
	if !slices.Equal(got, want) {
		t.Errorf("of an earlier version %q\nwant                  %q", got, want)
	}
}

// A signal that comes goes the way of every other job, and so does one that does not come.
func TestHistoryOfSignal(t *testing.T) {
	failure := &gq.Failure{Category: gq.CategoryTimeout}
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		end  gq.Event
		want string
	}{
		{gq.Event{Type: gq.EventCompleted, Status: gq.StatusCompleted}, "Ready Enqueue, InFlight Claim, Succeeded Ack"},
		{gq.Event{Type: gq.EventFailed, Status: gq.StatusFailed, Reason: "signal_timeout", Failure: failure}, "Ready Enqueue, InFlight Claim, Failed Nack"},
		{gq.Event{Type: gq.EventFailed, Status: gq.StatusFailed, Reason: "dependency", Failure: failure}, "Ready Enqueue, Failed "},
		{gq.Event{Type: gq.EventCancelled, Status: gq.StatusCancelled}, "Ready Enqueue, Failed "},
	} {
		test.end.Seq, test.end.Time, test.end.Queue = 7, at, "q"
		var got []string
		for _, e := range semantics.History([]gq.Event{{Type: gq.EventSubmitted, Status: gq.StatusPending, Queue: "q"}, test.end}) {
			got = append(got, string(e.State)+" "+e.Trigger)
			if e.State != semantics.Ready && (e.Seq != 7 || !e.Time.Equal(at) || e.Queue != "q") {
				t.Errorf("%s: %+v", test.want, e)
			}
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
