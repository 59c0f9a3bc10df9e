package local

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// A directory of backups:
//
//	LOCK                      held while a backup is being written
//	generations/NAME.json     what a generation consists of
//	files/SHA256              the files of all generations, by content
//
// The description of a generation is written last, after its files are synced. So what is
// listed is complete, and a backup that was interrupted leaves only files that the next one
// uses or removes.

const (
	generationDir    = "generations"
	generationSuffix = ".json"
	contentDir       = "files"
	generationLayout = "20060102T150405.000000000Z"
	partialSuffix    = ".partial"
	restoreMark      = "RESTORE" // an empty file in the directory of a restore that has not ended
)

// generation is the description of a backup.
type generation struct {
	Format    int          `json:"format"`
	Time      time.Time    `json:"time"`
	LastEvent uint64       `json:"last_event"`
	Files     []backupFile `json:"files"`
}

const generationFormat = 1

// backupFile is a file of a store. Size and time of modification tell that a table is the one of an
// earlier generation: a store never changes a table, and one that was restored has new times.
type backupFile struct {
	Name     string    `json:"name"`
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	Sum      string    `json:"sha256"`
}

// backups is a directory of backups that this process writes to.
type backups struct {
	dir  string
	lock io.Closer
}

func openBackups(dir string) (*backups, error) {
	if there, err := Exists(dir); err != nil || there {
		return nil, errors.Join(err, backupFault("dir", dir+" is a store; choose a directory for backups alone"))
	}
	for _, sub := range []string{generationDir, contentDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			return nil, fmt.Errorf("back up: %w", err)
		}
	}
	lock, err := vfs.Default.Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		return nil, gq.ErrInUse.Errorf("another backup is writing to %s", dir)
	}
	return &backups{dir: dir, lock: lock}, nil
}

func (b *backups) close() error { return b.lock.Close() }

func (b *backups) content(sum string) string { return filepath.Join(b.dir, contentDir, sum) }

// add adds the files of a directory as a generation.
func (b *backups) add(ctx context.Context, from string, out *gq.Backup) error {
	known, err := b.known()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	g := generation{Format: generationFormat, Time: out.Time.UTC(), LastEvent: out.LastEvent}
	for _, entry := range entries {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			continue
		}
		f := backupFile{Name: entry.Name(), Size: info.Size(), Modified: info.ModTime().UTC()}
		if f.Sum = known[f]; f.Sum == "" {
			copied := false
			if f.Sum, copied, err = b.store(filepath.Join(from, f.Name)); err != nil {
				return err
			}
			if copied {
				out.CopiedFiles++
				out.CopiedBytes += f.Size
			}
		}
		g.Files = append(g.Files, f)
		out.Files++
		out.Bytes += f.Size
	}
	if err := syncDir(vfs.Default, filepath.Join(b.dir, contentDir)); err != nil {
		return err
	}
	out.Generation = g.Time.Format(generationLayout)
	text, err := json.MarshalIndent(g, "", "\t")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(b.dir, generationDir, out.Generation+generationSuffix), text)
}

// known returns the sums of the tables in the newest generation, by everything else that it says
// of them, as long as their content is there.
func (b *backups) known() (map[backupFile]string, error) {
	names, err := Generations(b.dir)
	if err != nil || len(names) == 0 {
		return nil, err
	}
	last, err := readGeneration(b.dir, names[len(names)-1])
	if err != nil {
		return nil, err
	}
	known := make(map[backupFile]string, len(last.Files))
	for _, f := range last.Files {
		if info, err := os.Stat(b.content(f.Sum)); err != nil || info.Size() != f.Size || !strings.HasSuffix(f.Name, ".sst") && !strings.HasSuffix(f.Name, ".blob") {
			continue
		}
		sum := f.Sum
		f.Sum = ""
		known[f] = sum
	}
	return known, nil
}

// store copies a file unless its content is there, and returns the sum of its content.
func (b *backups) store(path string) (sum string, copied bool, err error) {
	in, err := os.Open(path) //nolint:gosec // a file of the store
	if err != nil {
		return "", false, err
	}
	defer in.Close() //nolint:errcheck // it was only read
	partial := filepath.Join(b.dir, contentDir, filepath.Base(path)+partialSuffix)
	hash := sha256.New()
	err = writeFrom(partial, io.TeeReader(in, hash))
	if err != nil {
		return "", false, err
	}
	sum = hex.EncodeToString(hash.Sum(nil))
	if info, err := os.Stat(b.content(sum)); err == nil && info.Mode().IsRegular() {
		return sum, false, os.Remove(partial)
	}
	return sum, true, os.Rename(partial, b.content(sum))
}

// prune removes all but the newest generations, and the files that no other one needs.
func (b *backups) prune(keep int) (removed int, err error) {
	names, err := Generations(b.dir)
	if err != nil {
		return 0, err
	}
	old := names[:max(len(names)-keep, 0)]
	for _, name := range old {
		if err := os.Remove(filepath.Join(b.dir, generationDir, name+generationSuffix)); err != nil {
			return removed, err
		}
		removed++
	}
	if err := syncDir(vfs.Default, filepath.Join(b.dir, generationDir)); err != nil {
		return removed, err
	}
	needed := make(map[string]bool)
	for _, name := range names[len(old):] {
		g, err := readGeneration(b.dir, name)
		if err != nil {
			return removed, err // without it nobody knows which files it needs
		}
		for _, f := range g.Files {
			needed[f.Sum] = true
		}
	}
	entries, err := os.ReadDir(filepath.Join(b.dir, contentDir))
	if err != nil {
		return removed, err
	}
	for _, e := range entries {
		if !needed[e.Name()] {
			if err := os.Remove(b.content(e.Name())); err != nil {
				return removed, err
			}
		}
	}
	return removed, nil
}

// Generations lists the generations in a directory of backups, the oldest first.
func Generations(dir string) (names []string, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, generationDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), generationSuffix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, err
}

// LastBackup returns when the newest generation in a directory of backups was taken, zero if there
// is none.
func LastBackup(dir string) (time.Time, error) {
	names, err := Generations(dir)
	if err != nil || len(names) == 0 {
		return time.Time{}, err
	}
	g, err := readGeneration(dir, names[len(names)-1])
	return g.Time, err
}

func readGeneration(dir, name string) (g generation, err error) {
	path := filepath.Join(dir, generationDir, name+generationSuffix)
	text, err := os.ReadFile(path) //nolint:gosec // the user names the directory
	if errors.Is(err, fs.ErrNotExist) {
		return g, gq.ErrNotFound.Errorf("there is no backup %s in %s", name, dir)
	}
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(text, &g); err != nil {
		return g, fmt.Errorf("backup %s: %w: %w", path, gq.ErrCorrupt, err)
	}
	if g.Format != generationFormat {
		return g, fmt.Errorf("backup %s has format %d, this program knows %d: %w", path, g.Format, generationFormat, gq.ErrFormat)
	}
	for _, f := range g.Files {
		if f.Name != filepath.Base(f.Name) || len(f.Sum) != 2*sha256.Size || f.Sum != filepath.Base(f.Sum) {
			return g, fmt.Errorf("backup %s names the file %q: %w", path, f.Name, gq.ErrCorrupt)
		}
	}
	return g, nil
}

// RestoreBackup makes a store of a generation, the newest if its name is empty. The directory must be
// empty or missing. Every file is compared with its checksum; if one is damaged or missing, the
// error is [gq.ErrCorrupt] and there is no store.
func RestoreBackup(ctx context.Context, dir, name, to string) (out gq.Backup, err error) {
	if name == "" {
		names, err := Generations(dir)
		if err != nil {
			return out, fmt.Errorf("restore: %w", err)
		}
		if len(names) == 0 {
			return out, gq.ErrNotFound.Errorf("there is no backup in %s", dir)
		}
		name = names[len(names)-1]
	}
	g, err := readGeneration(dir, name)
	if err != nil {
		return out, fmt.Errorf("restore: %w", err)
	}
	if entries, err := os.ReadDir(to); err == nil && len(entries) > 0 {
		return out, backupFault("store", to+" is not empty; restore into an empty or missing directory")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("restore: %w", err)
	}
	partial := filepath.Clean(to) + partialSuffix
	if err := makePartial(partial); err != nil {
		return out, fmt.Errorf("restore: %w", err)
	}
	out = gq.Backup{Generation: name, Time: g.Time, LastEvent: g.LastEvent}
	for _, f := range g.Files {
		if err := ctx.Err(); err != nil {
			return out, errors.Join(context.Cause(ctx), os.RemoveAll(partial))
		}
		if err := restoreFile(filepath.Join(dir, contentDir, f.Sum), filepath.Join(partial, f.Name), f); err != nil {
			return out, errors.Join(fmt.Errorf("restore %s: %w", name, err), os.RemoveAll(partial))
		}
		out.Files++
		out.Bytes += f.Size
	}
	if err := errors.Join(syncDir(vfs.Default, partial), removeEmpty(to)); err != nil {
		return out, fmt.Errorf("restore: %w", err)
	}
	if err := os.Rename(partial, to); err != nil {
		return out, fmt.Errorf("restore: %w", err)
	}
	return out, errors.Join(os.Remove(filepath.Join(to, restoreMark)), syncDir(vfs.Default, filepath.Dir(filepath.Clean(to))))
}

// makePartial makes the directory that becomes the store. It removes one that an interrupted restore
// has left, which has the mark or nothing in it, and nothing else.
func makePartial(dir string) error {
	entries, err := os.ReadDir(dir)
	marked := slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == restoreMark })
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case len(entries) > 0 && !marked:
		return backupFault("store", dir+" is needed for a moment and has files; move it away, or remove it if a restore has left it")
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return writeFrom(filepath.Join(dir, restoreMark), strings.NewReader(""))
}

func removeEmpty(dir string) error {
	if err := os.Remove(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func restoreFile(from, to string, want backupFile) error {
	in, err := os.Open(from) //nolint:gosec // named by a checksum
	if err != nil {
		return fmt.Errorf("file %s, %s: %w: %w", want.Name, from, gq.ErrCorrupt, err)
	}
	defer in.Close() //nolint:errcheck // it was only read
	hash := sha256.New()
	if err := writeFrom(to, io.TeeReader(in, hash)); err != nil {
		return err
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != want.Sum {
		return fmt.Errorf("file %s, %s: its content has changed: %w", want.Name, from, gq.ErrCorrupt)
	}
	return nil
}

// writeFile writes a file that appears only when it is complete and synced.
func writeFile(path string, text []byte) error {
	if err := writeFrom(path+partialSuffix, strings.NewReader(string(text))); err != nil {
		return err
	}
	if err := os.Rename(path+partialSuffix, path); err != nil {
		return err
	}
	return syncDir(vfs.Default, filepath.Dir(path))
}

// writeFrom writes and syncs a file.
func writeFrom(path string, from io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600) //nolint:gosec // the user names the directory
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
