package client_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

// endless is an engine with more jobs than a call can change.
type endless struct{ engine.API }

func (*endless) CancelWhere(ctx context.Context, _ gq.Query, _ string) (gq.CancelReport, error) {
	<-ctx.Done()
	return gq.CancelReport{Cancelled: 5, Requested: 6, Finished: 7}, ctx.Err()
}

func (*endless) PurgeWhere(ctx context.Context, _ gq.Query) (int, error) {
	<-ctx.Done()
	return 8, ctx.Err()
}

// A caller whose deadline ends an action on many jobs learns what was done.
func TestDeadlineOfAnActionOnManyJobs(t *testing.T) {
	e := &endless{}
	f := serve(t, func(f *fixture) { f.native = e })
	e.API = f.engine
	var calls sync.WaitGroup
	defer calls.Wait()
	for range 2 { // the report has an eighth of the time to arrive, a second at most
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			report, err := f.CancelWhere(ctx, gq.Query{}, "enough")
			if report != (gq.CancelReport{Cancelled: 5, Requested: 6, Finished: 7}) || !errors.Is(err, gq.ErrTimeout) {
				t.Errorf("cancelled %+v, %v", report, err)
			}
		})
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			if n, err := f.PurgeWhere(ctx, gq.Query{Statuses: []gq.Status{gq.StatusCancelled}}); n != 8 || !errors.Is(err, gq.ErrTimeout) {
				t.Errorf("purged %d, %v", n, err)
			}
		})
	}
}
