package wire

import (
	"bytes"
	"time"

	"github.com/gopherqueue/gq"
)

// Stats is a summary of an installation.
type Stats struct {
	Queues      []QueueCounts    `json:"queues"`
	NextCursor  string           `json:"next_cursor,omitzero" doc:"Absent on the last page of queues."`
	Total       map[string]int64 `json:"total" doc:"Jobs by state."`
	Live        int64            `json:"live" doc:"Jobs that have not ended."`
	Held        int64            `json:"held" doc:"Jobs that workers have."`
	Workers     int              `json:"workers" doc:"Live ones."`
	Nodes       []Node           `json:"nodes,omitempty" doc:"Engines that run on the store, by id."`
	Commits     uint64           `json:"commits,omitzero" doc:"Batches that the store has written since it was opened."`
	Syncs       uint64           `json:"syncs,omitzero" doc:"Times it waited for stable storage."`
	DiskBytes   uint64           `json:"disk_bytes,omitzero" doc:"Its size on disk; in a database that of its tables."`
	DiskFree    *uint64          `json:"disk_free,omitzero" doc:"Bytes that are free there. Absent if the store does not measure its disk."`
	DiskReserve uint64           `json:"disk_reserve,omitzero" doc:"Bytes that the store keeps free: with less, it refuses new jobs."`
	DiskRefuses string           `json:"disk_refuses,omitzero" doc:"What it refuses for lack of space: submissions, or writes, which are submissions, claims and all other changes." example:"submissions"`
	Server      *ServerState     `json:"server,omitzero" doc:"What the server that answers knows about itself."`
	Database    *Database        `json:"database,omitzero" doc:"Absent unless the store is in a database system. It may be some seconds old."`
}

// ServerState is what a server knows about itself.
type ServerState struct {
	Backups              bool      `json:"backups" doc:"It has a directory for backups."`
	LastBackupAt         time.Time `json:"last_backup_at,omitzero" doc:"The newest backup there; absent if there is none."`
	CertificateExpiresAt time.Time `json:"certificate_expires_at,omitzero" doc:"Of the certificate in use; absent without TLS."`
	CertificateProblem   string    `json:"certificate_problem,omitzero" doc:"Why the certificate files on disk are not in use."`
}

// Node is an engine that runs on the store.
type Node struct {
	ID         string    `json:"id" doc:"Random."`
	Host       string    `json:"host"`
	PID        int       `json:"pid"`
	Version    string    `json:"version" doc:"Release of the module in the program."`
	StartedAt  time.Time `json:"started_at"`
	LastSeenAt time.Time `json:"last_seen_at" doc:"Its last announcement to the others."`
	Workers    int       `json:"workers" doc:"Live ones that call it."`
	Layout     int       `json:"layout,omitzero" doc:"The newest layout of the database's tables that its program knows."`
}

// QueueCounts has the number of a queue's jobs in each state.
type QueueCounts struct {
	Queue  string           `json:"queue"`
	Counts map[string]int64 `json:"counts"`
	Live   int64            `json:"live"`
	Held   int64            `json:"held"`
}

// StatsOf converts a summary.
func StatsOf(s *gq.Stats) Stats {
	out := Stats{
		Queues: make([]QueueCounts, len(s.Queues)),
		Total:  countsOf(&s.Total), Live: s.Total.Live(), Held: s.Total.Held(),
		Workers: s.Workers, Commits: s.Commits, Syncs: s.Syncs, DiskBytes: s.DiskBytes, DiskReserve: s.DiskReserve, DiskRefuses: s.DiskRefuses, Database: databaseOf(s.Database),
	}
	if v := s.Server; v != nil {
		out.Server = &ServerState{
			Backups: v.Backups, LastBackupAt: utc(v.LastBackup),
			CertificateExpiresAt: utc(v.CertificateExpires), CertificateProblem: v.CertificateProblem,
		}
	}
	if s.DiskReserve > 0 {
		out.DiskFree = &s.DiskFree
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		out.Nodes = append(out.Nodes, Node{
			ID: n.ID, Host: n.Host, PID: n.PID, Version: n.Version,
			StartedAt: utc(n.Started), LastSeenAt: utc(n.LastSeen), Workers: n.Workers, Layout: n.Layout,
		})
	}
	for i := range s.Queues {
		c := &s.Queues[i]
		out.Queues[i] = QueueCounts{Queue: c.Queue, Counts: countsOf(c), Live: c.Live(), Held: c.Held()}
	}
	return out
}

// Worker is a worker that was active recently.
type Worker struct {
	Name       string    `json:"name"`
	Queues     []string  `json:"queues" doc:"That it last claimed from."`
	Types      []string  `json:"types,omitempty" doc:"None is any."`
	Offers     []string  `json:"offers,omitempty"`
	MaxCost    int64     `json:"max_cost,omitzero" doc:"0 is any."`
	Waiting    int       `json:"waiting" doc:"Claims that wait for a job."`
	Running    int       `json:"running" doc:"Jobs it holds."`
	LastSeenAt time.Time `json:"last_seen_at"`
	Node       string    `json:"node,omitzero" doc:"Id of the node that it called last."`
	Version    string    `json:"version,omitzero" doc:"Release of its client library, if it said."`
	Leases     []string  `json:"leases,omitempty" doc:"Ids of the leases of the jobs it holds, at most 100."`
}

// Workers is the list of workers.
type Workers struct {
	Workers []Worker `json:"workers"`
}

// WorkersOf converts a list of workers.
func WorkersOf(workers []gq.LiveWorker) Workers {
	out := Workers{Workers: make([]Worker, len(workers))}
	for i, w := range workers {
		queues := w.Queues
		if queues == nil {
			queues = []string{}
		}
		out.Workers[i] = Worker{
			Name: w.Name, Queues: queues, Types: w.Types, Offers: w.Offers, MaxCost: w.MaxCost,
			Waiting: w.Waiting, Running: w.Running, LastSeenAt: utc(w.LastSeen),
			Node: w.Node, Version: w.Version, Leases: leaseNames(w.Leases),
		}
	}
	return out
}

func leaseNames(leases []gq.LeaseID) []string {
	var names []string
	for _, id := range leases {
		names = append(names, string(id))
	}
	return names
}

// CancelReport is the result of cancelling many jobs.
type CancelReport struct {
	Cancelled int `json:"cancelled" doc:"Ended at once."`
	Requested int `json:"requested" doc:"Running; their workers are asked to stop."`
	Finished  int `json:"finished" doc:"Had ended in the meantime."`
}

// ReplayReport is the result of replaying a page of jobs.
type ReplayReport struct {
	Jobs       []string `json:"jobs" doc:"The new jobs."`
	Existing   int      `json:"existing,omitzero" doc:"Jobs that were replayed before, and are not replayed again."`
	Refused    int      `json:"refused,omitzero" doc:"Jobs that could not be submitted again."`
	Problem    string   `json:"problem,omitzero" doc:"Of the first refused job."`
	NextCursor string   `json:"next_cursor,omitzero" doc:"Cursor of the next call; absent after the last."`
}

// ReplayReportOf converts the result of replaying a page of jobs.
func ReplayReportOf(r *gq.ReplayReport) ReplayReport {
	out := ReplayReport{Jobs: make([]string, len(r.Jobs)), Existing: r.Existing, Refused: r.Refused, Problem: r.Problem, NextCursor: r.Next}
	for i, id := range r.Jobs {
		out.Jobs[i] = id.String()
	}
	return out
}

// CountReport is the number of jobs that a filter selects.
type CountReport struct {
	Jobs       int64  `json:"jobs" doc:"That this call counted."`
	NextCursor string `json:"next_cursor,omitzero" doc:"Cursor of the next call; absent after the last."`
}

// PurgeReport says how many jobs were removed.
type PurgeReport struct {
	Purged int `json:"purged"`
}

// marshal returns the compact form of a value without HTML escaping.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	if err := EncodeJSON(&b, v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
