package server_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/server"
	"github.com/gopherqueue/gq/server/config"
)

// TestViewsThatCannotBeMadeAreLogged opens a store with older views on which somebody has made his own.
func TestViewsThatCannotBeMadeAreLogged(t *testing.T) {
	cfg := config.Default()
	cluster, err := pgtest.Run()
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Stop()
	cfg.Store = cluster.URL("postgres")
	open := func() string {
		t.Helper()
		var lines strings.Builder
		s, err := server.OpenStore(t.Context(), &cfg, slog.New(slog.NewTextHandler(&lines, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		return lines.String()
	}
	if lines := open(); lines != "" {
		t.Errorf("a new database logs %s", lines)
	}
	conn, err := pgx.Connect(t.Context(), cfg.Store)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "CREATE VIEW public.mine AS SELECT queue FROM gq.jobs; COMMENT ON VIEW gq.jobs IS ''"); err != nil {
		t.Fatal(err)
	}
	if lines := open(); !strings.Contains(lines, "level=WARN") || !strings.Contains(lines, "gq migrate up") || !strings.Contains(lines, "view mine depends on view") {
		t.Errorf("the log does not say which view is in the way:\n%s", lines)
	}
}
