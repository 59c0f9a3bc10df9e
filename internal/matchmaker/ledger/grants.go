package ledger

import "github.com/gopherqueue/gq/match"

// Grants counts the leases that requesters got recently.
type Grants struct {
	Complete bool // includes leases granted before this process started

	grants []grant // by time
	counts map[string]int64
}

type grant struct {
	requester string
	at        int64
}

// Add counts a lease.
func (g *Grants) Add(requester string, at int64) {
	if g.counts == nil {
		g.counts = make(map[string]int64)
	}
	g.grants = append(g.grants, grant{requester, at})
	g.counts[requester]++
}

// Expire drops leases granted before the quota window that ends now.
func (g *Grants) Expire(now int64, q *match.Quotas) {
	n := 0
	for n < len(g.grants) && g.grants[n].at <= now-q.RequesterWindow {
		r := g.grants[n].requester
		if g.counts[r]--; g.counts[r] <= 0 {
			delete(g.counts, r)
		}
		n++
	}
	g.grants = append(g.grants[:0], g.grants[n:]...)
}

// Count returns how many leases a requester got.
func (g *Grants) Count(requester string) int64 { return g.counts[requester] }
