package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gopherqueue/gq/services/internal/load"
)

// Results are all measurements of a comparison.
type Results struct {
	Command     string      `json:"command"` // that reproduces them
	Version     string      `json:"version"`
	StartedAt   time.Time   `json:"started_at"`
	Seconds     float64     `json:"seconds"`
	How         string      `json:"how"` // Containers, or processes of one machine
	Environment Environment `json:"environment"`
	Plan        Plan        `json:"plan"`
	Rows        []Row       `json:"rows"` // in the order of measurement
	Limits      []Limit     `json:"limits,omitempty"`
	Floor       *Floor      `json:"floor,omitempty"`
}

// A Row is one measurement: one repetition of one cell of one design.
type Row struct {
	Design     string             `json:"design"`
	Cell       Cell               `json:"cell"`
	Repetition int                `json:"repetition"`             // from 1 on
	Memory     map[string]float64 `json:"memory_mib,omitempty"`   // resident, by node, after the measurement
	Others     *float64           `json:"others_cores,omitempty"` // processor time of other processes, from before the design was started until it had stopped; in containers, while it ran
	*load.Report
}

// Floor compares submits to one monolith with submits to a bare gRPC server, in
// alternating rounds.
type Floor struct {
	Clients int       `json:"clients"`
	Echo    []float64 `json:"echo_per_second"`
	Node    []float64 `json:"node_per_second"`
}

// A System is a running design that can be put under load.
type System interface {
	Addresses() []string
	Memory() map[string]float64
	Stop() error
}

// Addresses returns the addresses that clients call.
func (c *Cluster) Addresses() []string { return c.Public }

// A Launcher starts a design.
type Launcher func(context.Context, Design) (System, error)

// Processes launches designs as processes on this machine.
func Processes(p Place) Launcher {
	return func(ctx context.Context, d Design) (System, error) {
		here := p
		here.Dir = filepath.Join(p.Dir, d.Name)
		if err := os.MkdirAll(here.Dir, 0o755); err != nil {
			return nil, fmt.Errorf("make room for logs: %w", err)
		}
		return Up(ctx, d, here)
	}
}

// Watch reports on a running comparison.
type Watch struct {
	Say func(format string, args ...any) // called for each step
	Raw string                           // directory for every request and job of every measurement; empty for none
}

// Run measures a plan. The designs alternate: in every repetition each cell is measured
// for all of them before the next cell, starting with a different design each time.
func Run(ctx context.Context, p Plan, designs []Design, launch Launcher, w Watch) (_ *Results, err error) {
	p.Designs = nil
	designs = slices.Clone(designs)
	for i, d := range designs {
		designs[i] = d.With(p.Slots)
		p.Designs = append(p.Designs, d.Name)
	}
	s := &session{Watch: w, plan: p, launch: launch, results: &Results{StartedAt: time.Now().UTC(), Plan: p, Environment: newEnvironment()}}
	s.closed, s.open = p.measurements()
	s.Say("%d measurements of closed loops and about %d of open ones, about %v in all", s.closed, s.open, p.Expected().Round(time.Second))
	defer func() { err = errors.Join(err, s.stop()) }()
	if err := s.closedLoops(ctx, designs); err != nil {
		return nil, err
	}
	if err := s.openLoops(ctx, designs); err != nil {
		return nil, err
	}
	if err := s.stop(); err != nil {
		return nil, err
	}
	if p.Floor > 0 {
		if err := s.floor(ctx); err != nil {
			return nil, fmt.Errorf("floor: %w", err)
		}
	}
	r := s.results
	r.Seconds = time.Since(r.StartedAt).Seconds()
	r.Environment.LoadAfter = loadAverage()
	if s.watched > 0 {
		r.Environment.Others = &Others{Mean: s.othersTime / s.watched, Most: s.mostOthers}
	}
	return r, nil
}

// session is a running comparison.
type session struct {
	Watch
	plan         Plan
	launch       Launcher
	results      *Results
	closed, open int // remaining measurements; open is an estimate

	system System // the running one, or nil
	design string // its name

	before       usage // when it was started
	inContainers bool
	others       float64 // processes' cores while the last design ran
	mostOthers   float64
	othersTime   float64 // core seconds of them in watched seconds
	watched      float64
}

// turn returns the order of the designs, which rotates.
func turn(designs []Design, n int) (order []Design) {
	for i := range designs {
		order = append(order, designs[(i+n)%len(designs)])
	}
	return order
}

func (s *session) closedLoops(ctx context.Context, designs []Design) error {
	cells := s.plan.Cells()
	for rep := range s.plan.Repetitions {
		if !s.plan.Relaunch { // one start serves all cells
			for _, d := range turn(designs, rep) {
				for _, cell := range cells {
					if _, err := s.measure(ctx, d, rep, cell); err != nil {
						return err
					}
				}
			}
			continue
		}
		for i, cell := range cells {
			for _, d := range turn(designs, rep+i) {
				if _, err := s.measure(ctx, d, rep, cell); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// openLoops searches for the rate that each design sustains, once per repetition.
func (s *session) openLoops(ctx context.Context, designs []Design) error {
	if s.plan.Rate <= 0 {
		return nil
	}
	known := make(map[string]*int)
	for rep := range s.plan.Repetitions {
		for _, d := range turn(designs, rep) {
			limit, step, err := s.plan.search(known[d.Name], func(rate float64) (string, error) {
				report, err := s.measure(ctx, d, rep, s.plan.open(rate))
				if err != nil {
					return "", err
				}
				return s.plan.broken(rate, report), nil
			})
			if err != nil {
				return err
			}
			if known[d.Name] == nil {
				known[d.Name] = &step
			}
			limit.Design, limit.Repetition = d.Name, rep+1
			s.results.Limits = append(s.results.Limits, limit)
		}
	}
	return nil
}

// measure adds a row.
func (s *session) measure(ctx context.Context, d Design, rep int, cell Cell) (_ *load.Report, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("design %s, %s: %w", d.Name, cell.Name(), err)
		}
	}()
	if err := s.start(ctx, d); err != nil {
		return nil, err
	}
	report, err := load.Run(ctx, s.plan.settings(cell, s.system.Addresses()))
	if err != nil {
		return nil, err
	}
	row := Row{Design: d.Name, Cell: cell, Repetition: rep + 1, Memory: s.system.Memory(), Report: report}
	if s.plan.Relaunch {
		watched := s.watched
		if err := s.stop(); err != nil {
			return nil, err
		}
		if s.watched > watched {
			others := s.others
			row.Others = &others
		}
	}
	if s.Raw != "" {
		if err := row.writeRaw(s.Raw); err != nil {
			return nil, err
		}
	}
	report.Samples, report.JobSamples = nil, nil // too many to keep for all rows
	s.results.Rows = append(s.results.Rows, row)
	s.progress(row)
	return report, nil
}

// progress reports a row, and how far the plan has got.
func (s *session) progress(row Row) {
	if row.Cell.Rate > 0 {
		s.open = max(0, s.open-1)
	} else {
		s.closed--
	}
	done, left := len(s.results.Rows), s.closed+s.open
	elapsed := time.Since(s.results.StartedAt)
	eta := elapsed / time.Duration(done) * time.Duration(left)
	s.Say("[%d/%d, %v, about %v left] design %s, %s, repetition %d: %.0f req/s, %.0f jobs/s, submit p99 %s ms, done p99 %s ms, censored %d, drained in %.1f s",
		done, done+left, elapsed.Round(time.Second), eta.Round(time.Second), row.Design, row.Cell.Name(), row.Repetition, row.PerSecond, row.Jobs.PerSecond,
		bounded(submitOf(row.Report), submitOf(row.Report).P99), bounded(row.Jobs.EndToEnd, row.Jobs.EndToEnd.P99), row.Jobs.Window.Censored, row.DrainSeconds)
}

// start makes sure that a design runs, and no other.
func (s *session) start(ctx context.Context, d Design) (err error) {
	if s.system != nil && s.design == d.Name {
		return nil
	}
	if err := s.stop(); err != nil {
		return err
	}
	s.before, _ = usageNow(false)
	system, err := s.launch(ctx, d)
	if err != nil {
		return err
	}
	s.system, s.design = system, d.Name
	if _, s.inContainers = system.(*composed); s.inContainers {
		s.before, _ = usageNow(true)
	}
	return nil
}

func (s *session) stop() error {
	if s.system == nil {
		return nil
	}
	system := s.system
	s.system = nil
	if s.inContainers { // a container that has been removed can no longer be asked
		s.watch(usageNow(true))
		return system.Stop()
	}
	err := system.Stop()
	s.watch(usageNow(false)) // only children that have ended are counted
	return err
}

// watch counts what other processes have used since the design was started.
func (s *session) watch(now usage, ok bool) {
	elapsed := now.at.Sub(s.before.at).Seconds()
	if !ok || s.before.at.IsZero() || elapsed <= 0 {
		return
	}
	s.others = now.others(s.before)
	s.mostOthers = max(s.mostOthers, s.others)
	s.othersTime += s.others * elapsed
	s.watched += elapsed
}

// floor measures the two servers alternately, so that a disturbance does not affect
// only one.
func (s *session) floor(ctx context.Context) error {
	f := &Floor{Clients: s.plan.Floor}
	for range s.plan.floorRounds() {
		for _, d := range []Design{floor(), single()} {
			rate, err := s.submitsOnly(ctx, d)
			if err != nil {
				return err
			}
			if d.Name == floor().Name {
				f.Echo = append(f.Echo, rate)
			} else {
				f.Node = append(f.Node, rate)
			}
		}
	}
	s.results.Floor = f
	s.Say("floor: one monolith takes %s submits/s, bare gRPC %s", figureOf(f.Node).text(0), figureOf(f.Echo).text(0))
	return nil
}

func (s *session) submitsOnly(ctx context.Context, d Design) (perSecond float64, err error) {
	if err := s.start(ctx, d); err != nil {
		return 0, err
	}
	settings := s.plan.settings(Cell{Concurrency: s.plan.Floor, Mix: load.Mix{Submit: 1}}, s.system.Addresses())
	settings.Blind = true
	report, err := load.Run(ctx, settings)
	if err := errors.Join(err, s.stop()); err != nil {
		return 0, err
	}
	return report.Methods[load.Submit.String()].PerSecond, nil
}
