package local

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/codec"
)

// Insert implements [store.Store].
func (s *Store) Insert(ctx context.Context, groups []store.Group) ([]store.Inserted, error) {
	c := newInsertion(s, groups)
	if len(groups) == 1 && groups[0].Claim != nil && len(groups[0].Jobs) == 1 {
		return s.insertAndClaim(ctx, c)
	}
	if err := s.inChunks(ctx, len(groups), c); err != nil {
		return nil, err
	}
	store.OwnInserted(c.out)
	return c.out, nil
}

// insertAndClaim inserts a group of one job and serves its claim in the same commit.
func (s *Store) insertAndClaim(ctx context.Context, c *insertion) ([]store.Inserted, error) {
	if !s.reading() { // for the whole call: payloads are read after the commit
		return nil, s.failure()
	}
	defer s.reads.Done()
	if err := s.usable(ctx); err != nil {
		return nil, err
	}
	claims := newClaiming(s, []store.Claim{*c.groups[0].Claim})
	ctx = context.WithoutCancel(ctx)
	if err := s.inChunks(ctx, 1, &insertionAndClaim{c, claims}); err != nil {
		return nil, err
	}
	store.OwnInserted(c.out)
	if c.out[0].Err != nil {
		return c.out, nil
	}
	claimed, err := claims.answers(ctx)
	if err != nil { // a job cannot be read, which is not the fault of the new one
		s.release(ctx, claims.out[0].Jobs)
		claimed = []store.Claimed{{Err: err}}
	}
	c.out[0].Claimed = &claimed[0]
	return c.out, nil
}

// insertionAndClaim is a call of Insert whose group has a claim.
type insertionAndClaim struct {
	*insertion
	claims *claiming
}

func (c *insertionAndClaim) weigh(i int) int {
	if weight := c.insertion.weigh(i); weight > 0 {
		return weight + c.claims.weigh(0)
	}
	return 0
}

func (c *insertionAndClaim) apply(tx *txn, i int) {
	if c.insertion.apply(tx, i); c.out[i].Err == nil {
		c.claims.apply(tx, 0)
	}
}

// insertion is one call of Insert. Its memory is allocated and its specs are encoded in
// the caller's goroutine, since all callers share the writer.
type insertion struct {
	s       *Store
	groups  []store.Group
	out     []store.Inserted
	specs   [][][]byte     // encoded, by group
	placed  []store.Placed // for the groups not yet weighed
	encoded [][]byte       // likewise
}

func newInsertion(s *Store, groups []store.Group) *insertion {
	jobs := 0
	for i := range groups {
		jobs += len(groups[i].Jobs)
	}
	if jobs != 1 || len(groups) != 1 {
		return &insertion{
			s, groups, make([]store.Inserted, len(groups)), make([][][]byte, len(groups)),
			make([]store.Placed, jobs), make([][]byte, jobs),
		}
	}
	var one struct { // a single allocation
		insertion
		out     [1]store.Inserted
		specs   [1][][]byte
		placed  [1]store.Placed
		encoded [1][]byte
	}
	one.insertion = insertion{s, groups, one.out[:], one.specs[:], one.placed[:], one.encoded[:]}
	return &one.insertion
}

func (c *insertion) weigh(i int) int {
	n := len(c.groups[i].Jobs)
	c.out[i].Jobs, c.placed = c.placed[:n:n], c.placed[n:]
	c.specs[i], c.encoded = c.encoded[:n:n], c.encoded[n:]
	if err := c.s.checkGroup(c.groups[i]); err != nil {
		c.out[i] = store.Inserted{Err: err}
		return 0
	}
	encodeSpecs(c.specs[i], c.groups[i])
	return groupWeight(c.groups[i])
}

func (c *insertion) apply(tx *txn, i int) {
	if c.out[i].Err == nil {
		c.out[i] = tx.insert(c.groups[i], c.specs[i], c.out[i].Jobs)
	}
}

// encodeSpecs encodes the specs of a group, in the caller's goroutine. Some stay in
// memory, so the size of plain ones is estimated closely.
func encodeSpecs(out [][]byte, g store.Group) {
	for i := range g.Jobs {
		s := &g.Jobs[i]
		size := 40 + len(s.Queue) + len(s.Type) + len(s.Payload.ContentType) + len(s.Key.Scope) + len(s.Key.Name) + len(s.Payload.Data)
		out[i], _ = codec.AppendSpec(s, make([]byte, 0, size)) // never fails
	}
}

func groupWeight(g store.Group) int {
	weight := 0
	for i := range g.Jobs {
		weight += 1 + len(g.Jobs[i].Payload.Data)>>10
	}
	return weight
}

func (s *Store) checkGroup(g store.Group) error {
	if err := store.CheckGroup(g, s.config.Limits); err != nil {
		return err
	}
	for i := range g.Jobs {
		if faults := store.CheckKeyTime(&g.Jobs[i], s.config.Retention, ""); len(faults) > 0 {
			return &gq.InvalidError{Faults: faults}
		}
	}
	return nil
}

// parent is the job that a dependency refers to.
type parent struct {
	live  *job
	seq   uint64
	state gq.State
}

// insert checks a group against the stored jobs, then adds all of it or nothing.
func (tx *txn) insert(g store.Group, encoded [][]byte, placed []store.Placed) store.Inserted {
	p, err := tx.checkInsert(g, encoded, placed, nil)
	if err != nil {
		return store.Inserted{Err: err}
	}
	tx.admit(p)
	return store.Inserted{Jobs: placed}
}

// checkedGroup is a group that has passed all checks.
type checkedGroup struct {
	store.Group
	encoded [][]byte // specs
	minted  gq.JobID // the id of the only job, if it is made here; the spec has another one
	key     keyID    // of the only job, if it has one
	placed  []store.Placed
	same    map[gq.JobID]gq.JobID // members that resolve to existing jobs, and jobs that members replace
	graph   groupGraph

	collisions []collision // members that do more than to be inserted or to resolve
}

// id returns the id of a member.
func (p *checkedGroup) id(member int) gq.JobID {
	if !p.minted.IsZero() {
		return p.minted
	}
	return p.Jobs[member].ID
}

// keyID identifies the key of a member that has one.
func (p *checkedGroup) keyID(member int) keyID {
	if len(p.Jobs) > 1 {
		return keyOf(&p.Jobs[member].Key)
	}
	if p.key == (keyID{}) {
		p.key = keyOf(&p.Jobs[0].Key)
	}
	return p.key
}

// mint gives the jobs of a group ids made from the numbers that they will have, also in their
// encoded specs. A group of several jobs is copied, with the dependencies within it renamed.
func (tx *txn) mint(p *checkedGroup) {
	next := tx.t.lastJob + 1
	if len(p.Jobs) == 1 {
		p.minted = tx.t.jobs.key.ID(next, p.Jobs[0].ID)
		codec.SetSpecID(p.encoded[0], p.minted)
		return
	}
	minted := make(map[gq.JobID]gq.JobID, len(p.Jobs))
	p.Jobs = slices.Clone(p.Jobs)
	for i := range p.Jobs {
		id := tx.t.jobs.key.ID(next+uint64(i), p.Jobs[i].ID)
		minted[p.Jobs[i].ID], p.Jobs[i].ID = id, id
		codec.SetSpecID(p.encoded[i], id)
	}
	for i := range p.Jobs {
		spec, cloned := &p.Jobs[i], false
		for k, d := range spec.DependsOn {
			id, ok := minted[d.Job]
			if !ok {
				continue
			}
			if !cloned {
				spec.DependsOn, cloned = slices.Clone(spec.DependsOn), true
			}
			spec.DependsOn[k].Job = id
		}
		if cloned {
			p.encoded[i], _ = codec.AppendSpec(spec, nil) // never fails
		}
	}
}

// spawner is the job whose update spawns the group.
type spawner struct {
	job  *job
	old  *gq.State
	next *gq.State
}

// checkInsert checks a group against the stored jobs and changes nothing. The spawning
// job, if any, counts in its new state.
func (tx *txn) checkInsert(g store.Group, encoded [][]byte, placed []store.Placed, b *spawner) (checkedGroup, error) {
	p := checkedGroup{Group: g, encoded: encoded, placed: placed}
	if err := tx.s.fits(forJobs, tx.size()+groupWeight(g)<<10); err != nil {
		return p, err
	}
	if g.Mint {
		tx.mint(&p)
	}
	var err error
	if err = tx.known(&p, b); err != nil {
		return p, err
	}
	if err := store.CheckRunTimes(p.Group, tx.now, func(i int) bool { return placed[i].Existing }); err != nil {
		return p, err
	}
	after := tx.followTails(p.Group, &p, b)
	if p.graph, err = tx.resolveGraph(&p, after, b); err != nil {
		return p, err
	}
	if err := tx.checkFollowers(&p); err != nil {
		return p, err
	}
	if err := tx.guardDepth(&p, b); err != nil {
		return p, err
	}
	return p, tx.guardQueues(p.Group)
}

// admit adds a group that was checked in this commit.
func (tx *txn) admit(p checkedGroup) {
	tx.number(p.placed)
	tx.settleCollisions(p)
	for _, i := range p.graph.order {
		spec, raw, notBefore := &p.Jobs[i], p.encoded[i], time.Time{}
		if c := p.collision(i); c != nil {
			notBefore = c.notBefore
			if c.replaced() && spec.Replaces.IsZero() {
				spec = new(*spec)
				spec.ID, spec.Replaces = p.id(i), c.job.id
				raw, _ = codec.AppendSpec(spec, nil) // never fails
			}
		}
		if deps, changed := store.Renamed(spec.DependsOn, p.same); changed { // a job that it names was never made
			spec = new(*spec)
			spec.ID, spec.DependsOn = p.id(i), deps
			raw, _ = codec.AppendSpec(spec, nil) // never fails
		}
		tx.add(&p, &p.placed[i].State, spec, raw, i, notBefore)
	}
	for i := range p.Jobs { // members that resolve to another member
		if p.placed[i].Existing && p.placed[i].State.ID.IsZero() {
			for k := range p.Jobs {
				if p.Jobs[k].ID == p.same[p.Jobs[i].ID] {
					p.placed[i].State = p.placed[k].State
				}
			}
		}
	}
}

// number numbers the new members in the order submitted. A member that exists leaves a gap,
// so that the numbers, and the ids made of them, are known before.
func (tx *txn) number(placed []store.Placed) {
	next := tx.t.lastJob + 1
	for i := range placed {
		if !placed[i].Existing {
			placed[i].State.Sequence = next + uint64(i)
			tx.t.lastJob = next + uint64(i)
		}
	}
}

// find reads the state of a live or finished job.
func (tx *txn) find(id gq.JobID) (gq.State, error) {
	if j := tx.t.live(id); j != nil {
		_, s := tx.load(j)
		return s, nil
	}
	k, record, err := tx.ended(id)
	if err != nil {
		return gq.State{}, err
	}
	_, s, err := decodeRecord(record, k.seq, tx.t.intern)
	return s, err
}

// unknown returns an error if an id was ever used.
func (tx *txn) unknown(id gq.JobID) error {
	taken := tx.t.get(id) != nil
	if n := tx.t.jobs.key.Number(id); !taken && (n <= tx.t.lastJob || tx.s.foreign.has(id)) {
		tx.awaitDisk()
		switch _, err := tx.s.findDone(id); {
		case err == nil:
			taken = true
		case !errors.Is(err, gq.ErrNotFound):
			return err
		}
	}
	if taken {
		return fmt.Errorf("job %s: %w", id, gq.ErrDuplicateID)
	}
	return nil
}

// groupGraph is the dependency graph of a group: the jobs it depends on, the depth of
// its members and a topological order. Members that already exist are not part of it.
type groupGraph struct {
	order   []int
	depth   []int
	deps    [][]gq.Dependency
	parents map[gq.JobID]parent
}

var single = groupGraph{order: []int{0}}

func (tx *txn) resolveGraph(p *checkedGroup, after []gq.JobID, b *spawner) (groupGraph, error) {
	g, placed, same := p.Group, p.placed, p.same
	if len(g.Jobs) == 1 && placed[0].Existing {
		return groupGraph{}, nil
	}
	if len(g.Jobs) == 1 && len(g.Jobs[0].DependsOn) == 0 {
		if after != nil {
			return tx.behind(after[0], b)
		}
		return single, nil
	}
	f := groupGraph{parents: map[gq.JobID]parent{}, deps: make([][]gq.Dependency, len(g.Jobs)), depth: make([]int, len(g.Jobs))}
	members := make(map[gq.JobID]bool, len(g.Jobs))
	for i := range g.Jobs {
		members[g.Jobs[i].ID] = !placed[i].Existing
	}
	var nodes []machine.Node
	var index []int // of the nodes
	for i := range g.Jobs {
		if placed[i].Existing {
			continue
		}
		var err error
		if f.deps[i], err = tx.standing(g.Jobs[i].DependsOn, same, members, f.parents, b); err != nil {
			return f, err
		}
		if after != nil {
			f.deps[i] = store.Ordered(f.deps[i], after[i])
		}
		nodes = append(nodes, machine.Node{ID: g.Jobs[i].ID, Priority: g.Jobs[i].Metadata.Priority, Dependencies: f.deps[i], Named: g.Jobs[i].DependsOn, Final: !g.Jobs[i].Workflow.IsZero()})
		index = append(index, i)
		for _, d := range f.deps[i] {
			if _, known := f.parents[d.Job]; known || members[d.Job] {
				continue
			}
			p, err := tx.parent(d.Job, b)
			if err == nil {
				f.parents[d.Job] = p
			} else if !errors.Is(err, gq.ErrNotFound) {
				return f, err
			}
		}
	}
	info, err := machine.CheckGraph(nodes, func(id gq.JobID) (machine.Ancestor, bool) {
		p, ok := f.parents[id]
		return machine.Ancestor{Depth: p.state.Depth, Priority: p.state.Priority()}, ok
	})
	if err != nil {
		return f, err
	}
	for _, n := range info.Order {
		f.order = append(f.order, index[n])
		f.depth[index[n]] = info.Depth[n]
	}
	return f, nil
}

// standing names in dependencies the existing jobs that members resolve to, and the last job that
// took the place of a replaced one. It reads jobs outside the group into parents.
func (tx *txn) standing(deps []gq.Dependency, same map[gq.JobID]gq.JobID, members map[gq.JobID]bool, parents map[gq.JobID]parent, b *spawner) ([]gq.Dependency, error) {
	out := slices.Clone(deps)
	next := func(id gq.JobID) (gq.JobID, error) {
		if to, ok := same[id]; ok && to != id {
			return to, nil
		}
		if members[id] {
			return gq.JobID{}, nil
		}
		p, known := parents[id]
		if !known {
			var err error
			if p, err = tx.parent(id, b); errors.Is(err, gq.ErrNotFound) {
				return gq.JobID{}, nil
			} else if err != nil {
				return gq.JobID{}, err
			}
			parents[id] = p
		}
		return p.state.ReplacedBy, nil
	}
	for i := range out {
		var err error
		if out[i].Job, err = store.Standing(out[i].Job, next); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (tx *txn) parent(id gq.JobID, b *spawner) (parent, error) {
	if b != nil && b.job.id == id {
		return parent{b.job, b.job.seq, *b.next}, nil
	}
	if j := tx.t.live(id); j != nil {
		_, s := tx.load(j)
		return parent{j, j.seq, s}, nil
	}
	k, record, err := tx.ended(id)
	if err != nil {
		return parent{}, err
	}
	_, s, err := decodeRecord(record, k.seq, tx.t.intern)
	return parent{nil, k.seq, s}, err
}

// guardDepth rejects a group that would exceed a queue's MaxDepth.
func (tx *txn) guardDepth(p *checkedGroup, b *spawner) error {
	var more map[string]int64
	for i := range p.Jobs {
		q := tx.t.queues[p.Jobs[i].Queue]
		if q == nil || q.config.MaxDepth == 0 || p.placed[i].Existing {
			continue
		}
		if more == nil {
			more = map[string]int64{}
			for _, c := range p.collisions { // a replaced job frees its place
				if c.replaced() {
					more[c.job.bucket.queue.config.Name]--
				}
			}
			if b != nil && !b.next.Live() { // the spawning job ends and frees its place
				more[b.job.bucket.queue.config.Name]--
			}
		}
		more[p.Jobs[i].Queue]++
		if q.liveCount()+more[p.Jobs[i].Queue] > int64(q.config.MaxDepth) {
			return fmt.Errorf("queue %s has %d of at most %d live jobs: %w",
				p.Jobs[i].Queue, q.liveCount(), q.config.MaxDepth, gq.ErrQueueFull)
		}
	}
	return nil
}

// guardQueues rejects a group that would exceed [gq.MaxQueues].
func (tx *txn) guardQueues(g store.Group) error {
	known := len(tx.t.queues)
	for i := range g.Jobs {
		if tx.t.queues[g.Jobs[i].Queue] == nil {
			if known++; known > gq.MaxQueues {
				return store.TooManyQueues(g.Jobs[i].Queue)
			}
		}
	}
	return nil
}

// add writes a checked job. Only the sequence number of its state is set.
func (tx *txn) add(p *checkedGroup, state *gq.State, spec *gq.Spec, encoded []byte, i int, notBefore time.Time) {
	t, seq, id, f := tx.t, state.Sequence, p.id(i), &p.graph
	bucket := tx.bucket(spec)
	bucket.jobs++
	h := header{bucket: bucket.number, cost: spec.CostUnits}
	if hasKeys(spec) {
		h.setKeys(spec)
	}
	submission := machine.Submission{
		ID: id, Sequence: seq, Policy: t.intern(spec.Policy), Own: spec.Metadata.Priority,
		Depth: 1, RunAt: store.RunAt(spec, notBefore, tx.now), Events: tx.noted[:0], Gate: spec.Gate, Trace: machine.TraceParent(spec), Origin: machine.Origin(spec),
	}
	if c := p.collision(i); c != nil && !p.Jobs[i].Replaces.IsZero() {
		submission.Replaces, submission.CarriesOn = &c.next, p.CarryOn != nil
	}
	if p.CarryOn != nil && p.CarryOn.Checkpoint != nil {
		h.flags |= flagCheckpoint
		tx.put(prefixCheckpoint, seq, p.CarryOn.Checkpoint)
	}
	if spec.Key.Name != "" {
		h.flags |= flagKeyed
		record := keyRecord{id, spec.Key.Fingerprint, spec.Unique.While, machine.KeyUntil(spec, submission.RunAt, tx.now).UnixNano()}
		key := p.keyID(i)
		tx.here().keys[key] = record
		tx.keyed = append(tx.keyed, key)
	}
	var deps []gq.Dependency
	if f.deps != nil {
		deps = f.deps[i]
		submission.Depth = f.depth[i]
		for _, d := range deps {
			if d.Kind == machine.DependencyOrder {
				submission.After = d.Job
				submission.Waits++
				continue
			}
			p := f.parents[d.Job]
			submission.Inherited = p.state.Priority().Inherit(submission.Inherited)
			switch {
			case !d.Kind.Waits():
			case d.Kind == gq.DependencyAfterAny:
				submission.AnyOpen = true
			default:
				submission.Waits++
			}
		}
	}
	submission.Turn = tx.turn(bucket.queue, h.keys, submission.Priority())
	submitted, events := machine.Submit(submission, tx.now)
	*state, tx.noted = submitted, events
	tx.put(prefixSpec, seq, encoded)
	if t.jobs.isForeign(id, seq) || h.keys != nil || f.deps != nil || submission.Replaces != nil || !state.Live() {
		tx.addAlone(state, h, bucket, deps, f)
	} else {
		tx.addPacked(state, h, bucket)
	}
	if state.Status == gq.StatusScheduled {
		tx.s.specs.keep(seq, encoded)
	}
}

// addAlone adds a new job that may have keys, dependencies and an id from elsewhere, and may
// have ended at once.
func (tx *txn) addAlone(state *gq.State, h header, bucket *bucket, deps []gq.Dependency, f *groupGraph) {
	t := tx.t
	j := &job{id: state.ID, seq: state.Sequence, bucket: bucket, cost: h.cost, toRun: noTimer, toDue: noTimer}
	if j.foreign = t.jobs.isForeign(j.id, j.seq); j.foreign {
		tx.ids = append(tx.ids, idEntry{j.id, j.seq})
	}
	bucket.queue.attach(j, h.keys)
	bucket.queue.lineUp(j, h.keys)
	events := tx.noted
	for _, d := range deps {
		*state, events = tx.await(j, d, f, *state, events)
	}
	t.jobs.add(j)
	tx.store(j, h, nil, state, events)
	if f.parents != nil {
		f.parents[j.id] = parent{j, j.seq, *state}
		if !state.Live() {
			f.parents[j.id] = parent{nil, j.seq, *state}
		}
	}
}

// addPacked adds any other new job, to a pack.
func (tx *txn) addPacked(state *gq.State, h header, bucket *bucket) {
	t := tx.t
	tx.change(bucket.queue)
	h.lastEvent = tx.record(tx.noted, bucket, 0)
	r := tx.join(h, state)
	if last := r.last; last != nil && last.record == r.record && last.foldable() && last.seq+uint64(last.rest)+1 == state.Sequence {
		t.fold(r.pack, last)
		return
	}
	r.last = &job{id: state.ID, seq: state.Sequence, bucket: bucket, cost: h.cost, toRun: noTimer, toDue: noTimer, record: r.record}
	t.jobs.add(r.last)
	t.place(r.last, state)
}

// await records that a job waits for a dependency. If the dependency has already ended,
// it updates the job immediately.
func (tx *txn) await(j *job, d gq.Dependency, f *groupGraph, s gq.State, events []gq.Event) (gq.State, []gq.Event) {
	if !machine.Waits(d.Kind) {
		return s, events
	}
	p := f.parents[d.Job]
	if p.state.Live() {
		tx.t.kids[p.seq] = append(tx.t.kids[p.seq], edge{j, d.Kind})
		if d.Kind == machine.DependencyOrder {
			tx.t.goBehind(j.seq, p.seq)
		}
		tx.setEdge(p.seq, j.seq, d.Kind)
		return s, events
	}
	next, more, err := machine.DependencyEnded(s, machine.EndedDependency{Kind: d.Kind, Status: p.state.Status, Priority: p.state.Priority()}, tx.now)
	if err != nil {
		panic(fmt.Sprintf("local: dependency of job %s: %v", j.id, err))
	}
	return next, append(events, more...)
}

// bucket finds or creates the bucket of a spec.
func (tx *txn) bucket(spec *gq.Spec) *bucket {
	t := tx.t
	q := tx.queue(spec.Queue)
	if l := q.findBucket(spec.Type, spec.Requires); l != nil {
		return l
	}
	l := t.addBucket(t.lastBucket+1, q, spec.Type, spec.Requires)
	tx.set(smallKey(prefixBucket, l.number), encodeBucket(l))
	return l
}

// queue finds or creates a queue.
func (tx *txn) queue(name string) *queue {
	if q := tx.t.queues[name]; q != nil {
		return q
	}
	config := machine.NewQueue(name)
	q := tx.t.addQueue(uint32(len(tx.t.numbers)), config)
	tx.set(smallKey(prefixQueue, q.number), encodeQueue(config))
	return q
}
