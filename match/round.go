package match

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strings"
)

// candidate is a job that the round may come to.
type candidate struct {
	job   *Job
	score int64
	shape *shape // found when first needed
	taken bool   // out of the queue
	place int    // of the provider planned for it, -1 for none
	plan  int    // the last plan it was part of
	row   int    // its number among the candidates
}

// round is the work of one [Match].
type round struct {
	*supply
	seed       Seed
	candidates []candidate
	queue      []*candidate // by score, then time, then id
	lane       []*candidate // cheap jobs by time, then id
	laneAt     int          // nothing before it can be assigned any more
	budget     int          // jobs that may still be considered
	result     Result

	group  []*candidate // scratch
	inPlay []*shape     // scratch: the shapes of the group
	anyone set          // scratch: who fits any of them
	rivals []rival      // scratch
	text   []byte       // scratch
	ending []byte       // scratch

	plans    int        // made so far
	rankings []*ranking // by place, where slots were scarce
	ranked   int        // rivals in all of them
}

// ranking is the rivals for a provider that were met so far, by hash. It is
// kept, since a group is planned again after each match of the lane.
type ranking struct {
	met    set // by row
	sorted []rival
}

// maxRanked bounds the memory for rankings, at 128 MiB.
const maxRanked = 8 << 20

// rival is a job that competes for a slot; the lower hash wins.
type rival struct {
	*candidate
	hash uint64 // first 8 bytes of it
}

func newRound(in *Input) *round {
	r := &round{seed: in.Seed(), budget: int(min(in.Policy.BatchSize, int64(len(in.Jobs))))}
	r.choose(in)
	jobs := make([]*Job, len(r.candidates))
	for i := range r.candidates {
		jobs[i] = r.candidates[i].job
	}
	r.supply = newSupply(in, r.seed, jobs)
	r.anyone = newSet(len(r.order))
	r.rankings = make([]*ranking, len(r.order))
	return r
}

// choose finds the jobs that can matter. At most budget jobs leave the queue,
// so those are among its first ones and the first of the lane.
func (r *round) choose(in *Input) {
	type scored struct {
		score int64
		index int
	}
	all := make([]scored, len(in.Jobs))
	var cheap []int
	for i := range in.Jobs {
		j := &in.Jobs[i]
		all[i] = scored{in.Policy.Priority.Cached(j), i}
		if in.Policy.Starvation.Every > 0 && j.MaxFee <= in.Policy.Starvation.LowFeeMax {
			cheap = append(cheap, i)
		}
	}
	earlier := func(a, b int) int {
		x, y := &in.Jobs[a], &in.Jobs[b]
		return cmp.Or(cmp.Compare(x.EnqueuedAt, y.EnqueuedAt), strings.Compare(x.ID, y.ID))
	}
	all = lowest(all, r.budget, func(a, b scored) int {
		return cmp.Or(cmp.Compare(b.score, a.score), earlier(a.index, b.index))
	})
	cheap = lowest(cheap, r.budget, earlier)

	now := in.Policy.Priority.age(in.Now)
	r.candidates = make([]candidate, 0, len(all)+len(cheap))
	add := func(i int, cached int64) *candidate {
		r.candidates = append(r.candidates, candidate{job: &in.Jobs[i], score: cached + now, place: -1, row: len(r.candidates)})
		return &r.candidates[len(r.candidates)-1]
	}
	chosen := make(map[int]*candidate, len(all))
	for _, s := range all {
		c := add(s.index, s.score)
		r.queue = append(r.queue, c)
		if len(cheap) > 0 {
			chosen[s.index] = c
		}
	}
	for _, i := range cheap {
		c, known := chosen[i]
		if !known {
			c = add(i, in.Policy.Priority.Cached(&in.Jobs[i]))
		}
		r.lane = append(r.lane, c)
	}
}

func (r *round) run() Result {
	r.result = Result{Seed: r.seed, Order: make([]string, len(r.order)), Assignments: []Assignment{}, Requeued: []string{}}
	for i, p := range r.order {
		r.result.Order[i] = p.ID
	}
	for head := 0; r.budget > 0; {
		for head < len(r.queue) && r.queue[head].taken {
			head++
		}
		if head == len(r.queue) {
			break
		}
		group := r.tied(head)
		r.plan(group)
		r.visit(group)
	}
	return r.result
}

// tied is the job at the head of the queue with those equal to it in score and
// time, as far as the budget goes.
func (r *round) tied(head int) []*candidate {
	r.group = r.group[:0]
	first := r.queue[head]
	for _, c := range r.queue[head:] {
		if c.score != first.score || c.job.EnqueuedAt != first.job.EnqueuedAt || len(r.group) == r.budget {
			break
		}
		if !c.taken {
			r.group = append(r.group, c)
		}
	}
	return r.group
}

// visit takes the jobs of a group out of the queue, until a match belongs to
// the lane: that changes the counters, and the rest must be planned again.
func (r *round) visit(group []*candidate) {
	for _, c := range group {
		if r.laneDue() {
			if x, place := r.fromLane(); x != nil {
				r.take(x)
				r.assign(x, place)
				return
			}
		}
		r.take(c)
		if c.place >= 0 {
			r.assign(c, c.place)
		} else {
			r.result.Requeued = append(r.result.Requeued, c.job.ID)
		}
	}
}

// laneDue reports whether the next match belongs to the lane.
func (r *round) laneDue() bool {
	every := r.in.Policy.Starvation.Every
	return every > 0 && (r.in.Matches+int64(len(r.result.Assignments))+1)%every == 0
}

// fromLane is the first job of the lane that somebody fits, and who. Who is
// passed over fits nobody for the rest of the round, as counters only grow.
func (r *round) fromLane() (*candidate, int) {
	for ; r.laneAt < len(r.lane); r.laneAt++ {
		if c := r.lane[r.laneAt]; !c.taken {
			if place := r.first(c.job, r.shape(c)); place >= 0 {
				return c, place
			}
		}
	}
	return nil, -1
}

func (r *round) take(c *candidate) {
	c.taken = true
	r.budget--
}

func (r *round) assign(c *candidate, place int) {
	r.count(place, c.job)
	p := r.order[place]
	r.result.Assignments = append(r.result.Assignments, Assignment{
		Job: c.job.ID, Provider: p.ID, Lease: r.seed.Lease(c.job.ID, p.ID, c.job.Attempt),
		Attempt: c.job.Attempt, Score: c.score,
	})
}

func (r *round) shape(c *candidate) *shape {
	if c.shape == nil {
		c.shape = r.shapeOf(c.job)
	}
	return c.shape
}

// plan says who gets which job of a group. The providers choose in order, each
// by the hash of the pair, until they or the jobs are out. The counters are as
// before when it returns.
func (r *round) plan(group []*candidate) {
	if len(group) == 1 {
		group[0].place = r.first(group[0].job, r.shape(group[0]))
		return
	}
	r.gather(group)
	missing := len(group)
	for place := next(r.anyone, r.open, 0); place >= 0 && missing > 0; place = next(r.anyone, r.open, place+1) {
		r.rivals = r.rivals[:0]
		for _, sh := range r.inPlay {
			if sh.fits.has(place) {
				r.compete(place, sh)
			}
		}
		missing -= r.share(place)
	}
	for _, c := range group {
		if c.place >= 0 {
			r.uncount(c.place, c.job)
		}
	}
}

// gather sorts a group by shape and finds who fits any of them.
func (r *round) gather(group []*candidate) {
	for _, sh := range r.inPlay {
		sh.waiting = sh.waiting[:0]
	}
	r.inPlay = r.inPlay[:0]
	clear(r.anyone)
	r.plans++
	for _, c := range group {
		c.place, c.plan = -1, r.plans
		sh := r.shape(c)
		if len(sh.waiting) == 0 {
			r.inPlay = append(r.inPlay, sh)
			sh.least = c.job.Units
			r.anyone.join(sh.fits)
		}
		sh.least = min(sh.least, c.job.Units)
		sh.waiting = append(sh.waiting, c)
	}
}

// compete adds the jobs of a shape that a provider could take now. What it
// cannot take now it cannot take later in the plan.
func (r *round) compete(place int, sh *shape) {
	if len(sh.waiting) == 0 {
		return
	}
	kind := sh.waiting[0].job.Kind
	free := r.in.Policy.Quotas.unitsPerEpoch(kind) - r.units[kind][place]
	if free < sh.least {
		return
	}
	id := r.order[place].ID
	left := sh.waiting[:0]
	for _, c := range sh.waiting {
		if c.place >= 0 {
			continue
		}
		left = append(left, c)
		if j := c.job; j.Units <= free && !r.spent(j.Requester) && !slices.Contains(j.Excluded, id) {
			r.rivals = append(r.rivals, rival{candidate: c})
		}
	}
	sh.waiting = left
}

// share gives the rivals to a provider as far as it has room. Where it has room
// for all, their hashes do not matter and are not computed.
func (r *round) share(place int) (given int) {
	for _, x := range r.rivals {
		if !r.hasRoom(place, x.job) {
			break
		}
		r.count(place, x.job)
		given++
	}
	if given == len(r.rivals) {
		for _, x := range r.rivals {
			x.place = place
		}
		return given
	}
	for _, x := range r.rivals[:given] {
		r.uncount(place, x.job)
	}

	given = 0
	for _, x := range r.rank(place) {
		if !r.open.has(place) {
			break
		}
		if x.plan == r.plans && x.place < 0 && r.hasRoom(place, x.job) {
			r.count(place, x.job)
			x.place = place
			given++
		}
	}
	return given
}

// rank adds the present rivals to those met before at a place.
func (r *round) rank(place int) []rival {
	if r.ranked > maxRanked {
		clear(r.rankings)
		r.ranked = 0
	}
	known := r.rankings[place]
	if known == nil {
		known = &ranking{met: newSet(len(r.candidates))}
		r.rankings[place] = known
	}
	// All texts that are hashed here end alike.
	r.ending = appendPair(r.ending[:0], "", r.order[place].ID, r.seed)
	fresh := r.rivals[:0]
	for _, x := range r.rivals {
		if !known.met.has(x.row) {
			known.met.add(x.row)
			r.text = append(append(r.text[:0], x.job.ID...), r.ending...)
			sum := sha256.Sum256(r.text)
			x.hash = binary.BigEndian.Uint64(sum[:])
			fresh = append(fresh, x)
		}
	}
	r.ranked += len(fresh)
	lower := func(a, b rival) int {
		if c := cmp.Compare(a.hash, b.hash); c != 0 {
			return c
		}
		x, y := r.seed.Pair(a.job.ID, r.order[place].ID), r.seed.Pair(b.job.ID, r.order[place].ID)
		return bytes.Compare(x[:], y[:])
	}
	slices.SortFunc(fresh, lower)
	known.sorted = merge(known.sorted, fresh, lower)
	return known.sorted
}

// merge puts sorted items into a sorted list.
func merge(list, items []rival, compare func(a, b rival) int) []rival {
	at := len(list)
	list = append(list, items...)
	for to := len(list) - 1; len(items) > 0; to-- {
		last := len(items) - 1
		if at > 0 && compare(list[at-1], items[last]) > 0 {
			at--
			list[to] = list[at]
		} else {
			list[to] = items[last]
			items = items[:last]
		}
	}
	return list
}
