package local

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// A directory with this file is a store. The file names the format; its line ends in
// formatUnfinished until the database has been created, or in formatCopy if that is for a copy.
const (
	formatFile       = "GOPHERQUEUE"
	formatPrefix     = "gopherqueue store format "
	formatUnfinished = " (unfinished)"
	formatCopy       = " (unfinished copy)"

	// copyMark is the first file of a copy in a directory that was there already. Until there is a formatFile, it
	// alone tells a copy that was broken off from an empty directory.
	copyMark      = formatFile + ".copy"
	formatVersion = 2
)

// Exists reports whether there is a store in a directory.
func Exists(dir string) (bool, error) {
	_, err := os.Stat(filepath.Join(dir, formatFile))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// openFiles creates or opens the directory and its database.
func (s *Store) openFiles(cacheMiB int, acceptLoss bool) error {
	fs := s.disk
	lock, finished, err := s.claimDirectory()
	if err != nil {
		return fmt.Errorf("open %s: %w", s.dir, opening(err))
	}
	if cacheMiB == 0 {
		cacheMiB = 64
	}
	s.cache = newCache(cacheMiB)
	options := databaseOptions(fs, s.cache)
	options.Lock, options.Logger = lock, quiet{s}
	s.disk.survey()
	options.MemTableSize = s.disk.memTable()
	options.ErrorIfNotExists = finished
	if s.ephemeral {
		// Pebble's default scheduler also looks for waiting compactions ten times a second. In
		// a test whose clock advances by days, that is most of the work. Without it, a second
		// compaction may start only when the first has ended.
		options.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	}
	options.EventListener = &pebble.EventListener{
		BackgroundError: func(err error) {
			s.log.Warn("background work of the store failed and is tried again", "dir", s.dir, "error", inWords(err))
		},
		DataCorruption: func(info pebble.DataCorruptionInfo) {
			s.fail(&unreadable{info})
		},
	}
	if err = s.inspect(lock, acceptLoss); err == nil {
		options.BlockPropertyCollectors = []func() pebble.BlockPropertyCollector{func() pebble.BlockPropertyCollector { return runCollector{s.run} }}
		s.db, err = s.openDatabase(options)
	}
	if err == nil && s.failure() != nil {
		err = errors.Join(s.failure(), s.db.Close())
	}
	if err == nil && !finished {
		if err = s.finishFiles(); err != nil {
			err = errors.Join(opening(err), s.db.Close())
		}
	}
	if err != nil {
		s.cache.Unref()
		s.disk.ledger.close()
		return fmt.Errorf("open %s: %w", s.dir, errors.Join(err, lock.Close()))
	}
	s.lock = lock
	s.disk.watches.Store(true)
	return nil
}

// finishFiles completes a new store. One that was opened to be filled stays unfinished, whatever
// happens before the import begins. Pebble panics if its log is broken.
func (s *Store) finishFiles() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	if err := s.createIDKey(); err != nil {
		return err
	}
	if s.config.Unfinished {
		if err := s.db.Set(metaImport, (&importing{}).encode(), pebble.Sync); err != nil {
			return err
		}
	}
	return s.writeFormat("")
}

const (
	memTableBytes = 64 << 20
	memTables     = 4
)

// newCache makes a block cache. Pebble takes the memory of its memtables out of the
// cache, so newCache adds that much.
func newCache(mebibytes int) *pebble.Cache {
	return pebble.NewCache(int64(mebibytes)<<20 + memTables*memTableBytes)
}

// databaseOptions returns Pebble's settings. The store syncs the log itself. Tables are
// so large that a busy queue's jobs come and go within one.
func databaseOptions(fs vfs.FS, cache *pebble.Cache) *pebble.Options {
	options := &pebble.Options{
		FS:                          fs,
		Cache:                       cache,
		MemTableSize:                memTableBytes,
		MemTableStopWritesThreshold: memTables,
		L0CompactionThreshold:       12,
		L0CompactionFileThreshold:   2500, // tables that do not overlap need no merging
		L0StopWritesThreshold:       64,
		LBaseMaxBytes:               1 << 30, // fewer levels: see docs/performance-notes.md, "Ten million jobs queued"
		FormatMajorVersion:          pebble.FormatNewest,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		BytesPerSync:                1 << 20,
	}
	options.Experimental.SpanPolicyFunc = func(first []byte) (pebble.SpanPolicy, []byte, error) {
		return pebble.SpanPolicy{}, tableEnd(first), nil
	}
	for i := range options.Levels {
		options.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	// No table is compressed: other levels have the setting of the first.
	options.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	return options
}

// openDatabase opens Pebble and returns reports of damage as errors, even where Pebble
// panics.
func (s *Store) openDatabase(options *pebble.Options) (db *pebble.DB, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the database cannot be opened: %w: %v; %s", gq.ErrCorrupt, r, remedy(s.dir))
		}
	}()
	db, err = pebble.Open(s.dir, options)
	var system syscall.Errno
	if err != nil && (!errors.As(err, &system) || errors.Is(err, os.ErrNotExist)) {
		return nil, s.unopened(err)
	}
	return db, opening(err)
}

// damaged marks an error of Pebble as [gq.ErrCorrupt].
func damaged(err error) error {
	if err == nil {
		return nil
	}
	if told := inWords(err); errors.Is(told, gq.ErrCorrupt) {
		return told
	}
	return fmt.Errorf("%w: %w", gq.ErrCorrupt, err)
}

// inWords replaces what Pebble says of a damaged table.
func inWords(err error) error {
	if found := pebble.ExtractDataCorruptionInfo(err); found != nil {
		return &unreadable{*found}
	}
	return err
}

// unreadable is the damage to a table that was noticed when it was read. It is a [gq.ErrCorrupt].
type unreadable struct{ found pebble.DataCorruptionInfo }

func (u *unreadable) Error() string {
	details := strings.ReplaceAll(u.found.Details.Error(), "\n", "; ")
	return fmt.Sprintf("%s: %v (%s); the store writes nothing more; %s", u.found.Path, gq.ErrCorrupt, details, remedy(filepath.Dir(u.found.Path)))
}

func (u *unreadable) Unwrap() error { return gq.ErrCorrupt }

// remedy says how to get back a store whose tables or manifest cannot be read.
func remedy(dir string) string {
	return fmt.Sprintf("restore a backup: gq restore BACKUP --store file:%s-restored (see docs/operations.md, A damaged directory)", dir)
}

// unopened says in our words why Pebble does not open a database: it tells tables of the wrong size, and those that are
// missing, in its text only.
func (s *Store) unopened(err error) error {
	var problems []string
	for line := range strings.Lines(err.Error()) {
		if m := wrongSize.FindStringSubmatch(line); m != nil {
			problems = append(problems, fmt.Sprintf("%s has %s bytes instead of %s", s.disk.PathJoin(s.dir, m[1]+tablesSuffix), m[2], m[3]))
		} else if m := noTable.FindStringSubmatch(line); m != nil {
			problems = append(problems, s.disk.PathJoin(s.dir, m[1]+tablesSuffix)+" is missing")
		} else {
			problems = append(problems, strings.TrimSpace(line))
		}
	}
	return fmt.Errorf("%s: %w; %s", strings.Join(problems, ", "), gq.ErrCorrupt, remedy(s.dir))
}

var (
	wrongSize = regexp.MustCompile(`L\d+: (\d+): object size mismatch .*: (\d+) \(disk\) != (\d+) \(MANIFEST\)`)
	noTable   = regexp.MustCompile(`L\d+: (\d+): .*unknown to the objstorage provider`)
)

// opening adds the matching gq error to an error of the operating system.
func opening(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("%w: %w", gq.ErrDiskFull, err)
	case errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w: %w", gq.ErrFormat, err)
	}
	return err
}

// claimDirectory locks the directory and checks that it is a store or empty. It reports
// whether its database has already been created.
func (s *Store) claimDirectory() (lock *pebble.Lock, finished bool, err error) {
	fs := s.disk.FS
	names, err := fs.List(s.dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, false, err
	}
	ours, marked, others := false, false, ""
	for _, name := range names {
		switch name {
		case formatFile:
			ours = true
		case copyMark:
			marked = true
		case formatFile + ".new", "LOCK", "lost+found":
		default:
			others = name
		}
	}
	if !ours && others != "" {
		return nil, false, fmt.Errorf("the directory holds %s but no store: %w", others, gq.ErrFormat)
	}
	switch copying := s.config.Unfinished && !s.ephemeral; {
	case err != nil && copying:
		err, ours = s.mkdirMarked(), true
	case err != nil:
		err = mkdirs(fs, s.dir)
	case copying && !ours && !marked:
		err, marked = s.markCopy(), true
	case !copying && !ours && marked:
		err = errUnfinished
	}
	if err != nil {
		return nil, false, err
	}
	if ours {
		if finished, err = s.checkFormat(); err != nil {
			return nil, false, err
		}
	}
	lock, err = pebble.LockDirectory(s.dir, fs)
	if _, ok := errors.AsType[*os.PathError](err); ok {
		return nil, false, err
	}
	if err != nil {
		if strings.Contains(err.Error(), "current process") { // so does Pebble say it, without a type
			return nil, false, gq.ErrInUse.Errorf("this process has already opened the store; use that one, or close it first")
		}
		return nil, false, gq.ErrInUse
	}
	if suffix := s.unfinishedSuffix(); !ours || !finished && suffix == formatCopy {
		if err := s.writeFormat(suffix); err != nil {
			return nil, false, errors.Join(err, lock.Close())
		}
	}
	if marked {
		if err := fs.Remove(fs.PathJoin(s.dir, copyMark)); err != nil {
			return nil, false, errors.Join(err, lock.Close())
		}
	}
	return lock, finished, nil
}

// markCopy marks an empty directory as that of a copy.
func (s *Store) markCopy() error {
	fs := s.disk.FS
	f, err := fs.Create(fs.PathJoin(s.dir, copyMark), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return syncDir(fs, s.dir)
}

func (s *Store) unfinishedSuffix() string {
	if s.config.Unfinished {
		return formatCopy
	}
	return formatUnfinished
}

// mkdirMarked makes the directory of a copy. It appears with its mark, so that nobody takes a copy
// that was broken off for a new store.
func (s *Store) mkdirMarked() error {
	fs, partial := s.disk.FS, s.dir+partialSuffix
	names, err := fs.List(partial) // of a copy that was interrupted
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if !strings.HasPrefix(name, formatFile) {
			return gq.ErrNotEmpty.Errorf("%s is needed for a moment and has a file %s, which is not of a copy; move that directory away", partial, name)
		}
	}
	if err := fs.RemoveAll(partial); err != nil {
		return err
	}
	if err := mkdirs(fs, partial); err != nil {
		return err
	}
	if err := replaceFile(fs, partial, formatFile, formatText(formatCopy)); err != nil {
		return err
	}
	if err := fs.Rename(partial, s.dir); err != nil {
		return err
	}
	return syncDir(fs, fs.PathDir(s.dir))
}

// mkdirs makes a directory durably: each new entry is synced in its parent.
func mkdirs(fs vfs.FS, dir string) error {
	if _, err := fs.Stat(dir); err == nil {
		return nil
	}
	parent := fs.PathDir(dir)
	if parent != dir && parent != "" && parent != "." {
		if err := mkdirs(fs, parent); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return syncDir(fs, parent)
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func (s *Store) writeFormat(suffix string) error {
	return replaceFile(s.disk.FS, s.dir, formatFile, formatText(suffix))
}

func formatText(suffix string) []byte {
	return fmt.Appendf(nil, "%s%d%s\n", formatPrefix, formatVersion, suffix)
}

func (s *Store) checkFormat() (finished bool, err error) {
	fs := s.disk.FS
	name := fs.PathJoin(s.dir, formatFile)
	f, err := fs.Open(name)
	if err != nil {
		return false, err
	}
	text, err := io.ReadAll(io.LimitReader(f, 1024))
	if err := errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	number, ours := strings.CutPrefix(string(bytes.TrimSpace(text)), formatPrefix)
	number, unfinished := strings.CutSuffix(number, formatUnfinished)
	number, copying := strings.CutSuffix(number, formatCopy)
	version, err := strconv.Atoi(number)
	switch {
	case !ours || err != nil:
		return false, fmt.Errorf("%s does not say what it should: %w", name, gq.ErrFormat)
	case version > formatVersion:
		return false, fmt.Errorf("%s says format %d, this program knows formats up to %d; use a newer program: %w",
			name, version, formatVersion, gq.ErrFormat)
	case version < formatVersion:
		return false, fmt.Errorf("%s says format %d, which no release had; this program knows format %d: %w", name, version, formatVersion, gq.ErrFormat)
	case copying && !s.config.Unfinished:
		return false, errUnfinished
	}
	return !unfinished && !copying, nil
}

// inspect looks for damage that Pebble would miss, or notice only after it has removed
// obsolete files.
func (s *Store) inspect(lock *pebble.Lock, acceptLoss bool) error {
	closed, err := s.checkInventory()
	if err != nil && acceptLoss {
		err = s.discardInventory(err)
	}
	if err != nil {
		return opening(err)
	}
	k := &known{}
	if !closed {
		if k, err = s.verify(lock, acceptLoss); err == nil {
			err = s.repairLogs(k, acceptLoss)
		}
	} else if k.evidence, err = readSynced(s.disk.FS, s.dir); errors.Is(err, gq.ErrCorrupt) {
		k.evidence, err = evidence{}, nil // the inventory has proved more than that
	}
	if err == nil && !s.ephemeral {
		err = s.checkTables(closed, k.evidence)
	}
	if err == nil && s.disk.ledger != nil {
		err = s.openLedger(k.evidence)
	}
	return opening(err)
}

// openLedger starts to record what is synced. It begins with what is known about
// existing files.
func (s *Store) openLedger(known evidence) error {
	names, err := s.disk.FS.List(s.dir)
	if err != nil {
		return err
	}
	present := evidence{}
	for _, name := range names {
		if bytes, ok := known[name]; ok {
			present[name] = bytes
		}
	}
	present[syncedRun+s.run] = 0
	return s.disk.ledger.open(s.disk.FS, s.dir, present)
}

// closeFiles frees the directory. It leaves an inventory if the store ended well.
func (s *Store) closeFiles(well bool) error {
	var err error
	func() {
		defer func() {
			if r := recover(); r != nil {
				err = fmt.Errorf("close %s: %v", s.dir, r)
			}
		}()
		err = s.db.Close()
	}()
	s.cache.Unref()
	s.disk.ledger.close()
	if err == nil && well && !s.ephemeral && !s.disk.frozen.Load() {
		s.leaveInventory()
	}
	return errors.Join(err, s.lock.Close())
}

// quiet is Pebble's logger. What Pebble calls fatal only fails the store.
type quiet struct{ s *Store }

func (q quiet) Infof(string, ...any) {}

func (q quiet) Errorf(format string, args ...any) {
	for i := range args {
		if err, ok := args[i].(error); ok {
			args[i] = inWords(err)
		}
	}
	q.s.log.Warn("store: "+fmt.Sprintf(format, args...), "dir", q.s.dir)
}

func (q quiet) Fatalf(format string, args ...any) {
	q.s.fail(fmt.Errorf(format, args...))
}
