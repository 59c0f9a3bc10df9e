package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Servers are upgraded one after the other. A step therefore has two parts. Its sql only adds to
// the tables, so that programs of the layout before go on working; gq.migration records from which
// layout on. Its finish removes what only they needed, once none of them runs.

// Layout implements [store.Upgradable].
func (s *Store) Layout() int { return latest(migrations) }

func latest(steps []migration) int { return steps[len(steps)-1].to }

// FinishUpgrade implements [store.Upgradable].
func (s *Store) FinishUpgrade(ctx context.Context) error {
	if !s.unfinished.Load() {
		return nil
	}
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	left := true
	err := pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockMigration); err != nil {
			return err
		}
		l, err := layoutOf(ctx, tx, migrations)
		if err == nil {
			left, err = finish(ctx, tx, migrations, l)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("finish an upgrade: %w", err)
	}
	s.unfinished.Store(left)
	return nil
}

// finish completes the steps up to the layout of this program, unless older programs run. It
// reports whether something is left to do.
func finish(ctx context.Context, tx pgx.Tx, steps []migration, l Layout) (left bool, err error) {
	if l.Oldest >= l.Current || l.Version > l.Current { // if it is newer, a newer program finishes it
		return false, nil
	}
	old, err := liveBefore(ctx, tx, l.Current)
	if err != nil || old > 0 {
		return true, err
	}
	for _, m := range steps {
		if m.to <= l.Oldest || m.finish == "" {
			continue
		}
		if _, err := tx.Exec(ctx, m.finish); err != nil {
			return true, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	_, err = tx.Exec(ctx, "UPDATE gq.migration SET oldest = version WHERE version = $1", l.Version)
	return err != nil, err
}

// liveBefore counts the nodes that announced themselves lately and know only older layouts. A node
// that does not name its layout knows the first one.
func liveBefore(ctx context.Context, tx pgx.Tx, layout int) (n int, err error) {
	var now time.Time
	if err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return 0, err
	}
	rows, err := tx.Query(ctx, "SELECT data FROM gq.doc WHERE kind = $1 AND name NOT LIKE '%/%'", store.NodeKind)
	if err != nil {
		return 0, err
	}
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&data}, func() error {
		var node store.NodeLayout
		if json.Unmarshal(data, &node) == nil && now.Sub(node.Time) <= store.NodeLive && max(node.Layout, 1) < layout {
			n++
		}
		return nil
	})
	return n, err
}

// allow refuses a step that would break programs which run.
func (m *migration) allow(ctx context.Context, tx pgx.Tx) error {
	n, err := liveBefore(ctx, tx, m.since())
	if err == nil && n > 0 {
		err = fmt.Errorf("layout %d is only for programs that know layout %d, and %d servers on the database are older; upgrade or stop them first: %w", m.to, m.since(), n, gq.ErrInUse)
	}
	return err
}

// since is the oldest layout whose programs work on the tables after the step.
func (m *migration) since() int {
	if m.oldest == 0 {
		return m.to
	}
	return m.oldest
}
