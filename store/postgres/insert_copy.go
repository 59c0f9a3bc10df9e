package postgres

import (
	"context"
	"encoding/binary"
	"io"
	"slices"
	"sync"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// copyLeast is how many new jobs are worth COPY, which takes a round trip of its own.
const copyLeast = fastMost + 1

// copied writes new jobs. Unlike beReadyAlike it sends every column of each row, and still
// takes less time: PostgreSQL adds the rows to the table, and to the write-ahead log, a page
// at a time, and it begins while rows are still being encoded.
const copied = "COPY gq.ready (seq, order_hi, order_lo, run_at, due, far, created, cost, status, queue, limited, fair, type, body, data) FROM STDIN BINARY"

// copyHeader is the signature of the binary format, then flags and the length of an
// extension, both 0. Each row begins with the number of its columns.
const (
	copyHeader  = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	copyColumns = 15
	copyEnd     = "\xff\xff"
)

// canCopy reports whether copyReady may write the rows, which are in no table.
func (a *rowArrays) canCopy() bool { return len(a.seqs) >= copyLeast && !a.demanding }

// copyReady writes rows to gq.ready. Each call of more returns some of them, nil after the
// last.
func (t *connTx) copyReady(ctx context.Context, more func() (*rowArrays, error)) error {
	if err := t.start(ctx); err != nil {
		return err
	}
	r := copyReader{more: more, ready: []byte(copyHeader)}
	_, err := t.conn.PgConn().CopyFrom(ctx, &r, t.dialect.of(copied))
	if failed := r.close(); failed != nil { // the server says less of it
		return failed
	}
	return err
}

// copyReader reads rows in the format of binary COPY. If a connection breaks, CopyFrom may
// return while its goroutine still reads.
type copyReader struct {
	mu           sync.Mutex
	more         func() (*rowArrays, error)
	ready, space []byte // what is encoded and not read, and memory for it
	err          error  // after ready
}

// close waits for the present call of Read and makes others fail. It returns why more failed.
func (r *copyReader) close() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != io.EOF {
		err = r.err
	}
	r.ready, r.err = nil, io.ErrClosedPipe
	return err
}

// Read implements [io.Reader].
func (r *copyReader) Read(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.ready) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		r.encode()
	}
	n = copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

func (r *copyReader) encode() {
	a, err := r.more()
	b := r.space[:0]
	switch {
	case err != nil:
		r.err = err
	case a == nil:
		b, r.err = append(b, copyEnd...), io.EOF
	default:
		for i := range a.seqs {
			b = a.appendCopied(b, i)
		}
	}
	r.ready, r.space = b, b
}

// copyChunk is about how many jobs are placed and encoded at a time, while PostgreSQL writes
// those before.
const copyChunk = 500

// canPlaceCopied reports whether placeCopied may be used.
func (p *plan) canPlaceCopied(jobs []*gq.Spec) bool {
	return p.states == nil && len(jobs) >= copyLeast && !slices.ContainsFunc(jobs, func(spec *gq.Spec) bool { return len(spec.Requires) > 0 })
}

// placeCopied places groups that refer to nothing in the database and writes the jobs at the same time.
func (tx *txn) placeCopied(ctx context.Context, conn *connTx, p *plan, groups []store.Group) ([]store.Inserted, error) {
	out := make([]store.Inserted, 0, len(groups))
	added := tx.newAdditions(p)
	var ended []*row // at once; they do not belong in gq.ready
	err := conn.copyReady(ctx, func() (*rowArrays, error) {
		for first := len(p.insertions); len(out) < len(groups); {
			out = append(out, p.place(groups[len(out)]))
			if p.doubted {
				return nil, errDoubted
			}
			if n := len(p.insertions) - first; n < copyChunk && (n == 0 || len(out) < len(groups)) {
				continue
			}
			if err := added.record(first); err != nil {
				return nil, err
			}
			waiting := tx.rows[:0]
			for _, r := range tx.rows {
				if homeOf(r.state.Status) == inReady {
					waiting = append(waiting, r)
				} else {
					ended = append(ended, r)
				}
			}
			tx.rows = waiting
			rows, err := tx.encodeRows()
			tx.rows = tx.rows[:0]
			if a := rows[move{nowhere, inReady}]; a != nil || err != nil {
				return a, err
			}
			first = len(p.insertions)
		}
		return nil, nil
	})
	if err != nil {
		return nil, err
	}
	tx.rows = append(tx.rows, ended...)
	added.write()
	return out, tx.finish(ctx)
}

func (a *rowArrays) appendCopied(b []byte, i int) []byte {
	b = binary.BigEndian.AppendUint16(b, copyColumns)
	b = appendInt64(appendInt64(appendInt64(b, a.seqs[i]), a.his[i]), a.los[i])
	b = appendOptional(appendInt64(b, a.runs[i]), a.dues[i])
	b = appendBool(b, a.dues[i] != nil && *a.dues[i] >= a.far)
	b = appendInt16(appendInt64(appendInt64(b, a.created[i]), a.costs[i]), a.statuses[i])
	b = appendString(b, a.queues[i])
	if a.limited[i] == "" {
		b = binary.BigEndian.AppendUint32(b, null)
	} else {
		b = appendString(b, a.limited[i])
	}
	b = appendString(appendString(b, a.fairs[i]), a.types[i])
	return appendBytes(appendBytes(b, a.bodies[i]), a.datas[i])
}

func appendBool(b []byte, v bool) []byte {
	b = append(b, 0, 0, 0, 1, 0)
	if v {
		b[len(b)-1] = 1
	}
	return b
}
