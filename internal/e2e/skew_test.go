package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
)

// TestClocksThatDiffer runs servers whose clocks are ten minutes behind and ahead of the
// database's. Only the database's clock decides about leases, delays, lifetimes and
// schedules, so all of them have the right duration.
func TestClocksThatDiffer(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		t.Run(fmt.Sprint("database ahead by ", ahead), func(t *testing.T) {
			t.Parallel()
			url := pgtest.Skewed(t, ahead).Database(t)
			near(t, "the database's clock", databaseTime(t, url), time.Now().Add(ahead))
			var clients []*client.Client
			for range 2 {
				s := newCrashSite(t, url)
				s.start()
				t.Cleanup(s.kill)
				clients = append(clients, s.client())
			}
			checkTimes(t, clients[0], clients[1], url)
		})
	}
}

func databaseTime(t *testing.T, url string) (now time.Time) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err == nil {
		defer conn.Close(t.Context())
		err = conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now)
	}
	if err != nil {
		t.Fatal(err)
	}
	return now
}

// near fails unless two times are much closer than the ten minutes of skew.
func near(t *testing.T, what string, got, want time.Time) {
	t.Helper()
	if d := got.Sub(want).Abs(); d > 3*time.Minute {
		t.Errorf("%s is %v, %v away from %v", what, got, d, want)
	}
}

// checkTimes makes two servers do what depends on time.
func checkTimes(t *testing.T, one, other *client.Client, url string) {
	ctx := t.Context()
	submit := func(queue string, change func(*gq.Spec)) gq.JobID {
		t.Helper()
		s := gq.Spec{Queue: queue, Type: "work", Policy: machine.DefaultPolicy()}
		change(&s)
		out, err := one.Submit(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "the time of submission", out.State.CreatedAt, databaseTime(t, url))
		return out.ID()
	}
	claim := func(c *client.Client, queue string, ttl, wait time.Duration) []gq.Job {
		t.Helper()
		jobs, err := c.Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: []string{queue}, TTL: ttl, Wait: wait, N: 1})
		if err != nil {
			t.Fatal(err)
		}
		return jobs
	}
	// lasted fails if something took less time than it should, or so much more that only
	// a wrong clock explains it.
	lasted := func(what string, began time.Time, least time.Duration) {
		t.Helper()
		if took := time.Since(began); took < least || took > least+3*time.Minute {
			t.Errorf("%s took %v, want %v", what, took, least)
		}
	}

	// The schedule is created through the server that has not seen a job yet.
	made := time.Now()
	_, err := other.PutSchedule(ctx, gq.Schedule{Name: "s", Every: time.Second, Template: gq.Spec{Queue: "slots", Type: "work"}})
	if err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	submit("delayed", func(s *gq.Spec) { s.Delay = time.Second })
	if jobs := claim(other, "delayed", 0, 0); len(jobs) > 0 && time.Since(began) < time.Second {
		t.Error("a job was claimed before its delay was over")
	} else if len(jobs) == 0 {
		if jobs = claim(other, "delayed", 0, 4*time.Minute); len(jobs) != 1 {
			t.Error("a delayed job was not claimed")
		}
		lasted("the delay", began, time.Second)
	}

	// A lease lives until its expiry, for both servers, and no longer.
	held := submit("held", func(*gq.Spec) {})
	first := claim(one, "held", 5*time.Minute, time.Minute)
	if len(first) != 1 {
		t.Fatal("a job was not claimed")
	}
	if jobs := claim(other, "held", time.Second, 0); len(jobs) != 0 {
		t.Error("a job was claimed whose lease lives")
	}
	if _, err := other.Complete(ctx, first[0].State.Lease.Ref(), nil); err != nil {
		t.Errorf("complete job %s under a lease that lives: %v", held, err)
	}
	submit("expiring", func(s *gq.Spec) { s.Policy.OnLoss = gq.LossFree })
	first = claim(one, "expiring", time.Second, time.Minute)
	began = time.Now()
	if len(first) != 1 {
		t.Fatal("a job was not claimed")
	}
	second := claim(other, "expiring", time.Minute, 4*time.Minute)
	if len(second) != 1 {
		t.Fatal("a job whose lease is over was not claimed")
	}
	if took := time.Since(began); took > 3*time.Minute || second[0].State.Version <= first[0].State.Version {
		t.Errorf("after %v it was claimed under version %d", took, second[0].State.Version)
	}
	if _, err := one.Complete(ctx, first[0].State.Lease.Ref(), nil); errs.KindOf(err) != gq.KindStaleLease {
		t.Errorf("complete under a lease that is over: %v", err)
	}

	// A lifetime ends on time.
	began = time.Now()
	mortal := submit("mortal", func(s *gq.Spec) { s.Policy.Lifetime = 2 * time.Second })
	waiting, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	ended, err := other.Wait(waiting, mortal)
	if err != nil || ended.State.Status != gq.StatusDeadLetter {
		t.Errorf("a job beyond its lifetime: %v, %v", ended.State.Status, err)
	}
	lasted("the lifetime", began, 2*time.Second)

	// A slot is a time of the database, and there are no more slots than time allows.
	slots := claim(one, "slots", 0, 4*time.Minute)
	if len(slots) != 1 {
		t.Fatal("the schedule made no job")
	}
	slot, err := time.Parse(time.RFC3339, slots[0].Spec.Attributes[gq.AttributeSlot])
	if err != nil {
		t.Fatal(err)
	}
	near(t, "the first slot", slot, databaseTime(t, url))
	s, err := one.Schedule(ctx, "s")
	if err != nil {
		t.Fatal(err)
	}
	near(t, "the next slot", s.Next, databaseTime(t, url))
	if most := int(time.Since(made)/time.Second) + 2; s.Fired > most {
		t.Errorf("%d slots have fired, and time has had %d", s.Fired, most)
	}
}
