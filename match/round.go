package match

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"github.com/gopherqueue/gq/internal/sha256batch"
)

// candidate is a job that the round may assign.
type candidate struct {
	job   *Job
	score int64
	shape *shape // set on first use
	taken bool   // removed from the queue
	place int    // index of the planned provider, -1 for none
	row   int32  // index among the candidates
	at    int32  // index in shape.waiting while it waits
	units int64  // of the job
	picky bool   // some providers that fit its shape may still be unsuitable
}

// round is the state of one [Match].
type round struct {
	*supply
	seed       Seed
	seedText   string
	candidates []candidate
	queue      []*candidate // by score, then time, then id
	lane       []*candidate // cheap jobs by time, then id
	laneAt     int          // everything before it can no longer be assigned
	budget     int          // jobs that may still be considered
	result     Result

	group  []*candidate // buffer
	inPlay []*shape     // buffer: the shapes of the group
	anyone set          // buffer: providers that fit any of them
	rivals []int32      // buffer: rows of jobs that compete for a slot; the lowest hash wins

	*memory
	ids     []string   // of the candidates' jobs, by row
	hashes  [][]uint64 // by place and row, computed where slots were scarce; 0 is unknown
	hashed  int        // number of hashes that have a place
	missing []int32    // buffer: rows whose hashes are not known yet
	given   []int32    // buffer: rows of the jobs that a plan has given to providers
}

// maxHashed limits the memory for hashes to 64 MiB. They are kept because a group is
// planned again after each match of the lane.
const maxHashed = 8 << 20

// memory is what rounds hand on, so that each need not allocate it.
type memory struct {
	hasher *sha256batch.Hasher
	room   []uint64 // for hashes
	free   []uint64 // what is left of it
	text   []byte   // buffer
}

// maxRoom limits the memory that is handed on to 1 MiB. Rounds that need more allocate it.
const maxRoom = 128 << 10

var memories = sync.Pool{New: func() any { return &memory{hasher: sha256batch.New()} }}

// row returns n zeros.
func (m *memory) row(n int) []uint64 {
	if len(m.free) < n {
		if len(m.free) < len(m.room) || n > maxRoom { // the room is in use, or too small
			return make([]uint64, n)
		}
		m.room = make([]uint64, maxRoom)
		m.free = m.room
	}
	row := m.free[:n:n]
	m.free = m.free[n:]
	clear(row)
	return row
}

func newRound(in *Input) *round {
	seed := in.Seed()
	r := &round{seed: seed, seedText: seed.String(), budget: int(min(in.Policy.BatchSize, int64(len(in.Jobs))))}
	r.choose(in)
	jobs := make([]*Job, len(r.candidates))
	r.ids = make([]string, len(r.candidates))
	for i := range r.candidates {
		jobs[i], r.ids[i] = r.candidates[i].job, r.candidates[i].job.ID
	}
	r.supply = newSupply(in, r.seed, jobs)
	r.memory = memories.Get().(*memory)
	r.anyone = newSet(len(r.order))
	r.hashes = make([][]uint64, len(r.order))
	return r
}

// choose selects the candidates. At most budget jobs leave the queue, so the first ones
// of the queue and of the lane are enough.
func (r *round) choose(in *Input) {
	type scored struct {
		score int64
		index int
	}
	var ages [kindEnd]int64
	for _, k := range Kinds() {
		ages[k] = in.Policy.Priority.Age(k, in.Now)
	}
	all := make([]scored, len(in.Jobs))
	var cheap []int
	for i := range in.Jobs {
		j := &in.Jobs[i]
		all[i] = scored{in.Policy.Priority.Cached(j) + ages[j.Kind], i}
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

	r.candidates = make([]candidate, 0, len(all)+len(cheap))
	add := func(i int, score int64) *candidate {
		j := &in.Jobs[i]
		r.candidates = append(r.candidates, candidate{
			job: j, score: score, place: -1, row: int32(len(r.candidates)),
			units: j.Units, picky: len(j.Excluded) > 0 || in.Policy.Quotas.RequesterMax > 0,
		})
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
			c = add(i, in.Policy.Priority.Score(&in.Jobs[i], in.Now))
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
	r.nameLeases()
	return r.result
}

// release hands the memory of a round on. Nothing may be asked of the round afterwards.
func (r *round) release() {
	r.free = r.room
	memories.Put(r.memory)
}

// nameLeases sets the ids of the leases of all assignments, hashing many at a time.
func (r *round) nameLeases() {
	const many = 64
	var (
		beginnings [many]string
		ends       [many]int
		which      [many]int32
		sums       [many][sha256.Size]byte
	)
	for i := range which {
		which[i] = int32(i)
	}
	r.hasher.SetEnding(r.seedText)
	for made := range slices.Chunk(r.result.Assignments, many) {
		r.text = r.text[:0]
		for i, a := range made {
			r.text = appendLease(r.text, a.Job, a.Provider, a.Attempt)
			ends[i] = len(r.text)
		}
		texts, from := string(r.text), 0
		for i := range made {
			beginnings[i], from = texts[from:ends[i]], ends[i]
		}
		r.hasher.Sum256(sums[:], beginnings[:], which[:len(made)])
		for i := range made {
			made[i].Lease = leaseID(sums[i])
		}
	}
}

// tied returns the job at the head of the queue and those with the same score and time,
// up to the budget.
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

// visit removes the jobs of a group from the queue, until a match belongs to the lane.
// That match changes the counters, so the rest must be planned again.
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

// fromLane returns the first job of the lane that a provider fits, and the provider's
// index. A skipped job fits no provider for the rest of the round, because counters only
// grow.
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
		Job: c.job.ID, Provider: p.ID, Attempt: c.job.Attempt, Score: c.score,
	})
}

func (r *round) shape(c *candidate) *shape {
	if c.shape == nil {
		c.shape = r.shapeOf(c.job)
	}
	return c.shape
}

// plan decides who gets which job of a group. The providers choose in order, each by the
// pair hash, until no provider or no job is left. It does not change the counters.
func (r *round) plan(group []*candidate) {
	if len(group) == 1 {
		group[0].place = r.first(group[0].job, r.shape(group[0]))
		return
	}
	r.gather(group)
	r.given = r.given[:0]
	missing := len(group)
	for place := next(r.anyone, r.open, 0); place >= 0 && missing > 0; place = next(r.anyone, r.open, place+1) {
		r.rivals = r.rivals[:0]
		r.looked++
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

// gather groups jobs by shape and finds the providers that fit any of them.
func (r *round) gather(group []*candidate) {
	for _, sh := range r.inPlay {
		sh.waiting = sh.waiting[:0]
	}
	r.inPlay = r.inPlay[:0]
	clear(r.anyone)
	for _, c := range group {
		c.place = -1
		sh := r.shape(c)
		if len(sh.waiting) == 0 {
			r.inPlay = append(r.inPlay, sh)
			sh.kind, sh.least, sh.most, sh.picky = c.job.Kind, c.units, c.units, false
			r.anyone.join(sh.fits)
		}
		sh.least, sh.most, sh.picky = min(sh.least, c.units), max(sh.most, c.units), sh.picky || c.picky
		r.wait(c)
	}
}

// wait adds a job to those of its shape that wait.
func (r *round) wait(c *candidate) {
	c.at = int32(len(c.shape.waiting))
	c.shape.waiting = append(c.shape.waiting, c.row)
}

// leave removes a job from those that wait. The last of them takes its place, so that most
// stay where they are: see [sha256batch.Hasher.Sum64].
func (r *round) leave(c *candidate) {
	waiting := c.shape.waiting
	last := waiting[len(waiting)-1]
	waiting[c.at], r.candidates[last].at = last, c.at
	c.shape.waiting = waiting[:len(waiting)-1]
}

// compete adds the jobs of a shape that a provider could take now. A job that it cannot
// take now, it cannot take later in the plan either.
func (r *round) compete(place int, sh *shape) {
	free := r.in.Policy.Quotas.unitsPerEpoch(sh.kind) - r.units[sh.kind][place]
	if free >= sh.most && !sh.picky {
		r.rivals = append(r.rivals, sh.waiting...)
		return
	}
	if free < sh.least {
		return
	}
	for _, row := range sh.waiting {
		if c := &r.candidates[row]; c.units <= free && (!c.picky || r.willing(place, c.job)) {
			r.rivals = append(r.rivals, row)
		}
	}
}

// willing reports whether a provider may take a job by the conditions that are not part
// of its shape.
func (r *round) willing(place int, j *Job) bool {
	return !r.spent(j.Requester) && !slices.Contains(j.Excluded, r.order[place].ID)
}

// share gives rivals to a provider, as far as it has room. If it has room for all, their
// hashes do not matter and are not computed.
func (r *round) share(place int) (given int) {
	slots := r.in.Policy.Quotas.LeasesMax - r.leases[place]
	if int64(len(r.rivals)) <= slots {
		if given = r.give(place, r.rivals); given == len(r.rivals) {
			return given
		}
		r.takeBack(r.rivals)
	}
	known := r.known(place)
	lower := func(a, b int32) int { return r.lower(place, known, a, b) }
	var first []int32
	if slots == 1 {
		first = r.winner(place, known)
	} else {
		first = lowest(r.rivals, int(min(slots, int64(len(r.rivals)))), lower)
	}
	given = r.give(place, first)
	if rest := r.rivals[len(first):]; r.open.has(place) && len(rest) > 0 { // some needed too many units
		slices.SortFunc(rest, lower)
		given += r.give(place, rest)
	}
	return given
}

// known returns the hashes of pairs with a provider, by row. It computes those of the
// rivals that are missing; others may be 0.
func (r *round) known(place int) []uint64 {
	known := r.hashes[place]
	if known == nil {
		if r.hashed += len(r.candidates); r.hashed > maxHashed {
			clear(r.hashes)
			r.hashed = len(r.candidates)
		}
		known = r.row(len(r.candidates))
		r.hashes[place] = known
		r.missing = append(r.missing[:0], r.rivals...)
		// A match of the lane takes the first slot. Whoever the plan gave it to is a rival here
		// in the next plan.
		r.missing = append(r.missing, r.given[:min(r.hasher.Spare(len(r.rivals)), len(r.given))]...)
		return r.hash(place, known)
	}
	r.missing = r.missing[:0]
	for _, row := range r.rivals {
		if known[row] == 0 {
			r.missing = append(r.missing, row)
		}
	}
	return r.hash(place, known)
}

// hash computes the missing hashes of pairs with a provider.
func (r *round) hash(place int, known []uint64) []uint64 {
	if len(r.missing) > 0 {
		r.hasher.SetEnding("|", r.order[place].ID, "|", r.seedText)
		r.hasher.Sum64(known, r.ids, r.missing)
	}
	return known
}

// winner moves the rival with the lowest hash to the front. Usually many jobs compete for
// one slot, so this case has its own loop.
func (r *round) winner(place int, known []uint64) []int32 {
	best := 0
	least := known[r.rivals[0]]
	for i, row := range r.rivals[1:] {
		if h := known[row]; h <= least && (h < least || r.lower(place, known, row, r.rivals[best]) < 0) {
			best, least = i+1, h
		}
	}
	r.rivals[0], r.rivals[best] = r.rivals[best], r.rivals[0]
	return r.rivals[:1]
}

// lower compares the hashes of two rivals for a provider.
func (r *round) lower(place int, known []uint64, a, b int32) int {
	if c := cmp.Compare(known[a], known[b]); c != 0 {
		return c
	}
	id := r.order[place].ID
	x, y := r.seed.Pair(r.candidates[a].job.ID, id), r.seed.Pair(r.candidates[b].job.ID, id)
	return bytes.Compare(x[:], y[:])
}

// give plans rivals for a provider in their order, as far as it has room.
func (r *round) give(place int, rivals []int32) (given int) {
	for _, row := range rivals {
		if !r.open.has(place) {
			break
		}
		if c := &r.candidates[row]; r.hasRoom(place, c.job) {
			r.count(place, c.job)
			c.place = place
			r.leave(c)
			r.given = append(r.given, row)
			given++
		}
	}
	return given
}

func (r *round) takeBack(rivals []int32) {
	for _, row := range rivals {
		if c := &r.candidates[row]; c.place >= 0 {
			r.uncount(c.place, c.job)
			c.place = -1
			r.wait(c)
		}
	}
}
