//go:build failover

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

// make test-failover runs these: they take minutes, and need extra programs.
var (
	failovers = flag.Int("failovers", 5, "how often the primary dies")
	behind    = flag.Duration("behind", 500*time.Millisecond, "for how long before its death nothing reaches the standbys")
)

// failOver kills the primary's machine repeatedly under load. It counts the jobs
// acknowledged after the connection to the standbys was cut.
func failOver(t *testing.T, synchronous bool) (l *crashLoad, load *crashed, unsent int) {
	t.Helper()
	replicas := pgtest.NewReplicas(t, synchronous)
	url := replicas.URL("postgres")
	sites := []*crashSite{newCrashSite(t, url), newCrashSite(t, url)}
	l = newCrashLoad(t, sites...)
	for _, s := range sites {
		s.start()
	}
	load = l.begin()
	t.Cleanup(load.stopWorking)
	t.Cleanup(load.stopSubmitting)
	for i := range *failovers {
		l.acknowledged(t, 50)
		var before, held int
		var since time.Time
		var silence time.Duration // longer than requested, because killing takes time
		took := replicas.Fail(func() {
			before, since = l.jobs(), time.Now()
			rest(t.Context(), *behind)
		}, func() {
			held, silence = l.jobs()-before, time.Since(since)
		})
		unsent += held
		l.acknowledged(t, 50)
		t.Logf("failover %d: another primary after %v; %d jobs acknowledged before, and %d in the %v in which nothing reached the standbys",
			i+1, took.Round(time.Millisecond), before, held, silence.Round(time.Millisecond))
		replicas.Return()
	}
	return l, load, unsent
}

// TestFailover loses nothing that was acknowledged, because commits wait for a standby.
func TestFailover(t *testing.T) {
	_, load, _ := failOver(t, true)
	load.end(t)
}

// TestAsynchronousFailover counts what is lost if commits do not wait. It fails if
// nothing is lost: then the other test would prove nothing.
func TestAsynchronousFailover(t *testing.T) {
	l, load, unsent := failOver(t, false)
	load.stopSubmitting()
	load.submitters.Wait()
	load.stopWorking()
	load.workers.Wait()
	_ = load.program.Process.Kill()
	_ = load.program.Wait()
	var lost int
	stories := l.stories(l.client())
	for _, j := range stories {
		switch {
		case errors.Is(j.err, gq.ErrNotFound):
			lost++
		case j.err != nil && !errors.Is(j.err, context.Canceled):
			t.Errorf("job %s: %v", j.id, j.err)
		}
	}
	t.Logf("%d failovers with standbys %v behind: %d of %d acknowledged jobs are lost; %d were acknowledged in that time",
		*failovers, *behind, lost, len(stories), unsent)
	var others []string
	for _, f := range l.faults {
		if !strings.Contains(f, "has led to the jobs") { // a key whose first job was lost
			others = append(others, f)
		}
	}
	t.Logf("beside that: %d things that a queue without loss would not show: %.10q", len(others), others)
	if lost == 0 {
		t.Error("nothing was lost: the test has not tested that")
	}
	for _, site := range l.sites {
		site.kill()
	}
}

// jobs returns the number of acknowledged jobs.
func (l *crashLoad) jobs() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}
