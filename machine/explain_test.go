package machine_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/machine"
)

func TestCauseNames(t *testing.T) {
	checkNames(t, enum.All[gq.Cause](), enum.Parse[gq.Cause],
		"dependency", "signal", "delay", "backoff", "paused", "concurrency", "key_limit", "key_rate", "rate", "pool",
		"no_worker", "constraint", "cost", "lifetime", "next", "held", "running", "cancelling", "lost", "finished")
	for _, c := range enum.All[gq.Cause]() {
		if !c.Valid() {
			t.Errorf("%s is not valid", c)
		}
	}
	if gq.Cause(0).Valid() || gq.Cause(200).Valid() {
		t.Error("a cause outside the vocabulary is valid")
	}
}

func TestEndsOfAJob(t *testing.T) {
	p := machine.DefaultPolicy()
	p.Lifetime, p.ExecutionTimeout = time.Hour, time.Minute
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, _ := machine.Submit(machine.Submission{ID: machine.NewJobID([16]byte{1}), Policy: &p, Own: gq.PriorityNormal}, now)
	if !machine.LifeEnd(&s).Equal(now.Add(time.Hour)) || !machine.Deadline(&s).IsZero() {
		t.Errorf("waiting: life ends %v, deadline %v", machine.LifeEnd(&s), machine.Deadline(&s))
	}
	s, _, err := machine.Claim(s, machine.Grant{Lease: "l", Worker: "w", Start: true}, now.Add(time.Second))
	if err != nil || !machine.Deadline(&s).Equal(now.Add(61*time.Second)) {
		t.Errorf("running: deadline %v, %v", machine.Deadline(&s), err)
	}
	p.Lifetime = 0
	if !machine.LifeEnd(&s).IsZero() {
		t.Errorf("without a lifetime it ends %v", machine.LifeEnd(&s))
	}
}
