package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// Backup is a generation of a backup.
type Backup struct {
	Generation  string    `json:"generation" doc:"Its name; later ones sort after earlier ones."`
	TakenAt     time.Time `json:"taken_at"`
	LastEvent   uint64    `json:"last_event" doc:"It has all events up to this one."`
	Files       int       `json:"files"`
	Bytes       int64     `json:"bytes"`
	CopiedFiles int       `json:"copied_files" doc:"Those that no earlier generation had."`
	CopiedBytes int64     `json:"copied_bytes"`
	Removed     int       `json:"removed" doc:"Older generations that were removed."`
}

// BackupOf encodes a backup.
func BackupOf(b *gq.Backup) Backup {
	return Backup{
		Generation: b.Generation, TakenAt: b.Time.UTC(), LastEvent: b.LastEvent, Files: b.Files, Bytes: b.Bytes,
		CopiedFiles: b.CopiedFiles, CopiedBytes: b.CopiedBytes, Removed: b.Removed,
	}
}

// ProtoBackup encodes a backup.
func ProtoBackup(b *gq.Backup) *pb.Backup {
	return &pb.Backup{
		Generation: b.Generation, TakenAt: timestamppb.New(b.Time), LastEvent: b.LastEvent, Files: int64(b.Files), Bytes: b.Bytes,
		CopiedFiles: int64(b.CopiedFiles), CopiedBytes: b.CopiedBytes, Removed: int64(b.Removed),
	}
}

// BackupFromProto decodes a backup.
func BackupFromProto(m *pb.Backup) gq.Backup {
	return gq.Backup{
		Generation: m.GetGeneration(), Time: m.GetTakenAt().AsTime(), LastEvent: m.GetLastEvent(), Files: int(m.GetFiles()), Bytes: m.GetBytes(),
		CopiedFiles: int(m.GetCopiedFiles()), CopiedBytes: m.GetCopiedBytes(), Removed: int(m.GetRemoved()),
	}
}
