package delivery

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// outage is a store whose documents cannot be read at first.
type outage struct {
	store.Store
	err  error
	left atomic.Int64
}

func (o *outage) Doc(ctx context.Context, kind, name string) (store.Doc, error) {
	if o.left.Add(-1) >= 0 {
		return store.Doc{}, fmt.Errorf("document: %w", o.err)
	}
	return o.Store.Doc(ctx, kind, name)
}

// TestOutageAtStart checks that deliveries wait for an unreachable database, and stop at
// a permanent error.
func TestOutageAtStart(t *testing.T) {
	f := newFixture(t)
	away := &outage{Store: f.store, err: gq.ErrUnavailable}
	away.left.Store(2)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- New(f.engine, away, Options{}).Run(ctx) }()
	f.until("deliveries to begin", func() bool { return away.left.Load() < -1 })
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}

	broken := &outage{Store: f.store, err: gq.ErrCorrupt}
	broken.left.Store(1)
	if err := New(f.engine, broken, Options{}).Run(t.Context()); !errors.Is(err, gq.ErrCorrupt) {
		t.Errorf("a damaged document: %v", err)
	}
}
