package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Most claims lock only the jobs they get, because their queues have no limits, or only a
// pool that does not count the jobs they claim. If only the rates of limit keys limit a queue, its
// row is locked first. Such a claim takes two round trips. The first deletes jobs from gq.ready, then reads the
// clock, the configurations of the queues, and whether a lease has expired. The second
// writes the claimed jobs, reads their blobs, and commits.

// presently is the store's time when a statement begins. $%d is the newest time that this
// process knows, and $%d is whether the database's clock counts. Rows selected by it are
// checked again by the stamp, which is read when they are locked.
const presently = "(SELECT greatest($%d::bigint, h.time, CASE WHEN $%d::boolean THEN " + clock + " END) FROM gq.head AS h)"

var (
	fastCandidates      = takenBy("", "")
	fastRatedCandidates = takenBy(fmt.Sprintf(notAside, fmt.Sprintf(presently, 3, 9)), ", coalesce((SELECT k.due FROM gq.limit_key AS k WHERE k.queue = s.queue AND k.key = s.limited), 0) AS owes")

	// fastStamp is stamps for $11 new jobs, plus the configurations of the queues $10 (NULL if
	// there are none), whether one of their leases has expired, and a job that may be claimable
	// but was not deleted. If the claim is short of jobs, another transaction has locked that one.
	fastStamp = stampedBy("", "")
	// fastRatedStamp also has a queue with jobs that were set aside, and one whose jobs a claim may
	// have skipped: see keys_aside.go.
	fastRatedStamp = stampedBy(fmt.Sprintf(notAside, fmt.Sprintf(presently, 3, 9)), `,
		(SELECT k.queue FROM gq.limit_key AS k WHERE k.queue = ANY ($10) AND k.lined LIMIT 1),
		(SELECT k.queue FROM gq.limit_key AS k WHERE k.queue = ANY ($10) AND k.aside AND k.free > `+fmt.Sprintf(presently, 3, 9)+` LIMIT 1)`)
)

// takenBy deletes the jobs that a claim may get, on another condition, and returns more columns.
func takenBy(condition, more string) string {
	return `
	DELETE FROM gq.ready AS s
	WHERE s.ctid = ANY (ARRAY (` + fmt.Sprintf(candidatesOf, "s.row", "s.ctid AS row", fmt.Sprintf(presently, 3, 9), condition, skipping) + `))
	RETURNING ` + readyColumns + more
}

func stampedBy(condition, more string) string {
	return `
	SELECT time, ` + clock + `, ARRAY (SELECT nextval('gq.submission') FROM generate_series(1, $11::integer)), nextval('gq.segment_id'),
		(SELECT jsonb_object_agg(name, config) FROM gq.queue WHERE name = ANY ($10) AND config IS NOT NULL),
		EXISTS (` + fmt.Sprintf(strings.NewReplacer("$1", "$10", "$3", "$8").Replace(overdueOf), fmt.Sprintf(presently, 3, 9), "") + `),
		(` + fmt.Sprintf(candidatesOf, "s.seq", "s.seq", fmt.Sprintf(presently, 3, 9), condition, "") + `)` + more + `
	FROM gq.head`
}

// errLimited reports a queue that turned out to be limited or paused. Its row must be
// locked before any job, so the transaction releases all its locks and starts again.
var errLimited = errors.New("a queue has a limit that a claim has to keep")

// limits reports, as far as this node knows, whether a queue has a limit for a claim that
// claimFast cannot keep.
func (s *Store) limits(w *want) func(queue string) bool {
	return func(queue string) bool {
		return s.limited.has(queue) && !(s.rated.has(queue) && !s.lined.has(queue)) && !(w.Hold && s.uncounted.has(queue))
	}
}

// claimFast serves a claim from queues that limit at most the rates of keys. If a lease has
// expired it puts the jobs back and is not done: then claim takes the slow path.
func (tx *txn) claimFast(ctx context.Context, w *want, queues []string) (passed []int64, done bool, err error) {
	limits, known := &limits{tx: tx, locked: true}, tx.s.known()
	rows, passed, late, err := tx.takeFast(ctx, w, queues, limits)
	if err != nil {
		return nil, false, err
	}
	if late {
		tx.putBack(rows)
		return nil, false, tx.flush(ctx)
	}
	granted := make([]*row, 0, len(rows))
	jobs := make([]gq.Job, len(rows))
	refused := false // by the rate of a key
	for _, r := range rows {
		if !machine.Claimable(&r.state, tx.now) {
			next, events, err := machine.Advance(r.state, tx.draw(), tx.now)
			if err != nil {
				return nil, false, err
			}
			if len(events) > 0 {
				tx.record(r, next, events) // past its lifetime
			}
			continue
		}
		spec := &jobs[len(granted)].Spec // of the answer, so that it is not copied
		spec.Queue = r.queue
		if n := len(granted); n > 0 {
			spec.Type = jobs[n-1].Spec.Type
		}
		if _, err := r.specInto(spec); err != nil {
			return nil, false, err
		}
		if l := limits.queues[r.queue]; l != nil && !l.spend(spec, r.owes, tx.now) {
			r.parsed, *spec, refused = nil, gq.Spec{}, true
			continue
		}
		r.shares = true
		if err := tx.lease(w, r, spec.CostUnits, len(granted)); err != nil {
			return nil, false, err
		}
		granted = append(granted, r)
	}
	tx.putBack(rows) // jobs that are not claimable yet
	limits.write()
	var blobs found
	touched := slices.DeleteFunc(slices.Clone(granted), (*row).untouched)
	if len(touched) > 0 {
		queueBlobs(&tx.more, sequencesOf(touched), w.Parts, &blobs)
	}
	rest := w.missing() - len(granted)
	switch {
	case rest == 0:
		passed = nil
	case refused: // behind the jobs of that key there may be others
		if err := tx.flush(ctx); err != nil {
			return nil, false, err
		}
		jobs = jobs[:len(granted)]
		if err := blobs.assembleInto(jobs, granted, w.Parts); err != nil {
			return nil, false, err
		}
		w.round = jobs
		passed, err = tx.serveAll(ctx, []*want{w}, limits.configs(), limits)
		return passed, true, err
	case len(limits.queues) > 0:
		for name := range limits.queues {
			if err := tx.retryKeys(ctx, w, limits, known, name); err != nil {
				return nil, false, err
			}
		}
	}
	if err := tx.finish(ctx); err != nil {
		return nil, false, err
	}
	if tx.committed && len(granted) == 1 {
		tx.remember(granted[0])
	}
	if tx.unheard && len(touched) > 0 { // any part of the answer may be missing
		err := tx.s.transact(ctx, tx.s.begins.read, func(tx *txn) error {
			blobs = nil
			var again pgx.Batch // a new one for each try: a batch keeps its connection
			queueBlobs(&again, sequencesOf(touched), w.Parts, &blobs)
			return tx.SendBatch(ctx, &again).Close()
		})
		if err != nil {
			return nil, false, err
		}
	}
	jobs = jobs[:len(granted)]
	if err := blobs.assembleInto(jobs, granted, w.Parts); err != nil {
		return nil, false, err
	}
	w.round = jobs
	return passed, true, nil
}

// takeFast deletes the jobs that a claim may get and returns them in claim order. It
// takes the stamp, adds the queues that limit the rates of keys to limits, and returns a job that
// it may have skipped and whether a lease has expired.
func (tx *txn) takeFast(ctx context.Context, w *want, names []string, limits *limits) (rows []*row, passed []int64, late bool, err error) {
	var batch pgx.Batch
	var queues map[string]gq.Queue
	known, ours := tx.s.known(), tx.s.cfg.Clock == nil
	rated := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !tx.s.rated.has(name) })
	var lined, skips *string
	take, stamp := fastCandidates, fastStamp
	if len(rated) > 0 {
		batch.Queue("SELECT FROM gq.queue WHERE name = ANY ($1) ORDER BY name FOR UPDATE", rated)
		take, stamp = fastRatedCandidates, fastRatedStamp
	}
	var uncounted map[string]bool
	if w.Hold && slices.ContainsFunc(names, tx.s.uncounted.has) {
		uncounted = make(map[string]bool)
		queueUncounted(&batch, names, uncounted)
		tx.apart = true // their starts come one by one
	}
	batch.Queue(take, append(w.fastArgs(names, known, w.missing()), ours)...).
		Query(func(from pgx.Rows) (err error) {
			rows, err = tx.take(from)
			return err
		})
	batch.Queue(stamp, append(w.fastArgs(names, known, 1), ours, names, 0)...).QueryRow(func(row pgx.Row) error {
		var configs []byte
		var other *int64
		columns := []any{&configs, &late, &other}
		if len(rated) > 0 {
			columns = append(columns, &lined, &skips)
		}
		_, err := tx.stampFrom(row, columns...)
		if err == nil {
			queues, err = queuesOf(configs)
		}
		if other != nil {
			passed = []int64{*other}
		}
		return err
	})
	w.asked = time.Now()
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, nil, false, err
	}
	if lined != nil {
		tx.s.lined.learn(*lined, true)
		err = errLimited
	}
	for name, q := range queues {
		if uncounted[name] {
			q.Pool = ""
		}
		if tx.s.rated.learn(name, ratesOnly(q)); slices.Contains(rated, name) && ratesOnly(q) {
			limits.add(q)
			continue
		}
		if q.Paused || limited(q) {
			tx.s.limited.learn(name, true)
			tx.s.uncounted.learn(name, false)
			err = errLimited
		}
	}
	if skips != nil && limits.queues[*skips] != nil {
		limits.queues[*skips].skips = true
	}
	rank := make(map[string]int, len(names))
	for i, name := range names {
		rank[name] = i
	}
	order := func(a, b *row) int {
		if a.queue != b.queue {
			return cmp.Compare(rank[a.queue], rank[b.queue])
		}
		x, y := machine.Order(&a.state), machine.Order(&b.state)
		return cmp.Or(cmp.Compare(x.Hi, y.Hi), cmp.Compare(x.Lo, y.Lo))
	}
	if !slices.IsSortedFunc(rows, order) {
		slices.SortFunc(rows, order)
	}
	return rows, passed, late, err
}

// fastArgs are the arguments of candidatesOf for queues without limits.
func (w *want) fastArgs(queues []string, now int64, n int) []any {
	names, bands := levels(queues...)
	return []any{names, bands, now, storable(w.Types), storable(w.Offers), new(queueLimits).afford(w.MaxCost, w.into()), []string{}, n}
}

// untouched reports whether a job has no blobs: it has not changed since it was
// submitted, and its payload is in its row.
func (r *row) untouched() bool {
	_, _, apart, err := splitBody(r.body)
	return len(r.segments) == 1 && r.state.Version <= 1 && !apart && err == nil
}

// distinct removes duplicates from names and keeps their order.
func distinct(names []string) (once []string) {
	known := make(map[string]bool, len(names))
	for _, name := range names {
		if !known[name] {
			known[name] = true
			once = append(once, name)
		}
	}
	return once
}
