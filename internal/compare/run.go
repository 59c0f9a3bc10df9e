package compare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/gopherqueue/gq/internal/load"
)

// Results are everything that was measured.
type Results struct {
	Command   string    `json:"command"` // that makes them again
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	Seconds   float64   `json:"seconds"`
	GoVersion string    `json:"go_version"`
	OS        string    `json:"os"`
	Arch      string    `json:"arch"`
	Cores     int       `json:"cores"`
	Load      string    `json:"load_average"` // of the machine before the first measurement; empty if unknown
	How       string    `json:"how"`          // processes or compose
	Plan      Plan      `json:"plan"`
	Rows      []Row     `json:"rows"`
	Floor     *Floor    `json:"floor,omitempty"`
}

// A Row is one cell of one design.
type Row struct {
	Design string             `json:"design"`
	Cell   Cell               `json:"cell"`
	Memory map[string]float64 `json:"memory_mib,omitempty"` // resident, of each node, after the measurement
	*load.Report
}

// Floor compares submits to one monolith with submits to a bare gRPC server.
type Floor struct {
	Clients int     `json:"clients"`
	Echo    float64 `json:"echo_per_second"`
	Node    float64 `json:"node_per_second"`
	Ratio   float64 `json:"ratio"`
}

// A System is a running design that can be put under load.
type System interface {
	Addresses() []string
	Memory() map[string]float64
	Stop() error
}

// Addresses are where clients call.
func (c *Cluster) Addresses() []string { return c.Public }

// A Launcher brings a design up.
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

// Run measures a plan, design by design. say is told of each step.
func Run(ctx context.Context, p Plan, launch Launcher, say func(format string, args ...any)) (*Results, error) {
	r := &Results{
		StartedAt: time.Now().UTC(), GoVersion: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(), Plan: p,
		Load: loadAverage(),
	}
	for _, name := range p.Designs {
		d, err := Find(name)
		if err != nil {
			return nil, err
		}
		if d.Slots != p.Slots {
			return nil, fmt.Errorf("design %s has %d worker slots, and the comparison %d", d.Name, d.Slots, p.Slots)
		}
		rows, err := measure(ctx, p, d, launch, say)
		if err != nil {
			return nil, fmt.Errorf("design %s: %w", d.Name, err)
		}
		r.Rows = append(r.Rows, rows...)
	}
	if p.Floor > 0 {
		f, err := measureFloor(ctx, p, launch, say)
		if err != nil {
			return nil, fmt.Errorf("floor: %w", err)
		}
		r.Floor = f
	}
	r.Seconds = time.Since(r.StartedAt).Seconds()
	return r, nil
}

func measure(ctx context.Context, p Plan, d Design, launch Launcher, say func(string, ...any)) (rows []Row, err error) {
	say("design %s: starting", d.Name)
	system, err := launch(ctx, d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, system.Stop()) }()
	for _, cell := range p.Cells() {
		report, err := load.Run(ctx, p.settings(cell, system.Addresses()))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", cell.Name(), err)
		}
		say("design %s: %-34s %8.0f req/s %8.0f jobs/s  submit p99 %.1f ms", d.Name, cell.Name(),
			report.PerSecond, report.Jobs.PerSecond, report.Methods[load.Submit.String()].Latency.P99)
		rows = append(rows, Row{Design: d.Name, Cell: cell, Memory: system.Memory(), Report: report})
	}
	return rows, nil
}

// floorRounds alternate between the two servers, so that a disturbance does not
// hit one of them alone.
const floorRounds = 3

func measureFloor(ctx context.Context, p Plan, launch Launcher, say func(string, ...any)) (f *Floor, err error) {
	f = &Floor{Clients: p.Floor}
	for range floorRounds {
		for _, d := range []Design{floor(), single()} {
			rate, err := submitsOnly(ctx, p, d, launch)
			if err != nil {
				return nil, err
			}
			if d.Name == floor().Name {
				f.Echo = max(f.Echo, rate)
			} else {
				f.Node = max(f.Node, rate)
			}
		}
	}
	if f.Echo > 0 { // else the machine stood still
		f.Ratio = f.Node / f.Echo
	}
	say("floor: one monolith takes %.0f submits/s, bare gRPC %.0f: %.0f %%", f.Node, f.Echo, 100*f.Ratio)
	return f, nil
}

func submitsOnly(ctx context.Context, p Plan, d Design, launch Launcher) (perSecond float64, err error) {
	system, err := launch(ctx, d)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, system.Stop()) }()
	s := p.settings(Cell{Concurrency: p.Floor, Mix: load.Mix{Submit: 1}}, system.Addresses())
	s.Blind = true
	report, err := load.Run(ctx, s)
	if err != nil {
		return 0, err
	}
	return report.Methods[load.Submit.String()].PerSecond, nil
}
