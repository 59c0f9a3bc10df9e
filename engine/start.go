package engine

import (
	"context"
	"errors"

	"github.com/gopherqueue/gq/store"
)

// Start makes an engine over a store and runs it in the background. stop ends that and
// closes the store.
func Start(s store.Store, o Options) (e *Engine, stop func() error, err error) {
	e, err = New(s, o)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return e, func() error {
		cancel()
		return errors.Join(<-ended, s.Close())
	}, nil
}
