package bench

import (
	"errors"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store/local"
)

// remote returns an engine in place of a server.
func remote(t *testing.T) *engine.Engine {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestServer(t *testing.T) {
	for name, place := range places {
		t.Run(name, func(t *testing.T) {
			s := small(Server)
			e := remote(t)
			s.Remote = e
			r := measure(t, place(t), s).Server
			if r.Jobs != smallJobs || r.NearJobs != smallJobs || r.EchoCalls != smallJobs || r.SubmitCalls != smallJobs {
				t.Errorf("%+v, want %d of everything", r, smallJobs)
			}
			if !near(r.Ratio, r.JobsPerSecond/r.NearJobsPerSecond) || !near(r.SubmitRatio, r.SubmitCallsPerSecond/r.EchoCallsPerSecond) || r.Ratio <= 0 || r.SubmitRatio <= 0 {
				t.Errorf("%+v, want ratios of what stands beside them", r)
			}
			for what, l := range map[string]*Latency{"echo": r.Echo, "submit": r.Submit, "to start": r.ToStart, "submit alone": r.ToStartSubmit} {
				if l == nil || l.Calls != smallJobs || l.P50 <= 0 || l.P50 > l.P99 {
					t.Errorf("%s: latency %+v, want that of %d calls", what, l, smallJobs)
				}
			}
			live, completed, err := standing(t.Context(), e)
			if err != nil || live != 0 || completed != 3*smallJobs {
				t.Errorf("the server is left with %d live and %d completed jobs (%v), want none and %d", live, completed, err, 3*smallJobs)
			}
		})
	}
}

func TestServerNeedsAQueueOfItsOwn(t *testing.T) {
	s := small(Server)
	e := remote(t)
	s.Remote = e
	if _, err := e.Submit(t.Context(), gq.Spec{Queue: queueName, Type: "theirs"}); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), replaying{commits: new(int)}, s); !errors.Is(err, gq.ErrConflict) {
		t.Errorf("with jobs of others in its queue the run ended with %v", err)
	}
	s.Remote = nil
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "server") {
		t.Errorf("without a server the settings are said to be fine: %v", err)
	}
}
