package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/retry"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/server/config"
	"github.com/gopherqueue/gq/store"
)

// How long to wait for servers to take in submissions, and for a moment when none waits.
const (
	inboxWithin = 30 * time.Second
	inboxAlone  = 5 * time.Second // if no server does it, the command does
)

// export begins to read a store at a moment when no submission waits in its inbox. Running servers
// take submissions in within milliseconds; if none runs, this does.
func (m *mover) export(ctx context.Context, s movable, url string) (store.Export, error) {
	inbox, ok := s.(store.Inbox)
	if !ok {
		return s.Export(ctx)
	}
	began := time.Now()
	for {
		from, err := s.Export(ctx)
		if err == nil {
			if refused, err := inbox.Refused(ctx, 0, 1); err == nil && refused.Refused > 0 {
				fmt.Fprintf(m.stderr, "gq: %d refused submissions are not copied; gq inbox list shows them\n", refused.Refused)
			}
			return from, nil
		}
		waited := time.Since(began)
		if !errors.Is(err, store.ErrInboxWaiting) || ctx.Err() != nil {
			return nil, err
		}
		if waited > inboxWithin {
			return nil, fmt.Errorf("%s: applications submit jobs in their transactions all the time; stop some of them for a moment: %w", config.Redact(url), err)
		}
		alone, err := unserved(ctx, s)
		if err != nil {
			return nil, err
		}
		if !alone && waited < inboxAlone {
			retry.Pause(ctx, 5*time.Millisecond)
			continue
		}
		quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
		if _, err := engine.TakeIn(ctx, s, engine.Options{ReadRequest: wire.ReadRequest, Log: quiet}); err != nil {
			return nil, err
		}
	}
}

// unserved reports whether no server has announced itself on a database.
func unserved(ctx context.Context, s store.Store) (bool, error) {
	docs, err := s.Docs(ctx, store.NodeKind, "", 1)
	return len(docs) == 0, err
}
