package matchmaker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// world is what the dispatcher knows between rounds.
type world struct {
	id       string // of this process, among those that write the head
	stale    bool   // documents may have changed
	after    uint64 // events up to this one are known
	settings match.Settings
	setting  uint64 // version of the settings
	beacon   *match.Beacon
	beaconed uint64 // version of the beacon

	head        head
	headVersion uint64

	providers map[string]*provider
	ordered   []*provider // by id; nil when it must be made again
	leases    map[gq.LeaseID]*lease
	timers    heap[*lease] // by when they run out
	ended     map[gq.JobID]ended
	backlog   *backlog
	reader    *reader
	grants    window
	ledger    ledger // what records of rounds build on
	guarded   bool   // the queue is as deep as the settings want it
	beatsRead time.Time
	forgot    time.Time // when old rounds were last looked for
}

// provider is one that is registered.
type provider struct {
	profile
	version uint64
	match.Standing
	open   map[gq.LeaseID]*lease
	booked uint64 // version of the books
	dirty  bool   // the books have changed
	beat   int64  // last sign of life
	beats  uint64 // version of its document
	member bool   // of the last snapshot
}

// lease is one that a provider holds, as far as is known.
type lease struct {
	entry
	provider *provider
	until    time.Time // when it runs out, zero if that is not known
	inTimers int

	version gq.LeaseVersion // 0 where what the job had before is not known
	before  []past          // of the job, at the same attempt
}

// ended is what a job whose lease has just ended had until then: what its history tells
// too, which is long where many leases end in one commit.
type ended struct {
	version gq.LeaseVersion // of the last one
	leases  []past          // at the attempt of that
}

func (d *Dispatcher) reset() {
	count := func(j *match.Job) (n int) {
		for _, p := range d.providers {
			if p.member && d.settings.Serves(&p.Provider, j) {
				n++
			}
		}
		return n
	}
	d.world = world{
		id: d.id, settings: d.options.Settings.Clone(), reader: newReader(),
		providers: map[string]*provider{}, leases: map[gq.LeaseID]*lease{}, ended: map[gq.JobID]ended{},
		timers: heap[*lease]{
			before: func(a, b *lease) bool { return a.until.Before(b.until) },
			placed: func(l *lease, at int) { l.inTimers = at },
		},
	}
	if d.id == "" {
		d.id = newName()
	}
	d.backlog = newBacklog(&d.settings.Policy, count)
}

// load reads everything.
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
	if err := d.readProviders(ctx, nil); err != nil {
		return err
	}
	var held map[gq.LeaseID]*gq.State
	err = d.backlog.fill(func() error {
		held, err = d.readJobs(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := d.reconcile(ctx, slices.Collect(maps.Values(d.leases)), held); err != nil {
		return err
	}
	if d.headVersion > 0 { // a store that matches nothing gets no queue for it
		if err := d.guard(ctx); err != nil {
			return err
		}
	}
	d.loaded = true
	return nil
}

func (d *Dispatcher) readSettings(ctx context.Context) error {
	var set match.Settings
	version, err := d.find(ctx, kindState, nameSettings, &set)
	if err != nil {
		return err
	}
	if version != d.setting {
		if own := d.options.Settings; d.setting == 0 && !reflect.DeepEqual(set, *own) && !reflect.DeepEqual(*own, match.DefaultSettings()) {
			d.log.Warn("the policy that was put counts, not the one this server was configured with")
		}
		d.settings, d.setting, d.grants = set, version, window{}
		d.backlog.rebuild(&d.settings.Policy, d.now())
	}
	var b match.Beacon
	if d.beaconed, err = d.find(ctx, kindState, nameBeacon, &b); err != nil {
		return err
	}
	if d.beacon = nil; d.beaconed > 0 {
		d.beacon = &b
	}
	return nil
}

// guard keeps the depth of the queue where the settings want it.
func (d *Dispatcher) guard(ctx context.Context) error {
	if err := d.showConfigured(ctx); err != nil {
		return err
	}
	most := int(min(d.settings.DepthMax, 1<<31-1))
	queues, err := d.store.Queues(ctx, store.QueueQuery{Names: []string{d.queue}})
	if err != nil {
		return err
	}
	d.guarded = true
	if len(queues) > 0 && queues[0].MaxDepth == most {
		return nil
	}
	_, err = d.engine.ChangeQueue(ctx, d.queue, func(q *gq.Queue) {
		q.MaxDepth, q.Policy = most, d.settings.JobPolicy(match.AI, 0)
	})
	return err
}

// showConfigured keeps the settings of this server in a document, for those who
// read the store without it: they count as long as none were put.
func (d *Dispatcher) showConfigured(ctx context.Context) error {
	if d.setting > 0 {
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
		return nil // another server has just done so, and all are to be configured alike
	}
	return err
}

// readProviders reads the documents of all providers, or those that changed. It
// notes leases that were not known in fresh.
func (d *Dispatcher) readProviders(ctx context.Context, fresh *[]*lease) error {
	gone := maps.Clone(d.providers)
	relisted := false
	err := d.each(ctx, kindProvider, func(found store.Doc) error {
		delete(gone, found.Name)
		p := d.providers[found.Name]
		if p != nil && p.version == found.Version {
			return nil
		}
		var made profile
		if err := read(found, &made); err != nil {
			return err
		}
		if d.adopt(made, found.Version) {
			relisted = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name, p := range gone {
		relisted = d.backlog.list(&p.Provider, -1) || relisted
		d.join(p, false)
		delete(d.providers, name)
		d.ordered = nil
	}
	if relisted {
		d.backlog.rebuild(&d.settings.Policy, d.now())
	}
	err = d.each(ctx, kindBooks, func(found store.Doc) error {
		p := d.providers[found.Name]
		if p == nil || p.booked == found.Version {
			return nil
		}
		var b books
		if err := read(found, &b); err != nil {
			return err
		}
		d.open(p, b, found.Version, fresh)
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range d.providers {
		if p.beats == 0 {
			return d.readBeats(ctx)
		}
	}
	return nil
}

// adopt takes over what a provider is from its document, and reports whether
// shapes may be other ones now.
func (d *Dispatcher) adopt(made profile, version uint64) (relisted bool) {
	p := d.providers[made.ID]
	if p == nil {
		p = &provider{open: map[gq.LeaseID]*lease{}, Standing: match.NewStanding(made.RegisteredAt)}
		d.providers[made.ID], d.ordered = p, nil
	} else {
		d.join(p, false) // what it can serve may be something else
		relisted = d.backlog.list(&p.Provider, -1)
	}
	p.profile, p.version = made, version
	return d.backlog.list(&p.Provider, 1) || relisted
}

// open takes over a provider's books from their document.
func (d *Dispatcher) open(p *provider, b books, version uint64, fresh *[]*lease) {
	known := p.open
	p.Standing, p.booked, p.dirty = b.Standing, version, false
	p.open = make(map[gq.LeaseID]*lease, len(b.Open))
	for _, e := range b.Open {
		l := known[e.Lease]
		if l == nil {
			l = &lease{entry: e, provider: p, inTimers: -1}
			d.leases[e.Lease] = l
			if fresh != nil {
				*fresh = append(*fresh, l)
			}
		}
		delete(known, e.Lease)
		p.open[e.Lease] = l
	}
	for _, l := range known {
		d.forget(l)
	}
}

// forget lets go of a lease.
func (d *Dispatcher) forget(l *lease) {
	if l.version > 0 {
		d.ended[l.Job] = ended{l.version, append(slices.Clip(l.before), past{l.provider.ID, l.Lease})}
	}
	delete(d.leases, l.Lease)
	delete(l.provider.open, l.Lease)
	if l.inTimers >= 0 {
		d.timers.remove(l.inTimers)
	}
}

// lasts notes when a lease runs out.
func (d *Dispatcher) lasts(l *lease, until time.Time) {
	l.until = until
	if l.inTimers >= 0 {
		d.timers.fix(l.inTimers)
	} else {
		d.timers.push(l)
	}
}

func (d *Dispatcher) leaseDue() time.Time {
	if d.timers.len() == 0 {
		return time.Time{}
	}
	return d.timers.items[0].until
}

// readBeats reads signs of life that other nodes were given.
func (d *Dispatcher) readBeats(ctx context.Context) error {
	d.beatsRead = time.Now()
	return d.each(ctx, kindBeat, func(found store.Doc) error {
		p := d.providers[found.Name]
		if p == nil || p.beats == found.Version {
			return nil
		}
		var b beat
		if err := read(found, &b); err != nil {
			return err
		}
		p.beat, p.beats = max(p.beat, b.At), found.Version
		return nil
	})
}

// readJobs reads all live jobs but those that wait for others, and returns those that are
// held, by their leases.
func (d *Dispatcher) readJobs(ctx context.Context) (held map[gq.LeaseID]*gq.State, err error) {
	held = make(map[gq.LeaseID]*gq.State)
	q := gq.Query{
		Queue: d.queue, OldestFirst: true, Limit: store.MaxPage,
		Statuses: []gq.Status{gq.StatusDelayed, gq.StatusScheduled, gq.StatusClaimed, gq.StatusRunning, gq.StatusRetrying},
	}
	// The next page is read while one is entered.
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
		for range pages { // until the reader has ended
		}
	}()
	for page := range pages {
		for i := range page.Jobs {
			if s := &page.Jobs[i].State; s.Status.Held() {
				state := *s // without the rest of its page
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

// reconcile finds out what has become of leases: those that hold a job last, the
// end of the others is entered into the books.
func (d *Dispatcher) reconcile(ctx context.Context, leases []*lease, held map[gq.LeaseID]*gq.State) error {
	for _, l := range leases {
		if s := held[l.Lease]; s != nil {
			d.lasts(l, s.Lease.ExpiresAt)
			if int(s.Version) == s.Faults+1 { // all that it had before ended with a fault
				l.version = s.Version
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

// end enters the end of a lease that its job's history tells of. Where nothing
// is kept of the job any more, it is forgotten.
func (d *Dispatcher) end(l *lease, history []gq.Event) {
	for i := range history {
		if e := &history[i]; e.Lease == l.Lease {
			if o := match.OutcomeOf(e); o != 0 {
				d.settled(l, o, e.Time)
				return
			}
		}
	}
	l.provider.dirty = true
	d.forget(l)
}

// settled enters the end of a lease into the books.
func (d *Dispatcher) settled(l *lease, o match.Outcome, at time.Time) {
	l.provider.Note(o, l.Kind, at.Unix(), &d.settings)
	l.provider.dirty = true
	d.forget(l)
}
