package store

import (
	"context"

	"github.com/gopherqueue/gq"
)

// Backuper is an optional capability: the store can be backed up while it is in use.
type Backuper interface {
	// Backup adds a generation to a directory of backups: everything that was committed when
	// it began. Files that an earlier generation has are not copied again. If keep is above 0,
	// only so many of the newest generations stay.
	//
	// Errors: [gq.ErrInvalid] for a directory that cannot be used, [gq.ErrInUse] while another
	// backup writes there.
	Backup(ctx context.Context, dir string, keep int) (gq.Backup, error)
}
