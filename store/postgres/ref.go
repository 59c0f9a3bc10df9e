package postgres

import (
	"context"
	"encoding/binary"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// mintLease makes a lease id that leads to its job: the job's sequence number and 74
// random bits in the form of a UUID. A lease id fences and does not authorise, so the
// number need not be secret.
func mintLease(seq uint64, random [16]byte) gq.LeaseID {
	low := binary.BigEndian.Uint64(random[:]) & 0xffff
	binary.BigEndian.PutUint64(random[:], seq<<16|low)
	return machine.NewLeaseID(random)
}

// leaseSequence is the sequence number in a lease id that mintLease made. For other ids
// the number is meaningless.
func leaseSequence(id gq.LeaseID) (uint64, bool) {
	raw, err := gq.ParseJobID(string(id)) // the same text form
	if err != nil {
		return 0, false
	}
	return binary.BigEndian.Uint64(raw[:]) >> 16, true
}

// numbered finds the sequence numbers of jobs by their ids. A job's number never changes,
// so nothing is locked. There may be no job with that number, or a different one: the
// caller compares the id when it reads the row.
func (tx *txn) numbered(ctx context.Context, ids [][16]byte) (map[gq.JobID]int64, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, foreignIDs, ids)
	if err != nil {
		return nil, err
	}
	found, err := parseNumbers(rows)
	for _, id := range ids {
		if seq := tx.s.ids.number(id); seq != 0 && found[id] == 0 {
			found[id] = seq
		}
	}
	return found, err
}

// foreignIDs finds the numbers of jobs whose ids do not encode them.
const foreignIDs = "SELECT id, seq FROM gq.foreign_id WHERE id = ANY ($1)"

func parseNumbers(rows pgx.Rows) (map[gq.JobID]int64, error) {
	found := make(map[gq.JobID]int64)
	var id [16]byte
	var seq int64
	_, err := pgx.ForEachRow(rows, []any{&id, &seq}, func() error {
		found[id] = seq
		return nil
	})
	return found, err
}

// sequences finds the number of the job that each reference names; 0 if there is none. A
// lease id of this store contains the number of its job. The caller checks whether the
// job ever had that lease.
func (tx *txn) sequences(ctx context.Context, refs []store.Ref) ([]int64, error) {
	var ids [][16]byte
	var leases []string
	for _, r := range refs {
		if !r.Job.IsZero() {
			ids = append(ids, r.Job)
		} else {
			leases = append(leases, string(r.Lease))
		}
	}
	byID, err := tx.numbered(ctx, ids)
	if err != nil {
		return nil, err
	}
	foreign, err := tx.foreignLeases(ctx, storable(leases))
	if err != nil {
		return nil, err
	}
	seqs := make([]int64, len(refs))
	for i, r := range refs {
		if !r.Job.IsZero() {
			seqs[i] = byID[r.Job]
			continue
		}
		if seq, ok := foreign[r.Lease]; ok {
			seqs[i] = seq
		} else if n, ok := leaseSequence(r.Lease); ok {
			seqs[i] = int64(n)
		}
	}
	return seqs, nil
}

// foreignLeases finds the jobs of leases that this store has not made.
func (tx *txn) foreignLeases(ctx context.Context, leases []string) (map[gq.LeaseID]int64, error) {
	if len(leases) == 0 {
		return nil, nil
	}
	rows, err := tx.Query(ctx, foreignLeases, leases)
	if err != nil {
		return nil, err
	}
	return parseLeases(rows)
}

// foreignLeases finds the jobs of leases that this store has not made.
const foreignLeases = "SELECT id, seq FROM gq.lease WHERE id = ANY ($1)"

func parseLeases(rows pgx.Rows) (map[gq.LeaseID]int64, error) {
	found := make(map[gq.LeaseID]int64)
	var id string
	var seq int64
	_, err := pgx.ForEachRow(rows, []any{&id, &seq}, func() error {
		found[gq.LeaseID(id)] = seq
		return nil
	})
	return found, err
}
