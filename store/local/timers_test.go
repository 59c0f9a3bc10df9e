package local

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
)

// TestTimers compares the heap of timers with a list.
func TestTimers(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		h := timers{place: placeToDue}
		jobs := make([]*job, rapid.IntRange(1, 80).Draw(r, "jobs"))
		for i := range jobs {
			jobs[i] = &job{seq: uint64(i + 1), toRun: noTimer, toDue: noTimer}
		}
		set := map[*job]int64{}
		for range rapid.IntRange(1, 200).Draw(r, "steps") {
			j := rapid.SampledFrom(jobs).Draw(r, "job")
			at := rapid.Int64Range(-3, 20).Draw(r, "at") // 0 takes it out; many are equal
			h.set(j, at)
			if delete(set, j); at != 0 {
				set[j] = at
			}
			checkTimers(r, &h, set)
		}
	})
}

func checkTimers(r *rapid.T, h *timers, set map[*job]int64) {
	var want []timer
	for j, at := range set {
		want = append(want, timer{at, j})
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

// TestTimersApart: a job has a place in two heaps at once.
func TestTimersApart(t *testing.T) {
	tbl := newTable()
	a, b := &job{seq: 1, toRun: noTimer, toDue: noTimer}, &job{seq: 2, toRun: noTimer, toDue: noTimer}
	tbl.toRun.set(a, 5)
	tbl.toDue.set(b, 3)
	tbl.toDue.set(a, 9)
	tbl.toRun.set(a, 0)
	if next, ok := tbl.toDue.next(); !ok || next.job != b || a.toRun != noTimer || a.toDue != 1 {
		t.Errorf("next %v %v, %d, %d", next, ok, a.toRun, a.toDue)
	}
}

// TestIDs compares the table of ids with a map, with so few different hashes
// that jobs stand in each other's way.
func TestIDs(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var table ids
		known := map[gq.JobID]*job{}
		var order []gq.JobID
		for range rapid.IntRange(1, 60).Draw(r, "steps") {
			for range rapid.IntRange(1, 100).Draw(r, "n") {
				if len(order) == 0 || rapid.IntRange(0, 2).Draw(r, "add") > 0 {
					id := gq.NewJobID([16]byte{rapid.Byte().Draw(r, "a"), rapid.ByteRange(0, 7).Draw(r, "b")})
					if known[id] == nil {
						known[id] = &job{id: id}
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
			if table.count != len(known) {
				r.Fatalf("%d jobs, want %d", table.count, len(known))
			}
			for _, id := range append(order, gq.NewJobID([16]byte{1, 99})) {
				if got := table.get(id); got != known[id] {
					r.Fatalf("%s leads to %v, want %v", id, got, known[id])
				}
			}
		}
	})
}

// TestSlots compares the jobs by number with a map.
func TestSlots(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		s := slots{map[uint64]*piece{}}
		known := map[uint64]*job{}
		for range rapid.IntRange(1, 300).Draw(r, "steps") {
			seq := rapid.Uint64Range(0, 4*pieceSize).Draw(r, "seq")
			if known[seq] == nil {
				known[seq] = &job{seq: seq}
				s.add(known[seq])
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

// TestIDFilter: it may be wrong about an id that was never used, but not often,
// and never about one that was.
func TestIDFilter(t *testing.T) {
	f := newFilter(0)
	id := func(n uint64) gq.JobID {
		return gq.NewJobID([16]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24), 1})
	}
	const count = filterLeast
	for n := range uint64(count) {
		f.add(id(n))
	}
	if !f.full() {
		t.Error("a filter with as many ids as it has room for is not full")
	}
	wrong := 0
	for n := range uint64(count) {
		if !f.has(id(n)) {
			t.Fatalf("id %d was added and is not there", n)
		}
		if f.has(id(n + count)) {
			wrong++
		}
	}
	if share := float64(wrong) / count; share > 0.03 {
		t.Errorf("%.1f %% of unused ids look used", 100*share)
	}
}
