package postgres

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// limits is what a transaction may still claim. It counts what is held when it is first
// asked, and adds what the transaction claims itself. Nobody else claims meanwhile,
// because claims lock the rows of queues and pools that have limits.
type limits struct {
	tx     *txn
	locked bool // limits are locked and expired leases taken back, so all others count
	queues map[string]*queueLimits
	pools  map[string]*gq.Pool
}

// queueLimits are the limits of one queue, except MaxRunning.
type queueLimits struct {
	config    gq.Queue
	held      map[string]int       // by limit key
	keys      map[string]*keyState // limit keys that were read
	exhausted []string             // keys that this transaction set aside
	free      time.Time            // when the first of them is free
	refused   int                  // jobs that their rates kept from this transaction
	skips     bool                 // a key was set aside before
	pool      *gq.Pool             // nil for none
	due       time.Time            // when the rate allows the next claim
	turns     turns
	moved     bool // due or turns have changed
}

// limited reports whether a queue has a limit that claims must keep.
func limited(q gq.Queue) bool {
	return q.MaxRunning > 0 || machine.LimitsKeys(&q) || q.Rate.Limited() || q.Fair || q.Pool != ""
}

// ratesOnly reports whether only the rates of limit keys limit a queue, which are those of the
// queue for all keys.
func ratesOnly(q gq.Queue) bool {
	rates := q.KeyRate.Limited() && q.OwnKeys == 0 && !q.Paused
	q.KeyRate = gq.Rate{}
	return rates && !limited(q)
}

// add adds a queue that only the rates of its keys limit.
func (l *limits) add(q gq.Queue) {
	if l.queues == nil {
		l.queues, l.pools = make(map[string]*queueLimits), make(map[string]*gq.Pool)
	}
	l.queues[q.Name] = &queueLimits{config: q}
}

// configs returns the configurations of the queues that were added.
func (l *limits) configs() map[string]gq.Queue {
	queues := make(map[string]gq.Queue, len(l.queues))
	for name, q := range l.queues {
		queues[name] = q.config
	}
	return queues
}

// of reads how much of the limits of a queue is used.
func (l *limits) of(ctx context.Context, q gq.Queue) (*queueLimits, error) {
	if known := l.queues[q.Name]; known != nil {
		return known, nil
	}
	if l.queues == nil {
		l.queues, l.pools = make(map[string]*queueLimits), make(map[string]*gq.Pool)
	}
	limits := &queueLimits{config: q}
	l.queues[q.Name] = limits
	var err error
	if q.KeyLimit > 0 || q.OwnKeys > 0 {
		if limits.held, err = l.tx.heldByKey(ctx, q.Name, l.since()); err != nil {
			return nil, err
		}
		if q.OwnKeys > 0 {
			if err := l.tx.readKeys(ctx, limits, slices.Collect(maps.Keys(limits.held))); err != nil {
				return nil, err
			}
		}
	}
	if q.Fair && l.locked {
		if err := l.tx.lockTurns(ctx, []string{q.Name}); err != nil {
			return nil, err
		}
	}
	if q.Rate.Limited() || q.Fair {
		var due int64
		row := l.tx.QueryRow(ctx, "SELECT due, turns FROM gq.queue WHERE name = $1", q.Name)
		if err := row.Scan(&due, (*[]int64)(&limits.turns)); err != nil {
			return nil, err
		}
		if due != 0 {
			limits.due = instant(due)
		}
	}
	if q.Pool != "" {
		limits.pool, err = l.ofPool(ctx, q.Pool)
	}
	return limits, err
}

// since is the time after which a lease must end to count. While the limits are locked
// every lease counts: another transaction has locked an expired one and may renew it.
func (l *limits) since() int64 {
	if l.locked {
		return math.MinInt64
	}
	return nanoseconds(l.tx.now)
}

func (l *limits) ofPool(ctx context.Context, name string) (*gq.Pool, error) {
	if known := l.pools[name]; known != nil {
		return known, nil
	}
	pools, err := l.tx.pools(ctx, l.since(), name)
	if err != nil {
		return nil, err
	}
	p := pools[name]
	l.pools[name] = &p
	return &p, nil
}

// heldByKey counts held jobs of a queue by limit key, if their leases end after since. Jobs with
// keys share rows only if they were claimed while the queue did not limit how many of a key run.
func (tx *txn) heldByKey(ctx context.Context, queue string, since int64) (map[string]int, error) {
	rows, err := tx.Query(ctx, `
		SELECT limited, count(*) FILTER (WHERE members IS NULL), bool_or(members IS NOT NULL)
		FROM gq.held
		WHERE queue = $1 AND limited IS NOT NULL AND due > $2
		GROUP BY limited`,
		queue, since)
	if err != nil {
		return nil, err
	}
	held := make(map[string]int)
	var key string
	var n int
	var shared, some bool
	_, err = pgx.ForEachRow(rows, []any{&key, &n, &some}, func() error {
		if n > 0 {
			held[key] = n
		}
		shared = shared || some
		return nil
	})
	if err != nil || !shared {
		return held, err
	}
	jobs, err := tx.scanRows(tx.Query(ctx, `
		SELECT `+columns+`
		FROM gq.held AS s
		WHERE s.queue = $1 AND s.limited IS NOT NULL AND s.due > $2 AND s.members IS NOT NULL`,
		queue, since))
	if err != nil {
		return nil, err
	}
	for _, r := range jobs {
		spec, err := r.specOf()
		if err != nil {
			return nil, err
		}
		held[spec.LimitKey]++
	}
	return held, nil
}

// full lists the limit keys that have reached their limit, or whose rate this transaction
// found used up.
func (l *queueLimits) full() []string {
	full := slices.Clip(append([]string{}, l.exhausted...))
	for key, n := range l.held {
		if limit, _ := l.keyLimits(key); limit > 0 && n >= limit {
			full = append(full, key)
		}
	}
	return full
}

// afford is the largest cost that a job may have to be claimed into a status; -1 for any.
func (l *queueLimits) afford(most int64, into gq.Status) int64 {
	if most == 0 {
		most = -1
	}
	if l.pool == nil || !machine.CountsInPool(*l.pool, into) {
		return most
	}
	free := max(0, l.pool.Capacity-l.pool.Used)
	if most < 0 {
		return free
	}
	return min(most, free)
}

// fits reports whether the limit key and the pool have room for a job in a status.
func (l *queueLimits) fits(s *gq.Spec, into gq.Status) bool {
	if s.LimitKey != "" {
		if limit, _ := l.keyLimits(s.LimitKey); limit > 0 && l.held[s.LimitKey] >= limit {
			return false
		}
	}
	return l.pool == nil || !machine.CountsInPool(*l.pool, into) || machine.AdmitToPool(*l.pool, s.CostUnits) == nil
}

// pace uses up one claim of the rate. If none is left, at is when the next is allowed.
func (l *queueLimits) pace(now time.Time) (at time.Time, ok bool) {
	if !l.config.Rate.Limited() {
		return at, true
	}
	next, ok := machine.TakeRate(l.config.Rate, l.due, now)
	if !ok {
		return machine.RateAt(l.config.Rate, l.due, now), false
	}
	l.due, l.moved = next, true
	return at, true
}

// take counts a job that is claimed into a status.
func (l *queueLimits) take(s *gq.Spec, state *gq.State, into gq.Status) {
	if l.held != nil && s.LimitKey != "" {
		l.held[s.LimitKey]++
	}
	if l.pool != nil && machine.CountsInPool(*l.pool, into) {
		l.pool.Used += s.CostUnits
	}
	if l.config.Fair && l.turns.serve(state) {
		l.moved = true
	}
}

// write stores what the transaction used up.
func (l *limits) write() {
	for name, q := range l.queues {
		q.writeKeys(l.tx)
		if q.skips || q.refused > 0 {
			l.tx.setAside(q)
			q.skips, q.refused = false, 0
		}
		if !q.moved {
			continue
		}
		l.tx.more.Queue(`
			UPDATE gq.queue SET due = $2, turns = CASE WHEN $4 THEN $3::bigint[] ELSE turns END
			WHERE name = $1`,
			name, nanoseconds(q.due), []int64(q.turns), q.config.Fair)
		if q.config.Fair { // a key whose turn is over needs no row
			l.tx.more.Queue(`
				DELETE FROM gq.turn
				WHERE queue = $1 AND turn < ($2::bigint[])[level]`,
				name, []int64(q.turns))
		}
	}
}

// turns are the turns being served, by level from the most urgent on.
type turns []int64

// at is the turn being served at a level.
func (t turns) at(level gq.Priority) uint64 { return uint64(t[level-gq.PriorityCritical]) }

// serve advances the level of a job to its turn and reports whether that is a change.
func (t turns) serve(s *gq.State) bool {
	at := &t[s.Priority()-gq.PriorityCritical]
	if int64(s.Turn) <= *at {
		return false
	}
	*at = int64(s.Turn)
	return true
}

// turnKey is a fair key of a queue at a level.
type turnKey struct {
	queue string
	level gq.Priority
	key   string
}

// turnBook assigns turns to the jobs of fair queues.
type turnBook struct {
	now  map[string]turns // by fair queue; other queues have none
	last map[turnKey]uint64
	new  map[turnKey]bool // entries of last that were assigned since write
}

func newBook() *turnBook {
	return &turnBook{now: make(map[string]turns), last: make(map[turnKey]uint64), new: make(map[turnKey]bool)}
}

// lockTurns takes the locks under which turns are assigned, in a fixed order. They come
// after all rows, because an update learns late that it needs a turn.
func (tx *txn) lockTurns(ctx context.Context, queues []string) error {
	hashes := make([]int32, len(queues))
	for i, name := range queues {
		h := fnv.New32a()
		_, _ = h.Write([]byte(name)) // never fails
		hashes[i] = int32(h.Sum32())
	}
	slices.Sort(hashes)
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1, hash) FROM unnest($2::integer[]) AS hash", lockTurns, hashes)
	return err
}

// openBook locks and reads what is needed to assign turns to keys of queues.
func (tx *txn) openBook(ctx context.Context, queues, keys []string) (*turnBook, error) {
	b := newBook()
	rows, err := tx.Query(ctx, "SELECT name FROM gq.queue WHERE name = ANY ($1) AND (config -> 'Fair')::boolean", queues)
	if err != nil {
		return nil, err
	}
	fair, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(fair) == 0 {
		return b, err
	}
	if err := tx.lockTurns(ctx, fair); err != nil {
		return nil, err
	}
	rows, err = tx.Query(ctx, "SELECT name, turns FROM gq.queue WHERE name = ANY ($1) AND (config -> 'Fair')::boolean", queues)
	if err != nil {
		return nil, err
	}
	var name string
	var now []int64
	_, err = pgx.ForEachRow(rows, []any{&name, &now}, func() error {
		b.now[name], now = now, nil
		return nil
	})
	if err != nil || len(b.now) == 0 {
		return b, err
	}
	rows, err = tx.Query(ctx, "SELECT queue, level, key, turn FROM gq.turn WHERE queue = ANY ($1) AND key = ANY ($2)", queues, keys)
	if err != nil {
		return nil, err
	}
	var k turnKey
	var level int16
	var turn int64
	_, err = pgx.ForEachRow(rows, []any{&k.queue, &level, &k.key, &turn}, func() error {
		k.level = gq.Priority(level)
		b.last[k] = uint64(turn)
		return nil
	})
	return b, err
}

// next assigns a turn to a job; 0 if its queue is not fair.
func (b *turnBook) next(queue string, level gq.Priority, key string) uint64 {
	now, fair := b.now[queue]
	if !fair {
		return 0
	}
	k := turnKey{queue, level, key}
	b.last[k] = machine.FairTurn(now.at(level), b.last[k])
	b.new[k] = true
	return b.last[k]
}

// write queues the turns that were assigned.
func (b *turnBook) write(batch *pgx.Batch) {
	for k := range b.new {
		batch.Queue(`
			INSERT INTO gq.turn (queue, level, key, turn)
			VALUES ($1, $2, $3, $4)
			ON CONFLICT (queue, level, key) DO UPDATE SET turn = excluded.turn`,
			k.queue, int16(k.level), k.key, int64(b.last[k]))
	}
	clear(b.new)
}

// turned assigns a new turn to a job whose level changes. rows are all rows that the
// transaction changes.
func (tx *txn) turned(ctx context.Context, r *row, next *gq.State, rows map[int64]*row) error {
	if !next.Live() || next.Priority() == r.state.Priority() {
		return nil
	}
	if tx.book == nil {
		var queues, keys []string
		for _, other := range rows {
			queues, keys = append(queues, other.queue), append(keys, other.fair)
		}
		var err error
		if tx.book, err = tx.openBook(ctx, queues, keys); err != nil {
			return err
		}
	}
	next.Turn = tx.book.next(r.queue, next.Priority(), r.fair)
	return nil
}

// liveRows reads the live jobs of a queue, with a locking clause, in order of submission.
func (tx *txn) liveRows(ctx context.Context, queue, lock string) ([]*row, error) {
	found := make(map[int64]*row)
	for i, table := range livingIn {
		how := lock
		if how == "FOR UPDATE" {
			how += waiting(i)
		}
		rows, err := tx.scanRows(tx.Query(ctx, "SELECT "+columnsOf(table)+" FROM "+table+" AS s WHERE s.queue = $1 ORDER BY s.seq "+how, queue))
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			found[int64(r.state.Sequence)] = r
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *row) int { return cmp.Compare(a.state.Sequence, b.state.Sequence) }), nil
}

// rearrange assigns new turns to the live jobs of a queue that became fair or no longer
// is. The caller has locked them. A job that came later keeps its turn if another
// transaction has locked it: rearrange does not wait.
func (tx *txn) rearrange(ctx context.Context, q gq.Queue) error {
	rows, err := tx.liveRows(ctx, q.Name, "FOR UPDATE SKIP LOCKED")
	if err != nil {
		return err
	}
	if err := tx.lockTurns(ctx, []string{q.Name}); err != nil {
		return err
	}
	zero := make(turns, gq.PriorityBulk)
	tx.more.Queue("UPDATE gq.queue SET turns = $2 WHERE name = $1", q.Name, []int64(zero))
	tx.more.Queue("DELETE FROM gq.turn WHERE queue = $1", q.Name)
	tx.book = newBook()
	if q.Fair {
		tx.book.now[q.Name] = zero
	}
	for _, r := range rows {
		next := r.state
		next.Turn = tx.book.next(q.Name, next.Priority(), r.fair)
		tx.record(r, next, nil)
	}
	return nil
}
