package compare

import (
	"fmt"
	"time"

	"github.com/gopherqueue/gq/internal/load"
)

// A Plan is what is measured of every design. It is stored with the results.
type Plan struct {
	Designs     []string        `json:"designs"`
	Concurrency []int           `json:"concurrency"` // closed loops
	Work        []time.Duration `json:"work_ns"`     // of the jobs
	Mixes       []load.Mix      `json:"mixes"`
	Rates       []float64       `json:"rates"` // open loops
	Warmup      time.Duration   `json:"warmup_ns"`
	Duration    time.Duration   `json:"duration_ns"`
	Drain       time.Duration   `json:"drain_ns"`
	Payload     uint32          `json:"payload_bytes"`
	Connections int             `json:"connections"`
	Seed        uint64          `json:"seed"`
	Slots       int             `json:"total_worker_slots"`
	Floor       int             `json:"floor_clients"` // of the comparison with bare gRPC; 0 leaves it out
}

// The mixes: as many of each, mostly writes, mostly reads.
var (
	evenMix  = load.Mix{Submit: 1, Status: 1, Result: 1}
	writeMix = load.Mix{Submit: 4, Status: 1, Result: 1}
	readMix  = load.Mix{Submit: 1, Status: 4, Result: 4}
)

// FullPlan takes about ten minutes.
func FullPlan() Plan {
	return Plan{
		Concurrency: []int{1, 8, 64, 256}, Work: []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond},
		Mixes: []load.Mix{evenMix, writeMix, readMix}, Rates: []float64{100, 300, 1000, 3000},
		Warmup: 500 * time.Millisecond, Duration: 2 * time.Second, Drain: 500 * time.Millisecond,
		Payload: 256, Connections: 6, Seed: 1, Slots: totalSlots, Floor: 64,
	}
}

// QuickPlan takes about a minute.
func QuickPlan() Plan {
	p := FullPlan()
	p.Concurrency = []int{1, 16, 64}
	p.Work = []time.Duration{0, 10 * time.Millisecond}
	p.Mixes = []load.Mix{evenMix}
	p.Rates = []float64{200}
	p.Warmup, p.Duration, p.Drain = 200*time.Millisecond, time.Second, 200*time.Millisecond
	return p
}

// A Cell is one measurement of the matrix.
type Cell struct {
	Concurrency int           `json:"concurrency"`
	Rate        float64       `json:"rate"` // 0 is a closed loop
	Work        time.Duration `json:"work_ns"`
	Mix         load.Mix      `json:"mix"`
}

// openClients is the most requests an open loop has under way.
const openClients = 512

// Cells is the matrix: every concurrency with every work and mix, then every
// rate with the first mix and jobs that take no time.
func (p Plan) Cells() (cells []Cell) {
	for _, mix := range p.Mixes {
		for _, work := range p.Work {
			for _, n := range p.Concurrency {
				cells = append(cells, Cell{Concurrency: n, Work: work, Mix: mix})
			}
		}
	}
	for _, rate := range p.Rates {
		cells = append(cells, Cell{Concurrency: openClients, Rate: rate, Mix: p.Mixes[0]})
	}
	return cells
}

// Name tells cells apart, in file names too.
func (c Cell) Name() string {
	loop := fmt.Sprintf("closed-%d", c.Concurrency)
	if c.Rate > 0 {
		loop = fmt.Sprintf("open-%g", c.Rate)
	}
	return fmt.Sprintf("%s-work%dms-mix%d-%d-%d", loop, c.Work.Milliseconds(), c.Mix.Submit, c.Mix.Status, c.Mix.Result)
}

func (p Plan) settings(c Cell, targets []string) load.Settings {
	s := load.DefaultSettings()
	s.Targets, s.Rate, s.Concurrency, s.Connections = targets, c.Rate, c.Concurrency, p.Connections
	s.Warmup, s.Duration, s.Drain = p.Warmup, p.Duration, p.Drain
	s.Work, s.Payload, s.Mix, s.Seed = c.Work, p.Payload, c.Mix, p.Seed
	return s
}
