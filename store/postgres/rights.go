package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
)

// Codes of errors that a database of somebody else, or a role with too few rights, answers with.
const (
	insufficientPrivilege = "42501"
	undefinedTable        = "42P01"
	invalidSchema         = "3F000"
)

// sqlState returns the code of the server's error, with any driver; empty for other errors.
func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok {
		return e.SQLState()
	}
	return ""
}

// withGrant adds to an error which GRANT the role of a store lacks.
func withGrant(ctx context.Context, db querier, err error) error {
	if sqlState(err) != insufficientPrivilege {
		return err
	}
	var role, owner, database string
	ask := db.QueryRow(ctx, `
		SELECT quote_ident(current_user), quote_ident(current_database()),
			coalesce((SELECT quote_ident(pg_get_userbyid(nspowner)) FROM pg_namespace WHERE oid = to_regnamespace('gq')), '')`,
	).Scan(&role, &database, &owner)
	switch {
	case ask != nil:
		return err
	case owner == "" || owner == role:
		return fmt.Errorf("%w; to let the role create schemas: GRANT CREATE ON DATABASE %s TO %s", err, database, role)
	default:
		return fmt.Errorf("%w; a server also makes and drops partitions, so it must act as the owner of the tables: GRANT %s TO %s; ALTER ROLE %[3]s SET role = %[2]s",
			err, owner, role)
	}
}

// explainWithin says what is wrong with the transaction of an application, which needs some rights.
func (s *Store) explainWithin(err error, rights string) error {
	schema := pgx.Identifier{s.pool.dialect.name()}.Sanitize()
	switch sqlState(err) {
	case undefinedTable, invalidSchema:
		return gq.ErrInvalid.Errorf("the transaction is in a database without the queue's schema %s; begin it in the database that the queue was opened with: %v", schema, err)
	case insufficientPrivilege:
		return fmt.Errorf("%w; the role of the transaction needs %s", err, fmt.Sprintf(rights, schema))
	}
	return err
}

// Rights that transactions need. %[1]s is the schema.
const (
	// An insert reads and writes most of the tables.
	ownersRights = "the rights of the owner of the schema %[1]s (GRANT owner TO role), or only GRANT USAGE ON SCHEMA %[1]s TO role and GRANT INSERT ON %[1]s.inbox TO role if it is a transaction of database/sql"
	inboxRights  = "GRANT USAGE ON SCHEMA %[1]s TO role and GRANT INSERT ON %[1]s.inbox TO role"
)

// errForeign means that a transaction has written to the tables of another queue.
var errForeign = gq.ErrInvalid.Errorf("the transaction is in a database with another queue; begin it in the database that the queue was opened with")
