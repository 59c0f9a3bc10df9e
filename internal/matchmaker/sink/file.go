package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// file is a file of JSON lines. It is opened anew for every batch, so that a program that
// rotates it only has to rename it.
type file struct {
	path string
	mu   sync.Mutex // held while the file is open
}

func appendTo[T Record](f *file, records []T) error {
	var lines bytes.Buffer
	e := json.NewEncoder(&lines)
	e.SetEscapeHTML(false)
	for _, r := range records {
		if err := e.Encode(messageOf(r)); err != nil {
			return fmt.Errorf("encode record %s: %w", r.RecordID(), err)
		}
	}
	return f.append(lines.Bytes())
}

// append appends lines and waits until they are on disk. A line that an earlier crash cut
// off is removed first: its record was not accepted and is among these or follows.
func (f *file) append(lines []byte) (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	to, err := os.OpenFile(f.path, os.O_CREATE|os.O_RDWR, 0o640) //nolint:gosec // the operator names it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	end, err := to.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	whole, err := lastLine(to, end)
	if err != nil {
		return err
	}
	if whole < end {
		if err := to.Truncate(whole); err != nil {
			return err
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if _, err := to.WriteAt(lines, whole); err != nil {
		return err
	}
	return to.Sync()
}

// lastLine returns the end of the last whole line.
func lastLine(from io.ReaderAt, end int64) (int64, error) {
	block := make([]byte, 64<<10)
	for end > 0 {
		n := min(end, int64(len(block)))
		if _, err := from.ReadAt(block[:n], end-n); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(block[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}
