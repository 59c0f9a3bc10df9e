package postgres

import (
	"context"
	"encoding/binary"
	"io"
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

// copyReady writes rows to gq.ready.
func (t *connTx) copyReady(ctx context.Context, a *rowArrays) error {
	if err := t.start(ctx); err != nil {
		return err
	}
	_, err := t.conn.PgConn().CopyFrom(ctx, &copyReader{rows: a, ready: []byte(copyHeader)}, t.dialect.of(copied))
	return err
}

// copyReader reads rows in the format of binary COPY.
type copyReader struct {
	rows         *rowArrays
	next         int    // the first row that is not encoded
	ready, space []byte // what is encoded and not read; space is its memory
}

// Read implements [io.Reader].
func (r *copyReader) Read(p []byte) (n int, err error) {
	for len(r.ready) == 0 {
		if r.next > len(r.rows.seqs) {
			return 0, io.EOF
		}
		r.encode(len(p))
	}
	n = copy(p, r.ready)
	r.ready = r.ready[n:]
	return n, nil
}

// encode encodes rows up to about a size, or the end.
func (r *copyReader) encode(size int) {
	b := r.space[:0]
	for ; r.next < len(r.rows.seqs) && len(b) < size; r.next++ {
		b = r.rows.appendCopied(b, r.next)
	}
	if r.next == len(r.rows.seqs) {
		b = append(b, copyEnd...)
		r.next++
	}
	r.ready, r.space = b, b
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
