package store

import (
	"context"
	"time"
)

// Backuper is an optional capability: the store can be backed up while it is in use.
type Backuper interface {
	// Backup adds a generation to a directory of backups: everything that was committed when
	// it began. Files that an earlier generation has are not copied again. If keep is above 0,
	// only so many of the newest generations stay.
	//
	// Errors: [gq.ErrInvalid] for a directory that cannot be used, [gq.ErrInUse] while another
	// backup writes there.
	Backup(ctx context.Context, dir string, keep int) (Backup, error)
}

// Backup describes a generation of a backup.
type Backup struct {
	Generation  string    // its name; later ones sort after earlier ones
	Time        time.Time // when it was taken
	LastEvent   uint64    // the newest event in it, or an earlier one if others were being committed
	Files       int
	Bytes       int64
	CopiedFiles int // those that no earlier generation had
	CopiedBytes int64
	Removed     int // generations that were removed
}
