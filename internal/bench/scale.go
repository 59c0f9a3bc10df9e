package bench

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Axis is one of the numbers that grow in [Scale].
type Axis string

// The axes.
const (
	AxisBacklog Axis = "backlog" // jobs queued
	AxisHistory Axis = "history" // jobs completed
	AxisWorkers Axis = "workers" // workers that wait for jobs
	AxisQueues  Axis = "queues"  // queues, each with a job
	AxisKeys    Axis = "keys"    // limit keys, each with a job
	AxisGraph   Axis = "graph"   // jobs that one job waits for
)

// growth says from where to where an axis grows.
type growth struct {
	axis  Axis
	from  int
	top   int // unless Max says otherwise
	limit int
	load  func(ctx context.Context, r *scaleRun, s store.Store, size int) (load, error)
}

// growths lists the axes. All tops together take about five minutes on two cores.
func growths() []growth {
	return []growth{
		{AxisBacklog, 1000, 1_000_000, maxBacklog, loadBacklog},
		{AxisHistory, 1000, 1_000_000, 1_000_000_000, loadHistory},
		{AxisWorkers, 1, 10_000, 100_000, loadWorkers},
		{AxisQueues, 1, 100_000, gq.MaxQueues, loadQueues},
		{AxisKeys, 1, 100_000, 10_000_000, loadKeys},
		{AxisGraph, 1, gq.MaxDependencies, gq.MaxDependencies, loadGraph},
	}
}

// Axes lists the axes in the order in which they are measured.
func Axes() (axes []Axis) {
	for _, g := range growths() {
		axes = append(axes, g.axis)
	}
	return axes
}

// Top returns how far an axis grows by default.
func (a Axis) Top() int {
	for _, g := range growths() {
		if g.axis == a {
			return g.top
		}
	}
	return 0
}

// ScaleSettings say what [Scale] measures and for how long.
type ScaleSettings struct {
	Axes     []Axis
	Max      map[Axis]int // largest size of an axis; missing is its top
	Callers  int          // concurrent callers
	Batch    int          // jobs per call
	Payload  int          // bytes of payload per job
	Duration time.Duration

	Progress func(done, total int, what string) // called before each step; may be nil
}

// DefaultScale takes about five minutes.
func DefaultScale() ScaleSettings {
	return ScaleSettings{Axes: Axes(), Callers: 8, Batch: 100, Payload: 100, Duration: 2 * time.Second}
}

// Validate reports every invalid setting by the name of its flag.
func (s ScaleSettings) Validate() error {
	var faults []gq.Fault
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			faults = append(faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
		}
	}
	var names []string
	limits := make(map[Axis]growth)
	for _, g := range growths() {
		names = append(names, string(g.axis))
		limits[g.axis] = g
	}
	check(len(s.Axes) > 0, "axis", "name at least one")
	for _, a := range s.Axes {
		check(limits[a].limit > 0, "axis", "%.64q is not one of %s", a, strings.Join(names, ", "))
	}
	for _, a := range sortedAxes(s.Max) {
		g, n := limits[a], s.Max[a]
		if g.limit == 0 {
			check(false, "max", "%.64q is not one of %s", a, strings.Join(names, ", "))
			continue
		}
		check(n >= g.from && n <= g.limit, "max", "%s=%d is not between %d and %d", a, n, g.from, g.limit)
	}
	check(s.Callers >= 1 && s.Callers <= maxCallers, "callers", "%d is not between 1 and %d", s.Callers, maxCallers)
	check(s.Batch >= 1 && s.Batch <= store.MaxClaim, "batch", "%d is not between 1 and %d", s.Batch, store.MaxClaim)
	check(s.Payload >= 0 && s.Payload <= gq.MaxPayloadBytes, "payload", "%d is not between 0 and %d", s.Payload, gq.MaxPayloadBytes)
	check(s.Duration > 0, "duration", "%v is not above 0", s.Duration)
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

func sortedAxes(m map[Axis]int) (axes []Axis) {
	for a := range m {
		axes = append(axes, a)
	}
	slices.Sort(axes)
	return axes
}

// sizes returns the sizes of an axis: powers of ten, and the largest.
func (s ScaleSettings) sizes(g growth) (sizes []int) {
	most := g.top
	if n, ok := s.Max[g.axis]; ok {
		most = n
	}
	for n := g.from; n < most; n *= 10 {
		sizes = append(sizes, n)
	}
	return append(sizes, most)
}

// ScaleReport has the results of [Scale]. Its JSON form is stable: names are added but
// never changed. What could not be measured is null.
type ScaleReport struct {
	Version   string    `json:"version"` // of the program; set by the caller
	Store     string    `json:"store"`   // what was measured; set by the caller
	StartedAt time.Time `json:"started_at"`
	Seconds   float64   `json:"seconds"`
	GoVersion string    `json:"go_version"`
	OS        string    `json:"os"`
	Arch      string    `json:"arch"`
	Cores     int       `json:"cores"`
	Callers   int       `json:"callers"`
	Batch     int       `json:"batch"`
	Payload   int       `json:"payload_bytes"`
	Duration  float64   `json:"duration_seconds"`

	Axes []ScaleAxis `json:"axes"`
}

// ScaleAxis is a curve.
type ScaleAxis struct {
	Axis  Axis        `json:"axis"`
	Steps []ScaleStep `json:"steps"`
}

// ScaleStep is one point of a curve: what a job costs at one size.
type ScaleStep struct {
	Size        int     `json:"size"`
	LoadSeconds float64 `json:"load_seconds"` // to reach the size

	Jobs          int64    `json:"jobs"`
	Seconds       float64  `json:"seconds"`
	JobsPerSecond float64  `json:"jobs_per_second"`
	CPU           *float64 `json:"cpu_microseconds_per_job"`        // of this process
	ServerCPU     *float64 `json:"server_cpu_microseconds_per_job"` // of a database server on this machine
	WALBytes      *float64 `json:"wal_bytes_per_job"`               // that a database server wrote
	Claim         *Latency `json:"claim_ms"`

	LiveHeap    int64    `json:"live_heap_bytes"` // added by reaching the size
	HeapPerUnit float64  `json:"live_heap_bytes_per_unit"`
	RSS         *int64   `json:"rss_bytes"` // largest while measuring
	DiskBytes   *int64   `json:"disk_bytes"`
	DiskPerUnit *float64 `json:"disk_bytes_per_unit"` // both once the size is reached

	OthersCPU *float64 `json:"others_cpu_percent"`
}

// ServerUse is the work of a database server so far.
type ServerUse struct {
	CPU       *time.Duration // of the server; nil if it is on another machine
	WALBytes  int64
	DiskBytes int64 // of the store's database
}

// Multiplier is an optional interface of a [Place]: it makes a history longer, faster than
// jobs can be run.
type Multiplier interface {
	// Multiply copies the finished jobs of an open store until there are factor times as many.
	// Their events are not copied.
	Multiply(ctx context.Context, name string, factor int) error
}

// Gauge is an optional interface of a [Place] whose stores are on a server.
type Gauge interface {
	Gauge(ctx context.Context, name string) (ServerUse, error)
}

// load is a store that has reached a size.
type load struct {
	work      func() func(ctx context.Context, n int) error // creates a caller, who passes n jobs through the store
	times     *calls
	claimable int64 // jobs that remain queued
	completed int64 // jobs completed by loading
	unit      int   // jobs of one call of work; 0 is a batch
	stop      func() error
}

// scaleRun is a run in progress.
type scaleRun struct {
	ScaleSettings
	place Place
}

// Scale measures how the cost of a job changes as stores grow. It needs the whole
// process: two concurrent runs would measure each other.
func Scale(ctx context.Context, place Place, s ScaleSettings) (ScaleReport, error) {
	if err := s.Validate(); err != nil {
		return ScaleReport{}, err
	}
	start := time.Now()
	r := ScaleReport{
		StartedAt: start.UTC(), GoVersion: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
		Callers: s.Callers, Batch: s.Batch, Payload: s.Payload, Duration: s.Duration.Seconds(),
	}
	run := &scaleRun{s, place}
	var chosen []growth
	total, done := 0, 0
	for _, g := range growths() {
		if slices.Contains(s.Axes, g.axis) {
			chosen = append(chosen, g)
			total += len(s.sizes(g))
		}
	}
	for _, g := range chosen {
		curve := ScaleAxis{Axis: g.axis}
		for _, size := range s.sizes(g) {
			if s.Progress != nil {
				s.Progress(done, total, fmt.Sprintf("%s, %d", g.axis, size))
			}
			done++
			debug.FreeOSMemory() // do not count what earlier steps left behind
			step, err := run.step(ctx, g, size)
			if err != nil {
				return r, fmt.Errorf("%s, %d: %w", g.axis, size, err)
			}
			curve.Steps = append(curve.Steps, step)
		}
		r.Axes = append(r.Axes, curve)
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// stepName is the name of the store of a step.
func stepName(a Axis, size int) string { return fmt.Sprintf("scale-%s-%d", a, size) }

// step measures one size in a new store.
func (r *scaleRun) step(ctx context.Context, g growth, size int) (step ScaleStep, err error) {
	name := stepName(g.axis, size)
	b := &bench{place: r.place}
	err = b.open(ctx, name, nil, func(ctx context.Context, s store.Store) error {
		step, err = r.grown(ctx, g, s, name, size)
		return err
	})
	return step, err
}

func (r *scaleRun) grown(ctx context.Context, g growth, s store.Store, name string, size int) (step ScaleStep, err error) {
	step.Size = size
	empty, start := liveHeap(), time.Now()
	l, err := g.load(ctx, r, s, size)
	if l.stop != nil {
		defer func() {
			if stopping := l.stop(); err == nil {
				err = stopping
			}
		}()
	}
	if err != nil {
		return step, fmt.Errorf("load: %w", err)
	}
	step.LoadSeconds = time.Since(start).Seconds()
	if step.LoadSeconds >= 1 { // less leaves little work behind
		if err := calm(ctx); err != nil {
			return step, err
		}
	}
	step.LiveHeap = max(liveHeap()-empty, 0)
	step.HeapPerUnit = float64(step.LiveHeap) / float64(size)
	before, err := r.gauge(ctx, name)
	if err != nil {
		return step, err
	}
	if m, ok := s.(store.Meter); ok {
		before.DiskBytes = int64(m.Meter().DiskBytes)
	}
	if before.DiskBytes > 0 {
		step.DiskBytes, step.DiskPerUnit = new(before.DiskBytes), new(float64(before.DiskBytes)/float64(size))
	}
	warm, _, err := r.drive(ctx, l, 10*r.Batch)
	if err != nil {
		return step, err
	}
	if err := r.measure(ctx, l, name, &step); err != nil {
		return step, err
	}
	return step, verify(ctx, s, l.claimable, l.completed+warm+step.Jobs)
}

// gauge reads what the server has done, if the place has one.
func (r *scaleRun) gauge(ctx context.Context, name string) (ServerUse, error) {
	if g, ok := r.place.(Gauge); ok {
		return g.Gauge(ctx, name)
	}
	return ServerUse{}, nil
}

// measure passes jobs through a store that has reached its size.
func (r *scaleRun) measure(ctx context.Context, l load, name string, step *ScaleStep) error {
	*l.times = calls{}
	server, err := r.gauge(ctx, name)
	if err != nil {
		return err
	}
	stopWatching := watchMemory(newRecorder(0))
	before := readMachine()
	jobs, elapsed, err := r.drive(ctx, l, 0)
	after := readMachine()
	step.RSS = stopWatching()
	if err != nil {
		return err
	}
	step.Jobs, step.Seconds, step.JobsPerSecond = jobs, elapsed.Seconds(), rate(jobs, elapsed)
	step.CPU, step.Claim = before.until(after).perJob(jobs), l.times.claim.latency()
	now, err := r.gauge(ctx, name)
	if err != nil {
		return err
	}
	if now.WALBytes > 0 {
		step.WALBytes = new(float64(now.WALBytes-server.WALBytes) / float64(jobs))
	}
	if now.CPU != nil && server.CPU != nil {
		used := *now.CPU - *server.CPU
		step.ServerCPU = span{own: &used}.perJob(jobs)
		after.own += used
	}
	step.OthersCPU = before.until(after).others
	return nil
}

// drive lets callers pass jobs through a store for as long as the settings say. If most is
// not 0, that many are enough.
func (r *scaleRun) drive(ctx context.Context, l load, most int) (jobs int64, elapsed time.Duration, err error) {
	var q *quota
	unit := cmp.Or(l.unit, r.Batch)
	if most > 0 {
		most = max(most/unit, 1) * unit
	}
	done := make(chan int64, r.Callers)
	begin := func() {
		q = newQuota(most, r.Duration, nil)
		q.until = time.Now().Add(r.Duration)
	}
	elapsed, err = together(ctx, r.Callers, begin, func() func(context.Context) error {
		work := l.work()
		return func(ctx context.Context) error {
			n := int64(0)
			defer func() { done <- n }()
			for k := q.take(unit); k > 0; k = q.take(unit) {
				if err := work(ctx, k); err != nil {
					return err
				}
				n += int64(k)
			}
			return nil
		}
	})
	for range r.Callers {
		jobs += <-done
	}
	return jobs, elapsed, err
}
