package wire

import (
	"time"

	"github.com/gopherqueue/gq"
)

// Database is the state of the database system that a store is in.
type Database struct {
	Bytes          int64              `json:"bytes" doc:"Size of the database, with everything else that is in it."`
	Tables         []DatabaseTable    `json:"tables" doc:"Of the store, largest first; the partitions of a table count as one."`
	Autovacuum     bool               `json:"autovacuum" doc:"The server removes dead rows by itself."`
	Connections    int                `json:"connections" doc:"Of clients to the server."`
	MaxConnections int                `json:"max_connections" doc:"That it accepts from roles without special rights."`
	TransactionAge int64              `json:"transaction_age" doc:"Age of the oldest transaction id in use; the server refuses writes before 2^31."`
	OldestDatabase string             `json:"oldest_database" doc:"That has it."`
	Snapshots      []DatabaseSnapshot `json:"snapshots,omitempty" doc:"That keep vacuum from removing rows, oldest first."`
	Hidden         int                `json:"hidden,omitzero" doc:"Sessions of other roles whose snapshots the store's role may not see."`
}

// DatabaseTable is a table of a store.
type DatabaseTable struct {
	Name        string `json:"name"`
	Bytes       int64  `json:"bytes" doc:"With indexes."`
	Rows        int64  `json:"rows" doc:"Estimated."`
	DeadRows    int64  `json:"dead_rows" doc:"Estimated; vacuum removes them."`
	VacuumAfter int64  `json:"vacuum_after" doc:"Autovacuum starts at this number of dead rows."`
}

// DatabaseSnapshot is a transaction or another thing that needs old versions of rows.
type DatabaseSnapshot struct {
	Holder   string    `json:"holder" doc:"session, prepared transaction, standby or replication slot."`
	Name     string    `json:"name" doc:"Application of a session, name of the others."`
	PID      int       `json:"pid,omitzero" doc:"Process of a session."`
	Role     string    `json:"role,omitzero"`
	Database string    `json:"database,omitzero" doc:"That it belongs to."`
	State    string    `json:"state,omitzero" doc:"Of a session or a slot." example:"idle in transaction"`
	Since    time.Time `json:"since,omitzero" doc:"Start of the transaction; absent if unknown."`
	Age      int64     `json:"age" doc:"Transactions that have begun since."`
}

func databaseOf(d *gq.Database) *Database {
	if d == nil {
		return nil
	}
	out := &Database{
		Bytes: d.Bytes, Tables: make([]DatabaseTable, len(d.Tables)), Autovacuum: d.Autovacuum,
		Connections: d.Connections, MaxConnections: d.MaxConnections,
		TransactionAge: d.TransactionAge, OldestDatabase: d.OldestDatabase, Hidden: d.Hidden,
	}
	for i := range d.Tables {
		out.Tables[i] = DatabaseTable(d.Tables[i])
	}
	for i := range d.Snapshots {
		s := &d.Snapshots[i]
		out.Snapshots = append(out.Snapshots, DatabaseSnapshot{
			Holder: string(s.Holder), Name: s.Name, PID: s.PID, Role: s.Role, Database: s.Database, State: s.State, Since: utc(s.Since), Age: s.Age,
		})
	}
	return out
}
