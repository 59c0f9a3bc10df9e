package matchmaker

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/matchmaker/audit"
	"github.com/gopherqueue/gq/internal/matchmaker/backlog"
	"github.com/gopherqueue/gq/internal/matchmaker/ledger"
	"github.com/gopherqueue/gq/internal/matchmaker/registry"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// state is what the dispatcher keeps between rounds.
type state struct {
	stale bool   // documents may have changed
	after uint64 // events up to this one were applied

	settings        match.Settings
	settingsVersion uint64
	beacon          *posted // nil before the first one
	beaconVersion   uint64
	head            head
	headVersion     uint64

	registry registry.Registry
	ledger   *ledger.Ledger
	backlog  *backlog.Backlog
	grants   ledger.Grants
	audit    audit.Log
	reader   *reader

	depthSet       bool      // the queue has the depth limit of the settings
	heartbeatsRead time.Time // when heartbeats were last read
	forgot         time.Time // when old rounds were last deleted
}

// newProcessName returns a random process id.
func newProcessName() string { return rand.Text() }

func (d *Dispatcher) reset() {
	d.state = state{settings: d.options.Settings.Clone(), reader: newReader(), ledger: ledger.New()}
	d.backlog = backlog.New(&d.settings.Policy, func(j *match.Job) int { return d.registry.Servers(&d.settings.Policy, j) })
}

// load reads everything from the store.
func (d *Dispatcher) load(ctx context.Context) (err error) {
	d.loaded = false
	d.reset()
	if d.headVersion, err = d.find(ctx, kindState, nameHead, &d.head); err != nil {
		return err
	}
	if d.after, err = d.store.LastEvent(ctx); err != nil {
		return err
	}
	if err := d.readSettings(ctx); err != nil {
		return err
	}
	if _, err := d.readProviders(ctx); err != nil {
		return err
	}
	var held map[gq.LeaseID]*gq.State
	err = d.backlog.Fill(func() error {
		held, err = d.readJobs(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := d.reconcile(ctx, d.ledger.All(), held); err != nil {
		return err
	}
	if d.headVersion > 0 { // a store that does not use matching gets no queue for it
		if err := d.limitDepth(ctx); err != nil {
			return err
		}
	}
	d.loaded = true
	return nil
}

func (d *Dispatcher) readSettings(ctx context.Context) error {
	set := storedSettings()
	version, err := d.find(ctx, kindState, nameSettings, &set)
	if err != nil {
		return err
	}
	set.Bound()
	if version != d.settingsVersion {
		if own := d.options.Settings; d.settingsVersion == 0 && !reflect.DeepEqual(set, *own) && !reflect.DeepEqual(*own, match.DefaultSettings()) {
			d.log.Warn("the stored policy overrides the one this server was configured with")
		}
		d.putInForce(set, version, d.now())
	}
	was := d.beaconVersion
	var b posted
	if d.beaconVersion, err = d.find(ctx, kindState, nameBeacon, &b); err != nil || d.beaconVersion == was {
		return err
	}
	if b.At == 0 {
		b.At = d.now().Unix() // it has stood for at least as long as this server knows it
	}
	d.beacon = &b
	return nil
}

// putInForce replaces the settings. The grant window may be longer than before, so grants
// are read again.
func (d *Dispatcher) putInForce(set match.Settings, version uint64, now time.Time) {
	d.settings, d.settingsVersion, d.grants = set, version, ledger.Grants{}
	d.backlog.Rebuild(&d.settings.Policy, now)
}

// limitDepth sets the queue's depth limit from the settings.
func (d *Dispatcher) limitDepth(ctx context.Context) error {
	if err := d.storeConfigured(ctx); err != nil {
		return err
	}
	most := int(min(d.settings.DepthMax, 1<<31-1))
	queues, err := d.store.Queues(ctx, store.QueueQuery{Names: []string{d.queue}})
	if err != nil {
		return err
	}
	d.depthSet = true
	if len(queues) > 0 && queues[0].MaxDepth == most {
		return nil
	}
	_, err = d.engine.ChangeQueue(ctx, d.queue, func(q *gq.Queue) {
		q.MaxDepth, q.Policy = most, d.settings.JobPolicy(match.AI, 0)
	})
	return err
}

// storeConfigured writes the settings of this server to a document, for readers of the
// store: they are in force until they are changed.
func (d *Dispatcher) storeConfigured(ctx context.Context) error {
	if d.settingsVersion > 0 {
		return nil
	}
	found, err := d.store.Doc(ctx, kindState, nameConfigured)
	if err != nil && !errors.Is(err, gq.ErrNotFound) {
		return err
	}
	written, err := doc(kindState, nameConfigured, found.Version, d.options.Settings)
	if err != nil || bytes.Equal(written.Data, found.Data) {
		return err
	}
	if _, err = d.store.PutDocs(ctx, []store.Doc{written}); errors.Is(err, gq.ErrConflict) {
		return nil // another server just wrote it, and all servers must have the same configuration
	}
	return err
}

// readProviders reads the changed documents of providers. It returns the leases that were
// unknown.
func (d *Dispatcher) readProviders(ctx context.Context) (unknown []*ledger.Lease, err error) {
	gone := d.registry.IDs()
	relisted := false
	err = d.each(ctx, kindProvider, func(found store.Doc) error {
		delete(gone, found.Name)
		if p := d.registry.Get(found.Name); p != nil && p.Version == found.Version {
			return nil
		}
		var made registry.Profile
		if err := read(found, &made); err != nil {
			return err
		}
		if d.adopt(made, found.Version) {
			relisted = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for id := range gone {
		relisted = d.forgetProvider(d.registry.Get(id)) || relisted
	}
	if relisted {
		d.backlog.Rebuild(&d.settings.Policy, d.now())
	}
	err = d.each(ctx, kindLedger, func(found store.Doc) error {
		p := d.registry.Get(found.Name)
		if p == nil || p.Account.Version == found.Version {
			return nil
		}
		var s ledger.Statement
		if err := read(found, &s); err != nil {
			return err
		}
		unknown = append(unknown, d.ledger.Load(p.Account, &s, found.Version)...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, p := range d.registry.ByID() {
		if p.HeartbeatVersion == 0 {
			return unknown, d.readHeartbeats(ctx)
		}
	}
	return unknown, nil
}

// forgetProvider removes a provider from the registry. If it returns true, the caller must
// rebuild the backlog.
func (d *Dispatcher) forgetProvider(p *registry.Provider) (relisted bool) {
	relisted = d.backlog.CountLists(&p.Profile.Provider, -1)
	d.setMember(p, false)
	d.registry.Remove(p.ID)
	return relisted
}

// adopt replaces the profile of a provider. If it returns true, the caller must rebuild
// the backlog.
func (d *Dispatcher) adopt(made registry.Profile, version uint64) (relisted bool) {
	p := d.registry.Get(made.ID)
	if p == nil {
		p = d.registry.Add(made)
	} else {
		d.setMember(p, false) // what it can serve may have changed
		relisted = d.backlog.CountLists(&p.Profile.Provider, -1)
	}
	p.Profile, p.Version = made, version
	return d.backlog.CountLists(&p.Profile.Provider, 1) || relisted
}

// setMember adds a provider to the snapshot of rounds, or removes it.
func (d *Dispatcher) setMember(p *registry.Provider, member bool) {
	if p.Member == member {
		return
	}
	p.Member = member
	by := -1
	if member {
		by = 1
	}
	d.backlog.AddServers(by, func(j *match.Job) bool { return d.settings.Serves(&p.Profile.Provider, j) })
}

// readHeartbeats reads heartbeats that other nodes received.
func (d *Dispatcher) readHeartbeats(ctx context.Context) error {
	d.heartbeatsRead = time.Now()
	return d.each(ctx, kindHeartbeat, func(found store.Doc) error {
		p := d.registry.Get(found.Name)
		if p == nil || p.HeartbeatVersion == found.Version {
			return nil
		}
		var b registry.Heartbeat
		if err := read(found, &b); err != nil {
			return err
		}
		p.NoteHeartbeat(b, found.Version)
		return nil
	})
}

// refreshHeartbeats reads heartbeats that other nodes received, if one is about to be
// missed here.
func (d *Dispatcher) refreshHeartbeats(ctx context.Context, now int64) error {
	timeout := d.settings.Eligibility.HeartbeatTimeout
	if time.Since(d.heartbeatsRead) < max(time.Second, time.Duration(timeout)*time.Second/6) || !d.registry.HeartbeatDue(now, timeout) {
		return nil
	}
	return d.readHeartbeats(ctx)
}

// readJobs reads all live jobs except those that wait for dependencies, and returns the
// held ones by lease.
func (d *Dispatcher) readJobs(ctx context.Context) (held map[gq.LeaseID]*gq.State, err error) {
	held = make(map[gq.LeaseID]*gq.State)
	q := gq.Query{
		Queue: d.queue, OldestFirst: true, Limit: store.MaxPage,
		Statuses: []gq.Status{gq.StatusDelayed, gq.StatusScheduled, gq.StatusClaimed, gq.StatusRunning, gq.StatusRetrying},
	}
	// A goroutine reads the next page while the jobs of this one are added.
	ctx, stop := context.WithCancel(ctx)
	pages := make(chan gq.Page, 1)
	failed := make(chan error, 1)
	go func() {
		defer close(pages)
		for {
			page, err := d.store.List(ctx, q)
			if err != nil {
				failed <- err
				return
			}
			select {
			case pages <- page:
			case <-ctx.Done():
				return
			}
			if q.Cursor = page.Next; q.Cursor == "" {
				return
			}
		}
	}()
	defer func() {
		stop()
		for range pages { // until the goroutine has ended
		}
	}()
	for page := range pages {
		for i := range page.Jobs {
			if s := &page.Jobs[i].State; s.Status.Held() {
				state := *s // a copy, so that the rest of the page can be freed
				held[s.Lease.ID] = &state
			} else if err := d.enqueue(ctx, &page.Jobs[i]); err != nil {
				return nil, err
			}
		}
	}
	select {
	case err := <-failed:
		return nil, err
	default:
		return held, nil
	}
}

// reconcile compares open leases with the held jobs and records the end of every lease
// that holds no job.
func (d *Dispatcher) reconcile(ctx context.Context, leases []*ledger.Lease, held map[gq.LeaseID]*gq.State) error {
	for _, l := range leases {
		if s := held[l.Lease]; s != nil {
			d.ledger.SetExpiry(l, s.Lease.ExpiresAt)
			if int(s.Version) == s.Faults+1 { // all earlier leases of the job ended with a fault
				l.Version = s.Version
			}
			continue
		}
		history, err := d.store.History(ctx, l.Job)
		if err != nil && errs.KindOf(err) != gq.KindNotFound {
			return fmt.Errorf("lease %s: %w", l.Lease, err)
		}
		d.end(l, history)
	}
	return nil
}

// end records the end of a lease from its job's history. If the history is gone, it only
// closes the lease.
func (d *Dispatcher) end(l *ledger.Lease, history []gq.Event) {
	for i := range history {
		if e := &history[i]; e.Lease == l.Lease {
			if o := match.OutcomeOf(e); o != 0 {
				d.ledger.Settle(l, o, e.Time, &d.settings)
				return
			}
		}
	}
	l.Account.Dirty = true
	d.ledger.Close(l)
}

// granted counts the leases that the requesters of jobs got within the window that ends
// now. Without a limit it counts nothing.
func (d *Dispatcher) granted(ctx context.Context, jobs []*backlog.Job, now int64) (map[string]int64, error) {
	q := &d.settings.Quotas
	if q.RequesterMax > 0 && !d.grants.Complete {
		if err := d.readGrants(ctx); err != nil {
			return nil, err
		}
	}
	d.grants.Expire(now, q)
	if q.RequesterMax == 0 {
		return nil, nil
	}
	counts := make(map[string]int64)
	for _, j := range jobs {
		if n := d.grants.Count(j.Requester); n > 0 {
			counts[j.Requester] = n
		}
	}
	return counts, nil
}

// readGrants reads from the records of recent rounds which requesters got leases.
func (d *Dispatcher) readGrants(ctx context.Context) error {
	since := d.now().Unix() - d.settings.Quotas.RequesterWindow
	type grants struct {
		at         int64
		requesters []string
	}
	var recent []grants // newest first
	for n := d.head.Round; n > 0; n-- {
		at, requesters, err := audit.ReadRequesters(ctx, d.store, n)
		if errors.Is(err, gq.ErrNotFound) || err == nil && at <= since {
			break
		}
		if err != nil {
			return err
		}
		recent = append(recent, grants{at, requesters})
	}
	d.grants = ledger.Grants{Complete: true}
	for _, g := range slices.Backward(recent) {
		for _, r := range g.requesters {
			d.grants.Add(r, g.at)
		}
	}
	return nil
}
