package pbconv

import (
	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

func protoDatabase(d *gq.Database) *pb.Database {
	if d == nil {
		return nil
	}
	m := &pb.Database{
		Bytes: d.Bytes, Autovacuum: d.Autovacuum, Connections: int64(d.Connections), MaxConnections: int64(d.MaxConnections),
		TransactionAge: d.TransactionAge, OldestDatabase: Prose(d.OldestDatabase), Hidden: int64(d.Hidden),
	}
	for i := range d.Tables {
		t := &d.Tables[i]
		m.Tables = append(m.Tables, &pb.DatabaseTable{Name: Prose(t.Name), Bytes: t.Bytes, Rows: t.Rows, DeadRows: t.DeadRows, VacuumAfter: t.VacuumAfter})
	}
	for i := range d.Snapshots {
		s := &d.Snapshots[i]
		m.Snapshots = append(m.Snapshots, &pb.DatabaseSnapshot{
			Holder: string(s.Holder), Name: Prose(s.Name), Pid: int64(s.PID), Role: Prose(s.Role), Database: Prose(s.Database),
			State: Prose(s.State), Since: protoTime(s.Since), Age: s.Age,
		})
	}
	return m
}

func (r *protoReader) database(at string, m *pb.Database) *gq.Database {
	if m == nil {
		return nil
	}
	d := &gq.Database{
		Bytes: m.GetBytes(), Autovacuum: m.GetAutovacuum(),
		Connections: r.int(at, "connections", m.GetConnections()), MaxConnections: r.int(at, "max_connections", m.GetMaxConnections()),
		TransactionAge: m.GetTransactionAge(), OldestDatabase: m.GetOldestDatabase(), Hidden: r.int(at, "hidden", m.GetHidden()),
	}
	for _, t := range m.GetTables() {
		d.Tables = append(d.Tables, gq.DatabaseTable{Name: t.GetName(), Bytes: t.GetBytes(), Rows: t.GetRows(), DeadRows: t.GetDeadRows(), VacuumAfter: t.GetVacuumAfter()})
	}
	for _, s := range m.GetSnapshots() {
		d.Snapshots = append(d.Snapshots, gq.DatabaseSnapshot{
			Holder: gq.SnapshotHolder(s.GetHolder()), Name: s.GetName(), PID: r.int(at+"snapshots.", "pid", s.GetPid()), Role: s.GetRole(),
			Database: s.GetDatabase(), State: s.GetState(), Since: r.time(at+"snapshots.", "since", s.GetSince()), Age: s.GetAge(),
		})
	}
	return d
}
