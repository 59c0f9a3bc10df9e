// Package ledger records what providers were given: an account for each provider with its
// open leases and how earlier ones ended, when leases expire, and how many leases
// requesters got recently. It does no I/O and reads no clock; callers must serialize
// access.
package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/heap"
	"github.com/gopherqueue/gq/match"
)

// Statement is the stored form of an account.
type Statement struct {
	match.Standing
	Open []Entry `json:"open,omitempty"` // in the order in which they were granted
}

// Entry is a granted lease whose end is not recorded yet.
type Entry struct {
	Lease gq.LeaseID `json:"lease"`
	Job   gq.JobID   `json:"job"`
	Kind  match.Kind `json:"kind"`
	Units int64      `json:"units,omitzero"`
	Epoch int64      `json:"epoch_id"`
	At    int64      `json:"at"` // Unix nanoseconds
	Match int64      `json:"n"`  // the number of its assignment
}

// Remove removes the entries of leases.
func (s *Statement) Remove(leases ...gq.LeaseID) {
	gone := make(map[gq.LeaseID]bool, len(leases))
	for _, id := range leases {
		gone[id] = true
	}
	s.Open = slices.DeleteFunc(s.Open, func(e Entry) bool { return gone[e.Lease] })
}

// Excess returns the entries beyond the quotas of an epoch, newest first, and subtracts
// their units from the standing.
func (s *Statement) Excess(q *match.Quotas, epoch int64) (excess []Entry) {
	for _, e := range slices.Backward(s.Open) {
		current := e.Epoch == epoch
		if int64(len(s.Open)-len(excess)) <= q.LeasesMax && (!current || s.Units(e.Kind, epoch) <= q.UnitsMax(e.Kind)) {
			continue
		}
		excess = append(excess, e)
		if current {
			s.Spend(e.Kind, epoch, -e.Units)
		}
	}
	return excess
}

// PastLease is an earlier lease of a job.
type PastLease struct {
	Provider string
	Lease    gq.LeaseID
}

// Lease is an open lease.
type Lease struct {
	Entry
	Account *Account

	// Version is the job's version under this lease, or 0 if the earlier leases of the
	// job's attempt are unknown; otherwise they are in Before.
	Version gq.LeaseVersion
	Before  []PastLease

	until    time.Time // when it expires, zero if unknown
	inTimers int       // index in the heap, -1 if not in it
}

// Timed reports whether the expiry of the lease is known.
func (l *Lease) Timed() bool { return l.inTimers >= 0 }

// Account records what one provider was given.
type Account struct {
	match.Standing
	Provider string
	Version  uint64 // version of its document
	Dirty    bool   // changed since its document was written
	open     map[gq.LeaseID]*Lease
}

// NewAccount opens an account.
func NewAccount(provider string, now int64) *Account {
	return &Account{Provider: provider, Standing: match.NewStanding(now), open: map[gq.LeaseID]*Lease{}}
}

// Len returns the number of open leases.
func (a *Account) Len() int { return len(a.open) }

// Leases lists up to limit open leases, sorted.
func (a *Account) Leases(limit int) []gq.LeaseID {
	list := slices.Sorted(maps.Keys(a.open))
	return slices.Clip(list[:min(len(list), limit)])
}

// Statement returns a copy of the account.
func (a *Account) Statement() *Statement {
	s := &Statement{Standing: a.Standing, Open: make([]Entry, 0, len(a.open)+1)}
	for _, l := range a.open {
		s.Open = append(s.Open, l.Entry)
	}
	slices.SortFunc(s.Open, func(a, b Entry) int { return cmp.Compare(a.Match, b.Match) })
	return s
}

// Written records that s is now the account's document. It does not open or close leases.
func (a *Account) Written(s *Statement, version uint64) {
	a.Standing, a.Version, a.Dirty = s.Standing, version, false
}

// Ledger has the open leases of all accounts.
type Ledger struct {
	leases map[gq.LeaseID]*Lease
	timers heap.Heap[*Lease] // by expiry
	ended  map[gq.JobID]ended
}

// ended caches the past leases of a job whose lease has just ended. The job's history has
// them too, but reading it is slow when many leases end in one commit.
type ended struct {
	version gq.LeaseVersion // of the last lease
	leases  []PastLease     // of its current attempt
}

// New creates an empty ledger.
func New() *Ledger {
	return &Ledger{
		leases: map[gq.LeaseID]*Lease{}, ended: map[gq.JobID]ended{},
		timers: heap.New(func(a, b *Lease) bool { return a.until.Before(b.until) }, func(l *Lease, at int) { l.inTimers = at }),
	}
}

// Len returns the number of open leases.
func (g *Ledger) Len() int { return len(g.leases) }

// Lease returns an open lease, nil if there is none.
func (g *Ledger) Lease(id gq.LeaseID) *Lease { return g.leases[id] }

// All lists the open leases.
func (g *Ledger) All() []*Lease {
	all := make([]*Lease, 0, len(g.leases))
	for _, l := range g.leases {
		all = append(all, l)
	}
	return all
}

// Load replaces an account with the contents of its document, and returns the leases that
// were unknown.
func (g *Ledger) Load(a *Account, s *Statement, version uint64) (unknown []*Lease) {
	known := a.open
	a.Written(s, version)
	a.open = make(map[gq.LeaseID]*Lease, len(s.Open))
	for _, e := range s.Open {
		l := known[e.Lease]
		if l == nil {
			l = g.Open(a, e)
			unknown = append(unknown, l)
		}
		delete(known, e.Lease)
		a.open[e.Lease] = l
	}
	for _, l := range known {
		g.Close(l)
	}
	return unknown
}

// Open adds a lease.
func (g *Ledger) Open(a *Account, e Entry) *Lease {
	l := &Lease{Entry: e, Account: a, inTimers: -1}
	g.leases[e.Lease], a.open[e.Lease] = l, l
	return l
}

// Close removes a lease.
func (g *Ledger) Close(l *Lease) {
	if l.Version > 0 {
		g.ended[l.Job] = ended{l.Version, append(slices.Clip(l.Before), PastLease{l.Account.Provider, l.Lease})}
	}
	delete(g.leases, l.Lease)
	delete(l.Account.open, l.Lease)
	if l.inTimers >= 0 {
		g.timers.Remove(l.inTimers)
	}
}

// Settle records the end of a lease in its account, and closes it.
func (g *Ledger) Settle(l *Lease, o match.Outcome, at time.Time, set *match.Settings) {
	l.Account.Note(o, l.Kind, at.Unix(), set)
	l.Account.Dirty = true
	g.Close(l)
}

// SetExpiry sets when a lease expires.
func (g *Ledger) SetExpiry(l *Lease, until time.Time) {
	l.until = until
	if l.inTimers >= 0 {
		g.timers.Fix(l.inTimers)
	} else {
		g.timers.Push(l)
	}
}

// NextExpiry returns when the next lease expires, zero for never.
func (g *Ledger) NextExpiry() time.Time {
	if g.timers.Len() == 0 {
		return time.Time{}
	}
	return g.timers.At(0).until
}

// TakeExpired returns up to limit expired leases. They stay open, without a known expiry.
func (g *Ledger) TakeExpired(now time.Time, limit int) (expired []*Lease) {
	for g.timers.Len() > 0 && !g.timers.At(0).until.After(now) && len(expired) < limit {
		expired = append(expired, g.timers.Remove(0))
	}
	return expired
}

// Past returns the leases that a job at a version had in its attempt, if they are known.
func (g *Ledger) Past(id gq.JobID, version gq.LeaseVersion) (leases []PastLease, known bool) {
	e := g.ended[id]
	return e.leases, e.version > 0 && e.version == version
}

// ForgetPast drops the cached leases of a job.
func (g *Ledger) ForgetPast(id gq.JobID) { delete(g.ended, id) }
