package matchmaker_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

var (
	simSeed = flag.Uint64("sim.seed", 0, "seed of the simulation; 0 draws one")
	simDays = flag.Float64("sim.days", 0.8, "days that the simulation lasts")
)

// simulation simulates days of a market: requesters submit, providers work, crash and
// come back, nodes come and go, and the policy changes. After every step the guarantees
// are checked from outside.
type simulation struct {
	*fixture
	rng    *rand.Rand
	nodes  []*fixture
	alive  map[string]bool
	work   map[gq.LeaseID]bool // acknowledged, by a live provider
	jobs   []matchmaker.Job    // not known to have ended
	leases map[gq.LeaseID]string
	maxed  int64 // most leases of a provider
	used   map[spending]int64

	submitted, completed, expired, crashes, assigned int
}

// spending is what a provider got of a kind in one epoch, which lasts an hour.
type spending struct {
	provider string
	kind     match.Kind
	epoch    int64
}

// unitCaps are low enough to be reached.
var unitCaps = map[match.Kind]int64{match.AI: 8, match.Quantum: 4}

func TestSimulation(t *testing.T) {
	spec.Covers(t, "M-21", "M-26", "M-44", "M-77", "M-111", "M-119", "M-130", "M-153", "M-158")
	seed := *simSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	days := *simDays
	if testing.Short() || race.Share() {
		days /= 2
	}
	t.Logf("replay with -run TestSimulation -sim.seed %d -sim.days %v", seed, days)
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, openStore(t), matchmaker.Options{})
		s := &simulation{
			fixture: f, rng: rand.New(rand.NewPCG(seed, 0)), nodes: []*fixture{f}, alive: map[string]bool{},
			work: map[gq.LeaseID]bool{}, leases: map[gq.LeaseID]string{}, maxed: 16,
			used: map[spending]int64{},
		}
		s.policy(fmt.Sprintf(`{"quotas":{"ai_units_per_epoch":%d,"quantum_units_per_epoch":%d}}`, unitCaps[match.AI], unitCaps[match.Quantum]))
		for _, p := range names(8) {
			s.provider(p, func(p *match.Provider) {
				p.Models = []string{"m", fmt.Sprintf("x%d", s.rng.IntN(3))}
				p.Region = []string{"eu", "us"}[s.rng.IntN(2)]
			})
			s.alive[p] = true
		}
		end := time.Now().Add(time.Duration(days * 24 * float64(time.Hour)))
		for time.Now().Before(end) && !t.Failed() {
			s.step()
		}
		s.drain()
		t.Logf("%d jobs: %d completed, %d expired; %d leases, %d crashes, %d rounds computed again",
			s.submitted, s.completed, s.expired, s.assigned, s.crashes, s.replay(17))
		reached := make(map[match.Kind]int)
		for of, units := range s.used {
			if units > unitCaps[of.kind]-4 { // a job takes up to 4
				reached[of.kind]++
			}
		}
		if s.completed < s.submitted/2 || s.crashes == 0 || s.expired == 0 || len(reached) != len(unitCaps) {
			t.Error("too little happened to tell")
		}
	})
}

func (s *simulation) chance(n int) bool { return s.rng.IntN(n) == 0 }

func (s *simulation) node() *fixture { return s.nodes[s.rng.IntN(len(s.nodes))] }

func (s *simulation) step() {
	pause := time.Minute
	if s.chance(12) { // no round runs for hours, and most leases expire
		pause = 3 * time.Hour
	}
	time.Sleep(time.Duration(s.rng.Int64N(int64(pause))).Truncate(time.Millisecond))
	for range s.rng.IntN(6) {
		s.jobs = append(s.jobs, s.node().submit(func(e *match.Enqueue) {
			e.Kind = match.Kinds()[s.rng.IntN(5)/4]
			e.Requester = fmt.Sprintf("r%d", s.rng.IntN(5))
			e.MaxFee, e.Units, e.SizeBytes = int64(s.rng.IntN(1_000_000)), int64(s.rng.IntN(5)), int64(s.rng.IntN(1<<20))
			e.Tier = []string{"", "PRO", "PREMIUM"}[s.rng.IntN(3)]
			if e.Kind == match.AI && s.chance(2) {
				e.Spec.Model = fmt.Sprintf("x%d", s.rng.IntN(4)) // no provider has one of them
			}
			if s.chance(10) {
				e.TTL = int64(60 + s.rng.IntN(3600))
			}
			if s.chance(4) {
				e.Regions = []string{"eu"}
			}
		}))
		s.submitted++
	}
	s.misfortune()
	for _, p := range names(8) {
		if s.alive[p] {
			s.node().beats(p)
		}
	}
	if _, err := s.node().engine.Sweep(s.Context(), time.Now()); err != nil {
		s.Fatal(err)
	}
	s.rounds()
	s.labour()
	s.check()
}

// misfortune makes something go wrong, or change.
func (s *simulation) misfortune() {
	for _, p := range names(8) {
		switch {
		case s.alive[p] && s.chance(60): // it crashes and forgets its work
			s.alive[p] = false
			s.crashes++
			for lease, holder := range s.leases {
				if holder == p {
					delete(s.work, lease)
				}
			}
		case !s.alive[p] && s.chance(10):
			s.alive[p] = true
		case s.chance(300):
			status := []match.Status{match.Jailed, match.Suspended}[s.rng.IntN(2)]
			if _, err := s.node().SetStatus(s.Context(), p, status, "sim"); err != nil {
				s.Fatal(err)
			}
		case s.chance(30) && s.standing(p).Status != match.Active:
			if _, err := s.node().SetStatus(s.Context(), p, match.Active, ""); err != nil {
				s.Fatal(err)
			}
		}
	}
	switch {
	case s.chance(100):
		s.maxed = int64(1 + s.rng.IntN(16))
		held := s.held()
		s.node().policy(fmt.Sprintf(`{"quotas":{"leases_max_per_provider":%d}}`, s.maxed))
		for _, l := range held { // units of revoked leases are given back
			if now := s.lease(l.ID); now.Status == "CANCELLED" && now.Reason == match.ReasonQuotaReduced {
				s.spend(now, -1)
			}
		}
	case s.chance(50) && len(s.nodes) < 3:
		s.nodes = append(s.nodes, s.another(matchmaker.Options{}))
	case s.chance(50) && len(s.nodes) > 1:
		s.nodes = slices.Delete(s.nodes, 0, 1) // a node dies; others continue
	}
}

// rounds runs rounds on one node until nothing more is assigned.
func (s *simulation) rounds() {
	node := s.node()
	for {
		before := make(map[string]matchmaker.Provider)
		for _, p := range names(8) {
			before[p] = node.standing(p)
		}
		r := node.round()
		if len(r.Assignments) == 0 {
			return
		}
		for _, a := range r.Assignments {
			if s.leases[a.Lease] != "" {
				s.Fatalf("lease %s was issued twice", a.Lease)
			}
			s.leases[a.Lease] = a.Provider
			s.assigned++
			if of, units := s.spend(node.lease(a.Lease), 1); units > unitCaps[of.kind] {
				s.Fatalf("%s was given %d units of %s in epoch %d", of.provider, units, of.kind, of.epoch)
			}
			p := before[a.Provider]
			switch {
			case !p.Eligible:
				s.Fatalf("%s was given to %+v", a.Job, p)
			case a.Attempt >= 6:
				s.Fatalf("attempt %d of %s", a.Attempt, a.Job)
			}
			p.LeasesActive++
			before[a.Provider] = p
			if p.LeasesActive > s.maxed {
				s.Fatalf("%s holds %d of %d", p.ID, p.LeasesActive, s.maxed)
			}
			if !s.alive[a.Provider] {
				continue // it will never know
			}
			switch s.rng.IntN(20) {
			case 0:
				if _, err := node.Decline(s.Context(), matchmaker.Ref{Lease: a.Lease}); err != nil {
					s.Fatal(err)
				}
			case 1: // it does not acknowledge
			default:
				s.node().ack(matchmaker.Lease{ID: a.Lease})
				s.work[a.Lease] = true
			}
		}
	}
}

// spend counts the units of a lease, in the epoch in which it was granted.
func (s *simulation) spend(l matchmaker.Lease, sign int64) (spending, int64) {
	of := spending{l.Provider, l.Kind, l.Start.Unix() / 3600}
	s.used[of] += sign * s.unitsOf(l)
	return of, s.used[of]
}

// held lists the leases of assigned jobs.
func (s *simulation) held() (leases []matchmaker.Lease) {
	for _, j := range s.jobs {
		if now := s.job(j); now.State == "ASSIGNED" {
			leases = append(leases, s.lease(now.Lease))
		}
	}
	return leases
}

// labour simulates what providers do with their leases.
func (s *simulation) labour() {
	leases := make([]gq.LeaseID, 0, len(s.work))
	for lease := range s.work {
		leases = append(leases, lease)
	}
	slices.Sort(leases)
	for _, lease := range leases {
		ref := matchmaker.Ref{Lease: lease}
		var err error
		switch s.rng.IntN(10) {
		case 0, 1, 2, 3, 4:
			_, err = s.node().Complete(s.Context(), ref, match.Completion{Digest: digest})
			delete(s.work, lease)
		case 5:
			_, err = s.node().Fail(s.Context(), ref, "sim")
			delete(s.work, lease)
		case 6:
			err = s.node().ReportProof(s.Context(), lease, "sim")
			delete(s.work, lease)
		case 7, 8:
			_, err = s.node().Renew(s.Context(), ref)
		default:
			continue
		}
		if errors.Is(err, gq.ErrStaleLease) || errors.Is(err, gq.ErrIllegalMove) {
			delete(s.work, lease) // it was revoked, has expired, or cannot be renewed any more
		} else if err != nil {
			s.Fatal(err)
		}
	}
}

// check compares the visible state with the guarantees.
func (s *simulation) check() {
	set, err := s.node().Settings(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	node := s.node()
	for _, id := range names(8) {
		p := node.standing(id)
		if p.LeasesActive > set.Quotas.LeasesMax || p.AIUnitsUsed > set.Quotas.AIUnitsPerEpoch || p.QuantumUnitsUsed > set.Quotas.QuantumUnitsPerEpoch {
			s.Fatalf("a quota is exceeded: %+v", p)
		}
		if p.Status != match.Active && p.LeasesActive > 0 {
			s.Fatalf("it is %s and holds %d", p.Status, p.LeasesActive)
		}
	}
	if !s.chance(20) {
		return
	}
	live := make(map[string]int64)
	s.jobs = slices.DeleteFunc(s.jobs, func(j matchmaker.Job) bool {
		now := node.job(j)
		switch now.State {
		case "QUEUED":
		case "ASSIGNED":
			live[node.lease(now.Lease).Provider]++
		case "COMPLETED":
			s.completed++
		case "EXPIRED":
			s.expired++
			if now.Attempt < 6 && now.Reason != "ttl" {
				s.Errorf("expired: %+v", now)
			}
		default:
			s.Fatalf("job is %s", now.State)
		}
		return now.Tombstoned
	})
	for _, id := range names(8) {
		if p := node.standing(id); p.LeasesActive != live[id] {
			s.Fatalf("%s is said to hold %d, and holds %d", id, p.LeasesActive, live[id])
		}
	}
}

// drain runs until everything has ended.
func (s *simulation) drain() {
	for _, p := range names(8) {
		s.alive[p] = true
		if _, err := s.node().SetStatus(s.Context(), p, match.Active, ""); err != nil {
			s.Fatal(err)
		}
	}
	for range 60 {
		time.Sleep(30 * time.Minute)
		s.nodes[0].beats(names(8)...)
		if _, err := s.nodes[0].engine.Sweep(s.Context(), time.Now()); err != nil {
			s.Fatal(err)
		}
		s.rounds()
		for lease := range s.work {
			if err := s.nodes[0].complete(matchmaker.Lease{ID: lease}); err != nil && !errors.Is(err, gq.ErrStaleLease) {
				s.Fatal(err)
			}
			delete(s.work, lease)
		}
	}
	s.jobs = slices.DeleteFunc(s.jobs, func(j matchmaker.Job) bool {
		switch now := s.nodes[0].job(j); now.State {
		case "COMPLETED":
			s.completed++
			return true
		case "EXPIRED":
			s.expired++
			return true
		}
		return false
	})
	if len(s.jobs) > 0 {
		s.Errorf("%d jobs never ended, such as %+v", len(s.jobs), s.nodes[0].job(s.jobs[0]))
	}
}
