package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// Pebble's manifest knows tables by number and size only, so it would read a table of another store,
// or of another copy of this one, that has both. Each table therefore carries the name of the
// run that wrote it: a random text, new whenever the store is opened. The file TABLES says from which
// number on the tables are of which run.
//
//	gopherqueue tables 1
//	0 -                            (written before there were names)
//	31 MZXW6YTBOJXXEZLSMZXW6YTBOI
//	end 5be00c2d                   (checksum of the lines above)
const (
	tablesFile   = "TABLES"
	tablesHead   = "gopherqueue tables 1\n"
	runProperty  = "gq.run"
	noRun        = "-"
	maxRuns      = 1000 // in the file; older ones whose tables are gone are forgotten
	tablesSuffix = ".sst"
)

// tableRun is a run of the store: its tables have this number or higher ones, up to the next run's.
type tableRun struct {
	from uint64
	name string
}

// tableOf is a table in the directory, with the run that wrote it, empty if that cannot be read: a crash
// may leave a part of a table, and Pebble reports damaged ones.
type tableOf struct {
	number uint64
	run    string
}

// checkTables refuses tables that no run of this store wrote, and begins a new run. closed means that
// an inventory has proved the files to be unchanged.
func (s *Store) checkTables(closed bool, known evidence) error {
	tables, err := s.readTables()
	if err != nil {
		return err
	}
	runs, err := s.readRuns()
	if err == nil && runs == nil || errors.Is(err, gq.ErrCorrupt) {
		if err != nil || slices.ContainsFunc(tables, func(t tableOf) bool { return t.run != "" && t.run != noRun }) {
			s.log.Warn("the record of which tables belong to this store is missing or damaged and is made again; tables of another store would not be noticed now",
				"dir", s.dir, "file", tablesFile)
		}
		runs, err = runsOf(tables), nil
	}
	if err != nil {
		return err
	}
	s.checkSynced(closed, known, runs)
	next := uint64(0)
	if len(runs) > 0 {
		next = runs[len(runs)-1].from + 1
	}
	for _, t := range tables {
		switch want := runOf(runs, t.number); {
		case t.run == "" || t.run == want:
		case t.run == noRun:
			s.log.Warn("a program of an earlier version wrote this table, here or in another store", "dir", s.dir, "file", tableName(t.number))
		default:
			return fmt.Errorf("%s is a table of another store, or of another copy of this one: %w; put the right file back, or %s",
				s.disk.PathJoin(s.dir, tableName(t.number)), gq.ErrCorrupt, remedy(s.dir))
		}
		next = max(next, t.number+1)
	}
	if len(runs) > maxRuns {
		runs = runsOf(tables)
	}
	s.run = rand.Text()
	return s.writeRuns(append(runs, tableRun{next, s.run}))
}

func tableName(number uint64) string { return fmt.Sprintf("%06d%s", number, tablesSuffix) }

// runsOf returns the runs that wrote tables, which are in ascending order.
func runsOf(tables []tableOf) []tableRun {
	runs := []tableRun{{0, noRun}}
	for _, t := range tables {
		if t.run != "" && t.run != runs[len(runs)-1].name {
			runs = append(runs, tableRun{t.number, t.run})
		}
	}
	return runs
}

// runOf returns the run that wrote the table with a number.
func runOf(runs []tableRun, number uint64) string {
	name := noRun
	for _, r := range runs {
		if r.from <= number {
			name = r.name
		}
	}
	return name
}

// checkSynced warns if the file SYNCED is missing, damaged or another store's. After a clean stop it
// only warns of a damaged one: the file is not part of a backup.
func (s *Store) checkSynced(closed bool, known evidence, runs []tableRun) {
	if manifest, err := s.currentManifest(); err != nil || manifest == "" {
		return // a new store
	}
	problem := ""
	if _, err := s.disk.FS.Stat(s.disk.PathJoin(s.dir, syncedFile)); errors.Is(err, os.ErrNotExist) {
		if closed {
			return
		}
		problem = "missing"
	} else if _, err := readSynced(s.disk.FS, s.dir); errors.Is(err, gq.ErrCorrupt) {
		problem = "damaged"
	}
	for name := range known {
		if closed {
			break
		}
		run, ok := strings.CutPrefix(name, syncedRun)
		if ok && !slices.ContainsFunc(runs, func(r tableRun) bool { return r.name == run }) {
			problem = "of another store"
		}
	}
	if problem != "" {
		s.log.Warn("the record of how far the logs were synced is "+problem+"; damage at their end may have looked like the effect of a power cut",
			"dir", s.dir, "file", syncedFile)
	}
}

// readTables lists the tables in the directory by number.
func (s *Store) readTables() (tables []tableOf, err error) {
	names, err := s.disk.FS.List(s.dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		digits, ok := strings.CutSuffix(name, tablesSuffix)
		number, err := strconv.ParseUint(digits, 10, 64)
		if !ok || err != nil {
			continue
		}
		tables = append(tables, tableOf{number, writerOf(s.disk.FS, s.disk.PathJoin(s.dir, name))})
	}
	slices.SortFunc(tables, func(a, b tableOf) int { return int(int64(a.number) - int64(b.number)) })
	return tables, nil
}

// writerOf returns the run that wrote a table, empty if it cannot be read.
func writerOf(fs vfs.FS, path string) string {
	f, err := fs.Open(path)
	if err != nil {
		return ""
	}
	readable, err := sstable.NewSimpleReadable(f)
	if err != nil {
		_ = f.Close()
		return ""
	}
	r, err := sstable.NewReader(context.Background(), readable, sstable.ReaderOptions{})
	if err != nil {
		_ = readable.Close()
		return ""
	}
	property := r.UserProperties[runProperty]
	if r.Close() != nil {
		return ""
	}
	if len(property) < 2 { // its first byte is Pebble's
		return noRun
	}
	return property[1:]
}

// readRuns reads the file, nil if there is none.
func (s *Store) readRuns() (runs []tableRun, err error) {
	name := s.disk.PathJoin(s.dir, tablesFile)
	f, err := s.disk.FS.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	end := bytes.LastIndex(text, []byte("end "))
	if end < 0 || string(text[end:]) != fmt.Sprintf("end %08x\n", crc32.Checksum(text[:end], castagnoli)) {
		return nil, fmt.Errorf("%s: %w", name, gq.ErrCorrupt)
	}
	body, ok := bytes.CutPrefix(text[:end], []byte(tablesHead))
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, gq.ErrFormat)
	}
	for line := range strings.Lines(string(body)) {
		var r tableRun
		if _, err := fmt.Sscan(line, &r.from, &r.name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, gq.ErrCorrupt)
		}
		runs = append(runs, r)
	}
	return runs, nil
}

func (s *Store) writeRuns(runs []tableRun) error {
	var b bytes.Buffer
	b.WriteString(tablesHead)
	for _, r := range runs {
		fmt.Fprintf(&b, "%d %s\n", r.from, r.name)
	}
	fmt.Fprintf(&b, "end %08x\n", crc32.Checksum(b.Bytes(), castagnoli))
	return replaceFile(s.disk.FS, s.dir, tablesFile, b.Bytes())
}

// runCollector makes Pebble write the name of the run into each table. It collects nothing of blocks.
type runCollector struct{ run string }

func (runCollector) Name() string                                           { return runProperty }
func (runCollector) AddPointKey(pebble.InternalKey, []byte) error           { return nil }
func (runCollector) AddRangeKeys(sstable.Span) error                        { return nil }
func (runCollector) AddCollectedWithSuffixReplacement(_, _, _ []byte) error { return nil }
func (runCollector) SupportsSuffixReplacement() bool                        { return true }
func (runCollector) FinishDataBlock(b []byte) ([]byte, error)               { return b, nil }
func (runCollector) AddPrevDataBlockToIndexBlock()                          {}
func (runCollector) FinishIndexBlock(b []byte) ([]byte, error)              { return b, nil }
func (c runCollector) FinishTable(b []byte) ([]byte, error)                 { return append(b, c.run...), nil }
