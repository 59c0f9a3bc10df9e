package gq_test

import (
	"testing"
	"time"

	"github.com/gopherqueue/gq"
)

func TestCauseNames(t *testing.T) {
	checkNames(t, gq.Causes(), gq.ParseCause,
		"dependency", "delay", "backoff", "paused", "concurrency", "key_limit", "rate", "pool",
		"no_worker", "constraint", "cost", "lifetime", "next", "held", "running", "cancelling", "lost", "finished")
	for _, c := range gq.Causes() {
		if !c.Valid() {
			t.Errorf("%s is not valid", c)
		}
	}
	if gq.Cause(0).Valid() || gq.Cause(200).Valid() {
		t.Error("a cause outside the vocabulary is valid")
	}
}

func TestEndsOfAJob(t *testing.T) {
	p := gq.Default()
	p.Lifetime, p.ExecutionTimeout = time.Hour, time.Minute
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s, _ := gq.Born(gq.Birth{ID: gq.NewJobID([16]byte{1}), Policy: &p, Own: gq.Normal}, now)
	if !s.LifeEnd().Equal(now.Add(time.Hour)) || !s.Deadline().IsZero() {
		t.Errorf("waiting: life ends %v, deadline %v", s.LifeEnd(), s.Deadline())
	}
	s, _, err := s.Claim(gq.Grant{Lease: "l", Worker: "w", Start: true}, now.Add(time.Second))
	if err != nil || !s.Deadline().Equal(now.Add(61*time.Second)) {
		t.Errorf("running: deadline %v, %v", s.Deadline(), err)
	}
	p.Lifetime = 0
	if !s.LifeEnd().IsZero() {
		t.Errorf("without a lifetime it ends %v", s.LifeEnd())
	}
}
