package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/quantity"
	"github.com/gopherqueue/gq/internal/wire"
	"github.com/gopherqueue/gq/store/local"
)

func newBackupNow(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "now",
		Short: "Let a server back up its file: store while it serves",
		Long: `Let a server back up its file: store while it serves, into the directory of its
setting backup.dir. What an earlier backup there has is not copied again. The
command returns when the backup is complete and synced.

gq restore DIR makes a store of the newest one.

` + cli.ExitHelp,
		Example: "  gq serve --backup-dir /mnt/backups/gq --backup-keep 48\n  gq backup now",
		Args:    cli.NoArguments,
	}
	r := newRemote(p, c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return r.long(c.Context(), func(ctx context.Context, q queue) error {
			a, err := adminOf(q)
			if err != nil {
				return err
			}
			m, err := a.CreateBackup(ctx, &pb.CreateBackupRequest{})
			if err != nil {
				return err
			}
			b := pbconv.BackupFromProto(m)
			return r.print(wire.BackupOf(&b), func(s screen) {
				s.line("%s: %s, %s; new: %s, %s", b.Generation, quantity.Of(b.Files, "file"), quantity.Of(b.Bytes, "byte"), quantity.Of(b.CopiedFiles, "file"), quantity.Of(b.CopiedBytes, "byte"))
			})
		})
	}
	return c
}

// isDir reports whether a path is a directory.
func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// restoreDir makes a store of a backup that a server took.
func (m *mover) restoreDir(ctx context.Context, dir, generation, url string) error {
	u, err := parseMovable("store", url)
	if err != nil {
		return err
	}
	if u.Scheme != "file" {
		return cli.Invalid("store", "a backup that a server took can be restored only into file:DIR; gq copy moves that to a database")
	}
	b, err := local.RestoreBackup(ctx, dir, generation, u.Dir)
	if err != nil {
		return err
	}
	return m.restored(&b, dir, url)
}

// restored prints what was restored.
func (m *mover) restored(b *gq.Backup, dir, url string) error {
	if m.json {
		return wire.EncodeJSON(m.stdout, wire.BackupOf(b))
	}
	_, err := fmt.Fprintf(m.stdout, "restored backup %s from %s to %s: %s, %s\n", b.Generation, dir, url, quantity.Of(b.Files, "file"), quantity.Of(b.Bytes, "byte"))
	return err
}
