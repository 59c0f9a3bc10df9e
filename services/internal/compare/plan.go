package compare

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/gopherqueue/gq/services/internal/load"
)

// A Plan is what is measured for every design. It is stored with the results.
type Plan struct {
	Designs     []string        `json:"designs"`
	Concurrency []int           `json:"concurrency"` // clients of the closed loops
	Work        []time.Duration `json:"work_ns"`     // of the jobs
	Mixes       []load.Mix      `json:"mixes"`       // the first is combined with every concurrency and work, the others with MixClients and the first work
	MixClients  int             `json:"mix_clients"`
	LoadWork    time.Duration   `json:"load_work_ns"` // of the jobs of the Compose files' load, which measures no other cell
	LoadMix     load.Mix        `json:"load_mix"`
	Repetitions int             `json:"repetitions"`
	Rate        float64         `json:"rate"`        // first rate of the open loops; 0 omits them
	MaxRate     float64         `json:"max_rate"`    // highest rate offered
	Limit       time.Duration   `json:"limit_ns"`    // a rate counts as not sustained if the 99th percentile is higher
	Backlog     time.Duration   `json:"backlog_ns"`  // a closed loop has at most as many open jobs as the slots complete in this time,
	MaxBacklog  int             `json:"max_backlog"` // and at most this many
	Relaunch    bool            `json:"relaunch"`    // start the design anew for each measurement
	Warmup      time.Duration   `json:"warmup_ns"`   // before each measurement
	Duration    time.Duration   `json:"duration_ns"` // of each measurement
	Drain       time.Duration   `json:"drain_ns"`    // how long jobs may take to end afterwards
	Payload     uint32          `json:"payload_bytes"`
	Connections int             `json:"connections"`
	Seed        uint64          `json:"seed"`
	Slots       int             `json:"total_worker_slots"`
	Floor       int             `json:"floor_clients"` // clients for the comparison with bare gRPC; 0 omits it
}

// The mixes: equal shares, mostly writes, mostly reads.
var (
	evenMix  = load.Mix{Submit: 1, Status: 1, Result: 1}
	writeMix = load.Mix{Submit: 4, Status: 1, Result: 1}
	readMix  = load.Mix{Submit: 1, Status: 4, Result: 4}
)

// FullPlan takes about 35 minutes. docker/settings.env is the same.
func FullPlan() Plan {
	return Plan{
		Designs:     designNames(),
		Concurrency: []int{1, 16, 128}, Work: []time.Duration{0, 10 * time.Millisecond, 100 * time.Millisecond},
		Mixes: []load.Mix{evenMix, writeMix, readMix}, MixClients: 16, LoadMix: evenMix, Repetitions: 3,
		Rate: 1000, MaxRate: 64_000, Limit: time.Second,
		Backlog: 2 * time.Second, MaxBacklog: 2000, Relaunch: true,
		Warmup: time.Second, Duration: 10 * time.Second, Drain: time.Minute,
		Payload: 256, Connections: 6, Seed: 1, Slots: totalSlots, Floor: 64,
	}
}

// QuickPlan takes about a minute. It shows that everything works, but no difference
// between designs, since each cell is measured once.
func QuickPlan() Plan {
	p := FullPlan()
	p.Concurrency = []int{1, 16}
	p.Work = []time.Duration{0, 10 * time.Millisecond}
	p.Mixes = []load.Mix{evenMix}
	p.Repetitions = 1
	p.Rate, p.MaxRate = 200, 400
	p.Backlog, p.MaxBacklog = 500*time.Millisecond, 500
	p.Warmup, p.Duration = 200*time.Millisecond, time.Second
	return p
}

// A Cell is one measurement of the matrix.
type Cell struct {
	Concurrency int           `json:"concurrency"`
	Rate        float64       `json:"rate"` // 0 is a closed loop
	Work        time.Duration `json:"work_ns"`
	Mix         load.Mix      `json:"mix"`
}

// Cells returns the matrix of closed loops: every concurrency with every work and the
// first mix, then the other mixes.
func (p Plan) Cells() (cells []Cell) {
	for _, work := range p.Work {
		for _, n := range p.Concurrency {
			cells = append(cells, Cell{Concurrency: n, Work: work, Mix: p.Mixes[0]})
		}
	}
	for _, mix := range p.Mixes[1:] {
		cells = append(cells, Cell{Concurrency: p.MixClients, Work: p.Work[0], Mix: mix})
	}
	return cells
}

// openClients is the maximum number of concurrent requests of an open loop.
const openClients = 512

// open returns the cell of an open loop: the first mix, and jobs that take no time.
func (p Plan) open(rate float64) Cell {
	return Cell{Concurrency: openClients, Rate: rate, Mix: p.Mixes[0]}
}

// Name returns a unique name, which file names use too.
func (c Cell) Name() string {
	loop := fmt.Sprintf("closed-%d", c.Concurrency)
	if c.Rate > 0 {
		loop = fmt.Sprintf("open-%g", c.Rate)
	}
	return fmt.Sprintf("%s-work%dms-mix%d-%d-%d", loop, c.Work.Milliseconds(), c.Mix.Submit, c.Mix.Status, c.Mix.Result)
}

// backlog limits the open jobs of a cell. An open loop has no limit: a backlog that a
// design cannot work off must show.
func (p Plan) backlog(c Cell) int {
	if c.Rate > 0 {
		return math.MaxInt
	}
	if c.Work == 0 {
		return p.MaxBacklog
	}
	return max(1, min(p.MaxBacklog, int(float64(p.Slots)*p.Backlog.Seconds()/c.Work.Seconds())))
}

func (p Plan) settings(c Cell, targets []string) load.Settings {
	s := load.DefaultSettings()
	s.Targets, s.Rate, s.Concurrency, s.Connections = targets, c.Rate, c.Concurrency, p.Connections
	s.Warmup, s.Duration, s.Drain, s.MaxTracked = p.Warmup, p.Duration, p.Drain, p.backlog(c)
	s.Work, s.Payload, s.Mix, s.Seed = c.Work, p.Payload, c.Mix, p.Seed
	return s
}

// What the expected time of a plan consists of, in addition to its warm-ups and
// durations.
const (
	launchTime   = 1500 * time.Millisecond // to start and to stop a design
	overloadTime = 15 * time.Second        // to work off the backlog of too high a rate, as measured in a full plan
	firstSteps   = 5                       // rates offered in a design's first search,
	laterSteps   = 2                       // and in the others, which start near the result
)

// measurements returns how many closed loops a plan has, and about how many open ones.
func (p Plan) measurements() (closed, open int) {
	closed = p.Repetitions * len(p.Designs) * len(p.Cells())
	if p.Rate > 0 {
		top := int(math.Log2(p.MaxRate/p.Rate)) + 1
		open = len(p.Designs) * (min(firstSteps, top) + (p.Repetitions-1)*min(laterSteps, top))
	}
	return closed, open
}

// Expected returns about how long the plan takes on two cores.
func (p Plan) Expected() time.Duration {
	each := p.Warmup + p.Duration + launchTime
	total := time.Duration(0)
	for range p.Repetitions {
		for _, c := range p.Cells() {
			drain := p.Duration / 5
			if c.Work > 0 {
				drain = p.Backlog * 3 / 2
			}
			total += time.Duration(len(p.Designs)) * (each + drain)
		}
	}
	_, open := p.measurements()
	total += time.Duration(open) * each
	if p.Rate > 0 && p.MaxRate > 20*p.Rate { // high enough to overload the designs
		total += time.Duration(p.Repetitions*len(p.Designs)) * min(overloadTime, p.Duration*3/2)
	}
	if p.Floor > 0 {
		total += time.Duration(2*p.floorRounds()) * each
	}
	return total
}

// floorRounds is how often the floor is measured: once per repetition.
func (p Plan) floorRounds() int { return max(1, p.Repetitions) }

// The rates of open loops form a grid: each is about 1.4 times the one before.
func (p Plan) gridRate(k int) float64 {
	rate, _ := strconv.ParseFloat(strconv.FormatFloat(p.Rate*math.Pow(2, float64(k)/2), 'g', 2, 64), 64) // two digits
	return rate
}

// lowestStep is how many steps below the first rate the search goes.
const lowestStep = -8

// A Limit is the result of a search for the highest rate that a design sustains.
type Limit struct {
	Design     string  `json:"design"`
	Repetition int     `json:"repetition"`
	Kept       float64 `json:"kept"`     // the highest rate sustained; 0 if none was
	NotKept    float64 `json:"not_kept"` // the lowest rate not sustained; 0 if all were
	Why        string  `json:"why"`      // it was not sustained
}

// search offers rates until it knows two adjacent ones of which a design sustains only
// the lower. The first search doubles from the first rate and then tries the middle;
// others start at known, the step that the first one found, and take single steps. try
// returns why a rate is not sustained.
func (p Plan) search(known *int, try func(rate float64) (why string, err error)) (l Limit, kept int, err error) {
	const none = 1 << 20
	low, high := lowestStep-1, none // the highest step sustained, the lowest not sustained
	step, stride := 0, 2
	if known != nil {
		step, stride = *known, 1
	}
	for high-low > 1 && step >= lowestStep && (high != none || p.gridRate(step) <= p.MaxRate) {
		why, err := try(p.gridRate(step))
		if err != nil {
			return Limit{}, 0, err
		}
		if why == "" {
			low = step
		} else if step < high {
			high, l.Why = step, why
		}
		switch {
		case high == none:
			step = low + stride
		case low < lowestStep:
			step = high - 1
		default:
			step = (low + high) / 2
		}
	}
	if low >= lowestStep {
		l.Kept = p.gridRate(low)
	}
	if high != none {
		l.NotKept = p.gridRate(high)
	}
	return l, max(low, lowestStep), nil
}

// achieved is the share of the offered requests that must be answered in time.
const achieved = 0.95

// broken returns why a design did not sustain a rate, empty if it did.
func (p Plan) broken(rate float64, r *load.Report) string {
	if r.PerSecond < achieved*rate {
		return fmt.Sprintf("answered %.0f of %.0f requests/s", r.PerSecond, rate)
	}
	limit := float64(p.Limit) / float64(time.Millisecond)
	for _, name := range load.MethodNames() {
		if l := r.Methods[name].Latency; l.P99 > limit {
			return fmt.Sprintf("the 99th percentile of %s is %s ms", name, bounded(l, l.P99))
		}
	}
	if l := r.Jobs.EndToEnd; l.P99 > limit {
		return fmt.Sprintf("the 99th percentile of submit to done is %s ms", bounded(l, l.P99))
	}
	return ""
}
