package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWritten(t *testing.T) {
	const size = 1 << 20
	before := read(0)
	if before.total == 0 {
		t.Skip("there is no /proc")
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // a temporary file
	if _, err := f.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	switch n := read(0).written - before.written; {
	case n == 0:
		t.Skip("the temporary directory is in memory, or /proc/self/io is not readable")
	case n < size || n > 4*size:
		t.Errorf("%d bytes were written, and %d counted", size, n)
	}
}
