package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// importTables exist only while the database is to be filled. The row of gq.import has the origin and the
// progress of the import; every write updates it. Events come before their jobs:
// gq.import_told records which segments contain events of which job.
const importTables = `
	CREATE TABLE IF NOT EXISTS gq.import (
		one    boolean PRIMARY KEY DEFAULT true CHECK (one),
		origin bytea   NOT NULL,
		step   bigint  NOT NULL DEFAULT 0,
		mark   bytea
	);
	CREATE TABLE IF NOT EXISTS gq.import_told (
		job     uuid   NOT NULL,
		segment bigint NOT NULL,
		PRIMARY KEY (job, segment)
	);`

// importing is an import under way. It implements [store.Import].
type importing struct {
	s    *Store
	step int64
	mark []byte
}

// awaitImport marks a new database that was opened to be filled, in the transaction that creates its
// tables. No import has begun: the origin is empty.
const awaitImport = importTables + `
	INSERT INTO gq.import (origin) VALUES ('');`

// unfinished reads the progress of an unfinished import. origin is nil if there is none.
func unfinished(ctx context.Context, db querier) (origin []byte, i importing, err error) {
	var there bool
	if err := db.QueryRow(ctx, "SELECT to_regclass('gq.import') IS NOT NULL").Scan(&there); err != nil || !there {
		return nil, i, err
	}
	err = db.QueryRow(ctx, "SELECT origin, step, mark FROM gq.import").Scan(&origin, &i.step, &i.mark)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return origin, i, err
}

// refuseUnfinished returns an error if the database has an unfinished import.
func refuseUnfinished(ctx context.Context, db querier) error {
	origin, _, err := unfinished(ctx, db)
	if err == nil && origin != nil {
		err = fmt.Errorf("%w: run the gq copy or gq restore that began it again to finish it, or drop the schema of the queue", gq.ErrUnfinished)
	}
	return err
}

// Import implements [store.Importer].
func (s *Store) Import(ctx context.Context, h store.Head) (store.Import, error) {
	i := &importing{}
	err := s.write(ctx, func(tx *txn) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, 0)", lockImport); err != nil {
			return err
		}
		origin, found, err := unfinished(ctx, tx)
		if err != nil {
			return err
		}
		*i = found
		i.s = s
		if len(origin) == 0 {
			return tx.beginImport(ctx, h)
		}
		if !bytes.Equal(origin, h.Origin[:]) {
			return fmt.Errorf("%w of another store, or of another moment of this one: drop the schema of the queue and begin again", gq.ErrUnfinished)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return i, nil
}

// beginImport records the import in an empty database, and advances the sequences so that
// they continue from the origin's.
func (tx *txn) beginImport(ctx context.Context, h store.Head) error {
	var empty bool
	err := tx.QueryRow(ctx, `
		SELECT event = 0 AND NOT EXISTS (SELECT FROM gq.segment) AND NOT EXISTS (SELECT FROM gq.live) AND NOT EXISTS (SELECT FROM gq.done)
			AND NOT EXISTS (SELECT FROM gq.queue) AND NOT EXISTS (SELECT FROM gq.pool) AND NOT EXISTS (SELECT FROM gq.doc)
		FROM gq.head`).Scan(&empty)
	if err != nil {
		return err
	}
	if !empty {
		return gq.ErrNotEmpty
	}
	if _, err := tx.Exec(ctx, importTables); err != nil {
		return err
	}
	tx.more.Queue("DELETE FROM gq.import_told")
	tx.more.Queue("INSERT INTO gq.import (origin) VALUES ($1) ON CONFLICT (one) DO UPDATE SET origin = excluded.origin", h.Origin[:])
	tx.more.Queue(headLock, lockHead)
	tx.more.Queue("UPDATE gq.round SET event = $1, gone = $2, time = greatest(time, $3) WHERE number = (SELECT number FROM gq.head)",
		int64(h.LastEvent), int64(h.Gone), nanoseconds(h.Time))
	// No segment may be of an earlier day than the jobs of its events: see startDay.
	for sequence, last := range map[string]uint64{
		"submission": h.LastJob, "segment_id": h.LastJob >> dayBits << dayBits, "doc_version": h.LastDoc,
	} {
		if last > 0 {
			tx.more.Queue("SELECT setval('gq."+sequence+"', greatest(last_value, $1)) FROM gq."+sequence, int64(last))
		}
	}
	return tx.flush(ctx)
}

// Mark implements [store.Import].
func (i *importing) Mark() []byte { return i.mark }

// Write implements [store.Import].
func (i *importing) Write(ctx context.Context, items store.Items, mark []byte) error {
	err := i.s.write(ctx, func(tx *txn) error {
		if err := i.advance(ctx, tx, mark); err != nil {
			return err
		}
		return tx.importItems(ctx, &items)
	})
	if err == nil {
		i.step, i.mark = i.step+1, bytes.Clone(mark)
	}
	return err
}

// advance records the next step, and fails if another process already did.
func (i *importing) advance(ctx context.Context, tx *txn, mark []byte) error {
	tag, err := tx.Exec(ctx, "UPDATE gq.import SET step = step + 1, mark = $1 WHERE step = $2", mark, i.step)
	if err == nil && tag.RowsAffected() == 0 {
		err = fmt.Errorf("another process is filling the database too: %w", gq.ErrConflict)
	}
	tx.written = true
	return err
}

// Finish implements [store.Import].
func (i *importing) Finish(ctx context.Context) error {
	return i.s.write(ctx, func(tx *txn) error {
		if err := i.advance(ctx, tx, nil); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "DROP TABLE gq.import, gq.import_told")
		return err
	})
}

func (tx *txn) importItems(ctx context.Context, items *store.Items) error {
	for _, p := range items.Pools {
		tx.more.Queue("INSERT INTO gq.pool (name, capacity, at_start, updated) VALUES ($1, $2, $3, $4)",
			p.Name, p.Capacity, p.AtStart, nanoseconds(p.UpdatedAt))
	}
	for i := range items.Queues {
		q := &items.Queues[i]
		config, err := json.Marshal(q.Queue)
		if err != nil {
			return err
		}
		turns := make([]int64, len(q.Turns))
		for i, turn := range q.Turns {
			turns[i] = int64(turn)
		}
		tx.more.Queue("INSERT INTO gq.queue (name, config, due, turns) VALUES ($1, $2, $3, $4)", q.Name, config, nanoseconds(q.Due), turns)
	}
	if err := tx.importKeys(items); err != nil {
		return err
	}
	for _, d := range items.Docs {
		tx.more.Queue("INSERT INTO gq.doc (kind, name, version, data) VALUES ($1, $2, $3, $4)", d.Kind, d.Name, int64(d.Version), d.Data)
	}
	isReported, err := tx.reportedQueues(ctx, items)
	if err != nil {
		return err
	}
	if err := tx.importEvents(ctx, items.Events, isReported); err != nil {
		return err
	}
	if err := tx.importJobs(ctx, items.Jobs, isReported); err != nil {
		return err
	}
	for _, l := range items.Leases {
		tx.leases = append(tx.leases, lease{l.Lease, int64(l.Job)})
	}
	if len(items.Leases) > 0 {
		tx.writeLeases()
		tx.leases = nil
	}
	tx.importEdges(items)
	return tx.flush(ctx)
}

// reportedQueues finds the queues whose jobs the reporting views show.
func (tx *txn) reportedQueues(ctx context.Context, items *store.Items) (map[string]bool, error) {
	names := map[string]bool{matchingQueue: true}
	queues, err := tx.readQueues(ctx, queuesOfPool, schedulerPool)
	for name := range queues {
		names[name] = true
	}
	for i := range items.Queues {
		if reported(items.Queues[i].Queue) {
			names[items.Queues[i].Name] = true
		}
	}
	return names, err
}

// importEvents writes events as segments of this database. The events keep their numbers.
func (tx *txn) importEvents(ctx context.Context, events []gq.Event, isReported map[string]bool) error {
	if len(events) == 0 {
		return nil
	}
	var (
		seqs, times, segments []int64
		counts                []int32
		datas                 [][]byte
		told                  [][16]byte
		tokens                [][16]byte
		runs                  []int // for each of told, the index of its segment in seqs
		report                reports
	)
	for len(events) > 0 {
		run := events[:store.EventRun(events)]
		// An update of a job must not share the segment of its submission: see
		// untouched.
		if i := slices.IndexFunc(run[1:], func(e gq.Event) bool { return e.Type == gq.EventUpdated }); i >= 0 {
			run = run[:i+1]
		}
		events = events[len(run):]
		var log eventLog
		for i := range run {
			if isReported[run[i].Queue] && !run[i].Type.OfProvider() {
				report.event(int64(len(seqs)), i, run[i].Queue, nil, &run[i])
			}
			log.add(run[i].Queue, run[i].JobType, &run[i])
		}
		if log.err != nil {
			return log.err
		}
		seen := make(map[gq.JobID]bool, len(run))
		for i := range run {
			if id := run[i].Job; !seen[id] {
				seen[id] = true
				told, runs = append(told, id), append(runs, len(seqs))
			}
		}
		seqs, times = append(seqs, int64(run[0].Seq)), append(times, nanoseconds(run[0].Time))
		counts = append(counts, int32(len(run)))
		datas, tokens = append(datas, log.data), append(tokens, random())
	}
	rows, err := tx.Query(ctx, "SELECT nextval('gq.segment_id') FROM generate_series(1, $1)", len(seqs))
	if err != nil {
		return err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	for _, run := range runs {
		segments = append(segments, ids[run])
	}
	for i := range report.events {
		report.events[i].Segment = ids[report.events[i].Segment]
	}
	tx.more.Queue(`
		INSERT INTO gq.segment (id, seq, time, events, token)
		SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::integer[], $5::uuid[])`,
		ids, seqs, times, counts, tokens)
	tx.more.Queue("INSERT INTO gq.log (id, data) SELECT * FROM unnest($1::bigint[], $2::bytea[])", ids, datas)
	tx.more.Queue("INSERT INTO gq.import_told (job, segment) SELECT * FROM unnest($1::uuid[], $2::bigint[])", told, segments)
	report.write(&tx.more, 0)
	return nil
}

// importJobs writes jobs unchanged, and counts them.
func (tx *txn) importJobs(ctx context.Context, items []store.JobItem, isReported map[string]bool) error {
	if len(items) == 0 {
		return nil
	}
	told, err := tx.told(ctx, items)
	if err != nil {
		return err
	}
	var (
		parts blobs
		keys  keyArrays
		named [][16]byte
		seqs  []int64
		turns = make(map[turnKey]uint64)

		report reports
		ids    [][16]byte
		texts  []string // their submissions, for gq.report_event
	)
	for i := range items {
		item := &items[i]
		spec, state := &item.Spec, item.State
		seq := int64(state.Sequence)
		body, err := appendBody(nil, spec)
		if err != nil {
			return err
		}
		if isApart(spec) {
			parts.add(seq, partPayload, spec.Payload.Data)
		}
		named, seqs = append(named, state.ID), append(seqs, seq)
		if metadata, changed := item.ChangedMetadata(); changed {
			parts.add(seq, partMetadata, metadata)
		}
		if item.Result != nil {
			parts.add(seq, partResult, item.Result)
		}
		if item.Checkpoint != nil {
			parts.add(seq, partCheckpoint, item.Checkpoint)
		}
		if !item.KeyUntil.IsZero() {
			keys.add(store.KeyOf(spec), holder{state.ID, seq, spec.Key.Fingerprint, item.KeyUntil, spec.Unique.While})
		}
		if spec.OrderKey != "" && state.Live() {
			keys.add(store.OrderKeyOf(spec), holder{job: state.ID, seq: seq, expires: machine.Forever})
		}
		if state.Live() && state.Turn > 0 {
			k := turnKey{spec.Queue, state.Priority(), spec.FairKey}
			turns[k] = max(turns[k], state.Turn)
		}
		tx.rows = append(tx.rows, &row{
			queue: spec.Queue, fair: spec.FairKey, segments: told[state.ID],
			state: state, changed: true, body: body, parsed: spec, reported: isReported[spec.Queue],
		})
		if isReported[spec.Queue] {
			report.job(spec.Queue, spec, &state)
			ids, texts = append(ids, state.ID), append(texts, submissionOf(spec))
		}
		tx.countJob(spec.Queue, &state, 1)
	}
	writeForeignIDs(&tx.more, named, seqs)
	parts.write(&tx.more)
	keys.write(&tx.more)
	report.write(&tx.more, 0)
	if len(ids) > 0 {
		tx.more.Queue(submissions, ids, texts)
	}
	for k, turn := range turns {
		tx.more.Queue(`
			INSERT INTO gq.turn AS t (queue, level, key, turn) VALUES ($1, $2, $3, $4)
			ON CONFLICT (queue, level, key) DO UPDATE SET turn = greatest(t.turn, excluded.turn)`,
			k.queue, int16(k.level), k.key, int64(turn))
	}
	return nil
}

// told returns the segments with events of each job, in order.
func (tx *txn) told(ctx context.Context, items []store.JobItem) (map[gq.JobID][]int64, error) {
	ids := make([][16]byte, len(items))
	for i := range items {
		ids[i] = items[i].State.ID
	}
	rows, err := tx.Query(ctx, "SELECT job, segment FROM gq.import_told WHERE job = ANY ($1) ORDER BY job, segment", ids)
	if err != nil {
		return nil, err
	}
	told := make(map[gq.JobID][]int64, len(items))
	var id [16]byte
	var segment int64
	_, err = pgx.ForEachRow(rows, []any{&id, &segment}, func() error {
		told[id] = append(told[id], segment)
		return nil
	})
	return told, err
}

func (tx *txn) importEdges(items *store.Items) {
	var parents, children []int64
	var kinds []int16
	for _, e := range items.Edges {
		parents, children, kinds = append(parents, int64(e.Parent)), append(children, int64(e.Child)), append(kinds, int16(e.Kind))
	}
	queueEdges(&tx.more, parents, children, kinds)
	for _, e := range items.Ended {
		tx.more.Queue("INSERT INTO gq.ended (parent, status, priority) VALUES ($1, $2, $3)", int64(e.Parent), int16(e.Status), int16(e.Level))
	}
}
