package worker

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/classify"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// Config is how a worker works. Zero fields take the default beside them.
type Config struct {
	Name  string // unique among live workers; host, process and a random part
	Slots int    // handlers that run at once; 10
	Lanes []Lane // what to claim from; one lane over the queues of the kinds that it handles

	Offers   []string      // capabilities of this worker; jobs may require them
	MaxCost  int64         // largest cost of a job to claim; any
	LeaseTTL time.Duration // of the leases; the policy's of each job
	Poll     time.Duration // how long a claim waits for the first job; 1 min

	// HeartbeatEvery bounds the time between two heartbeats, which is a third
	// of the TTL otherwise; 5 s. A worker learns with them that a job was cancelled.
	HeartbeatEvery time.Duration

	DrainTimeout time.Duration // how long handlers may finish once Run's context has ended; 30 s
	Grace        time.Duration // how long a handler may take to return once its own has; 5 s

	Classify func(error) gq.Failure // judges errors that are no verdicts; classify.Error
	Logger   *slog.Logger           // slog.Default()
}

// Lane is a set of queues that share slots. Each lane claims on its own, so that
// a busy one does not hold up the others.
//
// Where the slots of all lanes together are more than the worker has, a lane
// that waits for jobs keeps one slot for itself and leaves the rest to the
// others.
type Lane struct {
	Queues []string // tried in this order
	Slots  int      // handlers of this lane that run at once; all of the worker's
}

// Limits of a configuration.
const (
	maxSlots = 1_000_000
	maxPoll  = 10 * time.Minute
)

func (c Config) withDefaults() Config {
	if c.Name == "" {
		host, _ := os.Hostname() // the random part makes it unique without
		c.Name = fmt.Sprintf("%.200s-%d-%.8s", cmp.Or(host, "worker"), os.Getpid(), rand.Text())
	}
	c.Slots = cmp.Or(c.Slots, 10)
	c.Lanes = slices.Clone(c.Lanes)
	for i := range c.Lanes {
		c.Lanes[i].Slots = cmp.Or(c.Lanes[i].Slots, c.Slots)
	}
	c.Poll = cmp.Or(c.Poll, time.Minute)
	c.HeartbeatEvery = cmp.Or(c.HeartbeatEvery, 5*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	c.Grace = cmp.Or(c.Grace, 5*time.Second)
	if c.Classify == nil {
		c.Classify = classify.Error
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// faults lists everything that is wrong with a configuration whose defaults are
// filled in.
func (c Config) faults() (all []gq.Fault) {
	add := func(field, format string, args ...any) {
		all = append(all, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if len(c.Name) > gq.MaxNameBytes {
		add("name", "%d bytes are more than %d", len(c.Name), gq.MaxNameBytes)
	}
	if c.Slots < 1 || c.Slots > maxSlots {
		add("slots", "%d is not between 1 and %d", c.Slots, maxSlots)
	}
	if len(c.Lanes) > c.Slots {
		add("lanes", "%d lanes need as many slots, and there are %d", len(c.Lanes), c.Slots)
	}
	seen := make(map[string]bool)
	for i, l := range c.Lanes {
		at := fmt.Sprintf("lanes[%d]", i)
		if l.Slots < 1 || l.Slots > c.Slots {
			add(at+".slots", "%d is not between 1 and the worker's %d", l.Slots, c.Slots)
		}
		if len(l.Queues) == 0 {
			add(at+".queues", "a lane needs a queue")
		}
		for _, q := range l.Queues {
			if err := machine.CheckQueueName(q); err != nil {
				for _, f := range errs.FaultsOf(err) {
					add(at+".queues", "%s", f.Problem)
				}
			}
			if seen[q] {
				add(at+".queues", "%.64q stands in two places", q)
			}
			seen[q] = true
		}
	}
	if c.MaxCost < 0 {
		add("max_cost", "%d is negative; 0 is any", c.MaxCost)
	}
	for _, d := range []struct {
		field string
		value time.Duration
		most  time.Duration
	}{
		{"lease_ttl", c.LeaseTTL, gq.MaxDuration},
		{"poll", c.Poll, maxPoll},
		{"heartbeat_every", c.HeartbeatEvery, gq.MaxDuration},
		{"drain_timeout", c.DrainTimeout, gq.MaxDuration},
		{"grace", c.Grace, gq.MaxDuration},
	} {
		if d.value < 0 || d.value > d.most {
			add(d.field, "%v is not between 0 and %v", d.value, d.most)
		}
	}
	return all
}

// shared reports whether lanes compete for slots.
func (c Config) shared() bool {
	sum := 0
	for _, l := range c.Lanes {
		sum += l.Slots
	}
	return sum > c.Slots
}
