package dashboard

import (
	"cmp"
	"slices"

	"github.com/gopherqueue/gq"
)

// Limits of the page of pools.
const (
	shownPools   = 100
	shownHolders = 10
	pooledJobs   = 1000 // leased jobs of a queue that are looked at for the holders of its pool
	pooledQueues = 1000 // queues that are looked at
)

// poolView is a pool with the queues and the workers that use it.
type poolView struct {
	gq.Pool
	Queues  []string
	Holders []holder // the largest first
	More    bool     // not all leased jobs were looked at
}

// holder is a worker that occupies capacity.
type holder struct {
	Worker string
	Used   int64
	Jobs   int
}

type poolsView struct {
	Pools []poolView
	More  int // that are not shown
}

func (d *Dashboard) pools(v *visit) error {
	pools, err := d.queue.Pools(v.ctx)
	if err != nil {
		return err
	}
	view := poolsView{}
	if len(pools) > shownPools {
		pools, view.More = pools[:shownPools], len(pools)-shownPools
	}
	queues, err := d.queue.QueuesAfter(v.ctx, "", pooledQueues)
	if err != nil {
		return err
	}
	for _, p := range pools {
		row := poolView{Pool: p}
		for i := range queues {
			if queues[i].Pool == p.Name {
				row.Queues = append(row.Queues, queues[i].Name)
			}
		}
		if err := v.holders(&row); err != nil {
			return err
		}
		view.Pools = append(view.Pools, row)
	}
	v.watch = "all"
	return v.show("pools", "Capacity pools", view)
}

// holders finds out who occupies the capacity of a pool.
func (v *visit) holders(p *poolView) error {
	by := make(map[string]*holder)
	looked := 0
	for _, q := range p.Queues {
		if looked >= pooledJobs {
			p.More = true
			break
		}
		page, err := v.d.queue.List(v.ctx, gq.Query{Queue: q, Statuses: []gq.Status{gq.StatusRunning, gq.StatusClaimed}, Limit: pooledJobs - looked})
		if err != nil {
			return err
		}
		looked += max(1, len(page.Jobs))
		p.More = p.More || page.Next != ""
		for i := range page.Jobs {
			lease := page.Jobs[i].State.Lease
			if lease == nil || lease.CostUnits == 0 {
				continue
			}
			if by[lease.Worker] == nil {
				by[lease.Worker] = &holder{Worker: lease.Worker}
			}
			by[lease.Worker].Used += lease.CostUnits
			by[lease.Worker].Jobs++
		}
	}
	for _, h := range by {
		p.Holders = append(p.Holders, *h)
	}
	slices.SortFunc(p.Holders, func(a, b holder) int {
		return cmp.Or(cmp.Compare(b.Used, a.Used), cmp.Compare(a.Worker, b.Worker))
	})
	p.Holders = p.Holders[:min(len(p.Holders), shownHolders)]
	return nil
}
