package bench

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/internal/testing/race"
)

var (
	gateRun    = flag.Bool("gate", false, "run TestGate, which needs most of the machine for half a minute")
	gateRecord = flag.Bool("gate-record", false, "write what TestGate measures to testdata/gate.json instead of judging it")
	gatePlant  = flag.String("gate-plant", "", "slow this path of TestGate down by 25 %, to see that the gate notices")
)

// The gate compares CPU time, which a busy machine changes far less than rates, on one
// core and without garbage collections, which would fall into one slice or another. A
// slice is one run of a hot path beside one run of its floor, so that both meet the same
// machine. Of each block of slices the fastest path and the fastest floor count, and of
// the blocks the median. What costs too much is measured again, twice, and fails if it
// always does. Garbage is judged by the bytes that a path allocates, the
// fewest in any slice: now and then buffers and files in memory grow.
const (
	gateBlock  = 5
	gateLeast  = 3 * gateBlock
	gateBudget = 14 * time.Second // no further block begins after this, also when a record is made: paths cost less the longer they run
	gateAgain  = 6 * time.Second  // the same when paths that cost too much are measured again
	gateTries  = 2                // how often these are measured again

	// gateBound is how far above its record a measure may be: halfway between no change
	// and the slowdown of 25 % that must fail.
	gateBound = 1.125

	// gateElsewhere is the bound of CPU time on a processor without a record: ratios to
	// the floor depend on caches and instructions too.
	gateElsewhere = 1.6

	// gateBusy is the bound of CPU time while others take more than gateOthers percent of
	// the machine. Stores need more of the caches than their floor, which others then empty.
	gateBusy   = 1.4
	gateOthers = 25
)

// gateCost is what a path costs: CPU time as a multiple of the floor's, and allocated
// bytes for each of its jobs.
type gateCost struct {
	CPU   float64 `json:"cpu_of_floor"`
	Bytes float64 `json:"bytes_per_job"`
}

// gateRecords is testdata/gate.json: what is expected, by processor and path.
type gateRecords map[string]map[string]gateCost

const gateFile = "testdata/gate.json"

// gatePath is a hot path with a fixed amount of work.
type gatePath struct {
	name string
	jobs int // of one slice

	// start returns a function that passes that many jobs through the path.
	start func(t *testing.T, jobs int) func()

	// floor returns one that does work of the same character without this module.
	floor func(t *testing.T, jobs int) func()
}

// TestGate fails if a hot path has become slower. It does not run with the other tests,
// which would disturb it: make bench-gate does.
func TestGate(t *testing.T) {
	if !*gateRun && !*gateRecord {
		t.Skip("make bench-gate runs it")
	}
	if _, ok := processTime(); !ok || race.Enabled {
		t.Skip("needs the CPU time of this process, without the race detector")
	}
	paths := gatePaths()
	for i := range paths {
		if paths[i].name == *gatePlant {
			paths[i] = slowed(paths[i], 0.25)
		}
	}
	start := time.Now()
	defer func() { t.Logf("took %.1f s on %s", time.Since(start).Seconds(), processorModel()) }()
	records := readGate(t)
	if *gateRecord {
		writeGate(t, records, gateMeasure(t, paths, gateBudget))
		return
	}
	before := readMachine()
	busy := func() bool {
		others := before.until(readMachine()).others
		return others != nil && *others > gateOthers
	}
	measured := gateMeasure(t, paths, gateBudget)
	failed, faults := gateJudge(records, processorModel(), busy(), paths, measured, t.Logf)
	for range gateTries {
		if len(failed) == 0 {
			break
		}
		t.Logf("measuring %d again: %q", len(failed), faults)
		measured = gateMeasure(t, failed, gateAgain)
		failed, faults = gateJudge(records, processorModel(), busy(), failed, measured, t.Logf)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// gateMeasure returns the costs of each path.
func gateMeasure(t *testing.T, paths []gatePath, budget time.Duration) map[string]gateCost {
	t.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	type sample struct{ path, floor time.Duration }
	samples := make(map[string][]sample)
	bytes := make(map[string][]float64)
	run, floor := make(map[string]func()), make(map[string]func())
	for _, p := range paths {
		run[p.name], floor[p.name] = p.start(t, p.jobs), p.floor(t, p.jobs)
	}
	start := time.Now()
	for round := 0; ; round++ {
		if round%gateBlock == 0 && round >= gateLeast && time.Since(start) > budget {
			break
		}
		for _, p := range paths {
			var s sample
			if round%2 == 0 {
				s.floor, _ = costOf(floor[p.name])
			}
			used, allocated := costOf(run[p.name])
			s.path = used
			if round%2 != 0 {
				s.floor, _ = costOf(floor[p.name])
			}
			samples[p.name] = append(samples[p.name], s)
			bytes[p.name] = append(bytes[p.name], float64(allocated)/float64(p.jobs))
		}
	}
	costs := make(map[string]gateCost)
	for name, all := range samples {
		var ratios []float64
		for block := range slices.Chunk(all, gateBlock) {
			path := slices.MinFunc(block, func(a, b sample) int { return cmp.Compare(a.path, b.path) }).path
			floor := slices.MinFunc(block, func(a, b sample) int { return cmp.Compare(a.floor, b.floor) }).floor
			ratios = append(ratios, float64(path)/float64(floor))
		}
		costs[name] = gateCost{median(ratios), slices.Min(bytes[name])}
	}
	return costs
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// costOf returns the CPU time of the process and the bytes it allocates while a function
// runs. No slice begins with the garbage of another. The function has run once before, so
// that caches are warm however much memory others use.
func costOf(f func()) (used time.Duration, allocated uint64) {
	runtime.GC()
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start, _ := processTime()
	f()
	end, _ := processTime()
	runtime.ReadMemStats(&after)
	return end - start, after.TotalAlloc - before.TotalAlloc
}

// gateJudge returns the paths that cost more than recorded or have no record, and why.
func gateJudge(records gateRecords, model string, busy bool, paths []gatePath, measured map[string]gateCost, logf func(string, ...any)) (failed []gatePath, faults []string) {
	known, bound := records[model], gateBound
	if known == nil {
		known, bound = highestRecords(records), gateElsewhere
		logf("%s has no record of this processor, so CPU time may be %.1f × what others took; make bench-gate GATE_FLAGS=-gate-record adds one", gateFile, bound)
	}
	if busy && bound < gateBusy {
		bound = gateBusy
		logf("others take more than %d %% of the CPU, so CPU time may be %.1f × its record", gateOthers, bound)
	}
	judge := func(name, what string, got, want, bound float64) {
		text := fmt.Sprintf("%s: %.4g %s, recorded %.4g (%+.0f %%)", name, got, what, want, 100*(got/want-1))
		switch {
		case got > want*bound:
			faults = append(faults, text+": too much; if this is intended, run make bench-gate GATE_FLAGS=-gate-record")
		case got < want/bound:
			logf("%s: less; record it with make bench-gate GATE_FLAGS=-gate-record, so that it stays so", text)
		default:
			logf("%s", text)
		}
	}
	for _, p := range paths {
		before := len(faults)
		if want, ok := known[p.name]; ok {
			judge(p.name, "of the floor's CPU time", measured[p.name].CPU, want.CPU, bound)
			judge(p.name, "bytes allocated a job", measured[p.name].Bytes, want.Bytes, gateBound)
		} else {
			faults = append(faults, fmt.Sprintf("%s has no record in %s", p.name, gateFile))
		}
		if len(faults) > before {
			failed = append(failed, p)
		}
	}
	return failed, faults
}

// highestRecords returns the largest costs of each path on any processor.
func highestRecords(records gateRecords) map[string]gateCost {
	most := make(map[string]gateCost)
	for _, record := range records {
		for name, cost := range record {
			most[name] = gateCost{max(most[name].CPU, cost.CPU), max(most[name].Bytes, cost.Bytes)}
		}
	}
	return most
}

func readGate(t *testing.T) (records gateRecords) {
	t.Helper()
	text, err := os.ReadFile(gateFile)
	if err == nil {
		err = json.Unmarshal(text, &records)
	}
	if err != nil {
		t.Fatal(err)
	}
	return records
}

func writeGate(t *testing.T, records gateRecords, measured map[string]gateCost) {
	t.Helper()
	record := make(map[string]gateCost)
	for name, cost := range measured {
		record[name] = gateCost{math.Round(1000*cost.CPU) / 1000, math.Round(cost.Bytes)}
	}
	records[processorModel()] = record
	text, err := json.MarshalIndent(records, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.FromSlash(gateFile), append(text, '\n'), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// processorModel names the processor as its system does.
func processorModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOOS + "/" + runtime.GOARCH
}

// slowed returns a path that takes a share more CPU time.
func slowed(p gatePath, share float64) gatePath {
	original := p.start
	p.start = func(t *testing.T, jobs int) func() {
		fast := original(t, jobs)
		return func() {
			start, _ := processTime()
			fast()
			end, _ := processTime()
			for until, now := end+time.Duration(share*float64(end-start)), end; now < until; {
				now, _ = processTime()
			}
		}
	}
	return p
}

func TestGateRule(t *testing.T) {
	records := gateRecords{"this": {"a": {2, 100}, "b": {1, 100}}, "other": {"a": {3, 100}, "b": {0.5, 100}}}
	for _, test := range []struct {
		name, model string
		busy        bool
		a, b        gateCost
		faults      int
	}{
		{"Same", "this", false, gateCost{2, 100}, gateCost{1, 100}, 0},
		{"Noise", "this", false, gateCost{2.2, 110}, gateCost{0.9, 90}, 0},
		{"Less", "this", false, gateCost{1, 50}, gateCost{0.5, 50}, 0},
		{"Slower", "this", false, gateCost{2.5, 100}, gateCost{1, 100}, 1},
		{"BothSlower", "this", false, gateCost{2.5, 100}, gateCost{1.25, 100}, 2},
		{"MoreGarbage", "this", false, gateCost{2, 125}, gateCost{1, 100}, 1},
		{"Busy", "this", true, gateCost{2.7, 100}, gateCost{1.3, 100}, 0},
		{"BusySlower", "this", true, gateCost{3, 100}, gateCost{1.3, 100}, 1},
		{"UnknownProcessor", "new", false, gateCost{3.7, 100}, gateCost{1.2, 100}, 0},
		{"UnknownProcessorSlower", "new", false, gateCost{5, 100}, gateCost{1.2, 100}, 1},
		{"UnknownProcessorMoreGarbage", "new", false, gateCost{3, 100}, gateCost{1, 125}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			measured := map[string]gateCost{"a": test.a, "b": test.b}
			_, faults := gateJudge(records, test.model, test.busy, []gatePath{{name: "a"}, {name: "b"}}, measured, t.Logf)
			if len(faults) != test.faults {
				t.Errorf("%d faults, want %d: %q", len(faults), test.faults, faults)
			}
		})
	}
	if _, faults := gateJudge(records, "this", false, []gatePath{{name: "c"}}, nil, t.Logf); len(faults) != 1 {
		t.Errorf("%q, want that c has no record", faults)
	}
}

// TestGatePathsWork runs every path once, so that a change that breaks one fails here, not
// only in make bench-gate, and checks that each has a record.
func TestGatePathsWork(t *testing.T) {
	records := readGate(t)
	for _, p := range gatePaths() {
		p.floor(t, p.jobs)()
		p.start(t, p.jobs)()
		for model, record := range records {
			if record[p.name] == (gateCost{}) {
				t.Errorf("%s has no record of %s on %s", gateFile, p.name, model)
			}
		}
	}
}
