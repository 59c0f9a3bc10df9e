package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/retry"
)

// errUnknown is the outcome of a commit of which nothing could be found out.
var errUnknown = errors.New("the connection was lost while committing and it could not be found out whether that happened")

// errLost is a commit that is known not to have happened.
var errLost = errors.New("the connection was lost before the commit")

func uncertain(err error) bool { return errors.Is(err, errUnknown) }

// unavailableError is [gq.ErrUnavailable] with its reason. Callers elsewhere read
// its text, so it does not tell where the database is and who asks it.
type unavailableError struct{ reason error }

func (e *unavailableError) Error() string {
	var answered *pgconn.PgError
	var network *net.OpError
	switch text := gq.ErrUnavailable.Error() + ": "; {
	case uncertain(e.reason):
		return text + errUnknown.Error()
	case errors.As(e.reason, &answered):
		return text + answered.Message + " (SQLSTATE " + answered.Code + ")"
	case errors.As(e.reason, &network):
		return text + network.Err.Error()
	default:
		return text + "the connection was lost"
	}
}

func (e *unavailableError) Unwrap() []error { return []error{gq.ErrUnavailable, e.reason} }

// resolveWithin is how long the outcome of a commit is looked for while the database does not
// answer.
const resolveWithin = 30 * time.Second

// commit ends a transaction.
func (tx *txn) commit(ctx context.Context) error {
	if err := tx.whole(); err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, "COMMIT")
	if err == nil && tag.String() != "COMMIT" {
		err = pgx.ErrTxCommitRollback
	}
	return tx.resolveCommit(ctx, err)
}

// resolveCommit finds out whether a commit happened whose answer was lost. It returns nil if the
// commit happened.
func (tx *txn) resolveCommit(ctx context.Context, err error) error {
	if err == nil || refused(err) {
		return err
	}
	if tx.mark.id == 0 {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	// The caller may have gone; the answer is still for others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resolveWithin)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		happened, check := tx.s.happened(ctx, tx.mark)
		switch {
		case check == nil && happened:
			return nil
		case check == nil:
			return fmt.Errorf("%w: %w", errLost, err)
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", errUnknown, err)
		}
		retry.Pause(ctx, pause)
	}
}

// lost reports whether a transaction ended with its connection, or never had one,
// and has certainly had no effect.
func lost(err error) bool {
	if err == nil || uncertain(err) {
		return false
	}
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		return strings.HasPrefix(e.Code, "08") || slices.Contains(passing, e.Code)
	}
	var network net.Error
	var connecting *pgconn.ConnectError
	return errors.Is(err, errLost) || pgconn.SafeToRetry(err) || errors.As(err, &network) || errors.As(err, &connecting) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// passing are the errors of a server, besides those of connections, that say no
// more than that it is not there for us at the moment.
var passing = []string{
	"25006", // read_only_sql_transaction: it has become a standby
	"53300", // too_many_connections
	"57P01", // admin_shutdown
	"57P02", // crash_shutdown
	"57P03", // cannot_connect_now
}

// refused reports whether the server has answered that a commit did not happen.
func refused(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) {
		return true
	}
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Severity == "ERROR"
}

// happened finds out whether the transaction that wrote a segment was committed.
// Inserting the same id waits for that transaction to end, if it has not: then either
// the row is there, or there is none. It may have yet to come, since a server goes on
// with what it was sent before the connection was lost; so another row takes its place,
// without events and a number, and keeps it from happening later. A row that is there
// may be on this server alone: one that was waiting for its standbys shows it once
// it has been restarted, or its wait was cut short. So the answer that it happened
// is a commit of its own.
func (s *Store) happened(ctx context.Context, m mark) (bool, error) {
	tx, err := s.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return false, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // it has an effect where this is left early only
	tag, err := tx.Exec(ctx, `
		INSERT INTO gq.segment (id, seq, time, events, token) VALUES ($1, 0, 0, 0, $2)
		ON CONFLICT (id) DO NOTHING`,
		m.id, random())
	if err != nil {
		return false, err
	}
	if tag.RowsAffected() == 1 {
		return false, tx.Commit(ctx)
	}
	var token [16]byte
	err = tx.QueryRow(ctx, "SELECT token FROM gq.segment WHERE id = $1", m.id).Scan(&token)
	if err != nil || token != m.token {
		return false, err
	}
	return true, confirm(ctx, tx)
}

// confirm waits until everything that was committed before is as durable as a
// commit makes it, by committing a record after it that says nothing.
func confirm(ctx context.Context, tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
},
) error {
	if _, err := tx.Exec(ctx, "SELECT pg_logical_emit_message(true, 'gq', '')"); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, "COMMIT")
	return err
}

// confirm ends a transaction that wrote nothing and answers with what others have
// committed. Losing that is as if it had never been asked.
func (tx *txn) confirm(ctx context.Context) error {
	if err := tx.whole(); err != nil {
		return err
	}
	err := confirm(ctx, tx)
	if err != nil && !refused(err) {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}
