package local

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// collision is a member of a group that replaces or postpones a job, or that waits because of
// one.
type collision struct {
	member    int
	insert    bool      // the member becomes a job
	notBefore time.Time // of that job
	job       *job      // the job that changes, nil if none does
	next      gq.State  // of job
	events    []gq.Event
}

// replaced reports whether the member takes the place of job.
func (c *collision) replaced() bool { return c.insert && c.job != nil }

// collision returns that of a member, nil if it has none.
func (p *checkedGroup) collision(member int) *collision {
	for i := range p.collisions {
		if p.collisions[i].member == member {
			return &p.collisions[i]
		}
	}
	return nil
}

// resolve notes that a member or a replaced job stands for another job.
func (p *checkedGroup) resolve(id, to gq.JobID) {
	if p.same == nil {
		p.same = map[gq.JobID]gq.JobID{}
	}
	p.same[id] = to
}

// known finds members whose key belongs to an existing job or to an earlier member, decides
// about them, and rejects used ids.
func (tx *txn) known(p *checkedGroup, b *spawner) error {
	var first map[keyID]int // member by key
	for i := range p.Jobs {
		spec := &p.Jobs[i]
		replaces := spec.Replaces
		if spec.Key.Name != "" {
			key := p.keyID(i)
			if k, ok := first[key]; ok {
				p.resolve(spec.ID, p.Jobs[k].ID)
				p.placed[i] = store.Placed{Existing: true, Same: spec.Unique.While != 0 || p.Jobs[k].Key.Fingerprint == spec.Key.Fingerprint}
				continue
			}
			holder, err := tx.collide(p, i, key, b)
			if err != nil {
				return err
			}
			if p.placed[i].Existing {
				p.resolve(spec.ID, p.placed[i].State.ID)
				continue
			}
			if !holder.IsZero() {
				replaces = holder
			}
			if len(p.Jobs) > 1 {
				if first == nil {
					first = map[keyID]int{}
				}
				first[key] = i
			}
		}
		if !replaces.IsZero() {
			if err := tx.takePlace(p, i, replaces); err != nil {
				return err
			}
		}
		if p.Mint {
			continue
		}
		if err := tx.unknown(spec.ID); err != nil {
			return err
		}
	}
	return nil
}

// collide decides about a member whose key may be recorded for another job. It returns the
// job that the member replaces, if it replaces one.
func (tx *txn) collide(p *checkedGroup, i int, key keyID, b *spawner) (replaces gq.JobID, err error) {
	spec := &p.Jobs[i]
	record, err := tx.findKey(key)
	if errors.Is(err, gq.ErrNotFound) || err == nil && record.expires <= tx.now.UnixNano() && spec.ReplayOf.IsZero() {
		return replaces, nil
	}
	if err != nil {
		return replaces, err
	}
	state, err := tx.find(record.id)
	if errors.Is(err, gq.ErrNotFound) { // a key whose job is gone is free
		return replaces, nil
	}
	if err != nil {
		return replaces, err
	}
	if b != nil && b.job.id == record.id {
		state = *b.next
	}
	for k := range p.collisions { // an earlier member may have postponed it
		if c := &p.collisions[k]; c.job != nil && c.job.id == record.id {
			state = c.next
		}
	}
	c := machine.Collide(machine.KeyHolder{State: state, Fingerprint: record.fingerprint, While: record.while, Until: time.Unix(0, record.expires).UTC()}, spec, tx.now)
	if c.Err != nil {
		return replaces, c.Err
	}
	if len(c.Events) > 0 {
		j := tx.t.live(record.id)
		if err := p.Authorized(j.bucket.queueName); err != nil {
			return replaces, err
		}
		p.collisions = append(p.collisions, collision{member: i, job: j, next: c.Next, events: c.Events})
		state = c.Next
	}
	switch {
	case !c.Insert:
		p.placed[i] = store.Placed{State: state.At(tx.now), Existing: true, Same: c.Same}
	case c.Replace:
		return record.id, nil
	case !c.NotBefore.IsZero():
		p.collisions = append(p.collisions, collision{member: i, insert: true, notBefore: c.NotBefore})
	}
	return replaces, nil
}

// findKey reads the record of a key. The error is ErrNotFound if there is none.
func (tx *txn) findKey(key keyID) (keyRecord, error) {
	if record, ok := tx.key(key); ok {
		return record, nil
	}
	if !tx.s.onDisk(key[0]).has(key.bytes()) {
		return keyRecord{}, gq.ErrNotFound
	}
	raw, err := tx.s.read(key[:])
	if err != nil {
		return keyRecord{}, err
	}
	return decodeKeyRecord(raw)
}

// takePlace decides about a member that replaces a job.
func (tx *txn) takePlace(p *checkedGroup, member int, id gq.JobID) error {
	for _, c := range p.collisions {
		if c.job != nil && c.job.id == id {
			return store.ReplacedTwice(id)
		}
	}
	j := tx.t.live(id)
	state, err := tx.find(id)
	if err != nil {
		return fmt.Errorf("replace job %s: %w", id, err)
	}
	if j != nil {
		if err := p.Authorized(j.bucket.queueName); err != nil {
			return err
		}
	}
	if j != nil {
		if err := tx.replaceable(j); err != nil {
			return err
		}
	}
	next, events, err := p.Replace(state, p.id(member), tx.now)
	if err != nil {
		return err
	}
	p.collisions = append(p.collisions, collision{member: member, insert: true, job: j, next: next, events: events})
	p.placed[member].Replaces = id
	p.resolve(id, p.Jobs[member].ID)
	return nil
}

// checkFollowers refuses to replace a job whose dependents cannot follow.
func (tx *txn) checkFollowers(p *checkedGroup) error {
	for i := range p.collisions {
		c := &p.collisions[i]
		if !c.replaced() {
			continue
		}
		followers := len(tx.t.kids[c.job.seq])
		depth, waiting := 1, gq.JobID{}
		if p.graph.depth != nil {
			depth = p.graph.depth[c.member]
		}
		if p.graph.deps != nil && followers > 0 {
			waiting = machine.NewDependency(p.graph.deps[c.member],
				func(id gq.JobID) bool {
					j := tx.t.live(id)
					return j != nil && slices.ContainsFunc(tx.t.kids[j.seq], func(e edge) bool { return e.child == c.job })
				},
				func(id gq.JobID) bool {
					if k := slices.IndexFunc(p.Jobs, func(s gq.Spec) bool { return s.ID == id }); k >= 0 {
						return len(p.graph.deps[k]) > 0
					}
					j := tx.t.live(id)
					return j != nil && j.status == gq.StatusPending
				})
		}
		if err := machine.CheckFollowers(&c.next, followers, depth, waiting); err != nil {
			return err
		}
	}
	return nil
}

// settleCollisions changes the jobs that members replace or postpone. The dependents of a
// replaced job wait for the member, which has its number but is not added yet.
func (tx *txn) settleCollisions(p checkedGroup) {
	for i := range p.collisions {
		c := &p.collisions[i]
		if c.job == nil {
			continue
		}
		if c.replaced() {
			tx.follow(c.job.seq, p.placed[c.member].State.Sequence)
		}
		h, old := tx.load(c.job)
		tx.save(c.job, h, &old, &c.next, c.events)
	}
}

// follow makes the dependents of one job wait for another one.
func (tx *txn) follow(from, to uint64) {
	kids := tx.t.kids[from]
	if len(kids) == 0 {
		return
	}
	for _, e := range kids {
		tx.remove(edgeKey(from, e.child.seq, e.kind))
		tx.setEdge(to, e.child.seq, e.kind)
	}
	tx.t.kids[to] = kids
	delete(tx.t.kids, from)
}
