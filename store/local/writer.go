package local

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

// One goroutine, the writer, makes every change. Callers give it work and wait. While
// one commit is being written the writer collects the next, so a thousand callers share
// a commit and a single caller waits for no others.
//
// A second goroutine, the committer, passes commits to Pebble, which starts to sync
// them. A third, the syncer, waits for the sync and answers the callers. Meanwhile the
// writer applies the next commit to the table and adds to it until the disk is idle or
// the commit is full; full commits queue up. So the table may be a few commits ahead of
// the disk: a reader that needs both first waits for the disk (awaitDisk).

// work is one caller's part of a commit.
type work struct {
	apply    func(*txn) // runs in the writer; nil if items are set
	items    items      // from and to select those to apply
	from, to int
	weight   int // its share of a commit: jobs and KiB of payload
	done     chan struct{}
}

// items are the parts of one call that may be in different commits.
type items interface {
	weigh(i int) int // called before the hand-over; 0 needs no commit
	apply(tx *txn, i int)
}

// maxWeight bounds a commit, and with it how long readers wait for the lock.
const maxWeight = 1024

// commit is an applied change on its way to the disk.
type commit struct {
	number uint64
	last   uint64        // its last event
	batch  *pebble.Batch // nil if nothing was written
	logged uint64        // its number among the commits written
	works  []*work
	news   store.News
}

// intake is the queue of work for the writer.
type intake struct {
	mu     sync.Mutex
	queue  []*work // guarded by mu
	closed bool    // guarded by mu
	wake   chan struct{}
}

// do gives a change to the writer and waits until it is durable. If the context ends
// first, the outcome is unknown.
func (s *Store) do(ctx context.Context, weight int, apply func(*txn)) error {
	w := s.works.Get().(*work)
	w.apply, w.weight = apply, weight
	return s.handOver(ctx, w)
}

func (s *Store) handOver(ctx context.Context, w *work) error {
	if err := s.usable(ctx); err != nil {
		s.recycle(w)
		return err
	}
	s.intake.mu.Lock()
	if s.intake.closed {
		s.intake.mu.Unlock()
		s.recycle(w)
		return gq.ErrClosed
	}
	s.intake.queue = append(s.intake.queue, w)
	s.intake.mu.Unlock()
	s.wakeUp()
	if ended := ctx.Done(); ended == nil {
		<-w.done
	} else {
		select {
		case <-w.done:
		case <-ended:
			if s.withdraw(w) {
				return fmt.Errorf("not begun: %w", context.Cause(ctx))
			}
			return fmt.Errorf("outcome unknown: %w", context.Cause(ctx))
		}
	}
	s.recycle(w)
	if err := s.failure(); err != nil && !errors.Is(err, gq.ErrClosed) {
		return err
	}
	return nil // Close waits for running calls, so work that finished before it is durable
}

func (s *Store) recycle(w *work) {
	w.apply, w.items = nil, nil
	s.works.Put(w)
}

// withdraw removes work that the writer has not begun.
func (s *Store) withdraw(w *work) bool {
	in := &s.intake
	in.mu.Lock()
	defer in.mu.Unlock()
	i := slices.Index(in.queue, w)
	if i >= 0 {
		in.queue = slices.Delete(in.queue, i, i+1)
	}
	return i >= 0
}

// inChunks gives n items to the writer, as many per commit as fit.
func (s *Store) inChunks(ctx context.Context, n int, c items) error {
	weighed, next := 0, 0 // each item is weighed once; the last may go into the next commit
	from := 0
	for from < n {
		to, weight := from, 0
		for ; to < n; to++ {
			if to == weighed {
				next = c.weigh(to)
				weighed++
			}
			if weight > 0 && weight+next > maxWeight {
				break
			}
			weight += next
		}
		if weight == 0 {
			break
		}
		w := s.works.Get().(*work)
		w.items, w.from, w.to, w.weight = c, from, to, weight
		if err := s.handOver(ctx, w); err != nil {
			return err
		}
		from = to
	}
	if from > 0 {
		return nil
	}
	return s.usable(ctx)
}

func (s *Store) wakeUp() { wake.Up(s.intake.wake) }

// usable rejects calls that cannot succeed.
func (s *Store) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	return s.failure()
}

// take removes work up to a weight from the intake, but at least one.
func (s *Store) take(works []*work, most int) (taken []*work, weight int, closed bool) {
	in := &s.intake
	in.mu.Lock()
	defer in.mu.Unlock()
	n := 0
	for n < len(in.queue) && (n == 0 || weight+in.queue[n].weight <= most) {
		weight += in.queue[n].weight
		n++
	}
	taken = append(works, in.queue[:n]...)
	rest := copy(in.queue, in.queue[n:])
	clear(in.queue[rest:])
	in.queue = in.queue[:rest]
	return taken, weight, in.closed
}

// write runs the writer.
func (s *Store) write() {
	defer close(s.commits)
	var spare []*work
	for {
		works, weight, closed := s.take(spare[:0], maxWeight)
		if closed && len(works) == 0 {
			return // unfinished work continues when the store is opened again
		}
		if len(works) == 0 && !s.unfinished() {
			<-s.intake.wake
			spare = works
			continue
		}
		s.mu.Lock()
		s.begin()
		s.apply(works)
		s.mu.Unlock()
		works = s.gather(works, weight)
		select {
		case <-s.idle: // not idle any more
		default:
		}
		s.commits <- s.finish(works)
		select {
		case spare = <-s.spares:
		default:
			spare = nil
		}
	}
}

// gather adds arriving work to the open commit until nothing waits for the disk or the
// commit is full. It only tries the lock: a reader that holds it may be waiting for this
// commit.
func (s *Store) gather(works []*work, weight int) []*work {
	for weight < maxWeight {
		select {
		case <-s.idle:
			return works
		default:
		}
		select {
		case <-s.idle:
			return works
		case <-s.intake.wake:
		}
		if !s.mu.TryLock() {
			<-s.idle
			return works
		}
		from := len(works)
		var more int
		works, more, _ = s.take(works, maxWeight-weight)
		weight += more
		if more > 0 && s.failure() == nil {
			s.tx.restamp()
		}
		s.apply(works[from:])
		s.mu.Unlock()
	}
	return works
}

// unfinished reports whether dependents wait for an update although no caller does.
func (s *Store) unfinished() bool {
	return len(s.table.ended) > 0 && s.importing == nil && s.failure() == nil
}

// apply adds work to the open commit. The caller holds the lock.
func (s *Store) apply(works []*work) {
	if s.failure() != nil {
		return
	}
	defer s.defect()
	for _, w := range works {
		if w.items == nil {
			w.apply(&s.tx)
			continue
		}
		for i := w.from; i < w.to; i++ {
			w.items.apply(&s.tx, i)
		}
	}
	if s.importing == nil {
		s.tx.tell(releaseStep)
	}
}

// finish closes the open commit. It needs no lock: it reads only what the writer alone
// changes.
func (s *Store) finish(works []*work) commit {
	c := commit{number: s.applied, last: s.table.lastEvent, works: works}
	if s.failure() != nil {
		return c
	}
	defer s.defect()
	s.tx.seal()
	s.claimable.Store(s.table.ready)
	batch := s.tx.whole()
	if batch.Empty() {
		must(batch.Close())
		return c
	}
	c.news = s.tx.news()
	if s.onCommit != nil {
		s.onCommit(batch.Repr())
	}
	c.batch = batch
	return c
}

// defect marks the store failed after a panic in its own code.
func (s *Store) defect() {
	if r := recover(); r != nil {
		s.fail(fmt.Errorf("defect while applying a commit: %v\n%s", r, debug.Stack()))
	}
}

// commit runs the committer.
func (s *Store) commit() {
	defer close(s.syncs)
	for c := range s.commits {
		if c.batch != nil {
			s.attempt(&c, s.persist)
		}
		s.syncs <- c
		if len(s.commits) == 0 {
			s.committerIdle()
		}
	}
}

// committerIdle tells the writer that the disk is idle. While commits are still being
// synced it leaves that to the syncer: a commit that is not full keeps growing until
// then.
func (s *Store) committerIdle() {
	s.idleDue.Store(true)
	s.signalIdle()
}

// signalIdle gives the writer the idle token if it is due and no commit waits for a sync.
func (s *Store) signalIdle() {
	if len(s.syncs) > 0 || !s.idleDue.CompareAndSwap(true, false) {
		return
	}
	wake.Up(s.idle)
}

// sync runs the syncer.
func (s *Store) sync() {
	defer close(s.stopped)
	for {
		c, ok := s.toSync()
		if !ok {
			return
		}
		s.signalIdle()
		if c.batch != nil {
			s.attempt(&c, s.await)
		}
		if s.failure() == nil {
			s.publish(&c)
			if c.batch != nil {
				s.watchers.tell(c.news)
			}
		}
		for i, w := range c.works {
			w.done <- struct{}{}
			c.works[i] = nil
		}
		select {
		case s.spares <- c.works:
		default:
		}
	}
}

// restAfter is how long the store must be idle before the ledger is synced.
const restAfter = time.Second

// toSync returns the next written commit. If none comes for a while, it syncs the
// ledger, so that the proof of the last commit does not depend on a later one.
func (s *Store) toSync() (c commit, ok bool) {
	select {
	case c, ok = <-s.syncs:
		return c, ok
	default:
	}
	if s.disk.ledger.pending() {
		idle := time.NewTimer(restAfter)
		defer idle.Stop()
		select {
		case c, ok = <-s.syncs:
			return c, ok
		case <-idle.C:
			s.disk.ledger.sync()
		}
	}
	c, ok = <-s.syncs
	return c, ok
}

// attempt runs a step of a commit unless the store has failed. Pebble panics if its log
// is broken.
func (s *Store) attempt(c *commit, step func(*commit) error) {
	defer func() {
		if r := recover(); r != nil {
			s.fail(fmt.Errorf("commit: %v", r))
		}
	}()
	if s.failure() != nil {
		return
	}
	if err := step(c); err != nil {
		s.fail(fmt.Errorf("commit: %w", err))
	}
}

// persist writes a commit and starts its sync without waiting for it.
func (s *Store) persist(c *commit) error {
	s.written++
	c.logged = s.written
	if l := s.disk.ledger; l != nil {
		m := mark{number: c.logged, acknowledged: s.acknowledged.Load()}
		l.mark(&m)
		if err := c.batch.LogData(m.append(make([]byte, 0, 64)), nil); err != nil {
			return err
		}
	}
	if s.early.Load() {
		return c.batch.Commit(pebble.NoSync)
	}
	return s.db.ApplyNoSyncWait(c.batch, pebble.Sync)
}

// await waits until a written commit is synced.
func (s *Store) await(c *commit) error {
	if !s.early.Load() {
		if err := c.batch.SyncWait(); err != nil {
			return err
		}
	}
	if s.failure() == nil {
		s.acknowledged.Store(c.logged)
		s.commitCount.Add(1)
		if err := c.batch.Close(); err != nil {
			s.log.Warn("close a written commit", "dir", s.dir, "error", err)
		}
	}
	return nil
}

// awaitDisk waits until the disk has everything the table has. The caller is a reader
// and holds the lock.
func (s *Store) awaitDisk() { _ = s.observed(s.applied) } // a failed store has nothing to wait for

// awaitDisk waits until the disk has all commits before this one.
func (tx *txn) awaitDisk() { _ = tx.s.observed(tx.s.applied - 1) }

// publish wakes the readers that wait for a commit.
func (s *Store) publish(c *commit) {
	s.lastEvent.Store(c.last)
	s.waiting.L.Lock()
	s.durable.Store(c.number)
	s.waiting.L.Unlock()
	s.waiting.Broadcast()
}

// observed waits until a commit is durable, so that no answer contains anything that a
// crash could undo.
func (s *Store) observed(number uint64) error {
	if s.durable.Load() < number {
		s.waiting.L.Lock()
		for s.durable.Load() < number && s.failure() == nil {
			s.waiting.Wait()
		}
		s.waiting.L.Unlock()
	}
	return s.failure()
}

// fail marks the store as failed for good. All unanswered and later calls get the
// error.
func (s *Store) fail(cause error) {
	err := fmt.Errorf("%s: %w: %w", s.dir, gq.ErrStoreFailed, cause)
	if s.failed.CompareAndSwap(nil, &err) {
		s.log.Error("store failed", "dir", s.dir, "cause", cause)
	}
	s.waiting.L.Lock()
	s.waiting.L.Unlock() //nolint:staticcheck // pairs with the check in observed: no waiter misses the wake-up
	s.waiting.Broadcast()
}

// failure returns why the store cannot be used, nil if it can.
func (s *Store) failure() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}
