package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/gopherqueue/gq/internal/config"
	"github.com/gopherqueue/gq/internal/logline"
	"github.com/gopherqueue/gq/internal/observe"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/postgres"
)

// openStore opens the store that the configuration names.
func openStore(ctx context.Context, cfg *config.Config, log *slog.Logger) (store.Store, error) {
	u, err := parseAnyStoreURL(cfg.Store)
	if err != nil {
		return nil, err
	}
	settings := store.Config{
		Limits: cfg.Limits.Limits,
		Retention: store.Retention{
			Completed: cfg.Retention.Completed, Cancelled: cfg.Retention.Cancelled,
			Failed: cfg.Retention.Failed, DeadLetter: cfg.Retention.DeadLetter,
		},
	}
	var s store.Store
	switch u.scheme {
	case "memory":
		s, err = local.OpenMemory(local.Options{Config: settings, Log: log})
	case "file":
		s, err = local.Open(u.dir, local.Options{Config: settings, Log: log, AcceptLoss: cfg.AcceptLoss})
	default:
		s, err = postgres.Open(ctx, u.String(), settings)
	}
	if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", config.Redact(cfg.Store), err)
	}
	return s, nil
}

// newLog is where the server writes what happens.
func newLog(p process, l config.Log) *slog.Logger {
	if l.Format == "json" {
		return observe.NewLog(p.stderr, "gq", l.Level)
	}
	return logline.NewText(p.stderr, l.Level)
}

// notify tells systemd how the service stands, where it asks for it.
func notify(getenv func(string) string, state string) {
	name := getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if name[0] == '@' { // a name that is not in the file system
		name = "\x00" + name[1:]
	}
	socket, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return // it only wanted to know
	}
	defer socket.Close() //nolint:errcheck // nothing was kept
	_ = socket.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = socket.Write([]byte(state))
}
