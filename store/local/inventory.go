package local

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

// The inventory lists the database files of a closed store with their sizes and
// checksums. Without it the loss of a file, or of its end, can look like the effect of
// a power cut. The store removes it before it writes anything, so an inventory that
// exists is right. Unknown files in the directory are ignored.
//
//	gopherqueue inventory 1
//	000012.log 2535 9f0c3ab1
//	000015.sst 88121 -          (tables have checksums of their own)
//	end 5be00c2d                (checksum of the lines above)
const (
	inventoryFile = "INVENTORY"
	inventoryHead = "gopherqueue inventory 1\n"
)

// ofDatabase matches the names of Pebble's data files, and of the record of which tables are the store's.
var ofDatabase = regexp.MustCompile(`^([0-9]+(-[0-9]+)?\.(log|sst|blob)|(MANIFEST|OPTIONS)-[0-9]+|marker\..+|` + tablesFile + `)$`)

// takeInventory describes the current files.
func (s *Store) takeInventory() ([]byte, error) {
	names, err := s.disk.FS.List(s.dir)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var b bytes.Buffer
	b.WriteString(inventoryHead)
	for _, name := range names {
		if !ofDatabase.MatchString(name) {
			continue
		}
		size, sum, err := s.describe(name)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "%s %d %s\n", name, size, sum)
	}
	fmt.Fprintf(&b, "end %08x\n", crc32.Checksum(b.Bytes(), castagnoli))
	return b.Bytes(), nil
}

func (s *Store) describe(name string) (size int64, sum string, err error) {
	f, err := s.disk.FS.Open(s.disk.PathJoin(s.dir, name))
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if strings.HasSuffix(name, ".sst") {
		info, err := f.Stat()
		if err != nil {
			return 0, "", err
		}
		return info.Size(), "-", nil
	}
	h := crc32.New(castagnoli)
	size, err = io.CopyBuffer(h, onlyReader{f}, make([]byte, 256<<10))
	return size, fmt.Sprintf("%08x", h.Sum32()), err
}

// onlyReader hides all methods but Read.
type onlyReader struct{ io.Reader }

// leaveInventory writes the inventory of a store that was just closed. Failing is
// harmless.
func (s *Store) leaveInventory() {
	inventory, err := s.takeInventory()
	if err == nil {
		err = replaceFile(s.disk.FS, s.dir, inventoryFile, inventory)
	}
	if err != nil {
		s.log.Warn("the store is closed without an inventory of its files", "dir", s.dir, "error", err)
	}
}

// checkInventory compares the files with the inventory and removes it. It reports
// whether there was one.
func (s *Store) checkInventory() (found bool, err error) {
	fs := s.disk.FS
	name := fs.PathJoin(s.dir, inventoryFile)
	f, err := fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	listed, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	end := bytes.LastIndex(listed, []byte("end "))
	if end < 0 || string(listed[end:]) != fmt.Sprintf("end %08x\n", crc32.Checksum(listed[:end], castagnoli)) {
		return false, fmt.Errorf("%s: %w; the store opens without it", name, gq.ErrCorrupt)
	}
	if !bytes.HasPrefix(listed, []byte(inventoryHead)) {
		return false, fmt.Errorf("%s: %w", name, gq.ErrFormat)
	}
	present, err := s.takeInventory()
	if err != nil {
		return false, err
	}
	if line := firstDifference(string(listed), string(present)); line != "" {
		return false, fmt.Errorf("%s is not as it was when the store was closed: %w; nothing was changed; put the right file back, or %s", fs.PathJoin(s.dir, line), gq.ErrCorrupt, remedy(s.dir))
	}
	if err := fs.Remove(name); err != nil {
		return false, err
	}
	return true, syncDir(fs, s.dir)
}

// firstDifference returns the first file on which two inventories disagree.
func firstDifference(a, b string) string {
	listed, present := strings.Split(a, "\n"), strings.Split(b, "\n")
	for _, pair := range [][2][]string{{listed, present}, {present, listed}} {
		for _, line := range pair[0] {
			name, _, _ := strings.Cut(line, " ")
			if ofDatabase.MatchString(name) && !slices.Contains(pair[1], line) {
				return name
			}
		}
	}
	return ""
}

// replaceFile replaces a file durably and atomically.
func replaceFile(fs vfs.FS, dir, base string, content []byte) error {
	name := fs.PathJoin(dir, base)
	f, err := fs.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(name+".new", name); err != nil {
		return err
	}
	return syncDir(fs, dir)
}
