package dashboard

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

// listed is a queue that lists jobs.
type listed struct {
	gq.Driver
	jobs []gq.Job
}

func (l *listed) List(_ context.Context, q gq.Query) (gq.Page, error) {
	jobs := slices.Clone(l.jobs)
	return gq.Page{Jobs: slices.DeleteFunc(jobs, func(j gq.Job) bool {
		return !j.State.CreatedAt.After(q.CreatedAfter) || len(q.Types) > 0 && !slices.Contains(q.Types, j.Spec.Type)
	})}, nil
}

// The replays of all jobs of a page are found, those of jobs that ended long before the others too, and of every type.
func TestReplaysOfOldAndNewJobs(t *testing.T) {
	ended := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)
	var jobs []gq.Job
	queue := &listed{}
	replays := []gq.Status{gq.StatusRunning, gq.StatusCompleted, gq.StatusDeadLetter} // a replay counts when it has ended too
	for i, kind := range []string{"new", "old", "older"} {
		at := ended.Add(-time.Duration(i) * time.Hour)
		id, replay := gq.JobID{1, byte(i)}, gq.JobID{2, byte(i)}
		jobs = append(jobs, gq.Job{Spec: gq.Spec{Type: kind}, State: gq.State{ID: id, CompletedAt: at}})
		queue.jobs = append(queue.jobs, gq.Job{Spec: gq.Spec{Type: kind, ReplayOf: id}, State: gq.State{ID: replay, Status: replays[i], CreatedAt: at.Add(time.Minute)}})
	}
	jobs = append(jobs, gq.Job{Spec: gq.Spec{Type: "new"}, State: gq.State{ID: gq.JobID{3}, CompletedAt: ended}})
	v := &visit{d: &Dashboard{queue: queue}, ctx: t.Context()}
	found, err := v.replaysOf(jobs)
	if err != nil || len(found) != 3 {
		t.Fatalf("replays %v, %v", found, err)
	}
	for i := range 3 {
		if got := found[jobs[i].State.ID]; got != queue.jobs[i].State.ID {
			t.Errorf("the replay of job %d is %v", i, got)
		}
	}
	if left, err := v.notReplayed(jobs); err != nil || len(left) != 1 || left[0].State.ID != (gq.JobID{3}) {
		t.Errorf("%d jobs have no replay, %v", len(left), err)
	}
}

// The last replay of a unique job is found by its key, and the one before among the jobs themselves.
func TestReplaysOfReplays(t *testing.T) {
	unique := func(id byte, of gq.JobID) gq.Job {
		return gq.Job{
			Spec:  gq.Spec{Type: "t", ReplayOf: of, Key: gq.IdempotencyKey{Name: "k"}, Unique: gq.UniqueRule{While: gq.WhileLive}},
			State: gq.State{ID: gq.JobID{id}, CreatedAt: time.Unix(int64(id), 0)},
		}
	}
	first := unique(1, gq.JobID{})
	second := unique(2, first.State.ID)
	third := unique(3, second.State.ID)
	v := &visit{d: &Dashboard{queue: &listed{jobs: []gq.Job{third}}}, ctx: t.Context()}
	if left, err := v.notReplayed([]gq.Job{first, second, third}); err != nil || len(left) != 1 || left[0].State.ID != third.State.ID {
		t.Errorf("%d jobs have no replay, %v; want the last one", len(left), err)
	}
}

// Dead letters with another code are another group, however alike their messages are.
func TestGroupsHaveOneCode(t *testing.T) {
	var jobs []gq.Job
	for _, code := range []string{"timeout", "refused", "timeout"} {
		jobs = append(jobs, gq.Job{Spec: gq.Spec{Type: "t"}, State: gq.State{Failure: &gq.Failure{Category: gq.CategoryTemporary, Code: code, Message: "no answer"}}})
	}
	groups := groupDead(jobs)
	if len(groups) != 2 || groups[0].Code != "timeout" || groups[0].Count != 2 || groups[1].Code != "refused" || groups[1].Count != 1 {
		t.Errorf("groups %+v", groups)
	}
}
