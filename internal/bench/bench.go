// Package bench measures stores through their interface: how fast jobs pass through them,
// what that costs, and how close it comes to the floor, which is the database alone
// writing the same bytes in the same commits.
//
// It promises that every number was measured in the run that reports it, that latencies
// are recorded and not modelled, and that a store that loses or duplicates a job fails
// the run. It does not promise that two runs agree: the [Report] says how busy the
// machine was.
package bench

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Place is where the measured stores are created.
type Place interface {
	// Open opens the store with this name, which is empty the first time. If onCommit is
	// not nil, it gets the bytes of every commit, which it must copy.
	Open(name string, onCommit func(commit []byte)) (store.Store, error)

	// Remove deletes a closed store.
	Remove(name string) error

	// Keeps reports whether a closed store can be opened again.
	Keeps() bool
}

// Replayer is an optional interface of a [Place]: it measures the floor.
type Replayer interface {
	// Replay writes recorded commits to an empty database, one after the other, each
	// synced, and nothing else.
	Replay(commits [][]byte) (time.Duration, error)
}

// Scenario names a group of measurements.
type Scenario string

// The scenarios.
const (
	Cycle   Scenario = "cycle"   // submit, claim, complete
	Enqueue Scenario = "enqueue" // submit alone
	Backlog Scenario = "backlog" // a cycle while many other jobs are queued
	Filter  Scenario = "filter"  // claims that skip jobs that do not match
	Idle    Scenario = "idle"    // nothing to do
	Worker  Scenario = "worker"  // through the worker runtime

	// Server runs against a server. It needs Settings.Remote and is not among
	// [Scenarios], which need only a place.
	Server Scenario = "server"
)

// Scenarios lists the scenarios in the order in which they run.
func Scenarios() []Scenario { return []Scenario{Cycle, Enqueue, Backlog, Filter, Idle, Worker} }

// Settings say what to measure and for how long.
type Settings struct {
	Scenarios []Scenario
	Callers   []int         // concurrent callers, one row each
	Batch     int           // jobs per call in the batched rows
	Payload   int           // bytes of payload per job
	Jobs      int           // jobs per row; 0 measures for Duration instead
	Duration  time.Duration // length of a row if Jobs is 0
	Backlog   int           // jobs queued in scenarios backlog and filter
	Idle      time.Duration // how long to observe an idle store
	Repeat    int           // runs of everything; the median is reported
	Record    int64         // bytes of commits to record for the floor; a row ends when it reaches them

	Remote        Remote // the server for scenario server
	RemoteProcess int    // its process id if on this machine; 0 is unknown

	Progress func(done, total int, what string) // called before each step; may be nil
}

// DefaultSettings take about a minute.
func DefaultSettings() Settings {
	return Settings{
		Scenarios: []Scenario{Cycle},
		Callers:   []int{1, 64, 512},
		Batch:     100,
		Payload:   100,
		Duration:  5 * time.Second,
		Backlog:   1_000_000,
		Idle:      3 * time.Second,
		Repeat:    1,
		Record:    1 << 30,
	}
}

// Limits of settings.
const (
	maxCallers = 10_000
	maxBacklog = 100_000_000
	minBacklog = 10 // so that it has tenths to report
	maxRepeat  = 1000
)

// Validate reports every invalid setting by the name of its flag.
func (s Settings) Validate() error {
	var faults []gq.Fault
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			faults = append(faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
		}
	}
	check(len(s.Scenarios) > 0, "scenario", "name at least one")
	for _, name := range s.Scenarios {
		if name == Server {
			check(s.Remote != nil, "scenario", "server needs one to measure")
			continue
		}
		check(slices.Contains(Scenarios(), name), "scenario", "%.64q is not one of %s", name, scenarioNames())
	}
	check(len(s.Callers) > 0, "callers", "name at least one number")
	for _, n := range s.Callers {
		check(n >= 1 && n <= maxCallers, "callers", "%d is not between 1 and %d", n, maxCallers)
	}
	largest := machine.DefaultLimits().PayloadBytes
	check(s.Batch >= 1 && s.Batch <= store.MaxClaim, "batch", "%d is not between 1 and %d", s.Batch, store.MaxClaim)
	check(s.Payload >= 0 && s.Payload <= largest, "payload", "%d is not between 0 and %d", s.Payload, largest)
	check(s.Jobs >= 0, "jobs", "%d is negative; 0 measures for the duration", s.Jobs)
	check(s.Jobs > 0 || s.Duration > 0, "duration", "%v is not above 0", s.Duration)
	check(s.Backlog >= minBacklog && s.Backlog <= maxBacklog, "backlog", "%d is not between %d and %d", s.Backlog, minBacklog, maxBacklog)
	check(s.Idle > 0, "idle", "%v is not above 0", s.Idle)
	check(s.Repeat >= 1 && s.Repeat <= maxRepeat, "repeat", "%d is not between 1 and %d", s.Repeat, maxRepeat)
	check(s.Record >= 1, "record", "%d is not above 0", s.Record)
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

func scenarioNames() string {
	var names []string
	for _, s := range append(Scenarios(), Server) {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// batches returns the measured batch sizes.
func (s Settings) batches() []int {
	if s.Batch == 1 {
		return []int{1}
	}
	return []int{1, s.Batch}
}

func (s Settings) mostCallers() int { return slices.Max(s.Callers) }

// step is one measurement, made once per round. It keeps its results.
type step struct {
	name string
	run  func(ctx context.Context) error
}

// bench is a run in progress.
type bench struct {
	Settings
	place    Place
	recorder *recorder
	warnings []string
}

// Run measures. It needs the whole process: two concurrent runs would measure each other.
func Run(ctx context.Context, place Place, s Settings) (Report, error) {
	if err := s.Validate(); err != nil {
		return Report{}, err
	}
	b := &bench{Settings: s, place: place, recorder: newRecorder(s.Record)}
	defer b.recorder.free()
	before := s.readMachine()
	start := time.Now()
	r := Report{
		StartedAt: start.UTC(), GoVersion: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Cores: runtime.NumCPU(), MaxProcs: runtime.GOMAXPROCS(0), Settings: s.report(),
	}
	plan := b.plan(&r)
	total := len(plan) * s.Repeat
	for i := range total {
		step := plan[i%len(plan)]
		if s.Progress != nil {
			s.Progress(i, total, step.name)
		}
		debug.FreeOSMemory() // do not count what earlier steps left behind
		if err := step.run(ctx); err != nil {
			return r, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	r.finish()
	r.Seconds = time.Since(start).Seconds()
	r.judge(before.until(s.readMachine()))
	r.Warnings = append(r.Warnings, b.warnings...)
	return r, nil
}

// plan lists the steps of one round. Each adds its result to those of the earlier rounds.
func (b *bench) plan(r *Report) (plan []step) {
	rows := func(name Scenario, found *rounds[Row]) {
		for _, batch := range b.batches() {
			for _, callers := range b.Callers {
				row := found.reserve(1)
				plan = append(plan, step{fmt.Sprintf("%s, %s", name, shape(callers, batch)), func(ctx context.Context) error {
					result, err := b.row(ctx, name, callers, batch)
					found.add(row, result)
					return err
				}})
			}
		}
	}
	for _, name := range append(Scenarios(), Server) {
		if !slices.Contains(b.Scenarios, name) {
			continue
		}
		switch name {
		case Cycle:
			rows(name, &r.cycle)
		case Enqueue:
			rows(name, &r.enqueue)
		case Backlog:
			row := r.backlog.reserve(1)
			plan = append(plan, step{string(name), func(ctx context.Context) error {
				result, err := b.backlog(ctx)
				r.backlog.add(row, result)
				return err
			}})
		case Filter:
			first := r.filter.reserve(len(filters()) * len(b.filterCallers()))
			plan = append(plan, step{string(name), func(ctx context.Context) error {
				results, err := b.filter(ctx)
				for i, result := range results {
					r.filter.add(first+i, result)
				}
				return err
			}})
		case Idle:
			row := r.idle.reserve(1)
			plan = append(plan, step{string(name), func(ctx context.Context) error {
				result, err := b.idle(ctx)
				r.idle.add(row, result)
				return err
			}})
		case Worker:
			row := r.worker.reserve(1)
			plan = append(plan, step{string(name), func(ctx context.Context) error {
				result, err := b.workers(ctx)
				r.worker.add(row, result)
				return err
			}})
		case Server:
			row := r.server.reserve(1)
			plan = append(plan, step{string(name), func(ctx context.Context) error {
				result, err := b.server(ctx)
				r.server.add(row, result)
				return err
			}})
		}
	}
	return plan
}

// shape names a row.
func shape(callers, batch int) string {
	who := quantity.Of(callers, "caller")
	if batch == 1 {
		return who + ", single calls"
	}
	return fmt.Sprintf("%s, batches of %d", who, batch)
}

// labels distinguish the store and the floor in a CPU profile.
func labels(name Scenario, row, part string) pprof.LabelSet {
	return pprof.Labels("scenario", string(name), "row", row, "part", part)
}

// with runs a function on a store, and closes and removes the store afterwards.
func (b *bench) with(ctx context.Context, name Scenario, row string, onCommit func([]byte), use func(context.Context, store.Store) error) (err error) {
	pprof.Do(ctx, labels(name, row, "store"), func(ctx context.Context) {
		err = b.open(ctx, string(name), onCommit, use)
	})
	return err
}

func (b *bench) open(ctx context.Context, name string, onCommit func([]byte), use func(context.Context, store.Store) error) (err error) {
	s, err := b.place.Open(name, onCommit)
	if err != nil {
		return err
	}
	defer func() {
		if closing := s.Close(); err == nil {
			err = closing
		}
		if removing := b.place.Remove(name); err == nil {
			err = removing
		}
	}()
	return use(ctx, s)
}
