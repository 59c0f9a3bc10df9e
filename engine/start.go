package engine

import (
	"context"
	"errors"

	"github.com/gopherqueue/gq/store"
)

// Running is an engine that runs in the background until Close.
type Running struct {
	*Engine
	stop  context.CancelFunc
	ended chan error
}

// Start creates an engine on top of a store and runs it in the background.
func Start(s store.Store, o Options) (*Running, error) {
	e, err := New(s, o)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &Running{e, stop, make(chan error, 1)}
	go func() { r.ended <- e.Run(ctx) }()
	return r, nil
}

// Close stops the engine and closes its store.
func (r *Running) Close() error {
	r.stop()
	return errors.Join(<-r.ended, r.store.Close())
}
