// Package registry keeps the providers: their profiles, status and heartbeats. It does no
// I/O and reads no clock; callers must serialize access.
package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker/ledger"
	"github.com/gopherqueue/gq/match"
)

// Profile is the document of a provider.
type Profile struct {
	match.Provider        // as sent by the provider; no counters
	Reason         string `json:"reason,omitzero"` // of its status
	RegisteredAt   int64  `json:"registered_at"`
	UpdatedAt      int64  `json:"updated_at"`
}

// Heartbeat is the document of a provider's last heartbeat. It is separate because it
// changes often and rounds need not agree on it.
type Heartbeat struct {
	At int64 `json:"at"`
}

// Provider is a registered provider.
type Provider struct {
	Profile
	Version          uint64 // version of the profile
	Heartbeat        int64  // time of the last one
	HeartbeatVersion uint64 // of its document
	Account          *ledger.Account
	Member           bool // in the snapshot of the last round
}

// View returns the provider as a round sees it.
func (p *Provider) View(h *match.Health, epoch, now int64) match.Provider {
	v := p.Profile.Provider
	v.LastHeartbeatAt, v.LeasesActive = p.Heartbeat, int64(p.Account.Len())
	p.Account.Enter(&v, h, epoch, now)
	return v
}

// NoteHeartbeat applies the document of a heartbeat.
func (p *Provider) NoteHeartbeat(b Heartbeat, version uint64) {
	p.Heartbeat, p.HeartbeatVersion = max(p.Heartbeat, b.At), version
}

// Registry has all providers. The zero value is empty.
type Registry struct {
	providers map[string]*Provider
	sorted    []*Provider // by id; nil if it must be rebuilt
}

// Len returns the number of providers.
func (r *Registry) Len() int { return len(r.providers) }

// Get returns a provider, nil if it is not registered.
func (r *Registry) Get(id string) *Provider { return r.providers[id] }

// IDs returns the set of all ids, which the caller may keep.
func (r *Registry) IDs() map[string]bool {
	ids := make(map[string]bool, len(r.providers))
	for id := range r.providers {
		ids[id] = true
	}
	return ids
}

// Add adds a provider that is not registered yet.
func (r *Registry) Add(p Profile) *Provider {
	if r.providers == nil {
		r.providers = make(map[string]*Provider)
	}
	added := &Provider{Profile: p, Account: ledger.NewAccount(p.ID, p.RegisteredAt)}
	r.providers[p.ID], r.sorted = added, nil
	return added
}

// Remove removes a provider.
func (r *Registry) Remove(id string) {
	delete(r.providers, id)
	r.sorted = nil
}

// ByID lists all providers by id. The caller must not modify the list.
func (r *Registry) ByID() []*Provider {
	if r.sorted == nil {
		r.sorted = slices.SortedFunc(maps.Values(r.providers), func(a, b *Provider) int { return strings.Compare(a.ID, b.ID) })
	}
	return r.sorted
}

// After lists up to limit providers after an id.
func (r *Registry) After(id string, limit int) []*Provider {
	all := r.ByID()
	first, found := slices.BinarySearchFunc(all, id, func(p *Provider, id string) int { return strings.Compare(p.ID, id) })
	if found {
		first++
	}
	return all[first:min(first+limit, len(all))]
}

// Servers counts the members of the snapshot that could ever serve a job.
func (r *Registry) Servers(p *match.Policy, j *match.Job) (n int) {
	for _, q := range r.providers {
		if q.Member && p.Serves(&q.Profile.Provider, j) {
			n++
		}
	}
	return n
}

// HeartbeatDue reports whether an active provider is about to miss its heartbeat: two
// thirds of the timeout have passed since the last one.
func (r *Registry) HeartbeatDue(now, timeout int64) bool {
	for _, p := range r.providers {
		if p.Status == match.Active && now-p.Heartbeat > timeout-timeout/3 {
			return true
		}
	}
	return false
}

// Owned lists the members of a provider that only the queue may set.
func Owned() []string {
	return []string{"cooldown_until", "leases_active", "ai_units_used", "quantum_units_used"}
}

// CheckGiven rejects members that only the queue may set. given names the members that
// the provider sent.
func CheckGiven(given map[string]bool) error {
	var faults []gq.Fault
	for _, name := range Owned() {
		if given[name] {
			faults = append(faults, gq.Fault{Field: name, Problem: "is for the queue to count"})
		}
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// Register returns the profile of a provider that registers for the first time, or again
// if known is not nil. A first registration sets the status; later ones keep it.
func Register(known *Provider, p match.Provider, statusGiven bool, now int64) (Profile, error) {
	made := Profile{Provider: p, RegisteredAt: now, UpdatedAt: now}
	made.Health, made.LastHeartbeatAt = 0, 0
	if known == nil {
		return made, nil
	}
	switch {
	case known.Status == match.Retired:
		return made, errRetired
	case statusGiven && known.Status != p.Status:
		return made, gq.ErrConflict.Errorf("it is %s: registering again does not change that, setting its status does", known.Status)
	}
	made.Status, made.Reason, made.RegisteredAt = known.Status, known.Reason, known.RegisteredAt
	return made, nil
}

var errRetired = gq.ErrConflict.Errorf("it is %s, and retirement is final", match.Retired)

// CheckStatus validates a new status of a provider.
func CheckStatus(p *Provider, s match.Status, reason string) error {
	invalid := func(field, format string, args ...any) error {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: fmt.Sprintf(format, args...)}}}
	}
	switch {
	case !s.Valid():
		return invalid("status", "must be one of %v", match.Statuses())
	case len(reason) > gq.MaxReasonBytes:
		return invalid("reason", "has %d bytes, and %d are allowed", len(reason), gq.MaxReasonBytes)
	case p.Status == match.Retired && s != match.Retired:
		return errRetired
	}
	return nil
}
