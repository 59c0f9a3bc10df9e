package client_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

// What takes the place of a job, and jobs that are spawned together, read over gRPC as in the process.
func TestReplacedAndSpawnedJobsAreTheSame(t *testing.T) {
	f := serve(t)
	e, ctx := f.engine, t.Context()
	id := f.job()
	at := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	next := must(f.Reschedule(ctx, id, at))(t)
	if next.ID == id || next.SubmittedAt.IsZero() {
		t.Errorf("put off: %+v", next)
	}
	same(t, "put off", must(e.Get(ctx, next.ID, 0))(t).State, next)
	spec := gq.Spec{Type: "u", Queue: "u", Key: gq.IdempotencyKey{Name: "k"}, Unique: gq.UniqueRule{While: gq.WhileWaiting, OnCollision: gq.Replace}}
	first := must(f.Submit(ctx, spec))(t)
	if second := must(f.Submit(ctx, spec))(t); second.Replaces != first.ID() {
		t.Errorf("submitted again it replaces %v, want %v", second.Replaces, first.ID())
	}
	must(f.Submit(ctx, gq.Spec{Type: "parent", Queue: "p"}))(t)
	held := must(f.Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: []string{"p"}, N: 1}))(t)
	children := []gq.Spec{{Type: "join", DependsOn: []gq.Dependency{{Kind: gq.DependencyFanIn, Ref: "part"}}}, {Type: "part", Ref: "part"}}
	answers := must(f.Settle(ctx, []gq.Outcome{{Lease: held[0].State.Lease.Ref(), Verdict: gq.VerdictComplete, Spawn: children}}))(t)
	if answers[0].Err != nil || len(answers[0].Spawned) != 2 {
		t.Fatalf("%+v", answers)
	}
	join := must(e.Get(ctx, answers[0].Spawned[0].ID(), 0))(t)
	if join.State.Status != gq.StatusPending || len(join.Spec.DependsOn) != 2 || join.Spec.DependsOn[1].Job != answers[0].Spawned[1].ID() {
		t.Errorf("the join is %s and depends on %+v", join.State.Status, join.Spec.DependsOn)
	}
}
