package local

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// TestTimers compares the two heaps of timers, which share their jobs, with lists.
func TestTimers(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		tbl := newTable()
		jobs := make([]*job, rapid.IntRange(1, 80).Draw(r, "jobs"))
		for i := range jobs {
			jobs[i] = &job{seq: uint64(i + 1), toRun: noTimer, toDue: noTimer}
		}
		heaps := [2]*timers{&tbl.toRun, &tbl.toDue}
		set := [2]map[*job]int64{{}, {}}
		for range rapid.IntRange(1, 200).Draw(r, "steps") {
			which := rapid.IntRange(0, 1).Draw(r, "heap")
			j := rapid.SampledFrom(jobs).Draw(r, "job")
			at := rapid.Int64Range(-3, 20).Draw(r, "at") // 0 removes it; many are equal
			heaps[which].set(j, at)
			if delete(set[which], j); at != 0 {
				set[which][j] = at
			}
			for i, h := range heaps {
				checkTimers(r, h, set[i])
			}
			for _, j := range jobs {
				for i, h := range heaps {
					if _, in := set[i][j]; in == (*h.place(j) == noTimer) {
						r.Fatalf("job %d believes to stand at %d; in the heap: %v", j.seq, *h.place(j), in)
					}
				}
			}
		}
	})
}

// TestTimersMany drives a heap of five levels with few equal instants.
func TestTimersMany(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(r, "seed"), 0))
		h := timers{place: placeToRun}
		jobs, set := make([]*job, 400), map[*job]int64{}
		for i := range jobs {
			jobs[i] = &job{seq: uint64(i + 1), toRun: noTimer, toDue: noTimer}
			set[jobs[i]] = 1 + rng.Int64N(1000)
			h.set(jobs[i], set[jobs[i]])
		}
		checkTimers(r, &h, set)
		for range 300 {
			j := jobs[rng.IntN(len(jobs))]
			at := rng.Int64N(1000)
			h.set(j, at)
			if delete(set, j); at != 0 {
				set[j] = at
			}
		}
		checkTimers(r, &h, set)
		for len(set) > 0 {
			next, ok := h.next()
			if !ok || set[next.job] != next.at {
				r.Fatalf("the next timer is %v, %v; want %d", next, ok, set[next.job])
			}
			h.set(next.job, 0)
			delete(set, next.job)
		}
		checkTimers(r, &h, set)
	})
}

func checkTimers(r *rapid.T, h *timers, set map[*job]int64) {
	var want []timer
	for j, at := range set {
		want = append(want, timer{at, j.seq, j})
	}
	slices.SortFunc(want, func(a, b timer) int {
		if a.before(b) {
			return -1
		}
		return 1
	})
	next, ok := h.next()
	if ok != (len(want) > 0) || ok && next != want[0] {
		r.Fatalf("the next timer is %v, %v", next, ok)
	}
	var got []timer
	for w := h.walk(); ; w.pop() {
		next, ok := w.peek()
		if !ok {
			break
		}
		got = append(got, next)
	}
	if !slices.Equal(got, want) {
		r.Fatalf("in order: %v, want %v", got, want)
	}
	for i, timer := range h.heap {
		if int(*h.place(timer.job)) != i {
			r.Fatalf("job %d stands at %d and believes to stand at %d", timer.job.seq, i, *h.place(timer.job))
		}
	}
	if len(h.heap) != len(set) {
		r.Fatalf("%d timers, want %d", len(h.heap), len(set))
	}
}

// TestIDs compares the id table with a map. There are so few hashes that jobs collide.
func TestIDs(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		table := ids{key: newIDKey(r)}
		known := map[gq.JobID]*job{}
		var order []gq.JobID
		last := uint64(0)
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			for range rapid.IntRange(1, 100).Draw(r, "n") {
				if len(order) == 0 || rapid.IntRange(0, 2).Draw(r, "add") > 0 {
					id := machine.NewJobID([16]byte{rapid.Byte().Draw(r, "a"), rapid.ByteRange(0, 7).Draw(r, "b")})
					foreign := rapid.IntRange(0, 4).Draw(r, "foreign") > 0
					if !foreign {
						id = table.key.ID(last+1, id)
					}
					if known[id] == nil {
						last++
						known[id] = &job{id: id, seq: last, foreign: foreign}
						order = append(order, id)
						table.add(known[id])
					}
					continue
				}
				i := rapid.IntRange(0, len(order)-1).Draw(r, "which")
				table.remove(known[order[i]])
				delete(known, order[i])
				order = slices.Delete(order, i, i+1)
			}
			foreign := 0
			for _, j := range known {
				if j.foreign {
					foreign++
				}
			}
			if table.count != foreign {
				r.Fatalf("%d jobs with ids from elsewhere, want %d", table.count, foreign)
			}
			for _, id := range append(order, machine.NewJobID([16]byte{1, 99})) {
				if got := table.get(id); got != known[id] {
					r.Fatalf("%s leads to %v, want %v", id, got, known[id])
				}
			}
		}
	})
}

func newIDKey(t rapid.TB) *store.IDKey {
	key, err := store.NewIDKey([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestIDsShrink: a table frees memory when most jobs are gone, and keeps the others.
func TestIDsShrink(t *testing.T) {
	race.Spare(t)
	table := ids{key: newIDKey(t)}
	jobs := make([]*job, 20_000)
	for i := range jobs {
		jobs[i] = &job{seq: uint64(i + 1), foreign: true, id: machine.NewJobID([16]byte{byte(i), byte(i >> 8), byte(i >> 16)})}
		table.add(jobs[i])
	}
	for at, j := range jobs {
		table.remove(j)
		if at%500 > 0 && at < len(jobs)-100 {
			continue
		}
		for i, j := range jobs {
			if got := table.get(j.id); (got == j) != (i > at) || got != nil && got != j {
				t.Fatalf("after %d are removed job %d leads to %v", at+1, i, got)
			}
		}
		if most := max(4096, 16*(table.count+1)); len(table.slots) > most {
			t.Fatalf("%d places for %d jobs", len(table.slots), table.count)
		}
	}
}

// TestSequenceIndex compares the index with a map.
func TestSequenceIndex(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := sequenceIndex[*job]{}
		known := map[uint64]*job{}
		for range rapid.IntRange(1, 300).Draw(r, "steps") {
			seq := rapid.Uint64Range(0, 4*pieceSize).Draw(r, "seq")
			if known[seq] == nil {
				known[seq] = &job{seq: seq}
				s.add(seq, known[seq])
			} else {
				delete(known, seq)
				s.remove(seq)
			}
			if got := s.get(seq); got != known[seq] {
				r.Fatalf("number %d leads to %v, want %v", seq, got, known[seq])
			}
		}
		for seq, j := range known {
			if s.get(seq) != j {
				r.Fatalf("number %d is lost", seq)
			}
			s.remove(seq)
		}
		if len(s.pieces) > 0 {
			r.Fatalf("%d pieces are left of nothing", len(s.pieces))
		}
	})
}

// TestIDFilter: the filter may be wrong, rarely, about an id that was never used, and
// never about one that was.
func TestIDFilter(t *testing.T) {
	const room = 1 << 20
	for name, id := range map[string]func(n uint64) gq.JobID{
		"counted": func(n uint64) gq.JobID { return idOf(n, 1) },
		"random":  func(n uint64) gq.JobID { return idOf(mix(n), mix(n+1<<40)) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFilter(room / 4)
			for n := range uint64(room) {
				if f.full() {
					t.Fatalf("full with %d of %d ids", n, room)
				}
				f.add(id(n))
			}
			if !f.full() {
				t.Error("a filter with as many ids as it has room for is not full")
			}
			others, halves := 0, 0
			step, asked := uint64(1), 0
			if race.Share() {
				step = 16
			}
			for n := uint64(0); n < room; n += step {
				asked++
				if !f.has(id(n)) {
					t.Fatalf("id %d was added and is not there", n)
				}
				if f.has(id(n + room)) {
					others++
				}
				half := id(n)
				if half[15]++; f.has(half) {
					halves++
				}
			}
			for what, wrong := range map[string]int{"unused ids": others, "ids that begin like used ones": halves} {
				if share := float64(wrong) / float64(asked); share > 0.025 {
					t.Errorf("%.2f %% of %s look used", 100*share, what)
				}
			}
		})
	}
}

func idOf(a, b uint64) gq.JobID {
	raw := binary.BigEndian.AppendUint64(nil, a)
	return machine.NewJobID([16]byte(binary.BigEndian.AppendUint64(raw, b)))
}

// TestIDFilterRoom: a filter has room for four times the existing ids, or at least for twice as many, or is nil.
func TestIDFilterRoom(t *testing.T) {
	for ids, room := range map[int]int{
		0: filterLeast, filterLeast / 4: filterLeast, filterLeast/4 + 1: 2 * filterLeast, filterMost / 2: filterMost,
		filterMost/2 + 1: 0, math.MaxInt32: 0,
	} {
		got := 0
		if f := newFilter(ids); f != nil {
			got = f.room
		}
		if got != room {
			t.Errorf("for %d ids there is room for %d, want %d", ids, got, room)
		}
	}
}
