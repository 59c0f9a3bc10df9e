package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Open connects to a database and creates the tables of the store if there are none. The
// URL parameter gq_schema names their schema; the default is gq. Queues in different
// schemas share nothing but the database. The error is [gq.ErrFormat] if the tables
// belong to a newer version or to another program.
func Open(ctx context.Context, url string, cfg store.Config) (*Store, error) {
	url, dialect, err := cutSchema(url)
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	settings, err := parseURL(url)
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	if !strings.Contains(url, "pool_max_conns") {
		settings.MaxConns = maxConnections
	}
	return open(ctx, settings, dialect, cfg, strings.Contains(url, "default_query_exec_mode"))
}

// OpenPool opens a store on the application's pool, which stays open when the store is
// closed. An empty schema means [DefaultSchema]. The store sets what it needs in each of
// its transactions and leaves the connections as they were. It listens for notifications
// on one more connection, which it opens with the pool's settings.
func OpenPool(ctx context.Context, pool *pgxpool.Pool, schema string, cfg store.Config) (*Store, error) {
	dialect, err := newDialect(schema)
	if err == nil {
		err = checkPool(pool)
	}
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	var pooled bool
	err = pool.AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		pooled, err = isPooled(ctx, c.Conn())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	return start(ctx, database{Pool: pool, dialect: dialect, borrowed: true}, beginEach(!pooled), cfg)
}

// checkPool refuses a pool on which a store cannot work.
func checkPool(pool *pgxpool.Pool) error {
	if pool == nil {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "pool", Problem: "is missing; open a queue by its URL, or with a pool"}}}
	}
	var faults []gq.Fault
	settings := pool.Config()
	if settings.MaxConns < minConnections {
		faults = append(faults, gq.Fault{Field: "pool", Problem: fmt.Sprintf("has %d connection; want MaxConns of at least %d", settings.MaxConns, minConnections)})
	}
	switch mode := settings.ConnConfig.DefaultQueryExecMode; mode {
	case pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol:
		faults = append(faults, gq.Fault{Field: "pool", Problem: fmt.Sprintf(
			"executes queries in mode %q, which does not learn the types of parameters; want %q behind a pooler and %q otherwise",
			mode, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeCacheStatement)})
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// open opens a store with connections of its own. chosen means that the caller set the
// query execution mode.
func open(ctx context.Context, settings *pgxpool.Config, dialect *dialect, cfg store.Config, chosen bool) (*Store, error) {
	settings.MaxConns = max(settings.MaxConns, minConnections)
	pooled, err := behindPooler(ctx, settings.ConnConfig)
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	if pooled && !chosen {
		// The next transaction may run on a connection without our prepared statements.
		settings.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
	begins := configure(settings, pooled)
	connections, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	return start(ctx, database{Pool: connections, dialect: dialect}, begins, cfg)
}

// start creates or checks the tables and starts a store on a pool. If it fails, it closes
// the pool.
func start(ctx context.Context, pool database, begins begins, cfg store.Config) (*Store, error) {
	cfg, err := cfg.WithDefaults()
	var before, now Layout
	if err == nil {
		before, now, err = migrate(ctx, pool, migrationsFor(cfg))
	}
	var noViews error
	if err == nil {
		noViews = refreshViews(ctx, pool, migrations, now, false)
	}
	if err == nil && !cfg.Unfinished {
		err = refuseUnfinished(ctx, pool)
	}
	if err == nil {
		_, err = pool.Exec(ctx, forgetting)
	}
	var ids *idKey
	if err == nil {
		ids, err = readIDKey(ctx, pool)
	}
	if err != nil {
		err = withGrant(ctx, pool, err)
		pool.close()
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	s := &Store{cfg: cfg, pool: pool, begins: begins, ids: ids, noViews: noViews}
	s.unfinished.Store(now.Oldest < now.Current)
	s.floors.every.Store(raiseEvery)
	s.asides.every.Store(asideEvery)
	s.spares = make(chan int64, maxSpares)
	s.works.New = func() any { return new(workspace) }
	s.runner = newRunner(&s.under)
	s.inserts = batcher[store.Group, store.Inserted]{
		run: s.insert, most: 2, heavy: heavyInserts, runner: s.runner, weight: func(g *store.Group) int { return len(g.Jobs) },
		firm: func(g *store.Group) bool { return g.Claim != nil },
	}
	s.updates = batcher[store.Update, store.Updated]{
		run: s.update, most: 2, heavy: heavyUpdates, runner: s.runner, weight: func(u *store.Update) int { return 1 + len(u.Spawn) },
	}
	// Claims that share a transaction do not wait for each other's locks on limited queues.
	s.claims = batcher[store.Claim, store.Claimed]{
		run: s.claim, most: 2, heavy: heavyClaims, runner: s.runner, weight: func(c *store.Claim) int { return c.N },
		beside: func(c *store.Claim) bool { return !slices.ContainsFunc(c.Queues, s.limited.has) },
	}
	s.gets = batcher[getting, store.Found]{
		run: s.get, most: 2, heavy: heavyGets, runner: s.runner, weight: func(*getting) int { return 1 },
	}
	s.oldests = batcher[string, oldestPage]{
		run: s.findOldest, most: 2, heavy: heavyGets, runner: s.runner, weight: func(*string) int { return 1 },
	}
	s.configs = batcher[gq.Policy, []gq.Queue]{
		run: s.queues, most: 1, runner: s.runner, weight: func(*gq.Policy) int { return 1 },
	}
	s.registry.most = gq.MaxQueues
	queues, err := collect[string](s.pool.Query(ctx, everyQueue))
	if err == nil {
		s.registry.read(queues)
		err = s.startDay(ctx)
	}
	if err != nil {
		err = withGrant(ctx, pool, err)
		pool.close()
		return nil, fmt.Errorf("open postgres: %w", err)
	}
	s.notifier.start(s)
	if before.Version == 0 { // while there are no jobs to read
		now, err := s.Now(ctx)
		if err == nil {
			err = s.keepNear(ctx, now)
		}
		if err != nil {
			_ = s.Close()
			return nil, fmt.Errorf("open postgres: %w", err)
		}
	}
	return s, nil
}

// ViewsError says why the store was opened without the views of this version; nil if it has them.
// Nothing else needs them.
func (s *Store) ViewsError() error { return s.noViews }

func readIDKey(ctx context.Context, db querier) (*idKey, error) {
	var secret []byte
	if err := db.QueryRow(ctx, "SELECT secret FROM gq.id_key").Scan(&secret); err != nil {
		return nil, fmt.Errorf("read the key of job ids: %w", err)
	}
	return newIDKey(secret)
}

// behindPooler reports whether the connection goes through a pooler such as PgBouncer. A
// pooler reports invented process ids to its clients, which differ from the server's.
func behindPooler(ctx context.Context, settings *pgx.ConnConfig) (bool, error) {
	conn, err := dial(ctx, settings)
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing was written
	return isPooled(ctx, conn)
}

func isPooled(ctx context.Context, conn *pgx.Conn) (bool, error) {
	var process uint32
	err := conn.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeExec).Scan(&process)
	return process != conn.PgConn().PID(), err
}

// maxConnections limits the connections of a store unless its URL sets another limit. A
// few do all the work; the others serve calls that wait for a lock. A store needs at
// least minConnections: it uses a second one to resolve the outcome of a lost commit, and
// to check whether the store changed during an export.
const (
	maxConnections = 16
	minConnections = 2
)

// closeWithin is how long Close waits for a database that does not answer.
const closeWithin = 5 * time.Second

// Close implements [store.Store].
func (s *Store) Close() error {
	s.closing.Lock()
	defer s.closing.Unlock()
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	defer s.pool.close()
	s.under.Wait()
	s.runner.stop()
	s.notifier.stop()
	// Read-only calls have also returned the time, and the next process must not return
	// an earlier one. If this write fails, all acknowledged work is still committed.
	if latest := s.latest.Load(); latest > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), closeWithin)
		defer cancel()
		_ = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, headLock, lockHead)
			if err == nil {
				_, err = tx.Exec(ctx, reached, latest)
			}
			return err
		})
	}
	return nil
}
