package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// PutQueue implements [store.Store].
func (s *Store) PutQueue(ctx context.Context, q gq.Queue) error {
	if err := machine.CheckQueue(q); err != nil {
		return err
	}
	err := s.putQueue(ctx, q, false)
	if errors.Is(err, errMoves) {
		err = s.putQueue(ctx, q, true)
	}
	return err
}

// errMoves says that a queue moves to another pool, which needs a lock taken before
// others.
var errMoves = errors.New("the queue goes to another pool")

// putQueue is PutQueue. Unless moves is set it refuses to move the queue to another pool.
func (s *Store) putQueue(ctx context.Context, q gq.Queue, moves bool) error {
	return s.write(ctx, func(tx *txn) error {
		if crowded, err := tx.countQueue(ctx, q.Name, nil); err != nil {
			return err
		} else if crowded[q.Name] {
			return store.TooManyQueues(q.Name)
		}
		if moves { // some claims do not lock the row of the queue: see uncounted
			if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockPools); err != nil {
				return err
			}
		}
		// Limits are checked under a lock on this row, so create and lock it before
		// reading the time.
		if _, err := tx.Exec(ctx, "INSERT INTO gq.queue (name) VALUES ($1) ON CONFLICT DO NOTHING", q.Name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT FROM gq.queue WHERE name = $1 FOR UPDATE", q.Name); err != nil {
			return err
		}
		was, err := tx.readQueues(ctx, "SELECT name, config FROM gq.queue WHERE name = $1", q.Name)
		if err != nil {
			return err
		}
		if was[q.Name].Pool != q.Pool && !moves {
			return errMoves
		}
		sharing, err := tx.sharing(ctx, q.Pool, was[q.Name].Pool)
		if err != nil {
			return err
		}
		tx.changes.open(append(sharing, q.Name)...)
		turning := was[q.Name].Fair != q.Fair
		if turning { // lock all but the newest jobs before reading the time
			if _, err := tx.liveRows(ctx, q.Name, "FOR UPDATE"); err != nil {
				return err
			}
		}
		var unreported []*row // jobs of a queue that the views show from now on
		reporting := reported(q) && !reported(gq.Queue{Name: q.Name, Pool: was[q.Name].Pool})
		if reporting {
			if unreported, err = tx.liveRows(ctx, q.Name, "FOR UPDATE"); err != nil {
				return err
			}
		}
		if _, err := tx.stamp(ctx, 0); err != nil {
			return err
		}
		var exists bool
		if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM gq.pool WHERE name = $1)", q.Pool).Scan(&exists); err != nil {
			return err
		}
		if err := store.CheckPool(q, exists); err != nil {
			return err
		}
		next, err := machine.ConfigureQueue(was[q.Name], q, tx.now)
		if err != nil {
			return err
		}
		config, err := json.Marshal(next)
		if err != nil {
			return err
		}
		if err := tx.rerateKeys(ctx, was[q.Name], next); err != nil {
			return err
		}
		tx.more.Queue("UPDATE gq.queue SET config = $2 WHERE name = $1", q.Name, config)
		if reporting {
			if err := tx.reportQueue(ctx, q.Name, unreported); err != nil {
				return err
			}
			if err := tx.flush(ctx); err != nil {
				return err
			}
		}
		if turning {
			if err := tx.rearrange(ctx, q); err != nil {
				return err
			}
		}
		return tx.flush(ctx)
	})
}

// DeleteQueue implements [store.Store]. A row without a configuration remains, which says that the
// queue was deleted.
func (s *Store) DeleteQueue(ctx context.Context, name string) error {
	listed, err := s.readQueues(ctx, store.QueueQuery{Names: []string{name}})
	if err != nil {
		return err
	}
	if len(listed) == 0 {
		return store.NoQueue(name)
	}
	return s.write(ctx, func(tx *txn) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockPools); err != nil { // it may leave a pool
			return err
		}
		was, err := tx.readQueues(ctx, "SELECT name, config FROM gq.queue WHERE name = $1 FOR UPDATE", name)
		if err != nil {
			return err
		}
		sharing, err := tx.sharing(ctx, was[name].Pool)
		if err != nil {
			return err
		}
		tx.changes.open(append(sharing, name)...)
		if _, err := tx.stamp(ctx, 0); err != nil {
			return err
		}
		count := gq.Count{Queue: name}
		rows, err := tx.Query(ctx, "SELECT status, sum(jobs)::bigint FROM "+tally+" WHERE queue = $1 GROUP BY status", name)
		if err != nil {
			return err
		}
		var status int16
		var jobs int64
		if _, err = pgx.ForEachRow(rows, []any{&status, &jobs}, func() error {
			count.By[status] = jobs
			return nil
		}); err != nil {
			return err
		}
		if err := store.QueueInUse(count); err != nil {
			return err
		}
		tx.more.Queue("INSERT INTO gq.queue (name) VALUES ($1) ON CONFLICT (name) DO UPDATE SET config = NULL, due = DEFAULT, turns = DEFAULT", name)
		tx.more.Queue("DELETE FROM gq.turn WHERE queue = $1", name)
		tx.more.Queue("DELETE FROM gq.limit_key WHERE queue = $1", name)
		return tx.flush(ctx)
	})
}

// Queues implements [store.Store]. Calls for all queues share reads, because many callers
// ask at once when a server starts. A call during a read is answered by the next one.
func (s *Store) Queues(ctx context.Context, asked store.QueueQuery) ([]gq.Queue, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if asked.Names != nil || asked.Pool != "" || asked.After != "" || asked.Limit > 0 {
		return s.readQueues(ctx, asked)
	}
	out, err := s.configs.do(ctx, []gq.Policy{asked.Unlike})
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// queues answers calls for all queues (a zero policy) or for those with another policy than
// one, which is the same for all callers of an engine.
func (s *Store) queues(ctx context.Context, asked []gq.Policy, _ bool) ([][]gq.Queue, error) {
	answers := make([][]gq.Queue, len(asked))
	read := make(map[gq.Policy][]gq.Queue)
	for i, unlike := range asked {
		all, ok := read[unlike]
		if !ok {
			var err error
			if all, err = s.readQueues(ctx, store.QueueQuery{Unlike: unlike}); err != nil {
				return nil, err
			}
			read[unlike] = all
		}
		answers[i] = slices.Clone(all)
	}
	return answers, nil
}

// otherwiseListed selects queues of t that are listed although they have no configuration: those
// with jobs, and those that had some and were not deleted. Only a deleted queue has a row
// without a configuration.
const otherwiseListed = `
	NOT EXISTS (
		SELECT FROM gq.queue AS c
		WHERE c.name = t.queue AND (c.config IS NOT NULL OR ` + emptied + `)
	)`

// emptied selects rows c of gq.queue without jobs.
const emptied = "NOT EXISTS (SELECT FROM " + tally + " WHERE t.queue = c.name GROUP BY t.queue HAVING sum(t.jobs) <> 0)"

// unconfigured selects the queues that have had jobs but have no configuration.
const unconfigured = `
	SELECT DISTINCT queue, NULL::jsonb FROM ` + tally + `
	WHERE ` + otherwiseListed

// Queries of queues. Those by name and by page use the primary keys, so their cost does
// not grow with the number of queues; only few counts are not folded into gq.tally yet. A
// page takes its first queues from each part, so it may exceed its limit.
const (
	namedQueues = queuesByName + `
		UNION ALL` + unconfigured + ` AND queue = ANY ($1)`
	queuesAfter = `
		(SELECT name, config FROM gq.queue WHERE config IS NOT NULL AND name > $1 ORDER BY name LIMIT $2)
		UNION ALL
		(
			SELECT queue, NULL::jsonb FROM (SELECT DISTINCT queue FROM gq.tally WHERE queue > $1 ORDER BY queue) AS t
			WHERE ` + otherwiseListed + `
			ORDER BY queue
			LIMIT $2
		)
		UNION ALL
		SELECT queue, NULL::jsonb FROM (SELECT DISTINCT queue FROM ` + unfolded + `) AS t
		WHERE ` + otherwiseListed + ` AND queue > $1`
	allQueues = `
		SELECT name, config FROM gq.queue WHERE config IS NOT NULL
		UNION ALL` + unconfigured
	queuesOfPool = `
		SELECT name, config FROM gq.queue WHERE config ->> 'Pool' = $1`
	ownPolicies = `
		SELECT name, config FROM gq.queue WHERE config IS NOT NULL AND config -> 'Policy' IS DISTINCT FROM $1`
)

// readQueues runs the statement that reads least for a query, and filters the result.
func (s *Store) readQueues(ctx context.Context, asked store.QueueQuery) ([]gq.Queue, error) {
	query, args := allQueues, []any(nil)
	switch {
	case asked.Names != nil:
		query, args = namedQueues, []any{storable(asked.Names)}
	case asked.Pool != "":
		query, args = queuesOfPool, []any{asked.Pool}
	case asked.Unlike != (gq.Policy{}):
		policy, err := json.Marshal(asked.Unlike)
		if err != nil {
			return nil, err
		}
		query, args = ownPolicies, []any{policy}
	case asked.Limit > 0:
		query, args = queuesAfter, []any{asked.After, asked.Limit}
	}
	var out []gq.Queue
	err := s.transact(ctx, s.begins.single, func(tx *txn) error {
		out = nil
		queues, err := tx.readQueues(ctx, query, args...)
		for _, q := range queues {
			if q.Name > asked.After && (asked.Pool == "" || q.Pool == asked.Pool) && asked.Selects(q) {
				out = append(out, q)
			}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(out, func(a, b gq.Queue) int { return strings.Compare(a.Name, b.Name) })
	if asked.Limit > 0 {
		out = out[:min(asked.Limit, len(out))]
	}
	return out, nil
}

// lockQueues reads the configurations of queues and locks those with a limit that the
// transaction must keep. It does not lock the others, so as not to block anybody.
func (tx *txn) lockQueues(ctx context.Context, names []string, limited func(gq.Queue) bool) (map[string]gq.Queue, error) {
	queues, err := tx.readQueues(ctx, queuesByName, names)
	if err != nil {
		return nil, err
	}
	var lock []string
	for name, q := range queues {
		if limited(q) {
			lock = append(lock, name)
		}
	}
	if len(lock) == 0 {
		return queues, nil
	}
	locked, err := tx.readQueues(ctx, "SELECT name, config FROM gq.queue WHERE name = ANY ($1) ORDER BY name FOR UPDATE", lock)
	maps.Copy(queues, locked) // may have changed while we waited
	return queues, err
}

const queuesByName = "SELECT name, config FROM gq.queue WHERE name = ANY ($1) AND config IS NOT NULL"

func (tx *txn) readQueues(ctx context.Context, query string, args ...any) (map[string]gq.Queue, error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return parseQueues(rows)
}

func parseQueues(rows pgx.Rows) (map[string]gq.Queue, error) {
	queues := make(map[string]gq.Queue)
	var name string
	var config []byte
	_, err := pgx.ForEachRow(rows, []any{&name, &config}, func() error {
		q, err := parseQueue(name, config)
		queues[name] = q
		return err
	})
	return queues, err
}

// parseQueue reads a configuration, which may be nil.
func parseQueue(name string, config []byte) (gq.Queue, error) {
	q := machine.NewQueue(name)
	if config == nil {
		return q, nil
	}
	if err := json.Unmarshal(config, &q); err != nil {
		return q, fmt.Errorf("configuration of queue %s: %w: %w", name, gq.ErrCorrupt, err)
	}
	return q, nil
}

// Queries of counts. They return the parts of each count, which are added up here: with
// thousands of queues that takes less time than in SQL. countsOfAll also has the deleted queues,
// with the status NULL.
const (
	countsOfNamed = "SELECT queue, status, jobs FROM " + tally + " WHERE queue = ANY ($1)"
	countsOfAll   = "SELECT queue, status, jobs FROM " + tally + " UNION ALL SELECT name, NULL, NULL FROM gq.queue WHERE config IS NULL"
)

// Counts implements [store.Store].
func (s *Store) Counts(ctx context.Context, queues ...string) (out []gq.Count, err error) {
	err = s.readOnce(ctx, func(tx *txn) error {
		if len(queues) > 0 {
			found, _, err := tx.counts(ctx, countsOfNamed, storable(queues))
			out = make([]gq.Count, len(queues))
			for i, name := range queues {
				out[i] = gq.Count{Queue: name}
				if c := found[name]; c != nil {
					out[i] = *c
				}
			}
			return err
		}
		found, deleted, err := tx.counts(ctx, countsOfAll)
		for _, name := range deleted { // they are counted while they have jobs
			if c := found[name]; c != nil && c.By == (gq.Count{}).By {
				delete(found, name)
			}
		}
		out = make([]gq.Count, 0, len(found))
		for _, c := range found {
			out = append(out, *c)
		}
		slices.SortFunc(out, func(a, b gq.Count) int { return strings.Compare(a.Queue, b.Queue) })
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// counts adds up the parts of counts that a query returns, by queue, and lists the names without a
// status.
func (tx *txn) counts(ctx context.Context, query string, args ...any) (found map[string]*gq.Count, deleted []string, err error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return nil, nil, err
	}
	found = make(map[string]*gq.Count)
	var (
		queue  string
		status *int16
		jobs   *int64
	)
	_, err = pgx.ForEachRow(rows, []any{&queue, &status, &jobs}, func() error {
		if status == nil {
			deleted = append(deleted, queue)
			return nil
		}
		c := found[queue]
		if c == nil {
			c = &gq.Count{Queue: queue}
			found[queue] = c
		}
		c.By[*status] += *jobs
		return nil
	})
	return found, deleted, err
}
