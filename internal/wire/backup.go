package wire

import (
	"time"

	"github.com/gopherqueue/gq"
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
