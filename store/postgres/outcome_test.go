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

// TestOutcomeIsFinal asks for the outcome of a transaction that is still open. The answer
// must wait for its end and match it.
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
	// A transaction that had written nothing when it was asked for cannot commit later.
	late := mark{id: 1003, token: random()}
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // if it was not committed
	for range 2 {                                         // with the same answer each time
		if happened, err := s.happened(t.Context(), late); err != nil || happened {
			t.Errorf("a commit happened that had yet to come: %t, %v", happened, err)
		}
	}
	_, err = tx.Exec(t.Context(), "INSERT INTO gq.segment (id, time, events, token) VALUES ($1, 0, 0, $2)", late.id, late.token)
	if err == nil {
		t.Error("a transaction goes on that is said not to have happened")
	}
	// Another transaction's segment has the same id, as after a failover that lost ours.
	if happened, err := s.happened(t.Context(), mark{id: 1001, token: random()}); err != nil || happened {
		t.Errorf("another one's commit was taken for ours: %t, %v", happened, err)
	}
}

// TestWhatIsTriedAgain checks which errors mean that a transaction had no effect.
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
		{&pgconn.PgError{Code: "08P01"}, true},  // from poolers
		{&pgconn.PgError{Code: "28P01"}, false}, // wrong password: a retry does not help
	} {
		if got := lost(c.err); got != c.want {
			t.Errorf("%v: %t, want %t", c.err, got, c.want)
		}
	}
}

// TestUnavailableSaysWhy checks that the text gives the reason but no address.
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
