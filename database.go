package gq

import (
	"slices"
	"time"
)

// Database is the state of the database system that a store is in, as far as the store's
// database role may see it.
type Database struct {
	Bytes  int64           // size of the database, with everything else that is in it
	Tables []DatabaseTable // of the store, largest first; the partitions of a table count as one

	Autovacuum     bool // the server removes dead rows by itself
	Connections    int  // connections of clients to the server
	MaxConnections int  // that it accepts from roles without special rights

	// The server refuses writes before a database is 2^31 transactions old.
	TransactionAge int64  // age of the oldest transaction id in use
	OldestDatabase string // that has it

	Snapshots []DatabaseSnapshot // that keep vacuum from removing rows, oldest first; at most 10
	Hidden    int                // sessions of other roles whose snapshots the store's role may not see
}

// DatabaseTable is a table of a store.
type DatabaseTable struct {
	Name        string
	Bytes       int64 // with indexes
	Rows        int64 // estimated
	DeadRows    int64 // estimated; vacuum removes them
	VacuumAfter int64 // autovacuum starts at this number of dead rows
}

// DatabaseSnapshot is a transaction or another thing that needs old versions of rows.
type DatabaseSnapshot struct {
	Holder   SnapshotHolder
	Name     string    // application of a session, name of the others
	PID      int       // process of a session; 0 for the others
	Role     string    // may be empty, as may the database
	Database string    // that it belongs to
	State    string    // of a session: "idle in transaction"
	Since    time.Time // start of the transaction; zero if unknown
	Age      int64     // transactions that have begun since
}

// SnapshotHolder says what holds a snapshot.
type SnapshotHolder string

// The holders of snapshots.
const (
	HolderSession  SnapshotHolder = "session"              // a connection with an open transaction
	HolderPrepared SnapshotHolder = "prepared transaction" // that waits for COMMIT PREPARED
	HolderStandby  SnapshotHolder = "standby"              // with hot_standby_feedback
	HolderSlot     SnapshotHolder = "replication slot"
)

// Clone returns a copy that shares no memory with the original.
func (d Database) Clone() Database {
	d.Tables, d.Snapshots = slices.Clone(d.Tables), slices.Clone(d.Snapshots)
	return d
}
