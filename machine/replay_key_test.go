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

// Stored replays of two jobs have a fingerprint of the former formula. They are still the replays of these jobs,
// and so is the replay of a stored replay.
func TestStoredReplaysAnswer(t *testing.T) {
	unique := gq.UniqueRule{While: gq.WhileLive, OnCollision: gq.Existing}
	prints := []uint64{0x68f96a179a7dd9a7, 0x1c420cffb435744b} // of jobs 0 and 1
	for n, stored := range prints {
		for _, rule := range []gq.UniqueRule{{}, unique} {
			job := gq.Spec{ID: groupID(n), Key: gq.IdempotencyKey{Scope: "t", Name: "k", Fingerprint: 7}, Unique: rule}
			again := gq.Spec{ID: groupID(5), Key: machine.ReplayKey(&job), Unique: rule, ReplayOf: job.ID}
			replay := gq.Spec{ID: groupID(3), Key: again.Key, Unique: rule, ReplayOf: job.ID}
			replay.Key.Fingerprint = stored
			ask := func(what string, of gq.Spec, holder gq.JobID, print uint64, same bool) {
				t.Helper()
				h := machine.KeyHolder{State: gq.State{ID: holder, Status: gq.StatusCancelled}, Fingerprint: print, While: rule.While, Until: machine.Forever}
				if got := machine.Collide(h, &of, time.Unix(1e9, 0)); got.Err != nil || got.Same != same || got.Insert == same {
					t.Errorf("job %d, unique %t, %s: %+v, want the holder as the answer: %t", n, !rule.IsZero(), what, got, same)
				}
			}
			ask("a replay", again, replay.ID, stored, true)
			if rule.IsZero() { // a replay of the replay has a key of its own
				continue
			}
			ask("a replay where the other job's holds the key", again, replay.ID, prints[1-n], false)
			next := gq.Spec{ID: groupID(6), Key: machine.ReplayKey(&replay), Unique: rule, ReplayOf: replay.ID}
			ask("a replay of the stored replay", next, replay.ID, stored, false)
			ask("a replay whose stored replay was replayed", again, next.ID, next.Key.Fingerprint, true)
			ask("another replay of the stored replay", next, groupID(7), next.Key.Fingerprint, true)
			last := replay // a stored replay of the stored replay
			last.ID, last.ReplayOf, last.Key.Fingerprint = groupID(8), replay.ID, 0xe9639e97dcfa5d35
			ask("a replay of a job whose stored replay was replayed", next, last.ID, last.Key.Fingerprint, true)
			ask("a replay of a job whose stored replay's replay was replayed", next, groupID(9), machine.ReplayKey(&last).Fingerprint, true)
		}
	}
}
