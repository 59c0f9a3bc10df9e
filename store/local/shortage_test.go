package local

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/gopherqueue/gq"
)

// lines collects log lines.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) with(part string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, part) {
			found = append(found, line)
		}
	}
	return found
}

// TestShortage fills a disk, takes its last byte and gives space back. The store says what it
// refuses, once a minute in the log.
func TestShortage(t *testing.T) {
	defer goleak.VerifyNone(t)
	disk := &quotaFS{FS: vfs.NewMem(), dir: "db", size: 12 * mib}
	log := &lines{}
	f := &filler{t: t, options: Options{fs: disk, Log: slog.New(slog.NewTextHandler(log, nil))}, dir: "db", sent: map[gq.JobID][]byte{}}
	f.open()
	defer f.store.Close()
	if m := f.store.Meter(); m.DiskReserve != 12*mib/10 || m.DiskFree == 0 || m.DiskRefuses != "" {
		t.Errorf("an empty disk: %+v", m)
	}
	_ = f.fill(disk.size)
	if m := f.store.Meter(); m.DiskRefuses != gq.RefusesSubmissions || m.DiskFree == 0 {
		t.Errorf("a full disk: %+v", m)
	}
	within(t, "the line", func() {
		for len(log.with("event=disk_full")) == 0 {
			time.Sleep(time.Millisecond) //nolint:forbidigo // a real disk and real time
		}
	})
	disk.resize(0)
	if m := f.store.Meter(); m.DiskRefuses != gq.RefusesWrites || m.DiskFree != 0 || m.DiskReserve == 0 {
		t.Errorf("no byte is free: %+v", m)
	}
	_ = f.insert(randomness())
	for _, part := range []string{"level=WARN", "submissions are refused", "free_bytes=", "reserve_bytes=1258291", "refuses=submissions"} {
		if lines := log.with("event=disk_full"); len(lines) != 1 || !strings.Contains(lines[0], part) {
			t.Errorf("no %q in %q", part, lines)
		}
	}
	disk.resize(48 * mib)
	within(t, "the end", func() {
		for len(log.with("event=disk_room")) == 0 {
			time.Sleep(time.Millisecond) //nolint:forbidigo // as above
		}
	})
	if m := f.store.Meter(); m.DiskRefuses != "" {
		t.Errorf("with room again: %+v", m)
	}
	f.submit(1)
}

// A line is due once a minute, however many calls are refused.
func TestShortageSays(t *testing.T) {
	var h shortage
	now := time.Now()
	if !h.refused(forJobs, 100) || h.refused(forJobs, 90) || h.refused(forChanges, 20) {
		t.Error("it does not begin with its first call alone")
	}
	for _, c := range []struct {
		after time.Duration
		calls uint64
		due   bool
	}{{0, 3, true}, {shortageSays - 1, 0, false}, {shortageSays, 1, true}} {
		if calls, due := h.due(now.Add(c.after)); calls != c.calls || due != c.due {
			t.Errorf("after %v: %d %v", c.after, calls, due)
		}
		if c.after > 0 && !c.due {
			h.refused(forJobs, 100)
		}
	}
	for free, want := range map[uint64]string{89: gq.RefusesSubmissions, 90: "", 20: gq.RefusesSubmissions, 19: gq.RefusesWrites} {
		if got := h.refuses(free, 64); got != want {
			t.Errorf("with %d bytes: %q", free, got)
		}
	}
	if all := h.end(); all != 4 || h.refuses(64, 64) != "" || h.refuses(0, 0) != "" {
		t.Errorf("%d calls; %q", all, h.refuses(64, 64))
	}
}
