package postgres

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

var _ store.Inbox = (*Store)(nil)

// letter is a row of gq.inbox or gq.refused.
type letter struct {
	place int64
	store.Submission
	unreadable error // why Jobs or Docs could not be decoded
}

const letterColumns = "place, ids, jobs, request::text, docs::text"

// waitingLetters locks the oldest submissions that no other transaction has, and
// lettersByID those with the ids $1.
const (
	waitingLetters = "SELECT " + letterColumns + " FROM gq.inbox ORDER BY place LIMIT $1 FOR UPDATE SKIP LOCKED"
	lettersByID    = "SELECT " + letterColumns + " FROM gq.inbox WHERE ids && $1::uuid[] ORDER BY place FOR UPDATE"
	letterAt       = "SELECT " + letterColumns + " FROM gq.inbox WHERE place = $1 FOR UPDATE SKIP LOCKED"
)

func parseLetter(row pgx.CollectableRow) (l letter, err error) {
	var jobs []byte
	var request, docs *string
	var ids [][16]byte
	if err := row.Scan(&l.place, &ids, &jobs, &request, &docs); err != nil {
		return l, err
	}
	for _, id := range ids {
		l.IDs = append(l.IDs, id)
	}
	if request != nil {
		l.Request = []byte(*request)
		return l, nil
	}
	l.Jobs, l.unreadable = decodeSpecs(jobs)
	if docs != nil && l.unreadable == nil {
		l.unreadable = json.Unmarshal([]byte(*docs), &l.Docs)
	}
	return l, nil
}

// TakeIn implements [store.Inbox].
func (s *Store) TakeIn(ctx context.Context, ids []gq.JobID, limit int, read readLetter) (out store.TakenIn, err error) {
	sql, argument := waitingLetters, any(max(limit, 1))
	if len(ids) > 0 {
		raw := make([][16]byte, len(ids))
		for i, id := range ids {
			raw[i] = id
		}
		sql, argument = lettersByID, raw
	}
	out, err = s.takeIn(ctx, read, "", sql, argument)
	if culprit := (*pgconn.PgError)(nil); err == nil || lost(err) || uncertain(err) || ctx.Err() != nil || !errors.As(err, &culprit) {
		return out, err
	}
	// The server refuses to write one of them. The others must not wait for it.
	places, err := collect[int64](s.pool.Query(ctx, "SELECT place FROM gq.inbox ORDER BY place LIMIT $1", limit))
	if err != nil {
		return store.TakenIn{}, err
	}
	out = store.TakenIn{}
	for _, place := range places {
		one, err := s.takeIn(ctx, read, "", letterAt, place)
		if culprit := (*pgconn.PgError)(nil); errors.As(err, &culprit) && !lost(err) && !uncertain(err) {
			one, err = s.takeIn(ctx, read, culprit.Message+" (SQLSTATE "+culprit.Code+")", letterAt, place)
		}
		if err != nil {
			return out, err
		}
		out.Taken, out.Refused = out.Taken+one.Taken, out.Refused+one.Refused
	}
	return out, nil
}

type readLetter = func(ctx context.Context, s *store.Submission) (store.Group, error)

// takeIn takes in the submissions that a statement selects and locks. If there is a
// problem it refuses them instead.
func (s *Store) takeIn(ctx context.Context, read readLetter, problem, sql string, argument any) (out store.TakenIn, err error) {
	// read calls the store, so this call must not hold s.mu: Close could come in between.
	if err := s.enter(); err != nil {
		return out, err
	}
	s.under.Add(1)
	s.leave()
	defer s.under.Done()
	// A submission whose documents exist already is left for the next round.
	for known := make(map[int64]bool); ; {
		var f fates
		err = s.transact(ctx, s.begins.write, func(tx *txn) error {
			f = fates{exists: known}
			rows, err := tx.Query(ctx, sql, argument)
			if err != nil {
				return err
			}
			letters, err := pgx.CollectRows(rows, parseLetter)
			if err != nil || len(letters) == 0 {
				return err
			}
			return tx.takeIn(ctx, letters, &f, read, problem)
		})
		if err != nil {
			return store.TakenIn{}, err
		}
		out.Taken += len(f.gone) + len(f.refused)
		out.Refused += len(f.refused)
		if len(f.left) == 0 {
			return out, nil
		}
		for _, place := range f.left {
			known[place] = true
		}
	}
}

func (tx *txn) takeIn(ctx context.Context, letters []letter, f *fates, read readLetter, problem string) (err error) {
	var groups []store.Group
	var of []*letter // of each group
	for i := range letters {
		l := &letters[i]
		if problem != "" {
			f.refuse(l, problem)
			continue
		}
		l.Exists = f.exists[l.place]
		group, err := tx.s.groupOf(ctx, l, read)
		switch {
		case err == nil && len(group.Jobs) == 0:
			f.gone = append(f.gone, l.place)
		case err == nil:
			groups, of = append(groups, group), append(of, l)
		case errs.KindOf(err) == gq.KindInvalid:
			f.refuse(l, err.Error())
		default:
			return err
		}
	}
	if len(groups) == 0 {
		f.write(&tx.more)
		return tx.finish(ctx)
	}
	p, _, err := tx.prepare(ctx, groups, nil)
	if err != nil {
		return err
	}
	var docs []store.Doc
	for _, l := range of {
		docs = append(docs, l.Docs...)
	}
	current, err := tx.lockedVersions(ctx, docs)
	if err != nil {
		return err
	}
	docs = docs[:0]
	for i, l := range of {
		if !allNew(l.Docs, current) {
			f.left = append(f.left, l.place)
			continue
		}
		if f.decide(l, p.place(groups[i])) {
			docs = append(docs, l.Docs...)
			for _, d := range l.Docs { // they exist from now on
				current[[2]string{d.Kind, d.Name}] = math.MaxUint64
			}
		}
	}
	if len(docs) > 0 {
		if _, err := tx.putDocs(ctx, docs); err != nil {
			return err
		}
	}
	f.write(&tx.more)
	return tx.add(ctx, p)
}

// lockedVersions locks documents and returns the versions of those that exist, by kind and name.
func (tx *txn) lockedVersions(ctx context.Context, docs []store.Doc) (map[[2]string]uint64, error) {
	if len(docs) == 0 {
		return nil, nil
	}
	if err := tx.lockDocs(ctx, docs); err != nil {
		return nil, err
	}
	return tx.versions(ctx, docs)
}

// allNew reports whether none of these documents exists.
func allNew(docs []store.Doc, current map[[2]string]uint64) bool {
	for _, d := range docs {
		if current[[2]string{d.Kind, d.Name}] != 0 {
			return false
		}
	}
	return true
}

// groupOf reads and checks a submission.
func (s *Store) groupOf(ctx context.Context, l *letter, read readLetter) (store.Group, error) {
	if l.unreadable != nil {
		return store.Group{}, gq.ErrInvalid.Errorf("%v", l.unreadable)
	}
	group, err := read(ctx, &l.Submission)
	if err == nil && len(group.Jobs) > 0 {
		err = s.checkGroup(group)
	}
	return group, err
}

// fates are what becomes of submissions, column by column.
type fates struct {
	exists map[int64]bool // places of submissions whose documents exist

	left     []int64 // places of those that another round decides
	gone     []int64 // places of those that have become jobs
	refused  []int64 // places
	problems []string

	duplicates, older [][16]byte // ids of submissions, and of the jobs that have their keys
	numbers           []int64    // of these jobs
}

func (f *fates) refuse(l *letter, problem string) {
	f.refused, f.problems = append(f.refused, l.place), append(f.problems, printable(problem))
}

// decide notes what became of a submission, and reports whether it became jobs.
func (f *fates) decide(l *letter, in store.Inserted) bool {
	if in.Err == nil && len(in.Jobs) == 1 {
		in.Err = gq.SubmitResult{State: in.Jobs[0].State, Existing: in.Jobs[0].Existing, Same: in.Jobs[0].Same}.KeyReused()
	}
	if in.Err != nil {
		f.refuse(l, in.Err.Error())
		return false
	}
	f.gone = append(f.gone, l.place)
	for i, job := range in.Jobs {
		if job.Existing && job.State.ID != l.IDs[i] {
			f.duplicates, f.older, f.numbers = append(f.duplicates, l.IDs[i]), append(f.older, job.State.ID), append(f.numbers, int64(job.State.Sequence))
		}
	}
	return true
}

func (f *fates) write(batch *pgx.Batch) {
	if len(f.gone) > 0 {
		batch.Queue("DELETE FROM gq.inbox WHERE place = ANY ($1)", f.gone)
	}
	if len(f.refused) > 0 {
		batch.Queue(`
			WITH gone AS (
				DELETE FROM gq.inbox AS i
				USING unnest($1::bigint[], $2::text[]) AS n (place, problem)
				WHERE i.place = n.place
				RETURNING i.place, i.ids, i.written, i.jobs, i.request, i.docs, n.problem
			)
			INSERT INTO gq.refused (place, ids, written, jobs, request, docs, problem) SELECT * FROM gone`,
			f.refused, f.problems)
	}
	if len(f.duplicates) > 0 {
		batch.Queue(`
			INSERT INTO gq.duplicate (id, job, seq) SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::bigint[])
			ON CONFLICT (id) DO NOTHING`,
			f.duplicates, f.older, f.numbers)
	}
}

// Whereabouts implements [store.Inbox].
func (s *Store) Whereabouts(ctx context.Context, id gq.JobID) (w store.Whereabouts, err error) {
	err = s.readOnce(ctx, func(tx *txn) error {
		var problem *string
		var job *[16]byte
		err := tx.QueryRow(ctx, whereabouts, [16]byte(id)).Scan(&w.Waiting, &problem, &job)
		if errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("submission %s: %w", id, gq.ErrNotFound)
		}
		if problem != nil {
			w.Problem = *problem
		}
		if job != nil {
			w.Job = *job
		}
		return err
	})
	return w, err
}

// whereabouts looks for a submission in one snapshot, so that it does not miss one that is
// being taken in. Both tables without an index of ids are usually empty.
const whereabouts = `
	SELECT true, NULL::text, NULL::uuid FROM gq.inbox WHERE ids @> ARRAY [$1::uuid]
	UNION ALL
	SELECT false, NULL, job FROM gq.duplicate WHERE id = $1
	UNION ALL
	SELECT false, NULL, id FROM gq.foreign_id WHERE id = $1
	UNION ALL
	SELECT false, problem, NULL FROM gq.refused WHERE ids @> ARRAY [$1::uuid]
	LIMIT 1`

// encodeSpecs encodes the jobs of a submission: the length of each spec, then the spec.
func encodeSpecs(specs []gq.Spec) ([]byte, error) {
	var b []byte
	for i := range specs {
		one, err := codec.AppendSpec(&specs[i], nil)
		if err != nil {
			return nil, err
		}
		b = append(binary.AppendUvarint(b, uint64(len(one))), one...)
	}
	return b, nil
}

func decodeSpecs(b []byte) (specs []gq.Spec, err error) {
	for len(b) > 0 {
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, fmt.Errorf("the submission is broken: %w", gq.ErrCorrupt)
		}
		spec, err := codec.DecodeSpec(b[n : n+int(size)])
		if err != nil {
			return nil, err
		}
		specs, b = append(specs, spec), b[n+int(size):]
	}
	return specs, nil
}
