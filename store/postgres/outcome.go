package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errUnknown is the outcome of a commit of which nothing could be found out.
var errUnknown = errors.New("the connection was lost while committing and it could not be found out whether that happened")

// errLost is a commit that is known not to have happened.
var errLost = errors.New("the connection was lost before the commit")

func uncertain(err error) bool { return errors.Is(err, errUnknown) }

// settleWithin is how long the outcome of a commit is looked for while the
// database does not answer.
const settleWithin = 30 * time.Second

// commit ends a transaction. Where the answer is lost it finds out what has
// become of it.
func (tx *txn) commit(ctx context.Context) error {
	err := tx.Commit(ctx)
	if err == nil || refused(err) {
		return err
	}
	if tx.mark.id == 0 {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	// The caller may have gone; the answer is still for others.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleWithin)
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
		sleep(ctx, pause)
	}
}

// sleep waits, unless the context ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// lost reports whether a transaction ended with its connection, or never had one,
// and has certainly had no effect.
func lost(err error) bool {
	if err == nil || uncertain(err) {
		return false
	}
	const adminShutdown, crashShutdown, cannotConnectNow = "57P01", "57P02", "57P03"
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) {
		return e.Code == adminShutdown || e.Code == crashShutdown || e.Code == cannotConnectNow
	}
	var network net.Error
	var connecting *pgconn.ConnectError
	return errors.Is(err, errLost) || pgconn.SafeToRetry(err) || errors.As(err, &network) || errors.As(err, &connecting) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
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
// Inserting the same id waits for that transaction to end, if it has not: then
// either the row is there, or there is none and never will be.
func (s *Store) happened(ctx context.Context, m mark) (bool, error) {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return false, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // always rolled back
	tag, err := tx.Exec(ctx, `
		INSERT INTO gq.segment (id, time, events, token) VALUES ($1, 0, 0, $2)
		ON CONFLICT (id) DO NOTHING`,
		m.id, m.token)
	if err != nil || tag.RowsAffected() == 1 {
		return false, err
	}
	var token [16]byte
	err = tx.QueryRow(ctx, "SELECT token FROM gq.segment WHERE id = $1", m.id).Scan(&token)
	return token == m.token, err
}
