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

// errUnknown means that the outcome of a commit could not be determined.
var errUnknown = errors.New("the connection was lost while committing and it could not be found out whether that happened")

// errLost means that a commit is known not to have happened.
var errLost = errors.New("the connection was lost before the commit")

func uncertain(err error) bool { return errors.Is(err, errUnknown) }

// unavailableError is [gq.ErrUnavailable] with its reason. Remote callers see its text, so
// it reveals neither the address of the database nor its user.
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

// resolveWithin is how long resolveCommit keeps trying while the database does not answer.
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

// resolveCommit determines whether a commit happened whose answer was lost. It returns nil
// if the commit happened.
func (tx *txn) resolveCommit(ctx context.Context, err error) error {
	if err == nil || refused(err) {
		return err
	}
	if tx.mark.id == 0 {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	// The caller may be gone, but others in the batch still need the answer.
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

// lost reports whether a transaction failed because it lost its connection, or never got
// one, and certainly had no effect.
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

// passing lists the server's error codes, apart from connection errors, that only mean
// that it is unavailable for the moment.
var passing = []string{
	"25006", // read_only_sql_transaction: it has become a standby
	"53300", // too_many_connections
	"57P01", // admin_shutdown
	"57P02", // crash_shutdown
	"57P03", // cannot_connect_now
}

// refused reports whether the server answered that a commit did not happen.
func refused(err error) bool {
	if errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) {
		return true
	}
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Severity == "ERROR"
}

// happened determines whether the transaction that wrote a segment was committed. It
// inserts a row with the same id, which waits until that transaction has ended. If the
// insert succeeds, the transaction did not commit; the new row, without events, keeps it
// from committing later, since a server may still execute what it received before the
// connection was lost. If the row exists, it may exist on this server only: a server that
// was waiting for its standbys shows the row after a restart or a cancelled wait. So
// happened returns true only after a commit of its own: see confirm.
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

// confirm waits until everything committed before is as durable as any commit, by
// committing an empty message after it.
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

// confirm ends a transaction that wrote nothing and whose answer relies on others'
// commits. If the connection is lost, it can be retried.
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
