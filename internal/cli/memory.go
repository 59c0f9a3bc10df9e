package cli

import (
	"io/fs"
	"log/slog"
	"math"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
)

// Memory. The runtime collects when the heap has grown by a share of what is live,
// GOGC, or reaches a soft limit, GOMEMLIMIT. Both can be set from outside, as for
// every Go program; these are the defaults.

const (
	// Calls are many and what they leave is short-lived, so that rare collections
	// save a tenth of the CPU where little is live. A heap of hundreds of megabytes
	// need not grow to five times that: from there on it is allowed so much garbage.
	mostGrowth  = 400 // percent of what is live
	leastGrowth = 100
	garbage     = 256 << 20

	// limitShare of what the process may use is the soft limit. The rest is for what
	// the runtime does not count: the program itself, and the caches of the store.
	limitShare = 0.8
)

// growth is the GOGC for a heap with so many live bytes.
func growth(live uint64) int {
	if live == 0 {
		return mostGrowth
	}
	return int(min(max(garbage*100/live, leastGrowth), mostGrowth))
}

// TuneMemory sets what nobody has set by GOGC and GOMEMLIMIT.
func TuneMemory(getenv func(string) string, root fs.FS) {
	if getenv("GOGC") == "" {
		debug.SetGCPercent(mostGrowth)
		followGrowth(mostGrowth)
	}
	if getenv("GOMEMLIMIT") == "" {
		if limit := memoryFound(root); limit < math.MaxInt64 {
			debug.SetMemoryLimit(int64(float64(limit) * limitShare))
		}
	}
}

// followGrowth sets GOGC after each collection by what was found to be live.
func followGrowth(now int) {
	runtime.AddCleanup(new(struct{ _ *int }), func(now int) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		// Setting it costs a moment in which nobody runs: small changes are not worth that.
		if next := growth(live[0].Value.Uint64()); next > now*5/4 || next < now*4/5 || next != now && (next == leastGrowth || next == mostGrowth) {
			debug.SetGCPercent(next)
			now = next
		}
		followGrowth(now)
	}, now)
}

// memoryFound is how much memory the process may use: that of its control group, of
// version 1 or 2, or all of the machine. Where neither can be found it is
// [math.MaxInt64].
func memoryFound(root fs.FS) int64 {
	found := machineMemory(root)
	own, _ := fs.ReadFile(root, "proc/self/cgroup")
	for line := range strings.Lines(string(own)) {
		// hierarchy:controllers:path
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) < 3 {
			continue
		}
		switch {
		case part[0] == "0" && part[1] == "":
			found = min(found, groupMemory(root, "sys/fs/cgroup", part[2], "memory.max"))
		case strings.Contains(","+part[1]+",", ",memory,"):
			found = min(found, groupMemory(root, "sys/fs/cgroup/memory", part[2], "memory.limit_in_bytes"))
		}
	}
	return found
}

// groupMemory is the least limit of a control group and those above it. In a container
// the path may be one outside of it: the group is then at the top.
func groupMemory(root fs.FS, mount, group, file string) int64 {
	least := int64(math.MaxInt64)
	for dir := path.Clean("/" + group); ; dir = path.Dir(dir) {
		text, err := fs.ReadFile(root, path.Join(mount, dir, file))
		if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil && n > 0 {
			least = min(least, n) // "max" is none
		}
		if dir == "/" {
			return least
		}
	}
}

// machineMemory is that of the whole machine.
func machineMemory(root fs.FS) int64 {
	info, _ := fs.ReadFile(root, "proc/meminfo")
	for line := range strings.Lines(string(info)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "MemTotal:" {
			if n, err := strconv.ParseInt(f[1], 10, 53); err == nil {
				return n << 10
			}
		}
	}
	return math.MaxInt64
}

// LimitMemory sets the limit that a server was configured with, 0 for none, and tells
// which one counts.
func LimitMemory(configured int, log *slog.Logger) {
	if configured > 0 {
		debug.SetMemoryLimit(int64(configured))
	}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		log.Info("memory", "soft_limit_bytes", limit)
	}
}
