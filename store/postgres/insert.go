package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// Insert implements [store.Store].
func (s *Store) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	out, err := s.insertValid(groups, func(valid []store.Group) ([]store.Inserted, error) { return s.inserts.do(ctx, valid) })
	if err != nil {
		return nil, err
	}
	store.OwnInserted(out)
	return out, nil
}

// insertValid inserts the groups that pass checkGroup. The result of any other group is
// its fault.
func (s *Store) insertValid(groups []store.Group, insert func(valid []store.Group) ([]store.Inserted, error)) (out []store.Inserted, err error) {
	valid := groups
	var faults []error // one for each group, nil if no group has a fault
	for i := range groups {
		err := s.checkGroup(groups[i])
		if err != nil && faults == nil {
			faults, valid = make([]error, len(groups)), slices.Clone(groups[:i])
		}
		switch {
		case err != nil:
			faults[i] = err
		case faults != nil:
			valid = append(valid, groups[i])
		}
	}
	if len(valid) > 0 {
		if out, err = insert(valid); err != nil {
			return nil, err
		}
	}
	if faults != nil {
		answers := out
		out = make([]store.Inserted, len(groups))
		for i := range out {
			if out[i].Err = faults[i]; faults[i] == nil {
				out[i], answers = answers[0], answers[1:]
			}
		}
	}
	for i := range out {
		if out[i].Err != nil {
			out[i] = store.Inserted{Err: out[i].Err}
		}
	}
	return out, nil
}

// insert places valid groups in one transaction.
func (s *Store) insert(ctx context.Context, groups []store.Group, alone bool) (out []store.Inserted, err error) {
	jobs := jobsOf(groups)
	work := s.works.Get().(*workspace)
	defer func() {
		work.forget()
		s.works.Put(work)
	}()
	var claim *want
	var invalid error
	if len(groups) == 1 && groups[0].Claim != nil {
		if invalid = store.CheckClaim(*groups[0].Claim); invalid == nil {
			claim = wantsOf([]store.Claim{*groups[0].Claim})[0]
		}
	}
	err = s.transact(ctx, s.begins.of(alone), func(tx *txn) error {
		tx.work = work
		if claim != nil {
			claim.round = nil
		}
		out, err = tx.insert(ctx, groups, jobs, claim)
		return err
	})
	if err == nil && claim != nil {
		s.handOver(out, claim)
	}
	if err == nil && invalid != nil {
		out[0].Claimed = &store.Claimed{Err: invalid}
	}
	return out, err
}

func jobsOf(groups []store.Group) []*gq.Spec {
	jobs := make([]*gq.Spec, 0, len(groups))
	for i := range groups {
		for k := range groups[i].Jobs {
			jobs = append(jobs, &groups[i].Jobs[k])
		}
	}
	return jobs
}

func (tx *txn) insert(ctx context.Context, groups []store.Group, jobs []*gq.Spec, claim *want) ([]store.Inserted, error) {
	if claim != nil && tx.canClaim(groups) {
		if out, done, err := tx.insertClaimed(ctx, groups[0], claim); err != nil || done {
			return out, err
		}
	}
	if tx.canInsertFast(groups, jobs) {
		if out, done, err := tx.insertFast(ctx, groups, jobs); err != nil || done {
			return out, err
		}
	}
	p, _, err := tx.prepare(ctx, groups, nil)
	if err != nil {
		return nil, err
	}
	tx.relies = len(p.keys) > 0
	if conn, ok := tx.Tx.(*connTx); ok && p.canPlaceCopied(jobs) {
		return tx.placeCopied(ctx, conn, p, groups)
	}
	out := make([]store.Inserted, len(groups))
	for i := range groups {
		out[i] = p.place(groups[i])
	}
	if p.doubted {
		return nil, errDoubted
	}
	return out, tx.add(ctx, p)
}

func (s *Store) checkGroup(g store.Group) error {
	if err := store.CheckGroup(g, s.cfg.Limits); err != nil {
		return err
	}
	for i := range g.Jobs {
		if faults := store.CheckKeyTime(&g.Jobs[i], s.cfg.Retention, ""); len(faults) > 0 {
			return &gq.InvalidError{Faults: faults}
		}
	}
	return nil
}

// prepare locks and reads everything that new jobs refer to. It also locks the jobs in
// change, which the transaction is going to update.
func (tx *txn) prepare(ctx context.Context, groups []store.Group, change []int64) (*plan, []*row, error) {
	jobs, kept := jobsOf(groups), keptIDs(groups)
	if tx.work == nil {
		tx.work = new(workspace)
	}
	p := tx.work.plan(len(jobs), tx.s.ids)
	var err error
	if p.crowded, err = tx.countQueues(ctx, jobs); err != nil {
		return nil, nil, err
	}
	needsLock := locks
	switch {
	case tx.careful || len(jobs) > 1 && sharesRetryKey(jobs):
		needsLock = refers
	case slices.ContainsFunc(jobs, locks) && tx.s.newKeys.expected(jobs):
		needsLock, p.assumed = dependent, true
	}
	if len(change) == 0 && !slices.ContainsFunc(jobs, needsLock) {
		if plain, err := tx.preparePlain(ctx, p, jobs, kept); err != nil || plain {
			return p, nil, err
		}
	}
	p.assumed = false
	var (
		ids    = slices.Clone(kept) // of the new jobs and their dependencies
		names  []string
		keys   []gq.IdempotencyKey
		fair   []string
		others = slices.Clone(change) // existing jobs to lock
	)
	for _, spec := range jobs {
		names, fair = append(names, spec.Queue), append(fair, spec.FairKey)
		if spec.Key.Name != "" {
			keys = append(keys, gq.IdempotencyKey{Scope: spec.Key.Scope, Name: spec.Key.Name})
		}
		if spec.OrderKey != "" {
			keys = append(keys, store.OrderKeyOf(spec))
		}
		for _, d := range spec.DependsOn {
			ids = append(ids, d.Job)
		}
		if !spec.Replaces.IsZero() {
			ids = append(ids, spec.Replaces)
		}
	}
	p.made = make(map[gq.JobID]int, len(jobs))
	p.taken, p.states = make(map[gq.JobID]bool), make(map[gq.JobID]gq.State)
	if p.keys, err = tx.lockKeys(ctx, keys); err != nil {
		return nil, nil, err
	}
	tx.s.newKeys.learn(jobs, p.keys)
	if len(p.keys) > 0 {
		p.recorded = make(map[gq.IdempotencyKey]bool, len(p.keys))
	}
	for key, h := range p.keys {
		others = append(others, h.seq)
		p.recorded[key] = true
	}
	if p.queues, err = tx.lockQueues(ctx, names, guarded); err != nil {
		return nil, nil, err
	}
	tx.s.remember(names, p.queues)
	known, err := tx.numbered(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	for _, seq := range known {
		others = append(others, seq)
	}
	// A shared lock on a parent keeps it from ending before its new children are
	// committed.
	strength := "SHARE"
	if len(change) > 0 || slices.ContainsFunc(jobs, changesOthers) {
		strength = "UPDATE"
	}
	var last []int64
	depend := slices.ContainsFunc(jobs, func(s *gq.Spec) bool { return len(s.DependsOn) > 0 })
	if depend && tx.again {
		var heirs []int64
		if heirs, last, err = tx.heirs(ctx, others); err != nil {
			return nil, nil, err
		}
		others = append(others, heirs...)
	}
	slices.Sort(others)
	others = slices.Compact(others)
	rows, err := tx.lock(ctx, others, strength)
	if err == nil && depend {
		followed := slices.DeleteFunc(slices.Clone(rows), func(r *row) bool { return slices.Contains(last, int64(r.state.Sequence)) })
		err = tx.checkHeirs(ctx, followed, others)
	}
	if err != nil {
		return nil, nil, err
	}
	if slices.ContainsFunc(jobs, func(s *gq.Spec) bool { return s.OrderKey != "" }) {
		if rows, err = tx.lockTails(ctx, p.keys, rows, strength); err != nil {
			return nil, nil, err
		}
	}
	var starting []*row
	if len(change) > 0 {
		starting = rows
	}
	if p.numbers, err = tx.lockStarts(ctx, starting, len(jobs)); err != nil {
		return nil, nil, err
	}
	p.now = tx.now
	p.found, p.record = make(map[gq.JobID]*row, len(rows)), tx.record
	for _, r := range rows {
		p.states[r.state.ID], p.taken[r.state.ID], p.found[r.state.ID] = r.state, true, r
		names, fair = append(names, r.queue), append(fair, r.fair)
	}
	// A key whose job is gone is free.
	maps.DeleteFunc(p.keys, func(_ gq.IdempotencyKey, h holder) bool { _, there := p.states[h.job]; return !there })
	if p.live, err = tx.liveJobs(ctx, p.queues); err != nil {
		return nil, nil, err
	}
	if p.followers, err = tx.countFollowers(ctx, p, jobs); err != nil {
		return nil, nil, err
	}
	p.book = newBook()
	if len(change) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(p.queues)), func(q gq.Queue) bool { return q.Fair }) {
		if p.book, err = tx.openBook(ctx, names, fair); err != nil {
			return nil, nil, err
		}
		tx.book = p.book
	}
	return p, rows, err
}

// heirs returns the numbers of the jobs that took the places of replaced ones among some jobs. It
// locks none of them, so another one may have been replaced since. Those at which it gave up, because
// no dependency may name a job that was replaced so often, are last.
func (tx *txn) heirs(ctx context.Context, seqs []int64) (heirs, last []int64, err error) {
	for range gq.MaxReplacements + 1 {
		wanted := numbersIn(seqs)
		blocks, masks := wanted.arrays()
		rows, err := tx.scanSome(wanted)(tx.Query(ctx, rowsIn("gq.done", "OFFSET 0")+" WHERE "+kept, blocks, masks))
		if err != nil {
			return nil, nil, err
		}
		if seqs, err = tx.tookPlaces(ctx, rows); err != nil || len(seqs) == 0 {
			return heirs, nil, err
		}
		heirs = append(heirs, seqs...)
	}
	return heirs, seqs, nil
}

// tookPlaces returns the numbers of the jobs that took the places of jobs.
func (tx *txn) tookPlaces(ctx context.Context, rows []*row) ([]int64, error) {
	var ids [][16]byte
	for _, r := range rows {
		if by := r.state.ReplacedBy; !by.IsZero() {
			ids = append(ids, by)
		}
	}
	numbers, err := tx.numbered(ctx, ids)
	return slices.Collect(maps.Values(numbers)), err
}

// checkHeirs returns errMoved if the place of one of the rows was taken by a job that is not among
// those asked for. Locking that one now could close a circle with a transaction that locks in order:
// the next try asks for all of them.
func (tx *txn) checkHeirs(ctx context.Context, rows []*row, asked []int64) error {
	heirs, err := tx.tookPlaces(ctx, rows)
	if err == nil && slices.ContainsFunc(heirs, func(seq int64) bool { return !slices.Contains(asked, seq) }) {
		return errMoved
	}
	return err
}

// refers reports whether a job has a key or an order key, has dependencies or replaces another one, which other
// transactions may use or change.
func refers(spec *gq.Spec) bool {
	return spec.Key.Name != "" || spec.OrderKey != "" || len(spec.DependsOn) > 0 || !spec.Replaces.IsZero()
}

// locks is refers for a first try. It need not lock a key that only makes a submission repeatable:
// hardly any is there already, and if one is, the INSERT fails and the next try is careful.
func locks(spec *gq.Spec) bool {
	if machine.ForRetry(spec.Key) {
		return spec.OrderKey != "" || len(spec.DependsOn) > 0 || !spec.Replaces.IsZero()
	}
	return refers(spec)
}

// errDoubted means that a transaction must look for the keys that it took to be new.
var errDoubted = errors.New("a submission was refused before its keys were looked for")

// dependent is locks for jobs whose keys are expected to be new.
func dependent(spec *gq.Spec) bool { return len(spec.DependsOn) > 0 || !spec.Replaces.IsZero() }

// sharesRetryKey reports whether two jobs have the same key for retries.
func sharesRetryKey(jobs []*gq.Spec) bool {
	var seen map[string]bool
	for i, spec := range jobs {
		if !machine.ForRetry(spec.Key) {
			continue
		}
		if seen == nil {
			seen = make(map[string]bool, len(jobs)-i)
		}
		if seen[spec.Key.Name] {
			return true
		}
		seen[spec.Key.Name] = true
	}
	return false
}

// keptIDs returns the ids of new jobs that the caller chose.
func keptIDs(groups []store.Group) (ids [][16]byte) {
	for i := range groups {
		for k := range groups[i].Jobs {
			if !groups[i].Mint {
				ids = append(ids, groups[i].Jobs[k].ID)
			}
		}
	}
	return ids
}

// preparePlain is prepare for new jobs that need no lock, as most do: they have no keys
// and no dependencies, and their queues no limits. It takes one round trip. If a job turns
// out to need a lock, or its id may be taken, it returns false; the sequence numbers that
// it took are then never used.
func (tx *txn) preparePlain(ctx context.Context, p *plan, jobs []*gq.Spec, kept [][16]byte) (plain bool, err error) {
	if slices.ContainsFunc(kept, func(id [16]byte) bool { return tx.s.ids.number(id) != 0 }) {
		return false, nil
	}
	var (
		batch  pgx.Batch
		queues map[string]gq.Queue
		known  map[gq.JobID]int64
		names  []string
	)
	for i, spec := range jobs {
		if i == 0 || spec.Queue != jobs[i-1].Queue {
			names = append(names, spec.Queue)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if tx.careful { // otherwise the INSERT fails if an id is taken
		p.taken = make(map[gq.JobID]bool, len(jobs))
		batch.Queue(foreignIDs, kept).Query(func(rows pgx.Rows) error {
			known, err = parseNumbers(rows)
			return err
		})
	}
	batch.Queue(stampsOfQueues, len(jobs), names).QueryRow(func(row pgx.Row) error {
		var configs []byte
		if p.numbers, err = tx.stampFrom(row, &configs); err == nil {
			queues, err = queuesOf(configs)
		}
		return err
	})
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return false, err
	}
	tx.s.remember(names, queues)
	if len(known) > 0 || slices.ContainsFunc(slices.Collect(maps.Values(queues)), guarded) {
		return false, nil
	}
	p.queues, p.book, p.now = queues, newBook(), tx.now
	p.answers = make([]store.Placed, 0, len(jobs))
	return true, nil
}

// stampsOfQueues is stamps plus the configurations of queues, NULL if there are none.
const stampsOfQueues = `
	SELECT time, ` + clock + `, ARRAY (SELECT nextval('gq.submission') FROM generate_series(1, $1)),
		nextval('gq.segment_id'),
		(SELECT jsonb_object_agg(name, config) FROM gq.queue WHERE name = ANY ($2) AND config IS NOT NULL)
	FROM gq.head`

func queuesOf(configs []byte) (map[string]gq.Queue, error) {
	if configs == nil {
		return nil, nil
	}
	var named map[string]json.RawMessage
	if err := json.Unmarshal(configs, &named); err != nil {
		return nil, err
	}
	queues := make(map[string]gq.Queue, len(named))
	for name, config := range named {
		q, err := parseQueue(name, config)
		if err != nil {
			return nil, err
		}
		queues[name] = q
	}
	return queues, nil
}

// guarded reports whether inserts into a queue must lock it: it has a maximum depth, or
// it is fair.
func guarded(q gq.Queue) bool { return q.MaxDepth > 0 || q.Fair }

// lockKeys locks idempotency keys, used or not, and returns the jobs that hold them. It
// locks a hash of each key; a collision only makes a transaction wait.
func (tx *txn) lockKeys(ctx context.Context, keys []gq.IdempotencyKey) (map[gq.IdempotencyKey]holder, error) {
	held := make(map[gq.IdempotencyKey]holder)
	if len(keys) == 0 {
		return held, nil
	}
	hashes := make([]int32, len(keys))
	scopes, names := make([][]byte, len(keys)), make([][]byte, len(keys))
	for i, k := range keys {
		scopes[i], names[i] = []byte(k.Scope), []byte(k.Name)
		h := fnv.New32a()
		h.Write(scopes[i])
		h.Write([]byte{0})
		h.Write(names[i])
		hashes[i] = int32(h.Sum32())
	}
	slices.Sort(hashes)
	var (
		batch                     pgx.Batch
		scope, name               []byte
		fingerprint, seq, expires int64
		job                       [16]byte
		rule                      int16
	)
	// A plain join might be planned to read the whole table, LATERAL looks each key up.
	// count returns one row, where a row for each lock would take longer to send than to lock.
	batch.Queue("SELECT count(pg_advisory_xact_lock($1, hash)) FROM unnest($2::integer[]) AS hash", lockKey, slices.Compact(hashes))
	batch.Queue(`
		SELECT i.scope, i.name, i.fingerprint, i.job, i.seq, i.expires, i.rule
		FROM unnest($1::bytea[], $2::bytea[]) AS k (scope, name)
		CROSS JOIN LATERAL (SELECT * FROM gq.idempotency WHERE scope = k.scope AND name = k.name LIMIT 1) AS i`,
		scopes, names).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&scope, &name, &fingerprint, &job, &seq, &expires, &rule}, func() error {
			if rule == ruleUndated {
				job, rule = tx.s.ids.id(seq, job), 0
			}
			held[gq.IdempotencyKey{Scope: string(scope), Name: string(name)}] = holder{job, seq, uint64(fingerprint), instant(expires), gq.While(rule)}
			return nil
		})
		return err
	})
	return held, tx.SendBatch(ctx, &batch).Close()
}

// liveJobs counts the unfinished jobs of each queue that has a maximum depth.
func (tx *txn) liveJobs(ctx context.Context, queues map[string]gq.Queue) (map[string]int64, error) {
	live := make(map[string]int64)
	var names []string
	for name, q := range queues {
		if q.MaxDepth > 0 {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return live, nil
	}
	rows, err := tx.Query(ctx, `
		SELECT queue, sum(jobs)::bigint
		FROM `+tally+`
		WHERE queue = ANY ($1) AND status < $2
		GROUP BY queue`,
		names, int16(gq.StatusCompleted))
	if err != nil {
		return nil, err
	}
	var queue string
	var n int64
	_, err = pgx.ForEachRow(rows, []any{&queue, &n}, func() error {
		live[queue] = n
		return nil
	})
	return live, err
}

// add writes the jobs that a plan placed.
func (tx *txn) add(ctx context.Context, p *plan) error {
	if len(p.insertions) == 0 {
		return tx.finish(ctx)
	}
	added := tx.newAdditions(p)
	if err := added.record(0); err != nil {
		return err
	}
	added.write()
	return tx.finish(ctx)
}

// additions are what the jobs of a plan need besides their rows and events.
type additions struct {
	tx                *txn
	p                 *plan
	keys, newKeys     keyArrays
	payloads          blobs
	ids               [][16]byte // chosen by callers; gq.foreign_id maps them to numbers
	numbers           []int64
	parents, children []int64
	kinds             []int16
}

func (tx *txn) newAdditions(p *plan) *additions {
	tx.work.bodies = tx.work.bodies[:0]
	if tx.rows == nil {
		tx.rows = tx.work.written
	}
	if tx.events.n == 0 {
		tx.events.data = tx.work.log
	}
	return &additions{tx: tx, p: p}
}

// record records the insertions of the plan from the first on.
func (n *additions) record(first int) error {
	tx, p := n.tx, n.p
	for i := first; i < len(p.insertions); i++ {
		b := &p.insertions[i]
		seq := int64(b.row.state.Sequence)
		var err error
		if b.row.body, err = tx.work.body(b.spec, len(p.insertions)-i); err != nil {
			return err
		}
		if isApart(b.spec) {
			n.payloads.add(seq, partPayload, b.spec.Payload.Data)
		}
		if b.saved != nil {
			n.payloads.add(seq, partCheckpoint, b.saved)
		}
		if !b.row.native {
			n.ids, n.numbers = append(n.ids, b.row.state.ID), append(n.numbers, seq)
		}
		if b.spec.Key.Name != "" {
			n.addKey(store.KeyOf(b.spec), holder{b.row.state.ID, seq, b.spec.Key.Fingerprint, b.until, b.spec.Unique.While})
		}
		if b.spec.OrderKey != "" {
			n.addKey(store.OrderKeyOf(b.spec), holder{job: b.row.state.ID, seq: seq, expires: machine.Forever})
		}
		for _, d := range b.awaits {
			parent := int64(p.stateOf(p.heirOf(d.Job)).Sequence)
			n.parents, n.children, n.kinds = append(n.parents, parent), append(n.children, seq), append(n.kinds, int16(d.Kind))
		}
		tx.recordInsert(b.row, b.events)
	}
	return nil
}

func (n *additions) addKey(key gq.IdempotencyKey, h holder) {
	if n.p.recorded[key] {
		n.keys.add(key, h)
	} else {
		n.newKeys.add(key, h)
	}
}

func (n *additions) write() {
	batch := &n.tx.more
	writeForeignIDs(batch, n.ids, n.numbers)
	n.payloads.write(batch)
	n.keys.write(batch)
	n.newKeys.writeNew(batch)
	n.p.moveEdges(batch)
	queueEdges(batch, n.parents, n.children, n.kinds)
}

// writeForeignIDs maps ids to the sequence numbers of their jobs. It inserts them in order
// of id, so that index pages are visited in order.
func writeForeignIDs(batch *pgx.Batch, ids [][16]byte, seqs []int64) {
	if len(ids) == 0 {
		return
	}
	batch.Queue("INSERT INTO gq.foreign_id (id, seq) SELECT * FROM unnest($1::uuid[], $2::bigint[]) AS n (id, seq) ORDER BY id", ids, seqs)
}

// queueEdges queues the rows of gq.edge: which job waits for which.
func queueEdges(batch *pgx.Batch, parents, children []int64, kinds []int16) {
	if len(kinds) == 0 {
		return
	}
	batch.Queue(`
		INSERT INTO gq.edge (parent, child, kind)
		SELECT unnest($1::bigint[]), unnest($2::bigint[]), unnest($3::smallint[])`,
		parents, children, kinds)
}
