package engine_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
)

// full is a store that cannot remove finished jobs.
type full struct {
	store.Store
	err     error
	tries   atomic.Int32
	enough  chan struct{}
	timesTo int32
}

func (f *full) Collect(context.Context, int) (int, time.Time, error) {
	if f.tries.Add(1) == f.timesTo {
		close(f.enough)
	}
	return 0, time.Time{}, f.err
}

// The store says itself that its disk is full, so sweeps that fail for that reason are not logged.
func TestSweepsOnAFullDiskAreNotLogged(t *testing.T) {
	for _, c := range []struct {
		err    error
		logged bool
	}{{gq.ErrDiskFull, false}, {gq.ErrUnavailable, true}} {
		var log bytes.Buffer
		s := &full{Store: openKept(t, time.Hour), err: c.err, enough: make(chan struct{}), timesTo: 3}
		e := newEngine(t, s, engine.Options{Sweep: 5 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		<-s.enough
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got := bytes.Contains(log.Bytes(), []byte("msg=sweep")); got != c.logged {
			t.Errorf("%v: logged %q", c.err, log.String())
		}
	}
}
