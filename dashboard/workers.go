package dashboard

import (
	"cmp"
	"slices"

	"github.com/gopherqueue/gq"
)

// shownWorkers is the number of workers on the page.
const shownWorkers = 200

type workersView struct {
	Workers []gq.LiveWorker
	More    int // that are not shown
	Nodes   []gq.Node
}

func (d *Dashboard) workers(v *visit) error {
	workers, err := d.queue.Workers(v.ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(workers, func(a, b gq.LiveWorker) int {
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(a.Name, b.Name))
	})
	stats, err := d.queue.Stats(v.ctx)
	if err != nil {
		return err
	}
	view := workersView{Workers: workers, Nodes: stats.Nodes}
	if len(workers) > shownWorkers {
		view.Workers, view.More = workers[:shownWorkers], len(workers)-shownWorkers
	}
	v.watch = "all"
	return v.show("workers", "Workers", view)
}
