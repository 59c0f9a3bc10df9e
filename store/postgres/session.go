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

// planning makes the planner use indexes. Every query of this package has one to follow, but
// statistics of a table that was empty a moment ago would mislead the planner.
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

// durable makes every answer mean that the data is on disk, whatever the database or role has set
// for other applications.
const durable = `
	SELECT set_config('synchronous_commit', CASE setting WHEN 'off' THEN 'on' ELSE setting END, %t)
	FROM current_setting('synchronous_commit') AS setting`

// lockWait is how long a shared transaction waits for a lock. Our own are held for
// much less.
const (
	lockWait   = "50ms"
	sharedWait = "; SET LOCAL lock_timeout = '" + lockWait + "'"
)

// begins are the statements with which transactions begin. A lock timeout may be
// added. Whoever reads with one statement needs no transaction where the settings
// are there without it: then single is "".
type begins struct {
	read, write, shared, single string

	// piped is whether they may travel with the statements that follow. To a pooler
	// they go first, since they are queries themselves.
	piped bool
}

// of is how a writing transaction begins that does, or does not, go alone.
func (b *begins) of(alone bool) string {
	if alone {
		return b.write
	}
	return b.shared
}

// configure sets up connections once. Behind a pooler, which may run a transaction on any
// connection, the settings travel with BEGIN and end with the transaction.
func configure(settings *pgxpool.Config, pooled bool) begins {
	read, write := "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "BEGIN ISOLATION LEVEL READ COMMITTED"
	if pooled {
		var set []string
		for _, name := range slices.Sorted(maps.Keys(planning)) {
			set = append(set, fmt.Sprintf("set_config('%s', '%s', true)", name, planning[name]))
		}
		local := "; SELECT " + strings.Join(set, ", ")
		read, write = read+local, write+local+";"+fmt.Sprintf(durable, true)
		settings.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
			registerIDs(conn.TypeMap())
			return nil
		}
	} else {
		maps.Copy(settings.ConnConfig.RuntimeParams, planning)
		// Also of what is a transaction without having begun one.
		settings.ConnConfig.RuntimeParams["default_transaction_isolation"] = "read committed"
		settings.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			registerIDs(conn.TypeMap())
			registerArrays(conn.TypeMap())
			_, err := conn.Exec(ctx, fmt.Sprintf(durable, false))
			return err
		}
	}
	b := begins{read: read, write: write, shared: write + sharedWait, piped: !pooled}
	if pooled {
		b.single = read
	}
	return b
}
