package compare

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/services/internal/load"
)

// A plan is written as a file of lines NAME=VALUE, which Compose reads as well: its files take
// the worker slots from it. docker/settings.env is the full plan.

// How many nodes of design B and servers of design C the Compose files have.
const (
	composeNodes   = 6
	composeServers = 3
)

const (
	mostSlots   = 600
	mostClients = 10_000
	mostTime    = time.Hour
)

// setting is a name of the file and what it sets in a plan.
type setting struct {
	name, about string
	flag.Value
}

func (p *Plan) lines() []setting {
	return []setting{
		{"TOTAL_WORKER_SLOTS", "jobs that run at the same time, in every design", count{&p.Slots, 1, mostSlots}},
		{"NODE_SLOTS", "of each of the six nodes of design B", share{p, composeNodes}},
		{"SERVER_SLOTS", "of each of the three servers of design C in containers", share{p, composeServers}},
		{"DESIGNS", "to compare", items[string]{&p.Designs, ",", designName, func(s string) string { return s }}},
		{"CONCURRENCY", "clients of the closed loops", items[int]{&p.Concurrency, ",", clients, strconv.Itoa}},
		{"WORK_DURATION", "how long jobs work", items[time.Duration]{&p.Work, ",", work, time.Duration.String}},
		{"MIXES", "shares of requests; the first goes with every concurrency and duration of work", items[load.Mix]{&p.Mixes, ";", mix, load.Mix.String}},
		{"MIX_CLIENTS", "clients for the other mixes, and of the profile load of the Compose files", count{&p.MixClients, 1, mostClients}},
		{"LOAD_WORK", "how long the jobs of the profile load of the Compose files work", duration{&p.LoadWork}},
		{"LOAD_MIX", "shares of requests of that profile", shares{&p.LoadMix}},
		{"REPETITIONS", "how often each cell is measured", count{&p.Repetitions, 1, 100}},
		{"WARMUP", "before each measurement", period{&p.Warmup, 0}},
		{"DURATION", "of each measurement", period{&p.Duration, time.Millisecond}},
		{"DRAIN", "how long jobs may take to end afterwards", period{&p.Drain, 0}},
		{"PAYLOAD_SIZE_BYTES", "output of each job", size{&p.Payload}},
		{"CONNECTIONS", "of the load generator", count{&p.Connections, 1, 1000}},
		{"SEED", "of its draws", seed{&p.Seed}},
		{"RATE", "first rate of the open loops in requests a second; 0 omits them", perSecond{&p.Rate}},
		{"MAX_RATE", "highest rate offered", perSecond{&p.MaxRate}},
		{"LIMIT", "a rate is not kept if a 99th percentile is higher", period{&p.Limit, time.Millisecond}},
		{"BACKLOG", "a closed loop has at most as many open jobs as the slots complete in this time", period{&p.Backlog, time.Millisecond}},
		{"MAX_BACKLOG", "and at most this many", count{&p.MaxBacklog, 1, 1_000_000}},
		{"FLOOR_CLIENTS", "clients of the comparison with bare gRPC; 0 omits it", count{&p.Floor, 0, mostClients}},
		{"MAX_OUTPUT_BYTES", "a longer output fails its job; part of the contract", constant(taskwork.MaxOutputBytes)},
		{"MAX_DEDUP_KEYS", "keys of submits that are remembered; part of the contract", constant(taskwork.MaxDedupKeys)},
		{"HEARTBEAT_INTERVAL_MS", "how often a worker tells that it lives; part of the contract", constant(taskwork.HeartbeatInterval.Milliseconds())},
		{"WORKER_TIMEOUT_MS", "a worker silent for longer has lost its jobs; part of the contract", constant(taskwork.WorkerTimeout.Milliseconds())},
	}
}

// SettingsText returns the plan as a settings file.
func (p Plan) SettingsText() string {
	var b strings.Builder
	b.WriteString("# Settings of a comparison of the task queue's designs: gqlab compare --settings FILE.\n# The Compose files take their slots and their load from it: docker compose --env-file FILE.\n")
	for _, s := range p.lines() {
		fmt.Fprintf(&b, "\n# %s\n%s=%s\n", s.about, s.name, s)
	}
	return b.String()
}

// ReadSettings reads a settings file. What it does not name is as in the full plan.
func ReadSettings(name string) (Plan, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return Plan{}, fmt.Errorf("read settings: %w", err)
	}
	p := FullPlan()
	known, values := p.lines(), make(map[string]string)
	var faults []error
	for i, line := range strings.Split(string(raw), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		key, value, found := strings.Cut(line, "=")
		_, twice := values[key]
		switch {
		case !found:
			faults = append(faults, fmt.Errorf("%s:%d: %q is not NAME=VALUE", name, i+1, line))
		case twice:
			faults = append(faults, fmt.Errorf("%s:%d: %s is there twice", name, i+1, key))
		case !slices.ContainsFunc(known, func(s setting) bool { return s.name == key }):
			faults = append(faults, fmt.Errorf("%s:%d: %s is not a setting", name, i+1, key))
		}
		values[key] = strings.TrimSpace(value)
	}
	for _, s := range known { // in their order: shares are checked against the total
		if value, there := values[s.name]; there {
			if err := s.Set(value); err != nil {
				faults = append(faults, fmt.Errorf("%s: %s: %w", name, s.name, err))
			}
		}
	}
	for _, share := range []string{"NODE_SLOTS", "SERVER_SLOTS"} { // Compose, which does not divide, would use those of 6
		if _, there := values[share]; !there && p.Slots != FullPlan().Slots {
			faults = append(faults, fmt.Errorf("%s: %s is missing: it follows from TOTAL_WORKER_SLOTS, and Compose reads it from here", name, share))
		}
	}
	if p.Slots%composeNodes != 0 {
		faults = append(faults, fmt.Errorf("%s: TOTAL_WORKER_SLOTS: %d is not a multiple of %d, the nodes of design B", name, p.Slots, composeNodes))
	}
	return p, errors.Join(faults...)
}

// composeSlots are the variables that the Compose files take their slots from.
func composeSlots(total int) []string {
	return []string{
		fmt.Sprintf("TOTAL_WORKER_SLOTS=%d", total),
		fmt.Sprintf("NODE_SLOTS=%d", total/composeNodes),
		fmt.Sprintf("SERVER_SLOTS=%d", total/composeServers),
	}
}

type count struct {
	n           *int
	least, most int
}

func (v count) String() string { return strconv.Itoa(*v.n) }

func (v count) Set(s string) (err error) {
	*v.n, err = whole(s, v.least, v.most)
	return err
}

func whole(s string, least, most int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", s, least, most)
	}
	return n, nil
}

// share is how many of the slots each of n processes has.
type share struct {
	*Plan
	n int
}

func (v share) String() string { return strconv.Itoa(v.Slots / v.n) }

func (v share) Set(s string) error {
	each, err := whole(s, 1, mostSlots)
	if err == nil && each*v.n != v.Slots {
		return fmt.Errorf("%d in each of %d makes %d, and TOTAL_WORKER_SLOTS is %d", each, v.n, each*v.n, v.Slots)
	}
	return err
}

type items[T any] struct {
	all       *[]T
	separator string
	read      func(string) (T, error)
	text      func(T) string
}

func (v items[T]) String() string {
	var parts []string
	for _, one := range *v.all {
		parts = append(parts, v.text(one))
	}
	return strings.Join(parts, v.separator)
}

func (v items[T]) Set(s string) error {
	var all []T
	for part := range strings.SplitSeq(s, v.separator) {
		one, err := v.read(strings.TrimSpace(part))
		if err != nil {
			return err
		}
		all = append(all, one)
	}
	*v.all = all
	return nil
}

func designName(s string) (string, error) {
	d, err := Find(s)
	return d.Name, err
}

func clients(s string) (int, error) { return whole(s, 1, mostClients) }

func mix(s string) (load.Mix, error) {
	m, err := load.ParseMix(s)
	if err == nil && m.Submit < 1 {
		err = fmt.Errorf("mix: %q has no submits", s)
	}
	return m, err
}

func work(s string) (time.Duration, error) {
	d, err := atLeastTime(s, 0)
	if err == nil && d%time.Millisecond != 0 {
		err = fmt.Errorf("%v is not in whole milliseconds", d)
	}
	return d, err
}

type duration struct{ d *time.Duration }

func (v duration) String() string { return v.d.String() }

func (v duration) Set(s string) (err error) {
	*v.d, err = work(s)
	return err
}

type shares struct{ mix *load.Mix }

func (v shares) String() string { return v.mix.String() }

func (v shares) Set(s string) (err error) {
	*v.mix, err = mix(s)
	return err
}

type period struct {
	d     *time.Duration
	least time.Duration
}

func (v period) String() string { return v.d.String() }

func (v period) Set(s string) (err error) {
	*v.d, err = atLeastTime(s, v.least)
	return err
}

func atLeastTime(s string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < least || d > mostTime {
		return 0, fmt.Errorf("%q is not a time from %v to %v, such as 1s", s, least, mostTime)
	}
	return d, nil
}

type perSecond struct{ rate *float64 }

func (v perSecond) String() string { return strconv.FormatFloat(*v.rate, 'f', -1, 64) }

func (v perSecond) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || !(n >= 0 && n <= 1e6) {
		return fmt.Errorf("%q is not a number from 0 to 1000000", s)
	}
	*v.rate = n
	return nil
}

type size struct{ bytes *uint32 }

func (v size) String() string { return strconv.FormatUint(uint64(*v.bytes), 10) }

func (v size) Set(s string) error {
	n, err := whole(s, 0, taskwork.MaxOutputBytes)
	*v.bytes = uint32(n)
	return err
}

type seed struct{ n *uint64 }

func (v seed) String() string { return strconv.FormatUint(*v.n, 10) }

func (v seed) Set(s string) (err error) {
	if *v.n, err = strconv.ParseUint(s, 10, 64); err != nil {
		return fmt.Errorf("%q is not a whole number", s)
	}
	return nil
}

// constant is a number of the contract. The file names it and cannot change it.
type constant int

func (v constant) String() string { return strconv.Itoa(int(v)) }

func (v constant) Set(s string) error {
	if s != v.String() {
		return fmt.Errorf("%q is not %d, which is part of the contract and cannot be changed", s, v)
	}
	return nil
}
