package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

var _ store.Backuper = (*Store)(nil)

// checkpointDir is where a backup lets Pebble gather its files, within the directory of the
// store: tables never change and are shared by hard links, which need the same file system.
const checkpointDir = "BACKUP"

// Backup implements [store.Backuper]. A checkpoint takes milliseconds, whatever the size of the
// store, and holds up no call; copying follows.
func (s *Store) Backup(ctx context.Context, dir string, keep int) (out gq.Backup, err error) {
	if err := s.usable(ctx); err != nil {
		return out, err
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			s.log.Error("a backup failed", "event", "backup_failed", "dir", dir, "error", err)
		}
	}()
	if s.ephemeral || s.disk.FS != vfs.Default {
		return out, backupFault("store", "it is in memory and has no files to back up")
	}
	if keep < 0 {
		return out, backupFault("keep", "is negative; 0 keeps all generations")
	}
	target, err := s.backupTarget(dir)
	if err != nil {
		return out, err
	}
	if !s.reading() {
		return out, s.failure()
	}
	defer s.reads.Done()
	b, err := openBackups(target)
	if err != nil {
		return out, targetFault(target, err)
	}
	defer func() { err = errors.Join(err, b.close()) }()

	from := filepath.Join(s.dir, checkpointDir)
	if err := os.RemoveAll(from); err != nil { // left by a process that died
		return out, fmt.Errorf("back up %s: %w", s.dir, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(from)) }()
	out.Time, out.LastEvent = time.Now(), s.lastEvent.Load()
	if err := s.db.Checkpoint(from, pebble.WithFlushedWAL()); err != nil {
		return out, fmt.Errorf("back up %s: %w", s.dir, err)
	}
	for _, name := range []string{formatFile, tablesFile} {
		if err := copyFile(s.dir, from, name); err != nil {
			return out, fmt.Errorf("back up %s: %w", s.dir, err)
		}
	}
	if err := b.add(ctx, from, &out); err != nil {
		return out, fmt.Errorf("back up %s to %s: %w", s.dir, target, targetFault(target, err))
	}
	if keep > 0 {
		if out.Removed, err = b.prune(keep); err != nil {
			return out, fmt.Errorf("back up %s to %s: remove old generations: %w", s.dir, target, err)
		}
	}
	return out, nil
}

// targetFault says in words what a caller can mend: a directory for backups that is full or that
// the server may not write to.
func targetFault(dir string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return gq.ErrDiskFull.Errorf("the directory for backups, %s, has no space left; the store is not affected", dir)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return backupFault("dir", fmt.Sprintf("the server may not write to %s", dir))
	default:
		return err
	}
}

// backupTarget rejects a directory within the store, where a backup would go with what it is a
// backup of.
func (s *Store) backupTarget(dir string) (string, error) {
	if dir == "" {
		return "", backupFault("dir", "is missing")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("back up to %s: %w", dir, err)
	}
	abs = resolve(abs)
	if within, err := filepath.Rel(s.dir, abs); err == nil && within != ".." && !strings.HasPrefix(within, ".."+string(filepath.Separator)) {
		return "", backupFault("dir", fmt.Sprintf("%s is within the store %s; choose a directory outside, on another disk", abs, s.dir))
	}
	return abs, nil
}

func backupFault(field, problem string) error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: problem}}}
}

// copyFile copies a file that the store keeps beside the database.
func copyFile(from, to, name string) error {
	text, err := os.ReadFile(filepath.Join(from, name))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, name), text, 0o600)
}

// aside reports whether a file belongs to a checkpoint. Its writes bypass the guard: a backup
// that fails must not fail the store, and its logs are not the store's.
func (g *guard) aside(name string) bool {
	return strings.HasPrefix(name, filepath.Join(g.dir, checkpointDir))
}
