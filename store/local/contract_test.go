package local_test

import (
	"path/filepath"
	"testing"

	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/storetest"
)

// onDisk is the embedded store in a directory.
func onDisk() storetest.Backend {
	dirs := map[store.Store]string{}
	at := func(t testing.TB, dir string, cfg store.Config) store.Store {
		s, err := local.Open(dir, local.Options{Config: cfg})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		dirs[s] = dir
		return s
	}
	return storetest.Backend{
		Open: func(t testing.TB, cfg store.Config) store.Store {
			return at(t, filepath.Join(t.TempDir(), "store"), cfg)
		},
		Reopen: func(t testing.TB, s store.Store, cfg store.Config) store.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("close: %v", err)
			}
			return at(t, dirs[s], cfg)
		},
	}
}

// inMemory is the same store without a disk.
func inMemory() storetest.Backend {
	return storetest.Backend{Open: func(t testing.TB, cfg store.Config) store.Store {
		s, err := local.OpenMemory(local.Options{Config: cfg})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		return s
	}}
}

func TestContractOnDisk(t *testing.T)   { storetest.Run(t, onDisk()) }
func TestContractInMemory(t *testing.T) { storetest.Run(t, inMemory()) }
func TestModelOnDisk(t *testing.T)      { storetest.RunModel(t, onDisk()) }
func TestModelInMemory(t *testing.T)    { storetest.RunModel(t, inMemory()) }
