package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// planning makes the planner use indexes. Every query of this package has a suitable one,
// but statistics of a table that was empty a moment ago would mislead the planner.
var planning = map[string]string{
	"enable_seqscan":    "off",
	"enable_bitmapscan": "off",
	"enable_sort":       "off",
	"enable_hashjoin":   "off",
	"enable_mergejoin":  "off",
	"enable_material":   "off",
	"jit":               "off",
	"plan_cache_mode":   "force_generic_plan",
}

// durable makes every answer mean that the data is on disk, whatever the database or role
// has set for other applications.
const durable = `
	SELECT set_config('synchronous_commit', CASE setting WHEN 'off' THEN 'on' ELSE setting END, %t)
	FROM current_setting('synchronous_commit') AS setting`

// lockWait is how long a shared transaction waits for a lock. The store's own
// transactions hold locks for much less.
const (
	lockWait   = "50ms"
	sharedWait = "; SET LOCAL lock_timeout = '" + lockWait + "'"
)

// begins are the statements that begin transactions. A lock timeout may be appended.
// single is for reads of one statement. It is "" if the connection has the settings: then
// such a read needs no BEGIN.
type begins struct {
	read, write, shared, single string

	// piped is whether they may be sent together with the statements that follow. Through
	// a pooler they are sent first, because they contain queries.
	piped bool
}

// of returns the statement that begins a writing transaction, alone or shared.
func (b *begins) of(alone bool) string {
	if alone {
		return b.write
	}
	return b.shared
}

const (
	beginRead  = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
	beginWrite = "BEGIN ISOLATION LEVEL READ COMMITTED"
)

// beginEach returns begins for connections that keep no settings of ours: those of an
// application, and those behind a pooler, which may run a transaction on any connection.
// The settings are part of BEGIN and end with the transaction.
func beginEach(piped bool) begins {
	var set []string
	for _, name := range slices.Sorted(maps.Keys(planning)) {
		set = append(set, fmt.Sprintf("set_config('%s', '%s', true)", name, planning[name]))
	}
	local := "; SELECT " + strings.Join(set, ", ")
	read, write := beginRead+local, beginWrite+local+";"+fmt.Sprintf(durable, true)
	return begins{read: read, write: write, shared: write + sharedWait, single: read, piped: piped}
}

// configure sets up connections of our own once, unless they are behind a pooler.
func configure(settings *pgxpool.Config, pooled bool) begins {
	if pooled {
		settings.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
			registerIDs(conn.TypeMap())
			return nil
		}
		return beginEach(false)
	}
	maps.Copy(settings.ConnConfig.RuntimeParams, planning)
	// This also applies to single statements without BEGIN.
	settings.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
	settings.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		registerIDs(conn.TypeMap())
		registerArrays(conn.TypeMap())
		_, err := conn.Exec(ctx, fmt.Sprintf(durable, false))
		return err
	}
	return begins{read: beginRead, write: beginWrite, shared: beginWrite + sharedWait, piped: true}
}
