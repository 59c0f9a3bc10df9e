package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
)

// TestOutcomeIsFinal asks what became of a commit while it is still under way:
// the answer waits for its end and is that.
func TestOutcomeIsFinal(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for id, commits := range map[int64]bool{1001: true, 1002: false} {
		m := mark{id: id, token: random()}
		tx, err := s.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_, err = tx.Exec(t.Context(), "INSERT INTO gq.segment (id, time, events, token) VALUES ($1, 0, 0, $2)", m.id, m.token)
		if err != nil {
			t.Fatal(err)
		}
		answer := make(chan bool, 1)
		go func() {
			happened, err := s.happened(t.Context(), m)
			if err != nil {
				t.Error(err)
			}
			answer <- happened
		}()
		for waiting := false; !waiting; {
			err := s.pool.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)").Scan(&waiting)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-answer:
				t.Fatalf("the answer %t came before the end", got)
			default:
			}
		}
		if commits {
			err = tx.Commit(t.Context())
		} else {
			err = tx.Rollback(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := <-answer; got != commits {
			t.Errorf("the commit happened: %t, want %t", got, commits)
		}
	}
	// One that had written nothing yet when it was asked for does not happen later.
	late := mark{id: 1003, token: random()}
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // if it was not committed
	for range 2 {                                         // the answer is the same each time
		if happened, err := s.happened(t.Context(), late); err != nil || happened {
			t.Errorf("a commit happened that had yet to come: %t, %v", happened, err)
		}
	}
	_, err = tx.Exec(t.Context(), "INSERT INTO gq.segment (id, time, events, token) VALUES ($1, 0, 0, $2)", late.id, late.token)
	if err == nil {
		t.Error("a transaction goes on that is said not to have happened")
	}
	// Somebody else's segment under the same id, as after a failover that lost ours.
	if happened, err := s.happened(t.Context(), mark{id: 1001, token: random()}); err != nil || happened {
		t.Errorf("another one's commit was taken for ours: %t, %v", happened, err)
	}
}

// TestWhatIsTriedAgain tells lost transactions from those that may have happened.
func TestWhatIsTriedAgain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{io.ErrUnexpectedEOF, true},
		{errLost, true},
		{errors.Join(errUnknown, io.ErrUnexpectedEOF), false},
		{errors.New("something else"), false},
		{&pgconn.PgError{Code: "25006"}, true},  // the primary has become a standby
		{&pgconn.PgError{Code: "08P01"}, true},  // what poolers say
		{&pgconn.PgError{Code: "28P01"}, false}, // a wrong password stays wrong
	} {
		if got := lost(c.err); got != c.want {
			t.Errorf("%v: %t, want %t", c.err, got, c.want)
		}
	}
}

// TestUnavailableSaysWhy keeps from callers elsewhere where the database is.
func TestUnavailableSaysWhy(t *testing.T) {
	for _, c := range []struct {
		reason error
		want   string
	}{
		{errors.Join(errUnknown, io.EOF), errUnknown.Error()},
		{&pgconn.PgError{Code: "57P03", Message: "the database system is starting up"}, "starting up (SQLSTATE 57P03)"},
		{fmt.Errorf("user=gq host=secret: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), "refused"},
		{fmt.Errorf("user=gq host=secret: %w", io.EOF), "the connection was lost"},
	} {
		err := fmt.Errorf("insert: %w", &unavailableError{c.reason})
		if !errors.Is(err, gq.ErrUnavailable) || !errors.Is(err, c.reason) {
			t.Errorf("%v is not what it is", err)
		}
		if text := err.Error(); !strings.Contains(text, c.want) || strings.Contains(text, "secret") {
			t.Errorf("%q, want %q", text, c.want)
		}
	}
}
