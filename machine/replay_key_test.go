package machine_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// A unique job, its replay and the replay of that share a key, whose last holder answers every other
// replay of them. A holder that is no replay of theirs does not.
func TestTheLastReplayAnswers(t *testing.T) {
	rule := gq.UniqueRule{While: gq.WhileLive, OnCollision: gq.Existing}
	job := gq.Spec{ID: groupID(0), Key: gq.IdempotencyKey{Scope: "t", Name: "k", Fingerprint: 7}, Unique: rule}
	replay := gq.Spec{ID: groupID(1), Key: machine.ReplayKey(&job), Unique: rule, ReplayOf: job.ID}
	second := gq.Spec{ID: groupID(2), Key: machine.ReplayKey(&replay), Unique: rule, ReplayOf: replay.ID}
	other := gq.Spec{ID: groupID(3), Key: job.Key, Unique: rule}
	retried := gq.Spec{ID: groupID(4), Key: job.Key, Unique: rule, ReplayOf: job.ID, Workflow: gq.WorkflowID(groupID(9))}
	for _, c := range []struct {
		what           string
		holder, submit gq.Spec
		insert         bool
	}{
		{"a first replay", job, replay, true},
		{"another replay", replay, replay, false},
		{"a replay of the replay", replay, second, true},
		{"another replay of the replay", second, second, false},
		{"a replay of a job whose replay was replayed", second, replay, false},
		{"a replay whose key another job took over", other, replay, true},
		{"a job of a retried workflow", other, retried, true},
		{"a new job", second, other, true},
	} {
		h := machine.KeyHolder{State: gq.State{ID: c.holder.ID, Status: gq.StatusCancelled}, Fingerprint: c.holder.Key.Fingerprint, While: rule.While, Until: machine.Forever}
		submit := c.submit
		submit.ID = groupID(5)
		got := machine.Collide(h, &submit, time.Unix(1e9, 0))
		if got.Err != nil || got.Insert != c.insert || got.Same == c.insert {
			t.Errorf("%s: %+v, want it inserted: %t", c.what, got, c.insert)
		}
	}
}
