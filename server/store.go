package server

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/gopherqueue/gq/internal/storeurl"
	"github.com/gopherqueue/gq/server/config"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/postgres"
)

// OpenStore opens the configured store.
func OpenStore(ctx context.Context, cfg *config.Config, log *slog.Logger) (store.Store, error) {
	u, err := storeurl.Parse(cfg.Store)
	if err != nil {
		return nil, err
	}
	settings := store.Config{
		Limits:    cfg.Limits.Limits,
		Retention: cfg.Retention,
	}
	var s store.Store
	switch u.Scheme {
	case "memory":
		s, err = local.OpenMemory(local.Options{Config: settings, Log: log})
	case "file":
		if cfg.AcceptLoss {
			log.Warn("accept_loss is set: a damaged log would be opened without what cannot be read; remove it from the configuration after this start", "event", "accept_loss")
		}
		s, err = local.Open(u.Dir, local.Options{Config: settings, Log: log, AcceptLoss: cfg.AcceptLoss})
	default:
		var opened *postgres.Store
		if opened, err = postgres.Open(ctx, u.String(), settings); err == nil {
			if problem := opened.ViewsError(); problem != nil {
				log.Warn("the database has no views of this version; gq migrate up makes them", "event", "views", "error", problem)
			}
			s = opened
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the store %s: %w", config.Redact(cfg.Store), err)
	}
	return s, nil
}
