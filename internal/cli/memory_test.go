package cli

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/fstest"
	"time"
)

func TestMemoryFound(t *testing.T) {
	const machine = "MemTotal:       8000000 kB\nMemFree:        1000000 kB\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"nothing is known": {nil, math.MaxInt64},
		"the machine":      {map[string]string{"proc/meminfo": machine}, 8000000 << 10},
		"version 2": {map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/system.slice/gq.service\n",
			"sys/fs/cgroup/system.slice/gq.service/memory.max": "1073741824\n", "sys/fs/cgroup/system.slice/memory.max": "max\n",
		}, 1 << 30},
		"version 2, and less above": {map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/system.slice/gq.service\n",
			"sys/fs/cgroup/system.slice/gq.service/memory.max": "1073741824\n", "sys/fs/cgroup/system.slice/memory.max": "536870912\n",
		}, 1 << 29},
		"version 2 in a container": {map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/docker/abc\n", "sys/fs/cgroup/memory.max": "268435456\n",
		}, 1 << 28},
		"version 2 without a limit": {map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n",
		}, 8000000 << 10},
		"version 1": {map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "12:cpu,cpuacct:/b\n5:memory:/docker/abc\n1:name=systemd:/c\n",
			"sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "2147483648\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
		}, 1 << 31},
		"version 1 without a limit": {map[string]string{
			"proc/meminfo": machine, "proc/self/cgroup": "5:memory:/a\n", "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
		}, 8000000 << 10},
	} {
		files := fstest.MapFS{}
		for path, text := range c.files {
			files[path] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := memoryFound(files); got != c.want {
			t.Errorf("%s: %d bytes, want %d", name, got, c.want)
		}
	}
}

// TestMemoryIsBounded has a heap grow as long as its garbage is cheap, and no further.
func TestMemoryIsBounded(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{{0, 400}, {1 << 20, 400}, {64 << 20, 400}, {128 << 20, 200}, {256 << 20, 100}, {4 << 30, 100}} {
		if got := growth(c.live); got != c.want {
			t.Errorf("with %d MiB live GOGC is %d, want %d", c.live>>20, got, c.want)
		}
	}
	percent, limit := debug.SetGCPercent(-1), debug.SetMemoryLimit(-1)
	defer func() {
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
	}()
	files := fstest.MapFS{"proc/meminfo": &fstest.MapFile{Data: []byte("MemTotal: 1000000000 kB\n")}}
	for _, c := range []struct {
		env     map[string]string
		percent int
		limit   int64
	}{
		{map[string]string{"GOGC": "77", "GOMEMLIMIT": "9GiB"}, 55, 1 << 40},
		{map[string]string{"GOGC": "77"}, 55, 1000000000 << 10 / 10 * 8},
		{map[string]string{"GOMEMLIMIT": "9GiB"}, mostGrowth, 1 << 40},
	} {
		debug.SetGCPercent(55)
		debug.SetMemoryLimit(1 << 40)
		TuneMemory(func(name string) string { return c.env[name] }, files)
		limit := debug.SetMemoryLimit(-1)
		percent := debug.SetGCPercent(55)
		if percent != c.percent || limit != c.limit {
			t.Errorf("with %v GOGC is %d and the limit %d, want %d and %d", c.env, percent, limit, c.percent, c.limit)
		}
	}
	// With much live, GOGC comes down by itself. 300 MiB without pointers cost nothing to keep.
	debug.SetGCPercent(mostGrowth)
	block := make([]byte, 300<<20)
	for deadline := time.Now().Add(time.Minute); ; {
		runtime.GC()
		now := debug.SetGCPercent(mostGrowth)
		debug.SetGCPercent(now)
		if now < mostGrowth {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("GOGC does not follow the live heap")
		}
	}
	runtime.KeepAlive(block)
}
