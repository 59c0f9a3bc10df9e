package local

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// repairLogs rejects damaged logs, unless the loss is accepted, and cuts off what a
// crash left unfinished.
func (s *Store) repairLogs(k *known, acceptLoss bool) error {
	if k.damage != nil {
		if !acceptLoss {
			return k.damage.error()
		}
		return s.giveUp(k)
	}
	if len(k.logs) == 0 {
		return nil
	}
	newest := k.logs[len(k.logs)-1]
	if newest.end > newest.records {
		s.log.Warn("the end of the log was not acknowledged when the store stopped, and is cut",
			"dir", s.dir, "file", newest.path, "offset_bytes", newest.records, "cut_bytes", newest.end-newest.records,
			"readable_commits", newest.commits, "readable_new_jobs", newest.jobs)
	}
	if newest.records == 0 && !newest.missing {
		// Pebble leaves a log without records as it is, and would report its end as
		// torn once there is a newer log.
		return replaceFile(s.disk.FS, s.dir, newest.name, nil)
	}
	return nil
}

// giveUp cuts the logs at the damage and keeps copies of what it cuts off.
func (s *Store) giveUp(k *known) error {
	d := k.damage
	s.log.Error("acknowledged commits are given up, as was asked for",
		"dir", s.dir, "file", d.path, "missing", d.missing, "offset_bytes", d.at, "acknowledged_bytes", d.synced, "loss", d.loss())
	for i := len(d.later) - 1; i >= 0; i-- { // the damaged log comes last: after a crash it is found again
		if err := s.setAside(d.later[i], true); err != nil {
			return err
		}
		delete(k.evidence, d.later[i].name)
	}
	delete(k.evidence, d.scan.name)
	if d.missing {
		return nil
	}
	if err := s.setAside(d.scan, false); err != nil {
		return err
	}
	head, err := s.head(d.scan)
	if err != nil {
		return err
	}
	k.evidence.add(d.scan.name, d.scan.records)
	return replaceFile(s.disk.FS, s.dir, d.scan.name, head)
}

// setAside keeps a log under a name that Pebble does not read.
func (s *Store) setAside(l *scan, move bool) error {
	if l.missing {
		return nil
	}
	fs := s.disk.FS
	name := fs.PathJoin(s.dir, "lost-"+l.name)
	for i := 2; ; i++ {
		if _, err := fs.Stat(name); errors.Is(err, os.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		name = fs.PathJoin(s.dir, fmt.Sprintf("lost-%d-%s", i, l.name))
	}
	keep := fs.Link
	if move {
		keep = fs.Rename
	}
	if err := keep(l.path, name); err != nil {
		return err
	}
	s.log.Warn("a log that is given up is kept", "dir", s.dir, "file", l.path, "as", name)
	return syncDir(fs, s.dir)
}

// head returns the records of a log before the damage.
func (s *Store) head(l *scan) ([]byte, error) {
	f, err := s.disk.FS.Open(l.path, vfs.SequentialReadsOption)
	if err != nil {
		return nil, err
	}
	head := make([]byte, l.records)
	_, err = io.ReadFull(onlyReader{f}, head)
	return head, errors.Join(err, f.Close())
}

// discardInventory removes the inventory of a store whose damage is accepted.
func (s *Store) discardInventory(cause error) error {
	if !errors.Is(cause, gq.ErrCorrupt) {
		return cause
	}
	s.log.Error("the store is not as it was when it was closed, and is opened nevertheless, as was asked for", "dir", s.dir, "error", cause)
	fs := s.disk.FS
	if err := fs.Remove(fs.PathJoin(s.dir, inventoryFile)); err != nil {
		return err
	}
	return syncDir(fs, s.dir)
}
