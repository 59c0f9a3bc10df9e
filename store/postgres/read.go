package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// getting is a job that a caller asks for.
type getting struct {
	store.Ref
	parts gq.Parts
}

// Get implements [store.Store]. Concurrent calls share reads.
func (s *Store) Get(ctx context.Context, refs []store.Ref, parts gq.Parts) ([]store.Found, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	if len(refs) == 0 {
		return []store.Found{}, nil
	}
	asked := make([]getting, len(refs))
	for i, r := range refs {
		asked[i] = getting{r, parts}
	}
	return s.gets.do(ctx, asked)
}

// get reads jobs from one snapshot.
func (s *Store) get(ctx context.Context, asked []getting, _ bool) (out []store.Found, err error) {
	err = s.transact(ctx, s.begins.read, func(tx *txn) error {
		out, err = tx.get(ctx, asked)
		return err
	})
	return out, err
}

// get needs one round trip, and a second one for ids and leases that this store has not
// made, whose jobs it must look up first.
func (tx *txn) get(ctx context.Context, asked []getting) ([]store.Found, error) {
	var (
		batch  pgx.Batch
		ids    [][16]byte
		leases []string
		byID   map[gq.JobID]int64
		byName map[gq.LeaseID]int64
		seqs   = make([]int64, len(asked))
	)
	for i, a := range asked {
		if !a.Job.IsZero() {
			ids, seqs[i] = append(ids, a.Job), tx.s.ids.number(a.Job)
		} else {
			leases = append(leases, string(a.Lease))
			seq, _ := leaseSequence(a.Lease)
			seqs[i] = int64(seq)
		}
	}
	batch.Queue(readingClock).QueryRow(tx.clockFrom)
	if len(ids) > 0 {
		batch.Queue(foreignIDs, ids).Query(func(rows pgx.Rows) (err error) {
			byID, err = parseNumbers(rows)
			return err
		})
	}
	if len(leases) > 0 {
		batch.Queue(foreignLeases, storable(leases)).Query(func(rows pgx.Rows) (err error) {
			byName, err = parseLeases(rows)
			return err
		})
	}
	jobs := tx.queueJobs(&batch, asked, seqs)
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, err
	}
	foreign := false
	for i, a := range asked {
		seq, ok := byName[a.Lease]
		if !a.Job.IsZero() {
			seq, ok = byID[a.Job]
		}
		if ok && seq != seqs[i] {
			seqs[i], foreign = seq, true
		}
	}
	if foreign {
		var again pgx.Batch
		jobs = tx.queueJobs(&again, asked, seqs)
		if err := tx.SendBatch(ctx, &again).Close(); err != nil {
			return nil, err
		}
	}
	return tx.answerGet(ctx, asked, seqs, jobs)
}

// readJobs are the rows that get has read, and their blobs by the parts asked for.
type readJobs struct {
	rows  []*row
	blobs map[gq.Parts]*found
}

// queueJobs queues queries for jobs by number.
func (tx *txn) queueJobs(batch *pgx.Batch, asked []getting, seqs []int64) *readJobs {
	jobs := &readJobs{blobs: make(map[gq.Parts]*found)}
	wanted := numbersIn(seqs)
	blocks, masks := wanted.arrays()
	batch.Queue(states, blocks, masks).Query(func(rows pgx.Rows) (err error) {
		jobs.rows, err = tx.scanSome(wanted)(rows, nil)
		return err
	})
	byParts := make(map[gq.Parts][]int64)
	for i, a := range asked {
		byParts[a.parts] = append(byParts[a.parts], seqs[i])
	}
	for parts, some := range byParts {
		slices.Sort(some)
		jobs.blobs[parts] = new(found)
		queueBlobs(batch, slices.Compact(some), parts, jobs.blobs[parts])
	}
	return jobs
}

// answerGet builds the answers from the jobs that were read.
func (tx *txn) answerGet(ctx context.Context, asked []getting, seqs []int64, read *readJobs) ([]store.Found, error) {
	type key struct {
		seq   int64
		parts gq.Parts
	}
	found := make(map[key]gq.Job, len(asked))
	for parts, blobs := range read.blobs {
		jobs, err := blobs.assemble(read.rows, parts)
		if err != nil {
			return nil, err
		}
		for _, j := range jobs {
			j.State = j.State.At(tx.now)
			found[key{int64(j.State.Sequence), parts}] = j
		}
	}
	out := make([]store.Found, len(asked))
	handed := make(map[int64]bool, len(asked))
	for i, a := range asked {
		j, ok := found[key{seqs[i], a.parts}]
		if ok && !a.Job.IsZero() {
			ok = j.State.ID == a.Job
		} else if ok {
			var err error
			if ok, err = tx.had(ctx, &j.State, read.rows, a.Lease); err != nil {
				return nil, err
			}
		}
		if ok && handed[seqs[i]] {
			j = store.CopyJob(j)
		}
		switch {
		case ok:
			out[i].Job, handed[seqs[i]] = j, true
		case a.Job.IsZero():
			out[i].Err = fmt.Errorf("lease %.80q: %w", a.Lease, gq.ErrNotFound)
		default:
			out[i].Err = fmt.Errorf("job %s: %w", a.Job, gq.ErrNotFound)
		}
	}
	return out, nil
}

// had reports whether a job, one of rows, ever had a lease. The number in a lease id
// proves nothing, so had searches the events of the job.
func (tx *txn) had(ctx context.Context, s *gq.State, rows []*row, lease gq.LeaseID) (bool, error) {
	if s.Lease == nil || s.Lease.ID == lease || s.PreviousLease == lease {
		return s.Lease != nil, nil
	}
	at := slices.IndexFunc(rows, func(r *row) bool { return r.state.ID == s.ID })
	events, err := tx.readLog(tx.Query(ctx, `
		SELECT coalesce(s.seq, 0), s.time, l.data, l.jobs
		FROM unnest($1::bigint[]) AS n (id)
		CROSS JOIN LATERAL (SELECT seq, time FROM gq.segment WHERE id = n.id OFFSET 0) AS s
		CROSS JOIN LATERAL (SELECT data, jobs FROM gq.log WHERE id = n.id OFFSET 0) AS l`,
		rows[at].segments))
	return slices.ContainsFunc(events, func(e gq.Event) bool { return e.Job == s.ID && e.Lease == lease }), err
}
