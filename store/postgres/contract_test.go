package postgres_test

import (
	"sync"
	"testing"

	"github.com/gopherqueue/gq/internal/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/storetest"
)

// backend opens each store on a database of its own.
func backend() storetest.Backend {
	var urls sync.Map // by store
	start := func(t testing.TB, url string, cfg store.Config) store.Store {
		s := open(t, url, cfg)
		urls.Store(s, url)
		return s
	}
	return storetest.Backend{
		Parallel: true,
		Open: func(t testing.TB, cfg store.Config) store.Store {
			t.Helper()
			return start(t, pgtest.Database(t), cfg)
		},
		Reopen: func(t testing.TB, s store.Store, cfg store.Config) store.Store {
			t.Helper()
			url, _ := urls.Load(s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return start(t, url.(string), cfg)
		},
	}
}

func TestContract(t *testing.T) { storetest.Run(t, backend()) }
