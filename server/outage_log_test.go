package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
)

// An outage of the store is one line at its start and one at its end. Other errors and lines without
// errors are logged as before.
func TestOutageLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var down atomic.Bool
		o := newOutage(slog.New(slog.NewTextHandler(&out, nil)))
		log := o.quiet().With("part", "p")
		err := fmt.Errorf("sweep: %w", gq.ErrUnavailable.Errorf("connection refused"))
		log.Warn("before it watches", "error", err)
		log.Warn("before it watches", "error", err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- o.watch(ctx, func(context.Context) error {
				if down.Load() {
					return err
				}
				return nil
			})
		}()
		synctest.Wait()
		for round := range 2 {
			down.Store(true)
			for range 20 {
				log.Warn("sweep", "error", err)
				log.Info("served")
				time.Sleep(time.Second)
			}
			log.Warn("other", "error", errors.New("a broken schedule"))
			down.Store(false)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			text := out.String()
			for what, want := range map[string]int{
				"msg=sweep": round + 1, "further failures are not logged": round + 1, "the store answers again": round + 1,
				"msg=served": 20 * (round + 1), "msg=other": round + 1, "before it watches": 2,
			} {
				if got := strings.Count(text, what); got != want {
					t.Errorf("after outage %d %q is there %d times, want %d:\n%s", round+1, what, got, want, text)
				}
			}
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
