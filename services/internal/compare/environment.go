package compare

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Environment describes where a comparison ran. Unknown values are empty or 0.
type Environment struct {
	Commit     string  `json:"commit"`   // that the program was built from
	Modified   bool    `json:"modified"` // the program was built with uncommitted changes
	GoVersion  string  `json:"go_version"`
	OS         string  `json:"os"`
	Arch       string  `json:"arch"`
	Kernel     string  `json:"kernel"`
	CPU        string  `json:"cpu"`
	Cores      int     `json:"cores"`
	MemoryMiB  float64 `json:"memory_mib"`
	LoadBefore string  `json:"load_before"` // averages over 1, 5 and 15 minutes
	LoadAfter  string  `json:"load_after"`
	Others     *Others `json:"others,omitempty"`
}

// Others is how much processor time other processes used, in cores.
type Others struct {
	Mean float64 `json:"mean_cores"` // while a design ran
	Most float64 `json:"most_cores"` // while one was running once
}

// scripts/compare sets these when it links the program.
var commit, modified string

func newEnvironment() Environment {
	e := Environment{
		GoVersion: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Cores: runtime.NumCPU(),
		Kernel: firstLine("/proc/sys/kernel/osrelease"), LoadBefore: loadAverage(),
	}
	e.Commit, e.Modified = commit, modified == "true"
	if info, ok := debug.ReadBuildInfo(); ok && e.Commit == "" {
		e.Commit, e.Modified = commitOf(info)
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		e.CPU = field(text, "model name")
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		kib, _ := strconv.ParseFloat(strings.TrimSuffix(field(text, "MemTotal"), " kB"), 64)
		e.MemoryMiB = kib / 1024
	}
	return e
}

// commitOf returns what the Go command has recorded.
func commitOf(info *debug.BuildInfo) (commit string, modified bool) {
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	return commit, modified
}

// field returns the value of the first "name : value" line.
func field(text []byte, name string) string {
	for line := range bytes.Lines(text) {
		key, value, _ := strings.Cut(string(line), ":")
		if strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func firstLine(name string) string {
	text, _ := os.ReadFile(name) // missing on other systems
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// loadAverage returns the load averages over 1, 5 and 15 minutes.
func loadAverage() string {
	fields := strings.Fields(firstLine("/proc/loadavg"))
	return strings.Join(fields[:min(3, len(fields))], " ")
}

// usage is processor time so far, in seconds.
type usage struct {
	at   time.Time
	busy float64 // of the machine
	own  float64 // of this process, its ended children and the designs in containers
}

// ticks is the unit of the kernel's processor times, per second.
const ticks = 100

// usageNow reads the processor time, if the system provides it. In containers the
// designs are not children of this process: they belong to the container engine, and so
// do the proxies of their published ports.
func usageNow(inContainers bool) (u usage, ok bool) {
	stat, self := firstLine("/proc/stat"), firstLine("/proc/self/stat")
	u, ok = parseUsage(time.Now(), stat, self)
	if ok && inContainers {
		names, _ := filepath.Glob("/proc/[0-9]*/stat")
		var all []process
		for _, name := range names {
			if p, ok := parseProcess(firstLine(name)); ok { // unless it has just ended
				all = append(all, p)
			}
		}
		u.own += engineTime(all)
	}
	return u, ok
}

// process is what /proc says of one.
type process struct {
	pid, parent int
	name        string
	seconds     float64 // of processor time, ended children included
}

func parseProcess(stat string) (p process, ok bool) {
	open, end := strings.Index(stat, "("), strings.LastIndex(stat, ")") // the name may have spaces
	if open < 0 || end < open {
		return process{}, false
	}
	p.name = stat[open+1 : end]
	rest := strings.Fields(stat[end+1:])
	if len(rest) < 15 {
		return process{}, false
	}
	numbers := make([]int, 0, 6)
	for _, w := range append([]string{strings.TrimSpace(stat[:open]), rest[1]}, rest[11:15]...) {
		n, err := strconv.Atoi(w)
		if err != nil {
			return process{}, false
		}
		numbers = append(numbers, n)
	}
	p.pid, p.parent = numbers[0], numbers[1]
	for _, n := range numbers[2:] {
		p.seconds += float64(n) / ticks
	}
	return p, true
}

// engineNames are what the processes of container engines begin with.
var engineNames = []string{"dockerd", "containerd", "conmon"}

// engineTime is the processor time of the container engine and of all its descendants,
// which are the containers and the proxies of their ports.
func engineTime(all []process) (seconds float64) {
	byPID := make(map[int]process, len(all))
	for _, p := range all {
		byPID[p.pid] = p
	}
	belongs := func(p process) bool {
		for range all { // a process that ended meanwhile may leave a circle
			if slices.ContainsFunc(engineNames, func(n string) bool { return strings.HasPrefix(p.name, n) }) {
				return true
			}
			parent, ok := byPID[p.parent]
			if !ok {
				return false
			}
			p = parent
		}
		return false
	}
	for _, p := range all {
		if belongs(p) {
			seconds += p.seconds
		}
	}
	return seconds
}

func parseUsage(now time.Time, stat, self string) (u usage, ok bool) {
	all := strings.Fields(strings.TrimPrefix(stat, "cpu "))
	after := strings.LastIndex(self, ")") // the name may have spaces
	if len(all) < 8 || after < 0 {
		return usage{}, false
	}
	own := strings.Fields(self[after+1:])
	if len(own) < 15 {
		return usage{}, false
	}
	sum := func(words []string) (seconds float64) {
		for _, w := range words {
			n, err := strconv.ParseFloat(w, 64)
			if err != nil {
				ok = false
			}
			seconds += n / ticks
		}
		return seconds
	}
	ok = true
	// user nice system idle iowait irq softirq steal; utime stime cutime cstime
	u = usage{at: now, busy: sum(all[:3]) + sum(all[5:8]), own: sum(own[11:15])}
	return u, ok
}

// others returns how many cores other processes have used since an earlier time.
func (u usage) others(since usage) float64 {
	elapsed := u.at.Sub(since.at).Seconds()
	if elapsed <= 0 {
		return 0
	}
	return max(0, u.busy-since.busy-(u.own-since.own)) / elapsed
}

// lines describes the environment for the report.
func (e Environment) lines() (lines []string) {
	commit := "unknown: build with scripts/compare, or with -buildvcs=true"
	if e.Commit != "" {
		commit = e.Commit
		if e.Modified {
			commit += ", with uncommitted changes"
		}
	}
	add := func(name, value string) {
		if value == "" {
			value = "unknown"
		}
		lines = append(lines, fmt.Sprintf("| %s | %s |", name, value))
	}
	add("commit", commit)
	add("processor", e.CPU)
	add("cores", strconv.Itoa(e.Cores))
	add("memory", fmt.Sprintf("%.0f MiB", e.MemoryMiB))
	add("system", strings.TrimSpace(e.OS+"/"+e.Arch+" "+e.Kernel))
	add("Go", e.GoVersion)
	add("load average before (1, 5, 15 min)", e.LoadBefore)
	add("load average after (1, 5, 15 min)", e.LoadAfter)
	others := "unknown"
	if e.Others != nil {
		others = fmt.Sprintf("%.2f cores on average, at most %.2f in one measurement", e.Others.Mean, e.Others.Most)
	}
	add("processor time of other processes", others)
	return lines
}
