package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Samples measure the queues of a pool over time. The counts come from the event log, which
// every transition is written to in its own commit. So each event is counted exactly once, even
// with several engines and after a crash. Samples are stored as documents: one per hour of a
// pool, and a cursor with the number of the last counted event. All are written in one commit.

// SampleEvery is the interval of one sample.
const SampleEvery = 10 * time.Second

const (
	sampleKept     = 31 * 24 * time.Hour
	sampleHour     = time.Hour
	sampleHourName = "2006-01-02T15"
	sampleEvents   = 1000 // events per step
)

func sampleKind(pool string) string { return "samples of " + pool }

const cursorKind = "sampled pools"

// Sample records the current levels of a pool and the events since the last sample. Any number
// of engines can sample the same pool; each event is counted once. Sample writes nothing if
// nothing has happened.
func (e *Engine) Sample(ctx context.Context, pool string) error {
	for {
		t, err := e.tally(ctx, pool)
		if err == nil {
			err = e.keep(ctx, t)
		}
		switch {
		case errors.Is(err, gq.ErrConflict): // another engine wrote first; retry
		case err != nil:
			return fmt.Errorf("sample pool %.80q: %w", pool, err)
		case t.complete:
			return nil
		}
	}
}

// Samples returns the samples from a time until now, oldest first. The first one can be older:
// it has the levels at the beginning of the range. Concurrent calls share what they read.
func (e *Engine) Samples(ctx context.Context, pool string, from time.Time) ([]machine.Sample, error) {
	known, _ := e.tallies.LoadOrStore(pool, new(shared[*tally]))
	tallies := known.(*shared[*tally])
	read := func(ctx context.Context) (*tally, error) { return e.tally(ctx, pool) }
	for {
		t, err := tallies.do(ctx, read)
		if err == nil && !t.complete { // too many events for one step
			if err := e.Sample(ctx, pool); err != nil {
				return nil, err
			}
			t, err = tallies.do(ctx, read)
		}
		if err != nil {
			return nil, fmt.Errorf("samples of pool %.80q: %w", pool, err)
		}
		samples, err := e.samples(ctx, t, from)
		if err != nil {
			return nil, fmt.Errorf("samples of pool %.80q: %w", pool, err)
		}
		// Retry if another engine has stored events that this tally counts too.
		now := &tally{pool: pool}
		if err := e.readCursor(ctx, now); err != nil {
			return nil, fmt.Errorf("samples of pool %.80q: %w", pool, err)
		}
		if now.cursor.Version == t.cursor.Version {
			return samples, nil
		}
	}
}

// samples returns the stored samples from a time on, plus a tally.
func (e *Engine) samples(ctx context.Context, t *tally, from time.Time) ([]machine.Sample, error) {
	// While an engine runs every hour has a sample, so two hours reach back far enough;
	// otherwise the cursor has the last sample.
	after := from.Add(-2*sampleHour - 1).UTC().Format(sampleHourName)
	byTime := map[int64]machine.Sample{t.last.Time.Unix(): t.last}
	for {
		docs, err := e.store.Docs(ctx, sampleKind(t.pool), after, store.MaxPage)
		if err != nil {
			return nil, err
		}
		for i := range docs {
			samples, err := decodeHour(docs[i])
			if err != nil {
				return nil, err
			}
			for _, s := range samples {
				byTime[s.Time.Unix()] = s
			}
		}
		if len(docs) < store.MaxPage {
			break
		}
		after = docs[len(docs)-1].Name
	}
	for at, add := range t.intervals {
		byTime[at] = merge(byTime[at], *add)
	}
	if t.last.Time.IsZero() {
		delete(byTime, t.last.Time.Unix())
	}
	return clip(slices.SortedFunc(maps.Values(byTime), func(a, b machine.Sample) int { return a.Time.Compare(b.Time) }), from), nil
}

// clip removes the samples before a time except the last one, and clears the counts of that
// one, which are outside the range.
func clip(samples []machine.Sample, from time.Time) []machine.Sample {
	first := slices.IndexFunc(samples, func(s machine.Sample) bool { return !s.Time.Before(from) })
	if first < 0 {
		first = len(samples)
	}
	if first == 0 {
		return samples
	}
	samples = samples[first-1:]
	clear(samples[0].Values[machine.CapacityLevel+1:])
	return samples
}

// tally is an addition to the samples of a pool.
type tally struct {
	pool      string
	cursor    store.Doc
	kept      uint64                    // event number of the stored cursor
	seq       uint64                    // last counted event
	last      machine.Sample            // newest stored sample, with its levels
	intervals map[int64]*machine.Sample // by the Unix time of their beginning
	complete  bool                      // it includes all events and the current levels
}

func (t *tally) interval(at time.Time) *machine.Sample {
	at = at.Truncate(SampleEvery).UTC()
	s := t.intervals[at.Unix()]
	if s == nil {
		s = &machine.Sample{Time: at}
		t.intervals[at.Unix()] = s
	}
	return s
}

// tally counts the events since the last sample, up to sampleEvents.
func (e *Engine) tally(ctx context.Context, pool string) (*tally, error) {
	t := &tally{pool: pool, intervals: map[int64]*machine.Sample{}}
	if err := e.readCursor(ctx, t); err != nil {
		return nil, err
	}
	last, err := e.store.LastEvent(ctx)
	if err != nil {
		return nil, err
	}
	queues, err := e.store.Queues(ctx, store.QueueQuery{Pool: pool})
	if err != nil {
		return nil, err
	}
	members := make(map[string]bool, len(queues))
	for i := range queues {
		members[queues[i].Name] = true
	}
	if len(members) == 0 {
		t.seq = max(t.seq, last) // no event up to here can be counted
	}
	events, err := e.store.Events(ctx, t.seq, sampleEvents)
	if errors.Is(err, gq.ErrGone) {
		if t.seq, err = e.BeforeFirstEvent(ctx); err == nil {
			events, err = e.store.Events(ctx, t.seq, sampleEvents)
		}
	}
	if err != nil {
		return nil, err
	}
	now := e.clock.now()
	for i := range events {
		v := &events[i]
		t.seq = v.Seq
		if members[v.Queue] {
			t.interval(v.Time).Count(v)
		}
		if v.Time.After(now) {
			now = v.Time
		}
	}
	for _, s := range t.intervals { // their levels were not measured
		copy(s.Values[:], t.last.Values[:machine.CapacityLevel+1])
	}
	if t.complete = len(events) < sampleEvents; t.complete {
		return t, e.levels(ctx, pool, slices.Collect(maps.Keys(members)), t.interval(now))
	}
	return t, nil
}

// levels measures the current levels of a pool.
func (e *Engine) levels(ctx context.Context, pool string, queues []string, to *machine.Sample) error {
	v := &to.Values
	clear(v[:machine.CapacityLevel+1])
	pools, err := e.store.Pools(ctx)
	if err != nil {
		return err
	}
	for _, p := range pools {
		if p.Name == pool {
			v[machine.UsedLevel], v[machine.CapacityLevel] = p.Used, p.Capacity
		}
	}
	if len(queues) == 0 {
		return nil // without names Counts returns all queues
	}
	counts, err := e.store.Counts(ctx, queues...)
	if err != nil {
		return err
	}
	for i := range counts {
		by := &counts[i].By
		v[machine.QueuedLevel] += by[gq.StatusPending] + by[gq.StatusDelayed] + by[gq.StatusScheduled] + by[gq.StatusRetrying]
		v[machine.ClaimedLevel] += by[gq.StatusClaimed]
		v[machine.RunningLevel] += by[gq.StatusRunning]
	}
	return nil
}

// BeforeFirstEvent returns the sequence number before the oldest stored event. Reading after it
// does not fail with [gq.ErrGone], unless more events are deleted meanwhile.
func (e *Engine) BeforeFirstEvent(ctx context.Context) (uint64, error) {
	gone := func(after uint64) (bool, error) {
		_, err := e.store.Events(ctx, after, 1)
		if errors.Is(err, gq.ErrGone) {
			return true, nil
		}
		return false, err
	}
	all, err := gone(0)
	if err != nil || !all {
		return 0, err
	}
	low := uint64(0) // deleted
	high, err := e.store.LastEvent(ctx)
	for err == nil && low+1 < high {
		middle := low + (high-low)/2
		var is bool
		if is, err = gone(middle); is {
			low = middle
		} else {
			high = middle
		}
	}
	if err != nil {
		return 0, fmt.Errorf("find the first event: %w", err)
	}
	return high, nil
}

// keep stores a tally if it has new data.
func (e *Engine) keep(ctx context.Context, t *tally) error {
	hours := map[string][]*machine.Sample{}
	for _, s := range t.intervals {
		name := s.Time.Format(sampleHourName)
		hours[name] = append(hours[name], s)
	}
	var docs []store.Doc
	changed, fresh := false, false
	newest := t.last
	for _, name := range slices.Sorted(maps.Keys(hours)) {
		d, err := e.store.Doc(ctx, sampleKind(t.pool), name)
		if errors.Is(err, gq.ErrNotFound) {
			d, err, fresh = store.Doc{Kind: sampleKind(t.pool), Name: name}, nil, true
		}
		if err != nil {
			return err
		}
		samples, err := decodeHour(d)
		if err != nil {
			return err
		}
		changed = changed || len(samples) == 0
		for _, add := range hours[name] {
			changed = changed || tells(newest, add)
			if !add.Time.Before(newest.Time) && t.complete {
				newest = merge(newest, *add)
			}
			samples = insertSample(samples, *add)
		}
		d.Data = encodeHour(samples)
		docs = append(docs, d)
	}
	if !changed {
		// Advance the cursor past events of other pools. Otherwise each sample would read
		// them again, and a full page of them would block it for ever.
		if docs, fresh, newest = nil, false, t.last; t.seq == t.kept {
			return nil
		}
	}
	cursor := t.cursor
	cursor.Data = encodeCursor(t.seq, newest)
	docs = append(docs, cursor)
	if _, err := e.store.PutDocs(ctx, docs); err != nil {
		return err
	}
	if fresh {
		return e.forget(ctx, t.pool, newest.Time.Add(-sampleKept))
	}
	return nil
}

// tells reports whether a sample has counts or changed levels.
func tells(before machine.Sample, s *machine.Sample) bool {
	for m, v := range s.Values {
		switch {
		case !machine.Measure(m).Level():
			if v != 0 {
				return true
			}
		case v != before.Values[m]:
			return true
		}
	}
	return false
}

// merge adds the counts of s to a later sample of the same interval.
func merge(s, later machine.Sample) machine.Sample {
	out := later
	if s.Time.Equal(later.Time) {
		for m := machine.CapacityLevel + 1; m < machine.MeasureEnd; m++ {
			out.Values[m] += s.Values[m]
		}
	}
	return out
}

func insertSample(samples []machine.Sample, s machine.Sample) []machine.Sample {
	at, found := slices.BinarySearchFunc(samples, s, func(a, b machine.Sample) int { return a.Time.Compare(b.Time) })
	if found {
		samples[at] = merge(samples[at], s)
		return samples
	}
	return slices.Insert(samples, at, s)
}

// forget deletes the oldest hours.
func (e *Engine) forget(ctx context.Context, pool string, before time.Time) error {
	docs, err := e.store.Docs(ctx, sampleKind(pool), "", 10)
	if err != nil {
		return err
	}
	limit := before.Format(sampleHourName)
	docs = slices.DeleteFunc(docs, func(d store.Doc) bool { return d.Name >= limit })
	for i := range docs {
		docs[i].Data = nil
	}
	if len(docs) == 0 {
		return nil
	}
	_, err = e.store.PutDocs(ctx, docs)
	if errors.Is(err, gq.ErrConflict) {
		return nil // another engine has deleted them
	}
	return err
}

func (e *Engine) readCursor(ctx context.Context, t *tally) error {
	d, err := e.store.Doc(ctx, cursorKind, t.pool)
	if errors.Is(err, gq.ErrNotFound) {
		t.cursor = store.Doc{Kind: cursorKind, Name: t.pool}
		return nil
	}
	if err != nil {
		return err
	}
	t.cursor = d
	t.seq, t.last, err = decodeCursor(d)
	t.kept = t.seq
	return err
}
