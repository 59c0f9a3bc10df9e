package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var (
	_ store.Exporter = (*Store)(nil)
	_ store.Importer = (*Store)(nil)
)

// export reads the tables in one snapshot while the nodes keep working. It writes nothing:
// to segments that have no numbers yet, it assigns the numbers that they will get.
type export struct {
	s      *Store
	tx     *txn // nil after Close
	head   store.Head
	stages []stage
}

// stage reads up to limit items of one kind after a position. It returns the position of
// the last one, or "" if there are no more.
type stage struct {
	name string
	read func(ctx context.Context, after string, limit int, items *store.Items) (last string, err error)
}

// Export implements [store.Exporter].
func (s *Store) Export(ctx context.Context) (store.Export, error) {
	if err := s.enter(); err != nil {
		return nil, fmt.Errorf("export: %w", err)
	}
	inner, err := s.pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: s.begins.read})
	if err != nil {
		s.leave()
		return nil, fmt.Errorf("export: %w", err)
	}
	x := &export{s: s, tx: &txn{Tx: inner, s: s}}
	x.stages = []stage{
		{"pools", x.pools},
		{"queues", x.queues},
		{"keys", x.ownKeys},
		{"owed", x.owed},
		{"documents", x.docs},
		{"events", x.events},
		{"fresh", x.fresh},
		{"jobs", x.jobs},
		{"leases", x.leases},
		{"dependencies", x.edges},
		{"ended", x.ended},
	}
	if err := x.begin(ctx); err != nil {
		_ = x.Close() // a read-only transaction loses nothing
		return nil, fmt.Errorf("export: %w", err)
	}
	return x, nil
}

// begin reads the head. Any change of the store changes the origin: it is a hash of the
// numbers of events and document versions, the queues and pools, and the rows of gq.live,
// which change even if a job changes without an event.
func (x *export) begin(ctx context.Context) error {
	var event, fresh, gone, at, lastJob, lastDoc, done, jobs int64
	var made string
	err := x.tx.QueryRow(ctx, `
		SELECT event, (SELECT coalesce(sum(events), 0)::bigint FROM gq.segment WHERE seq IS NULL), gone, time,
			(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM gq.submission),
			(SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM gq.doc_version),
			(SELECT coalesce(sum(jobs) FILTER (WHERE status >= $1), 0)::bigint FROM `+tally+`),
			(SELECT coalesce(sum(jobs), 0)::bigint FROM `+tally+`),
			(SELECT min(applied_at)::text FROM gq.migration)
		FROM gq.head`, int16(gq.StatusCompleted)).Scan(&event, &fresh, &gone, &at, &lastJob, &lastDoc, &done, &jobs, &made)
	if err != nil {
		return err
	}
	var live int64
	var states, queues, pools string
	var waiting bool
	if err := x.tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM gq.inbox)").Scan(&waiting); err != nil {
		return err
	}
	if waiting {
		return store.ErrInboxWaiting
	}
	err = x.tx.QueryRow(ctx, `
		SELECT count(*), coalesce(sum(('x' || substr(md5(data || int8send(seq)), 1, 15))::bit(60)::bigint), 0)::text,
			(SELECT coalesce(md5(string_agg(q::text, ' ' ORDER BY name)), '') FROM gq.queue AS q),
			(SELECT coalesce(md5(string_agg(p::text, ' ' ORDER BY name)), '') FROM gq.pool AS p)
				|| (SELECT coalesce(md5(string_agg(k::text, ' ' ORDER BY queue, key)), '') FROM gq.limit_key AS k)
		FROM gq.live`).Scan(&live, &states, &queues, &pools)
	if err != nil {
		return err
	}
	x.head = store.Head{
		LastJob: uint64(lastJob), LastEvent: uint64(event + fresh), Gone: uint64(gone), LastDoc: uint64(lastDoc),
		Time: instant(at), Jobs: jobs,
	}
	h := sha256.New()
	fmt.Fprintf(h, "postgres %s %d %d %d %d %d %s %s %s", made, x.head.LastEvent, gone, lastDoc, done, live, states, queues, pools)
	h.Sum(x.head.Origin[:0])
	return nil
}

// Head implements [store.Export].
func (x *export) Head() store.Head { return x.head }

// Close implements [store.Export].
func (x *export) Close() error {
	if x.tx == nil {
		return nil
	}
	defer x.s.leave()
	tx := x.tx
	x.tx = nil
	return tx.Rollback(context.Background())
}

// Read implements [store.Export].
func (x *export) Read(ctx context.Context, cursor string, limit int) (items store.Items, next string, err error) {
	name, after, _ := strings.Cut(cursor, " ")
	i := slices.IndexFunc(x.stages, func(s stage) bool { return s.name == name })
	if cursor == "" {
		i = 0
	}
	if i < 0 {
		return items, "", &gq.InvalidError{Faults: []gq.Fault{{Field: "cursor", Problem: "is not one that an export has returned"}}}
	}
	last, err := x.stages[i].read(ctx, after, max(limit, 1), &items)
	switch {
	case err != nil:
		return store.Items{}, "", fmt.Errorf("export %s: %w", x.stages[i].name, err)
	case last != "":
		return items, x.stages[i].name + " " + last, nil
	case i+1 < len(x.stages):
		return items, x.stages[i+1].name, nil
	}
	return items, "", nil
}

func (x *export) pools(ctx context.Context, _ string, _ int, items *store.Items) (string, error) {
	pools, err := x.tx.pools(ctx, math.MinInt64)
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		p := pools[name]
		p.Used = 0
		items.Pools = append(items.Pools, p)
	}
	return "", err
}

func (x *export) queues(ctx context.Context, _ string, _ int, items *store.Items) (string, error) {
	rows, err := x.tx.Query(ctx, `
		SELECT name, config, due, turns FROM gq.queue WHERE config IS NOT NULL
		UNION ALL
		SELECT DISTINCT queue, NULL::jsonb, 0, NULL::bigint[] FROM `+tally+`
		WHERE `+otherwiseListed)
	if err != nil {
		return "", err
	}
	var (
		name   string
		config []byte
		due    int64
		turns  []int64
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &config, &due, &turns}, func() error {
		item := store.QueueItem{Queue: machine.NewQueue(name)}
		if config != nil {
			if err := json.Unmarshal(config, &item.Queue); err != nil {
				return fmt.Errorf("configuration of queue %s: %w: %w", name, gq.ErrCorrupt, err)
			}
		}
		if due != 0 {
			item.Due = instant(due)
		}
		if item.Fair {
			for i, turn := range turns[:len(item.Turns)] {
				item.Turns[i] = uint64(turn)
			}
		}
		items.Queues = append(items.Queues, item)
		config, turns = nil, nil
		return nil
	})
	slices.SortFunc(items.Queues, func(a, b store.QueueItem) int { return strings.Compare(a.Name, b.Name) })
	return "", err
}

// docStep limits how many documents are read at once: each may have a mebibyte.
const docStep = 100

func (x *export) docs(ctx context.Context, after string, limit int, items *store.Items) (string, error) {
	limit = min(limit, docStep)
	kind, name, _ := strings.Cut(after, "\x00")
	rows, err := x.tx.Query(ctx, `
		SELECT kind, name, version, data
		FROM gq.doc
		WHERE (kind, name) > ($1, $2)
		ORDER BY kind, name
		LIMIT $3`, kind, name, limit)
	if err != nil {
		return "", err
	}
	items.Docs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[store.Doc])
	if err != nil || len(items.Docs) < limit {
		return "", err
	}
	last := items.Docs[limit-1]
	return last.Kind + "\x00" + last.Name, nil
}

// events reads whole segments in the order of their numbers. Of segments that may be
// incomplete, it returns only the events of jobs that still exist.
func (x *export) events(ctx context.Context, after string, limit int, items *store.Items) (string, error) {
	from, err := number(after)
	if err != nil {
		return "", err
	}
	rows, err := x.tx.Query(ctx, "SELECT seq, events FROM gq.segment WHERE seq > $1 ORDER BY seq LIMIT $2", from, limit)
	if err != nil {
		return "", err
	}
	until, events := int64(0), int64(0)
	var seq, n int64
	_, err = pgx.ForEachRow(rows, []any{&seq, &n}, func() error {
		if events < int64(limit) {
			until, events = seq, events+n
		}
		return nil
	})
	if err != nil || until == 0 {
		return "", err
	}
	items.Events, err = x.tx.readLog(x.tx.Query(ctx, `
		SELECT s.seq, s.time, l.data, l.jobs
		FROM gq.segment AS s
		JOIN gq.log AS l USING (id)
		WHERE s.seq > $1 AND s.seq <= $2
		ORDER BY s.seq`, from, until))
	if err == nil {
		items.Events, err = x.kept(ctx, items.Events)
	}
	return strconv.FormatInt(until, 10), err
}

// kept removes the events of jobs that are gone. Only events up to head.Gone may be of
// such jobs.
func (x *export) kept(ctx context.Context, events []gq.Event) ([]gq.Event, error) {
	var ids [][16]byte
	for i := range events {
		if events[i].Seq <= x.head.Gone {
			ids = append(ids, events[i].Job)
		}
	}
	numbers, err := x.tx.numbered(ctx, ids)
	if err != nil {
		return nil, err
	}
	rows, err := x.tx.statesOf(ctx, slices.Collect(maps.Values(numbers)))
	there := make(map[gq.JobID]bool, len(rows))
	for _, r := range rows {
		there[r.state.ID] = true
	}
	return slices.DeleteFunc(events, func(e gq.Event) bool { return e.Seq <= x.head.Gone && !there[e.Job] }), err
}

// freshStep is how many unnumbered segments are read at once.
const freshStep = 64

// fresh reads committed segments that have no numbers yet. The cursor is the place and the
// id of the last segment, and the next number.
func (x *export) fresh(ctx context.Context, after string, _ int, items *store.Items) (string, error) {
	var place, id, seq int64
	if after != "" {
		if _, err := fmt.Sscan(after, &place, &id, &seq); err != nil {
			return "", errCursor()
		}
	} else if err := x.tx.QueryRow(ctx, "SELECT event + 1 FROM gq.head").Scan(&seq); err != nil {
		return "", err
	}
	rows, err := x.tx.Query(ctx, `
		SELECT s.place, s.id, s.time, s.events, l.data, l.jobs
		FROM (
			SELECT * FROM gq.segment
			WHERE seq IS NULL AND (place, id) > ($1, $2)
			ORDER BY place, id
			LIMIT $3
		) AS s
		JOIN gq.log AS l USING (id)
		ORDER BY s.place, s.id`, place, id, freshStep)
	if err != nil {
		return "", err
	}
	read := 0
	var at, n int64
	var data []byte
	var jobs []int64
	_, err = pgx.ForEachRow(rows, []any{&place, &id, &at, &n, &data, &jobs}, func() error {
		events, err := x.s.ids.decodeLog(data, jobs, seq, instant(at))
		items.Events = append(items.Events, events...)
		seq += n
		read++
		return err
	})
	if err != nil || read < freshStep {
		return "", err
	}
	return fmt.Sprint(place, id, seq), nil
}

// jobs reads whole jobs in the order of their numbers, and fewer of them if they are
// large.
func (x *export) jobs(ctx context.Context, after string, limit int, items *store.Items) (string, error) {
	from, err := number(after)
	if err != nil {
		return "", err
	}
	seqs, err := x.next(ctx, from, limit)
	if err != nil || len(seqs) == 0 {
		return "", err
	}
	states, err := x.tx.statesOf(ctx, seqs)
	if err != nil {
		return "", err
	}
	slices.SortFunc(states, func(a, b *row) int { return int(int64(a.state.Sequence) - int64(b.state.Sequence)) })
	jobs, err := x.tx.assemble(ctx, states, gq.WithPayload|gq.WithResult|gq.WithCheckpoint)
	if err != nil {
		return "", err
	}
	until, err := x.keys(ctx, seqs)
	for i := range jobs {
		items.Jobs = append(items.Jobs, store.JobItem{Job: jobs[i]})
		if at, ok := until[int64(jobs[i].State.Sequence)]; ok {
			items.Jobs[i].KeyUntil = instant(at)
		}
	}
	return strconv.FormatInt(seqs[len(seqs)-1], 10), err
}

// next lists the jobs after a number, in order: at least one if there is any, at most
// limit, and fewer if they are large.
func (x *export) next(ctx context.Context, after int64, limit int) ([]int64, error) {
	most := limit + 2*blockSize // the first block may have nothing new, and the last one is left out if it is not complete
	rows, err := x.tx.Query(ctx, `
		(SELECT seq, members, octet_length(body) FROM gq.live WHERE seq >= $1 ORDER BY seq LIMIT $2)
		UNION ALL
		(SELECT seq, members, octet_length(body) FROM gq.done WHERE seq >= $1 ORDER BY seq LIMIT $2)
		ORDER BY seq
		LIMIT $2`, blockOf(after+1), most)
	if err != nil {
		return nil, err
	}
	var seqs []int64
	sizes := make(map[int64]int64)
	var seq, size, last int64
	var members *int64
	read := 0
	_, err = pgx.ForEachRow(rows, []any{&seq, &members, &size}, func() error {
		jobs := numbersOfRow(seq, members)
		for _, job := range jobs {
			if job > after {
				seqs = append(seqs, job)
				sizes[job] = size / int64(len(jobs))
			}
		}
		read++
		last = blockOf(seq)
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(seqs)
	if read == most { // there may be more rows of the last block
		seqs = slices.DeleteFunc(seqs, func(seq int64) bool { return seq >= last })
	}
	seqs = seqs[:min(len(seqs), limit)]
	rows, err = x.tx.Query(ctx, "SELECT seq, sum(octet_length(data))::bigint FROM gq.blob WHERE seq = ANY ($1) GROUP BY seq", seqs)
	if err != nil {
		return nil, err
	}
	_, err = pgx.ForEachRow(rows, []any{&seq, &size}, func() error {
		sizes[seq] += size
		return nil
	})
	total := int64(0)
	for i, seq := range seqs {
		if total >= store.ItemBytes {
			return seqs[:i], err
		}
		total += sizes[seq]
	}
	return seqs, err
}

// keys returns when the idempotency keys of jobs expire, by job.
func (x *export) keys(ctx context.Context, seqs []int64) (map[int64]int64, error) {
	rows, err := x.tx.Query(ctx, `SELECT seq, expires FROM gq.idempotency WHERE seq = ANY ($1) AND get_byte(scope, 0) <> 0`, seqs) // the rest are order keys
	if err != nil {
		return nil, err
	}
	until := make(map[int64]int64)
	var seq, at int64
	_, err = pgx.ForEachRow(rows, []any{&seq, &at}, func() error {
		until[seq] = at
		return nil
	})
	return until, err
}

func (x *export) leases(ctx context.Context, after string, limit int, items *store.Items) (string, error) {
	rows, err := x.tx.Query(ctx, "SELECT id, seq FROM gq.lease WHERE id > $1 ORDER BY id LIMIT $2", after, limit)
	if err != nil {
		return "", err
	}
	var id string
	var seq int64
	_, err = pgx.ForEachRow(rows, []any{&id, &seq}, func() error {
		items.Leases = append(items.Leases, store.LeaseItem{Lease: gq.LeaseID(id), Job: uint64(seq)})
		return nil
	})
	if err != nil || len(items.Leases) < limit {
		return "", err
	}
	return id, nil
}

func (x *export) edges(ctx context.Context, after string, limit int, items *store.Items) (string, error) {
	var last [3]int64 // parent, child and kind
	for i, field := range strings.Fields(after) {
		var err error
		if last[i%3], err = number(field); err != nil {
			return "", err
		}
	}
	rows, err := x.tx.Query(ctx, `
		SELECT parent, child, kind
		FROM gq.edge
		WHERE (parent, child, kind) > ($1, $2, $3)
		ORDER BY parent, child, kind
		LIMIT $4`, last[0], last[1], last[2], limit)
	if err != nil {
		return "", err
	}
	var parent, child int64
	var kind int16
	_, err = pgx.ForEachRow(rows, []any{&parent, &child, &kind}, func() error {
		items.Edges = append(items.Edges, store.EdgeItem{Parent: uint64(parent), Child: uint64(child), Kind: gq.DependencyKind(kind)})
		return nil
	})
	if err != nil || len(items.Edges) < limit {
		return "", err
	}
	return fmt.Sprintf("%d %d %d", parent, child, kind), nil
}

func (x *export) ended(ctx context.Context, after string, limit int, items *store.Items) (string, error) {
	parent, err := number(after)
	if err != nil {
		return "", err
	}
	rows, err := x.tx.Query(ctx, "SELECT parent, status, priority FROM gq.ended WHERE parent > $1 ORDER BY parent LIMIT $2", parent, limit)
	if err != nil {
		return "", err
	}
	var status, level int16
	_, err = pgx.ForEachRow(rows, []any{&parent, &status, &level}, func() error {
		items.Ended = append(items.Ended, store.EndedItem{Parent: uint64(parent), Status: gq.Status(status), Level: gq.Priority(level)})
		return nil
	})
	if err != nil || len(items.Ended) < limit {
		return "", err
	}
	return strconv.FormatInt(parent, 10), nil
}

// number parses a number of a cursor; "" is 0.
func number(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errCursor()
	}
	return n, nil
}

func errCursor() error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: "cursor", Problem: "is not one that an export has returned"}}}
}
