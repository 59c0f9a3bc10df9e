package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/quantity"
)

// When the state of a database is a problem.
const (
	oldSnapshot       = 5 * time.Minute // default of --snapshot-age
	veryOldSnapshot   = time.Hour
	oldInTransactions = 1_000_000 // for snapshots whose start is unknown

	manyDeadRows = 100_000 // besides ten times as many as autovacuum starts at

	connectionsLow  = 0.8 // share of the connections that are in use
	connectionsFull = 0.95

	// The server refuses writes at about 2.1 billion. Autovacuum is supposed to keep the age
	// near autovacuum_freeze_max_age, by default 0.2 billion.
	wraparoundNear  = 1_000_000_000
	wraparoundClose = 1_600_000_000
)

// database tells about the database system that the store is in.
func (f *findings) database(d *gq.Database, snapshotAge time.Duration) {
	if d == nil {
		return
	}
	f.add("ok", "database", "%s", databaseSize(d))
	now := time.Now()
	for i := range d.Snapshots {
		s := &d.Snapshots[i]
		switch held := now.Sub(s.Since); {
		case s.Since.IsZero() && s.Age < oldInTransactions, !s.Since.IsZero() && held < snapshotAge:
		case !s.Since.IsZero() && held >= max(veryOldSnapshot, snapshotAge):
			f.add("fail", "snapshot", "%s", snapshotText(s))
		default:
			f.add("note", "snapshot", "%s", snapshotText(s))
		}
	}
	if d.Hidden > 0 {
		f.add("note", "snapshot", "%s of other database roles cannot be read; GRANT pg_read_all_stats to the role of the server", quantity.Of(d.Hidden, "session"))
	}
	if !d.Autovacuum {
		f.add("fail", "vacuum", "autovacuum is off, so the tables grow without end; ALTER SYSTEM SET autovacuum = on, then SELECT pg_reload_conf()")
	}
	for i := range d.Tables {
		if t := &d.Tables[i]; t.DeadRows > max(manyDeadRows, 10*t.VacuumAfter) {
			f.add("note", "vacuum", "autovacuum is behind on table %s: %d dead rows, and it starts at %d; end old snapshots first, then run VACUUM on the table or lower autovacuum_vacuum_cost_delay", t.Name, t.DeadRows, t.VacuumAfter)
		}
	}
	f.connections(d)
	switch {
	case d.TransactionAge > wraparoundClose:
		f.add("fail", "wraparound", "%s", wraparoundText(d))
	case d.TransactionAge > wraparoundNear:
		f.add("note", "wraparound", "%s", wraparoundText(d))
	}
}

func (f *findings) connections(d *gq.Database) {
	level := ""
	switch share := float64(d.Connections) / float64(max(d.MaxConnections, 1)); {
	case share >= connectionsFull:
		level = "fail"
	case share >= connectionsLow:
		level = "note"
	default:
		return
	}
	f.add(level, "connections", "%d of %d connections to the database server are in use; raise max_connections, lower pool_max_conns in the URLs of the servers, or use a pooler", d.Connections, d.MaxConnections)
}

// databaseSize has the three largest tables.
func databaseSize(d *gq.Database) string {
	total, largest := int64(0), []string{}
	for i := range d.Tables {
		total += d.Tables[i].Bytes
		if i < 3 {
			largest = append(largest, d.Tables[i].Name+" "+bytesText(uint64(d.Tables[i].Bytes)))
		}
	}
	text := fmt.Sprintf("%s, of these %s in tables of the queue", bytesText(uint64(d.Bytes)), bytesText(uint64(total)))
	if len(largest) > 0 {
		text += ": " + strings.Join(largest, ", ")
	}
	return text
}

// snapshotText says who holds a snapshot and how to end it.
func snapshotText(s *gq.DatabaseSnapshot) string {
	var who, remedy string
	switch s.Holder {
	case gq.HolderSession:
		who = fmt.Sprintf("session %d (application %q, role %s, database %s, %s)", s.PID, s.Name, s.Role, s.Database, s.State)
		remedy = fmt.Sprintf("SELECT pg_terminate_backend(%d), and set idle_in_transaction_session_timeout", s.PID)
	case gq.HolderPrepared:
		who = fmt.Sprintf("prepared transaction %q of role %s in database %s", s.Name, s.Role, s.Database)
		remedy = fmt.Sprintf("COMMIT PREPARED or ROLLBACK PREPARED %s in that database", sqlText(s.Name))
	case gq.HolderSlot:
		who = fmt.Sprintf("replication slot %q (%s)", s.Name, s.State)
		remedy = fmt.Sprintf("start its consumer, or SELECT pg_drop_replication_slot(%s)", sqlText(s.Name))
	case gq.HolderStandby:
		who = fmt.Sprintf("standby %q", s.Name)
		remedy = "end long queries there, or turn off its hot_standby_feedback"
	default:
		who, remedy = fmt.Sprintf("%s %q", s.Holder, s.Name), "end it"
	}
	since := "for " + quantity.Of(s.Age, "transaction")
	if !s.Since.IsZero() {
		since = "since " + ago(s.Since)
	}
	return fmt.Sprintf("%s has held a snapshot %s, and vacuum cannot remove rows that died since; %s", who, since, remedy)
}

func wraparoundText(d *gq.Database) string {
	return fmt.Sprintf("database %s is %d transactions old, and the server refuses writes at about 2.1 billion; end old snapshots, then run VACUUM (FREEZE) in that database", d.OldestDatabase, d.TransactionAge)
}

// sqlText quotes a string for SQL.
func sqlText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
