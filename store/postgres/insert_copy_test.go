package postgres

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestCopiedRows inserts the same jobs with COPY, in one call, and with INSERT, in two. Their
// rows may differ only in what the number, the id and the time of a job are part of.
func TestCopiedRows(t *testing.T) {
	const jobs = copyLeast + 20
	rowsOf := func(size int) []string {
		s, err := Open(t.Context(), pgtest.Database(t), store.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for from := 0; from < jobs; from += size {
			var groups []store.Group
			for i := from; i < min(from+size, jobs); i++ {
				spec := gq.Spec{
					ID: machine.NewJobID(random()), Queue: fmt.Sprintf("queue-%d", i%3), Type: fmt.Sprintf("type-%d", i%5), CostUnits: int64(i%4 + 1),
					Payload: gq.Payload{Data: fmt.Appendf(nil, `{"number":%d}`, i)}, Policy: machine.DefaultPolicy(),
				}.WithDefaults()
				spec.Metadata.Priority = gq.Priority(i%3 + 1)
				switch i % 4 {
				case 1:
					spec.LimitKey, spec.FairKey = fmt.Sprintf("key-%d", i%7), "fair\u00e9"
				case 2:
					spec.Policy.Lifetime = time.Hour
				case 3:
					spec.Delay = time.Minute
				}
				groups = append(groups, store.Group{Jobs: []gq.Spec{spec}, Mint: true})
			}
			out, err := s.Insert(t.Context(), groups)
			if err != nil {
				t.Fatal(err)
			}
			for i := range out {
				if out[i].Err != nil {
					t.Fatal(out[i].Err)
				}
			}
		}
		rows, err := s.pool.Query(t.Context(), `
			SELECT row(order_hi, run_at - created, due - created, cost, status, far, aside, queue, limited, fair, type, requires, body, length(data))::text
			FROM gq.ready ORDER BY seq`)
		if err != nil {
			t.Fatal(err)
		}
		found, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	got, want := rowsOf(jobs), rowsOf(jobs/2)
	if len(got) != jobs || !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("row %d is\n%s with COPY and\n%s with INSERT", i, got[i], want[i])
			}
		}
		t.Fatalf("%d rows with COPY and %d with INSERT, want %d", len(got), len(want), jobs)
	}
}

// TestCopyAfterItsConnectionBroke reads on after CopyFrom has returned, which it does when a
// connection breaks. The rows may then belong to another transaction.
func TestCopyAfterItsConnectionBroke(t *testing.T) {
	calls := 0
	r := copyReader{ready: []byte(copyHeader), more: func() (*rowArrays, error) {
		calls++
		return nil, nil
	}}
	p := make([]byte, 100)
	if n, err := r.Read(p); n != len(copyHeader) || err != nil {
		t.Fatal(n, err)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(p); n != 0 || err == nil || calls != 0 {
		t.Errorf("read %d bytes, %v, with %d calls for rows", n, err, calls)
	}
}

// TestCopyFails lets a COPY fail after its first rows: no more can be encoded, or the
// connection breaks. Nothing may be stored, and the store must go on.
func TestCopyFails(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	failure := errors.New("no second chunk")
	for _, breaks := range []bool{false, true} {
		var calls int
		err := s.transact(t.Context(), s.begins.of(true), func(tx *txn) error {
			c := tx.Tx.(*connTx)
			return c.copyReady(t.Context(), func() (*rowArrays, error) {
				if calls++; calls == 2 && !breaks {
					return nil, failure
				} else if calls == 2 {
					_ = c.conn.PgConn().Conn().Close()
				} else if calls > 2 {
					return nil, failure // of the next attempt
				}
				n, body := int64(calls), []byte("b")
				return &rowArrays{
					seqs: []int64{n}, his: []int64{n}, los: []int64{n}, runs: []int64{n}, dues: []*int64{nil}, created: []int64{n}, costs: []int64{n}, statuses: []int16{3},
					queues: []string{"q"}, limited: []string{""}, fairs: []string{""}, types: []string{"t"}, bodies: [][]byte{body}, datas: [][]byte{body},
				}, nil
			})
		})
		if err == nil || !breaks && !errors.Is(err, failure) {
			t.Errorf("the connection breaks: %t; the error is %v", breaks, err)
		}
		var n int
		if err := s.pool.QueryRow(t.Context(), "SELECT count(*) FROM gq.ready").Scan(&n); err != nil || n != 0 {
			t.Errorf("the connection breaks: %t; %d jobs, %v", breaks, n, err)
		}
	}
	compare(t, s, fastInserts(t, s, 3*copyChunk))
}
