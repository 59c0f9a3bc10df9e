package postgres

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// connectWithin is how long a host of a database may take to answer a new connection, unless the
// URL has a connect_timeout. A host that drops packets would otherwise never be given up.
const connectWithin = 10 * time.Second

// parseURL parses the address of a database.
func parseURL(url string) (*pgxpool.Config, error) {
	settings, err := pgxpool.ParseConfig(url)
	if err == nil && settings.ConnConfig.ConnectTimeout == 0 && !strings.Contains(url, "connect_timeout") {
		settings.ConnConfig.ConnectTimeout = connectWithin
	}
	return settings, err
}

// dial opens a connection. Its error names the hosts that did not answer in time. A host may be
// tried twice, with TLS and without, but has its time only once.
func dial(ctx context.Context, settings *pgx.ConnConfig) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, settings)
	if err == nil || ctx.Err() != nil || !pgconn.Timeout(err) {
		return conn, err
	}
	hosts := []string{address(settings.Host, settings.Port)}
	for _, f := range settings.Fallbacks {
		if at := address(f.Host, f.Port); !slices.Contains(hosts, at) {
			hosts = append(hosts, at)
		}
	}
	return nil, fmt.Errorf("%s did not answer within %s, which connect_timeout in the URL changes: %w", strings.Join(hosts, " or "), settings.ConnectTimeout, err)
}

func address(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return host // the directory of a socket
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}
