package projection_test

import (
	"slices"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/projection"
)

// faces are the projections, each with the whole vocabulary of its face.
var faces = []struct {
	name  string
	show  func(projection.View) string
	words []string
}{
	{"Scheduler", projection.View.Scheduler, []string{"QUEUED", "CLAIMED", "PREPARING", "LEASE_PENDING", "RUNNING", "DONE", "FAILED", "CANCELED", "TIMEOUT"}},
	{"Matching", projection.View.Matching, []string{"QUEUED", "ASSIGNED", "COMPLETED", "EXPIRED", "FAILED", "CANCELLED"}},
	{"TaskQueue", projection.View.TaskQueue, []string{"QUEUED", "RUNNING", "DONE", "FAILED", "CANCELED"}},
}

// The table of names, a row for each status and, where it matters, each
// variant of it: Scheduler, Matching, TaskQueue.
func TestProjectionTable(t *testing.T) {
	claimed := func(d gq.Detail, attempt int) projection.View {
		return projection.View{Status: gq.StatusClaimed, Detail: d, Attempt: attempt}
	}
	failed := func(s gq.Status, c gq.Category) projection.View {
		return projection.View{Status: s, Attempt: 1, Category: c}
	}
	for _, test := range []struct {
		view projection.View
		want [3]string
	}{
		{projection.View{Status: gq.StatusPending}, [3]string{"QUEUED", "QUEUED", "QUEUED"}},
		{projection.View{Status: gq.StatusDelayed}, [3]string{"QUEUED", "QUEUED", "QUEUED"}},
		{projection.View{Status: gq.StatusScheduled}, [3]string{"QUEUED", "QUEUED", "QUEUED"}},
		{projection.View{Status: gq.StatusScheduled, Attempt: 1}, [3]string{"QUEUED", "QUEUED", "RUNNING"}},
		{projection.View{Status: gq.StatusRetrying, Attempt: 1}, [3]string{"QUEUED", "QUEUED", "RUNNING"}},
		{projection.View{Status: gq.StatusRetrying}, [3]string{"QUEUED", "QUEUED", "RUNNING"}},
		{claimed(gq.DetailNone, 0), [3]string{"CLAIMED", "ASSIGNED", "QUEUED"}},
		{claimed(gq.DetailClaimed, 0), [3]string{"CLAIMED", "ASSIGNED", "QUEUED"}},
		{claimed(gq.DetailPreparing, 0), [3]string{"PREPARING", "ASSIGNED", "QUEUED"}},
		{claimed(gq.DetailLeasePending, 0), [3]string{"LEASE_PENDING", "ASSIGNED", "QUEUED"}},
		{claimed(gq.DetailAssigned, 0), [3]string{"CLAIMED", "ASSIGNED", "QUEUED"}},
		{claimed(gq.DetailClaimed, 1), [3]string{"CLAIMED", "ASSIGNED", "RUNNING"}},
		{claimed(gq.DetailPreparing, 1), [3]string{"PREPARING", "ASSIGNED", "RUNNING"}},
		{claimed(gq.DetailLeasePending, 1), [3]string{"LEASE_PENDING", "ASSIGNED", "RUNNING"}},
		{projection.View{Status: gq.StatusRunning, Attempt: 1}, [3]string{"RUNNING", "ASSIGNED", "RUNNING"}},
		{projection.View{Status: gq.StatusCompleted, Attempt: 1}, [3]string{"DONE", "COMPLETED", "DONE"}},
		{failed(gq.StatusFailed, gq.CategoryPermanent), [3]string{"FAILED", "FAILED", "FAILED"}},
		{failed(gq.StatusFailed, gq.CategoryTimeout), [3]string{"TIMEOUT", "FAILED", "FAILED"}},
		{failed(gq.StatusDeadLetter, gq.CategoryTemporary), [3]string{"FAILED", "EXPIRED", "FAILED"}},
		{failed(gq.StatusDeadLetter, gq.CategoryTimeout), [3]string{"TIMEOUT", "EXPIRED", "FAILED"}},
		{projection.View{Status: gq.StatusCancelled}, [3]string{"CANCELED", "CANCELLED", "CANCELED"}},
	} {
		for i, face := range faces {
			if got := face.show(test.view); got != test.want[i] {
				t.Errorf("%s shows %+v as %q, want %q", face.name, test.view, got, test.want[i])
			}
		}
	}
}

// everyView is each combination that a job can be seen in, and many it cannot.
func everyView(yield func(projection.View) bool) {
	for _, status := range enum.All[gq.Status]() {
		for detail := gq.DetailNone; detail <= gq.DetailAssigned; detail++ {
			for _, attempt := range []int{0, 1} {
				for _, category := range append(enum.All[gq.Category](), 0) {
					if !yield(projection.View{Status: status, Detail: detail, Attempt: attempt, Category: category}) {
						return
					}
				}
			}
		}
	}
}

// Every view has a name on every face, always out of that face's vocabulary,
// and every word of every vocabulary is used.
func TestProjectionIsTotal(t *testing.T) {
	for _, face := range faces {
		used := make(map[string]bool)
		for view := range everyView {
			name := face.show(view)
			if !slices.Contains(face.words, name) {
				t.Errorf("%s shows %+v as %q", face.name, view, name)
			}
			used[name] = true
		}
		for _, word := range face.words {
			if !used[word] {
				t.Errorf("%s never shows %q", face.name, word)
			}
		}
		for _, status := range []gq.Status{0, 11, 255} {
			if name := face.show(projection.View{Status: status}); name != status.String() {
				t.Errorf("%s shows the unknown %v as %q", face.name, status, name)
			}
		}
	}
}

// What only concerns some statuses changes nothing elsewhere.
func TestProjectionIgnoresTheRest(t *testing.T) {
	for view := range everyView {
		plain := view
		if view.Status != gq.StatusClaimed {
			plain.Detail = gq.DetailNone
		}
		if view.Status != gq.StatusScheduled && view.Status != gq.StatusClaimed {
			plain.Attempt = 0
		}
		if view.Status != gq.StatusFailed && view.Status != gq.StatusDeadLetter {
			plain.Category = 0
		}
		for _, face := range faces {
			if face.show(view) != face.show(plain) {
				t.Errorf("%s shows %+v as %q but %+v as %q", face.name, view, face.show(view), plain, face.show(plain))
			}
		}
	}
}

// An end looks like an end on every face, and nothing else does.
func TestProjectionKeepsEnds(t *testing.T) {
	ends := []string{
		"COMPLETED", "FAILED", "CANCELLED", "DONE", "CANCELED", "TIMEOUT", "EXPIRED",
	}
	for view := range everyView {
		for _, face := range faces {
			if got := slices.Contains(ends, face.show(view)); got != view.Status.Terminal() {
				t.Errorf("%s shows %v as %q", face.name, view.Status, face.show(view))
			}
		}
	}
}

func TestLeaseProjection(t *testing.T) {
	for _, test := range []struct {
		state                        gq.LeaseState
		matching, renewed, scheduler string
	}{
		{gq.LeaseActive, "ACTIVE", "RENEWED", "ACTIVE"},
		{gq.LeaseCompleted, "COMPLETED", "COMPLETED", "RELEASED"},
		{gq.LeaseExpired, "EXPIRED", "EXPIRED", "EXPIRED"},
		{gq.LeaseCancelled, "CANCELLED", "CANCELLED", "RELEASED"},
	} {
		if got := projection.MatchingLease(test.state, 0); got != test.matching {
			t.Errorf("matching shows %v as %q, want %q", test.state, got, test.matching)
		}
		if got := projection.MatchingLease(test.state, 1); got != test.renewed {
			t.Errorf("matching shows renewed %v as %q, want %q", test.state, got, test.renewed)
		}
		if got := projection.SchedulerLease(test.state); got != test.scheduler {
			t.Errorf("scheduler shows %v as %q, want %q", test.state, got, test.scheduler)
		}
	}
	if got := len(enum.All[gq.LeaseState]()); got != 4 {
		t.Errorf("%d lease states, but the table has 4", got)
	}
}
