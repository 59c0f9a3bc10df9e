package pgtest

import (
	"os"
	"path/filepath"
)

// Directories that a killed test process left behind stay there on Windows.

func hold(dir string) (*os.File, error) { return os.Create(filepath.Join(dir, "lock")) }

func removeStale(string) {}
