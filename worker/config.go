package worker

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// Config configures a worker. Each field names its default; zero selects it.
type Config struct {
	Name      string     // unique among live workers; default: host, process id and a random part
	Slots     int        // handlers that run at once; default: 10
	QueueSets []QueueSet // queues to claim from; default: one set with the queues of all handled kinds

	Offers   []string      // capabilities of this worker, for jobs that require them
	MaxCost  int64         // largest cost of a job to claim; default: any
	LeaseTTL time.Duration // default: that of each job's policy, or 30 s if neither the job nor its queue sets one
	Poll     time.Duration // how long a claim waits for the first job; default: 1 min

	// HeartbeatEvery is the longest time between two heartbeats; default: 5 s. A lease is
	// renewed after a third of its TTL at the latest. A heartbeat also tells the worker
	// that a job was cancelled.
	HeartbeatEvery time.Duration

	DrainTimeout time.Duration // how long handlers may continue after Run's context ended; default: 30 s
	Grace        time.Duration // how long a handler may continue after its own context ended; default: 5 s

	// Classify classifies errors of handlers that state no verdict. Default: [classify.Error], which
	// goes by the type of an error, or [classify.Verdict] for jobs of [gq.PresetResilient].
	// [classify.Words] goes by the text too.
	Classify func(error) gq.Failure
	Logger   *slog.Logger // default: slog.Default()

	// Metrics receives the measurements of this worker; see packages workerprom and
	// workerotel. Several workers can share it. Default: none.
	Metrics Metrics

	// TracerProvider makes the worker report spans: one for the time that a job waited, and
	// one for each execution, which is the parent of the handler's spans. Default: none; the
	// span in the handler's context is then that of the submission.
	TracerProvider trace.TracerProvider
}

// QueueSet is a set of queues that share slots. A worker claims for each set separately, so a
// busy set does not delay the others.
//
// If the sets have more slots together than the worker, an idle set reserves one slot and
// leaves the others to the busy sets.
type QueueSet struct {
	Queues []string // tried in this order; mail.* is all queues whose names begin with mail., see [gq.MatchQueue]
	Slots  int      // handlers that run at once; default: all slots of the worker
}

// Limits of a configuration.
const (
	maxSlots = 1_000_000
	maxPoll  = 10 * time.Minute
)

func (c Config) withDefaults() Config {
	if c.Name == "" {
		host, _ := os.Hostname() // the random part suffices to make the name unique
		c.Name = fmt.Sprintf("%.200s-%d-%.8s", cmp.Or(host, "worker"), os.Getpid(), rand.Text())
	}
	c.Slots = cmp.Or(c.Slots, 10)
	c.QueueSets = slices.Clone(c.QueueSets)
	for i := range c.QueueSets {
		c.QueueSets[i].Slots = cmp.Or(c.QueueSets[i].Slots, c.Slots)
	}
	c.Poll = cmp.Or(c.Poll, time.Minute)
	c.HeartbeatEvery = cmp.Or(c.HeartbeatEvery, 5*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	c.Grace = cmp.Or(c.Grace, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

// faults lists all faults of a configuration with defaults filled in.
func (c Config) faults() (all []gq.Fault) {
	add := func(field, format string, args ...any) {
		all = append(all, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	if len(c.Name) > gq.MaxNameBytes {
		add("name", "has %d bytes; the limit is %d", len(c.Name), gq.MaxNameBytes)
	}
	if c.Slots < 1 || c.Slots > maxSlots {
		add("slots", "%d is not between 1 and %d", c.Slots, maxSlots)
	}
	if len(c.QueueSets) > c.Slots {
		add("queue_sets", "%d queue sets need at least as many slots, but the worker has %d", len(c.QueueSets), c.Slots)
	}
	seen := make(map[string]bool)
	for i, l := range c.QueueSets {
		at := fmt.Sprintf("queue_sets[%d]", i)
		if l.Slots < 1 || l.Slots > c.Slots {
			add(at+".slots", "%d is not between 1 and the worker's %d", l.Slots, c.Slots)
		}
		if len(l.Queues) == 0 {
			add(at+".queues", "is empty")
		}
		for _, q := range l.Queues {
			if err := machine.CheckQueuePattern("queues", q); err != nil {
				for _, f := range errs.FaultsOf(err) {
					add(at+".queues", "%s", f.Problem)
				}
			}
			if seen[q] {
				add(at+".queues", "%.64q is listed twice", q)
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

// claims reports whether a queue is in a queue set.
func (c Config) claims(queue string) bool {
	return slices.ContainsFunc(c.QueueSets, func(l QueueSet) bool {
		return slices.ContainsFunc(l.Queues, func(pattern string) bool { return gq.MatchQueue(pattern, queue) })
	})
}

// shared reports whether queue sets compete for slots.
func (c Config) shared() bool {
	sum := 0
	for _, l := range c.QueueSets {
		sum += l.Slots
	}
	return sum > c.Slots
}
