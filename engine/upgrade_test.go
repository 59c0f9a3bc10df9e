package engine_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/store"
)

// layouted is a shared store with a layout.
type layouted struct {
	shared
	layout   int
	finished *atomic.Int64 // calls of FinishUpgrade
}

func (s layouted) Layout() int { return s.layout }

func (s layouted) FinishUpgrade(context.Context) error {
	s.finished.Add(1)
	return nil
}

// TestNodesAnnounceTheirLayout lists the layouts that the programs on one store know, in the form
// that stores read, and asks the store about once a minute to finish an upgrade.
func TestNodesAnnounceTheirLayout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := shared{open(t), new(atomic.Int64)}
		var nodes []*fixture
		finished := new(atomic.Int64)
		for layout := range 2 {
			of := layouted{s, layout + 1, finished}
			nodes = append(nodes, &fixture{T: t, Engine: newEngine(t, of, engine.Options{}), store: of})
			nodes[layout].run()
		}
		time.Sleep(time.Second)
		for _, f := range nodes {
			all := f.nodes()
			if len(all) != 2 || all[0].Layout+all[1].Layout != 3 {
				t.Errorf("%+v", all)
			}
		}
		docs, err := s.Docs(t.Context(), store.NodeKind, "", 10)
		if err != nil || len(docs) != 2 {
			t.Fatalf("%d documents, %v", len(docs), err)
		}
		for _, d := range docs {
			var n store.NodeLayout
			if err := json.Unmarshal(d.Data, &n); err != nil || n.Layout < 1 || time.Since(n.Time) > 2*time.Second {
				t.Errorf("%s: %+v, %v", d.Data, n, err)
			}
		}
		time.Sleep(10 * time.Minute)
		if n := finished.Load(); n < 8 || n > 24 {
			t.Errorf("two nodes asked %d times in ten minutes", n)
		}
	})
}
