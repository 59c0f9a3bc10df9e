package match

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"slices"
	"strings"
)

// set is a set of places, which are indexes in a round's order of providers.
type set []uint64

func newSet(places int) set { return make(set, (places+63)/64) }

func (s set) add(place int)      { s[place/64] |= 1 << (place % 64) }
func (s set) remove(place int)   { s[place/64] &^= 1 << (place % 64) }
func (s set) has(place int) bool { return s[place/64]&(1<<(place%64)) != 0 }

// keep removes everything that is not in o; nil is the empty set.
func (s set) keep(o set) {
	if o == nil {
		clear(s)
		return
	}
	for i := range s {
		s[i] &= o[i]
	}
}

func (s set) join(o set) {
	for i := range o {
		s[i] |= o[i]
	}
}

// next returns the first place at or after from that is in both sets, or -1.
func next(a, b set, from int) int {
	if from < 0 || from/64 >= len(a) {
		return -1
	}
	i := from / 64
	word := a[i] & b[i] &^ (1<<(from%64) - 1)
	for word == 0 {
		if i++; i == len(a) {
			return -1
		}
		word = a[i] & b[i]
	}
	return i*64 + bits.TrailingZeros64(word)
}

// supply is the snapshot of providers of a round, in order, with the counters that change
// during the round.
type supply struct {
	in    *Input
	order []*Provider

	leases []int64
	units  [kindEnd][]int64
	grants map[string]int64 // made in this round
	open   set              // providers below their lease limit

	// Apart from the counters, the same conditions decide for all jobs of a shape. There
	// are sets only for what the jobs of this round demand.
	able       [kindEnd]set // by capability, stake and cooldown
	models     map[string]set
	precisions map[string]set
	gates      map[string]set
	regions    map[string]set
	anyone     set                 // providers that serve all requesters they do not deny
	listed     map[string]*listing // requesters that a provider may list
	shapes     map[string]*shape
	looked     int    // how often a provider was considered for a job
	key        []byte // buffer
}

// listing has the providers that have a requester on a list.
type listing struct{ allowed, denied set }

// newSupply takes the snapshot and indexes it for the given jobs.
func newSupply(in *Input, seed Seed, jobs []*Job) *supply {
	s := &supply{in: in, grants: make(map[string]int64), shapes: make(map[string]*shape)}
	for i := range in.Providers {
		if p := &in.Providers[i]; snapshotRefusals(in, p) == 0 {
			s.order = append(s.order, p)
		}
	}
	slices.SortFunc(s.order, func(a, b *Provider) int { return strings.Compare(a.ID, b.ID) })
	shuffle(seed, s.order)
	if n := int64(len(s.order)); n > 0 {
		first := in.Rotation % n
		s.order = slices.Concat(s.order[first:], s.order[:first])
	}

	n := len(s.order)
	s.leases = make([]int64, n)
	s.open, s.anyone = newSet(n), newSet(n)
	for _, k := range Kinds() {
		s.units[k] = make([]int64, n)
		s.able[k] = newSet(n)
	}
	s.ask(jobs)
	for place, p := range s.order {
		s.enlist(place, p)
	}
	return s
}

// ask creates the sets that the jobs need.
func (s *supply) ask(jobs []*Job) {
	s.models, s.precisions = make(map[string]set), make(map[string]set)
	s.gates, s.regions = make(map[string]set), make(map[string]set)
	s.listed = make(map[string]*listing)
	room := func(m map[string]set, name string) {
		if m[name] == nil {
			m[name] = newSet(len(s.order))
		}
	}
	for _, j := range jobs {
		if j.Kind == AI {
			if j.Spec.Model != "" {
				room(s.models, j.Spec.Model)
			}
			if j.Spec.Precision != "" {
				room(s.precisions, j.Spec.Precision)
			}
		} else {
			for _, g := range j.Spec.Gates {
				room(s.gates, g)
			}
		}
		for _, region := range j.Regions {
			room(s.regions, region)
		}
		s.listed[j.Requester] = nil
	}
}

// enlist adds one provider to the counters and sets.
func (s *supply) enlist(place int, p *Provider) {
	s.leases[place] = p.LeasesActive
	if p.LeasesActive < s.in.Policy.Quotas.LeasesMax {
		s.open.add(place)
	}
	s.units[AI][place], s.units[Quantum][place] = p.AIUnitsUsed, p.QuantumUnitsUsed
	for _, k := range p.Capabilities {
		if p.Stake >= s.in.Policy.Eligibility.minStake(k) && s.in.Now >= p.CooldownUntil.of(k) {
			s.able[k].add(place)
		}
	}
	enter := func(m map[string]set, name string) {
		if asked, ok := m[name]; ok {
			asked.add(place)
		}
	}
	for _, m := range p.Models {
		enter(s.models, m)
	}
	for _, f := range p.Precisions {
		enter(s.precisions, f)
	}
	for _, g := range p.Gates {
		enter(s.gates, g)
	}
	enter(s.regions, p.Region)
	if len(p.Allow) == 0 {
		s.anyone.add(place)
	}
	for _, requester := range p.Allow {
		if l := s.list(requester); l != nil {
			l.allowed.add(place)
		}
	}
	for _, requester := range p.Deny {
		if l := s.list(requester); l != nil {
			l.denied.add(place)
		}
	}
}

// list returns the listing of a requester with jobs in this round, nil for others.
func (s *supply) list(requester string) *listing {
	l, asked := s.listed[requester]
	if l == nil && asked {
		l = &listing{newSet(len(s.order)), newSet(len(s.order))}
		s.listed[requester] = l
	}
	return l
}

// shape is what jobs with the same demands have in common.
type shape struct {
	fits  set    // providers that fit, apart from the counters
	marks []mark // by ascending units and place

	// Buffers of a plan.
	waiting     []int32 // rows of its unassigned jobs, in any order
	kind        Kind    // of its jobs
	least, most int64   // fewest and most units that any of them needs
	picky       bool    // one of them is picky
}

// mark says that no provider before a place has room for a job of this many units or
// more. Counters only grow, so that stays true for the round.
type mark struct {
	units int64
	place int
}

// start returns where to start the search for a job of this many units.
func (sh *shape) start(units int64) int {
	i, found := slices.BinarySearchFunc(sh.marks, units, func(m mark, units int64) int { return cmp.Compare(m.units, units) })
	if found {
		return sh.marks[i].place
	}
	if i == 0 {
		return 0
	}
	return sh.marks[i-1].place
}

// learn adds a mark and drops those it makes redundant.
func (sh *shape) learn(units int64, place int) {
	if sh.start(units) >= place {
		return
	}
	i, _ := slices.BinarySearchFunc(sh.marks, units, func(m mark, units int64) int { return cmp.Compare(m.units, units) })
	end := i
	for end < len(sh.marks) && sh.marks[end].place <= place {
		end++
	}
	sh.marks = slices.Replace(sh.marks, i, end, mark{units, place})
}

// shapeOf returns the shape of a job, creating it if needed.
func (s *supply) shapeOf(j *Job) *shape {
	listed := s.listed[j.Requester]
	key := append(s.key[:0], byte(j.Kind))
	text := func(t string) { key = append(binary.AppendUvarint(key, uint64(len(t))), t...) }
	list := func(l []string) {
		key = binary.AppendUvarint(key, uint64(len(l)))
		for _, t := range l {
			text(t)
		}
	}
	if j.Kind == AI {
		text(j.Spec.Model)
		text(j.Spec.Precision)
	} else {
		list(j.Spec.Gates)
		key = binary.AppendUvarint(key, uint64(j.Spec.Depth))
		key = binary.AppendUvarint(key, uint64(j.Spec.Width))
	}
	list(j.Regions)
	if listed != nil {
		text(j.Requester)
	}
	s.key = key
	if known, ok := s.shapes[string(key)]; ok {
		return known
	}

	fits := slices.Clone(s.able[j.Kind])
	if j.Kind == AI {
		if j.Spec.Model != "" {
			fits.keep(s.models[j.Spec.Model])
		}
		if j.Spec.Precision != "" {
			fits.keep(s.precisions[j.Spec.Precision])
		}
	} else {
		for _, g := range j.Spec.Gates {
			fits.keep(s.gates[g])
		}
		for place := next(fits, fits, 0); place >= 0; place = next(fits, fits, place+1) {
			if p := s.order[place]; j.Spec.Depth > p.MaxDepth || j.Spec.Width > p.MaxWidth {
				fits.remove(place)
			}
		}
	}
	if len(j.Regions) > 0 {
		there := newSet(len(s.order))
		for _, region := range j.Regions {
			there.join(s.regions[region])
		}
		fits.keep(there)
	}
	if listed == nil {
		fits.keep(s.anyone)
	} else {
		for i := range fits {
			fits[i] &= (s.anyone[i] | listed.allowed[i]) &^ listed.denied[i]
		}
	}
	made := &shape{fits: fits}
	s.shapes[string(key)] = made
	return made
}

// hasUnits reports whether a provider can take the units of a job.
func (s *supply) hasUnits(place int, j *Job) bool {
	return s.units[j.Kind][place]+j.Units <= s.in.Policy.Quotas.unitsPerEpoch(j.Kind)
}

// spent reports whether a requester has reached its limit.
func (s *supply) spent(requester string) bool {
	most := s.in.Policy.Quotas.RequesterMax
	return most > 0 && s.in.Grants[requester]+s.grants[requester] >= most
}

// hasRoom reports whether the counters allow a provider a job that it otherwise fits.
func (s *supply) hasRoom(place int, j *Job) bool {
	return s.open.has(place) && s.hasUnits(place, j) && !s.spent(j.Requester)
}

// count adds an assignment to the counters, and uncount removes it.
func (s *supply) count(place int, j *Job) {
	if s.leases[place]++; s.leases[place] == s.in.Policy.Quotas.LeasesMax {
		s.open.remove(place)
	}
	s.units[j.Kind][place] += j.Units
	if s.in.Policy.Quotas.RequesterMax > 0 {
		s.grants[j.Requester]++
	}
}

func (s *supply) uncount(place int, j *Job) {
	s.leases[place]--
	s.open.add(place)
	s.units[j.Kind][place] -= j.Units
	if s.in.Policy.Quotas.RequesterMax > 0 {
		s.grants[j.Requester]--
	}
}

// first returns the first place of a provider that fits a job, or -1.
func (s *supply) first(j *Job, sh *shape) int {
	if s.spent(j.Requester) {
		return -1
	}
	passed := -1 // the first place skipped for this job only
	place := next(sh.fits, s.open, sh.start(j.Units))
	for ; place >= 0; place = next(sh.fits, s.open, place+1) {
		s.looked++
		if !s.hasUnits(place, j) {
			continue
		}
		if !slices.Contains(j.Excluded, s.order[place].ID) {
			break
		}
		if passed < 0 {
			passed = place
		}
	}
	switch {
	case passed >= 0:
		sh.learn(j.Units, passed)
	case place >= 0:
		sh.learn(j.Units, place)
	default:
		sh.learn(j.Units, len(s.order))
	}
	return place
}
