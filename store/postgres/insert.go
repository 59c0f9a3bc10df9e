package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Insert implements [store.Store].
func (s *Store) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	out := make([]store.Inserted, len(groups))
	var sound []int // groups that are right in themselves
	for i, g := range groups {
		if out[i].Err = s.checkGroup(g); out[i].Err == nil {
			sound = append(sound, i)
		}
	}
	err := s.write(ctx, "insert", func(tx *txn) error {
		if len(sound) == 0 {
			return nil
		}
		var jobs []gq.Spec
		for _, i := range sound {
			jobs = append(jobs, groups[i].Jobs...)
		}
		p, _, err := tx.prepare(ctx, jobs, nil)
		if err != nil {
			return err
		}
		for _, i := range sound {
			out[i] = p.place(groups[i])
		}
		return tx.add(ctx, p)
	})
	if err != nil {
		return nil, err
	}
	for i := range out {
		if out[i].Err != nil {
			out[i] = store.Inserted{Err: fmt.Errorf("insert: %w", out[i].Err)}
		}
	}
	return out, nil
}

func (s *Store) checkGroup(g store.Group) error {
	if err := store.CheckGroup(g, s.cfg.Limits); err != nil {
		return err
	}
	for i := range g.Jobs {
		if faults := s.checkWindow(&g.Jobs[i], ""); len(faults) > 0 {
			return &gq.InvalidError{Faults: faults}
		}
	}
	return nil
}

// checkWindow refuses a key that could outlive its job, or it would lead
// nowhere.
func (s *Store) checkWindow(spec *gq.Spec, prefix string) []gq.Fault {
	window, kept := spec.Policy.IdempotencyWindow, s.cfg.Retention.Shortest()
	if spec.Key.Name == "" || window <= kept {
		return nil
	}
	return []gq.Fault{{
		Field: prefix + "policy.idempotency_window", Problem: fmt.Sprintf("%v is longer than finished jobs are kept, %v", window, kept),
	}}
}

// prepare locks and reads everything that new jobs refer to, and the jobs that
// the transaction is going to change.
func (tx *txn) prepare(ctx context.Context, jobs []gq.Spec, change [][16]byte) (*plan, []*row, error) {
	var (
		ids    [][16]byte
		names  []string
		keys   []gq.Key
		fair   []string
		others = slices.Clone(change) // and what the jobs depend on
	)
	for i := range jobs {
		spec := &jobs[i]
		ids = append(ids, spec.ID)
		names, fair = append(names, spec.Queue), append(fair, spec.FairKey)
		if spec.Key.Name != "" {
			keys = append(keys, gq.Key{Scope: spec.Key.Scope, Name: spec.Key.Name})
		}
		for _, d := range spec.DependsOn {
			others = append(others, d.Job)
		}
	}
	p := &plan{}
	var err error
	if p.keys, err = tx.lockKeys(ctx, keys); err != nil {
		return nil, nil, err
	}
	for _, h := range p.keys {
		others = append(others, h.job)
	}
	if p.queues, err = tx.lockQueues(ctx, names, func(q gq.Queue) bool { return q.MaxDepth > 0 || q.Fair }); err != nil {
		return nil, nil, err
	}
	// A shared lock on a parent keeps it from ending before its new children
	// are there to be found.
	strength := "SHARE"
	if len(change) > 0 {
		strength = "UPDATE"
	}
	rows, err := tx.lock(ctx, others, strength)
	if err != nil {
		return nil, nil, err
	}
	if err := tx.stamp(ctx); err != nil {
		return nil, nil, err
	}
	p.now, p.states = tx.now, make(map[gq.JobID]gq.State, len(rows))
	for _, r := range rows {
		p.states[r.state.ID] = r.state
		names, fair = append(names, r.queue), append(fair, r.fair)
	}
	if p.taken, err = tx.takenIDs(ctx, ids); err != nil {
		return nil, nil, err
	}
	if p.live, err = tx.liveJobs(ctx, p.queues); err != nil {
		return nil, nil, err
	}
	p.book = newBook()
	if len(change) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(p.queues)), func(q gq.Queue) bool { return q.Fair }) {
		if p.book, err = tx.openBook(ctx, names, fair); err != nil {
			return nil, nil, err
		}
		tx.book = p.book
	}
	p.numbers, err = tx.numbers(ctx, len(ids))
	return p, rows, err
}

// lockKeys keeps others from using the same idempotency keys, taken or not, and
// reads who has them. Two keys with one hash merely wait for each other.
func (tx *txn) lockKeys(ctx context.Context, keys []gq.Key) (map[gq.Key]holder, error) {
	held := make(map[gq.Key]holder)
	if len(keys) == 0 {
		return held, nil
	}
	hashes := make([]int32, len(keys))
	scopes, names := make([][]byte, len(keys)), make([][]byte, len(keys))
	for i, k := range keys {
		h := fnv.New32a()
		fmt.Fprintf(h, "%q %q", k.Scope, k.Name)
		hashes[i], scopes[i], names[i] = int32(h.Sum32()), []byte(k.Scope), []byte(k.Name)
	}
	slices.Sort(hashes)
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, hash) FROM unnest($2::integer[]) AS hash", lockKey, hashes)
	if err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, `
		SELECT i.scope, i.name, i.fingerprint, i.job, i.expires
		FROM unnest($1::bytea[], $2::bytea[]) AS k (scope, name)
		JOIN gq.idempotency AS i USING (scope, name)`,
		scopes, names)
	if err != nil {
		return nil, err
	}
	var (
		scope, name          []byte
		fingerprint, expires int64
		job                  [16]byte
	)
	_, err = pgx.ForEachRow(rows, []any{&scope, &name, &fingerprint, &job, &expires}, func() error {
		held[gq.Key{Scope: string(scope), Name: string(name)}] = holder{job, uint64(fingerprint), instant(expires)}
		return nil
	})
	return held, err
}

// takenIDs tells which ids are in use.
func (tx *txn) takenIDs(ctx context.Context, ids [][16]byte) (map[gq.JobID]bool, error) {
	rows, err := tx.Query(ctx, "SELECT id FROM gq.job WHERE id = ANY ($1)", ids)
	if err != nil {
		return nil, err
	}
	taken := make(map[gq.JobID]bool)
	var id [16]byte
	_, err = pgx.ForEachRow(rows, []any{&id}, func() error {
		taken[id] = true
		return nil
	})
	return taken, err
}

// liveJobs tells how many jobs have not finished of each queue that has a limit
// for them.
func (tx *txn) liveJobs(ctx context.Context, queues map[string]gq.Queue) (map[string]int64, error) {
	live := make(map[string]int64)
	var names []string
	for name, q := range queues {
		if q.MaxDepth > 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return live, nil
	}
	rows, err := tx.Query(ctx, `
		SELECT queue, sum(jobs)::bigint
		FROM gq.tally
		WHERE queue = ANY ($1) AND status < $2
		GROUP BY queue`,
		names, int16(gq.Completed))
	if err != nil {
		return nil, err
	}
	var queue string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&queue, &n}, func() error {
		live[queue] = n
		return nil
	})
	return live, err
}

// numbers reserves sequence numbers. Those of a refused job are never used.
func (tx *txn) numbers(ctx context.Context, n int) ([]int64, error) {
	rows, err := tx.Query(ctx, "SELECT nextval('gq.submission') FROM generate_series(1, $1)", n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

// add writes the jobs that a plan has placed.
func (tx *txn) add(ctx context.Context, p *plan) error {
	var blobs blobs
	var parents, children [][16]byte
	var kinds []int16
	for _, b := range p.births {
		lean := *b.spec
		lean.Payload.Data = nil
		spec, err := lean.AppendBinary(nil)
		if err != nil {
			return err
		}
		id := [16]byte(b.spec.ID)
		// One statement a job, since arrays of arrays would have to be
		// rectangular. They still travel together.
		tx.more.Queue(`
			INSERT INTO gq.job (id, type, requires, cost, created, spec)
			VALUES ($1, $2, coalesce($3::text[], '{}'), $4, $5, $6)`,
			id, b.spec.Type, b.spec.Requires, b.spec.CostUnits, nanoseconds(tx.now), spec)
		if len(b.spec.Payload.Data) > 0 {
			blobs.add(b.spec.ID, partPayload, b.spec.Payload.Data)
		}
		if key := b.spec.Key; key.Name != "" {
			// The key of a job whose window is over is taken from it.
			tx.more.Queue(`
				INSERT INTO gq.idempotency (scope, name, fingerprint, job, expires)
				VALUES ($1, $2, $3, $4, $5)
				ON CONFLICT (scope, name) DO UPDATE SET
					fingerprint = excluded.fingerprint, job = excluded.job, expires = excluded.expires`,
				[]byte(key.Scope), []byte(key.Name), int64(key.Fingerprint), id,
				nanoseconds(tx.now.Add(b.spec.Policy.IdempotencyWindow)))
		}
		for _, d := range b.awaits {
			parents, children, kinds = append(parents, d.Job), append(children, id), append(kinds, int16(d.Kind))
		}
		tx.record(&row{queue: b.spec.Queue, limit: b.spec.LimitKey, fair: b.spec.FairKey}, b.state, b.events)
	}
	blobs.write(&tx.more)
	if len(kinds) > 0 {
		tx.more.Queue(`
			INSERT INTO gq.edge (parent, child, kind)
			SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::smallint[])`,
			parents, children, kinds)
	}
	return tx.flush(ctx)
}
