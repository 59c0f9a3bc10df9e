package local

import "container/heap"

// timers orders jobs by an instant. It is a 4-ary heap; each job knows its position in
// it.
type timers struct {
	heap  []timer
	place func(*job) *int32
}

// A job has a position in two heaps: one for when it may run, one for everything else
// that time does to it.
func placeToRun(j *job) *int32 { return &j.toRun }
func placeToDue(j *job) *int32 { return &j.toDue }

type timer struct {
	at  int64  // nanoseconds since 1970
	seq uint64 // of the job; a copy, since reading it there costs more than the comparison
	job *job
}

func (a timer) before(b timer) bool {
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// noTimer is the position of a job that is not in the heap.
const noTimer = -1

// set moves a job's timer; 0 removes it.
func (h *timers) set(j *job, at int64) {
	i := int(*h.place(j))
	switch {
	case at == 0 && i == noTimer:
	case at == 0:
		last := len(h.heap) - 1
		moved := h.heap[last]
		h.heap[last] = timer{}
		h.heap = h.heap[:last]
		*h.place(j) = noTimer
		if i < last {
			h.put(i, moved)
			h.down(h.up(i))
		}
	case i == noTimer:
		h.heap = append(h.heap, timer{at, j.seq, j})
		h.up(len(h.heap) - 1)
	case h.heap[i].at != at:
		h.heap[i].at = at
		h.down(h.up(i))
	}
}

// replace lets one job take the place of another.
func (h *timers) replace(j, next *job) {
	i := *h.place(j)
	if i == noTimer {
		return
	}
	*h.place(j), *h.place(next) = noTimer, i
	h.heap[i].seq, h.heap[i].job = next.seq, next
	h.down(h.up(int(i)))
}

// next returns the earliest timer.
func (h *timers) next() (timer, bool) {
	if len(h.heap) == 0 {
		return timer{}, false
	}
	return h.heap[0], true
}

// changesBy reports whether time changes any job up to an instant.
func (t *table) changesBy(now int64) bool {
	run, running := t.toRun.next()
	due, timed := t.toDue.next()
	return running && run.at <= now || timed && due.at <= now
}

func (h *timers) up(i int) int {
	t := h.heap[i]
	for i > 0 {
		parent := (i - 1) / 4
		if !t.before(h.heap[parent]) {
			break
		}
		h.put(i, h.heap[parent])
		i = parent
	}
	h.put(i, t)
	return i
}

func (h *timers) down(i int) {
	t := h.heap[i]
	for {
		first := 4*i + 1
		if first >= len(h.heap) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h.heap)); c++ {
			if h.heap[c].before(h.heap[least]) {
				least = c
			}
		}
		if !h.heap[least].before(t) {
			break
		}
		h.put(i, h.heap[least])
		i = least
	}
	h.put(i, t)
}

func (h *timers) put(i int, t timer) {
	h.heap[i] = t
	*h.place(t.job) = int32(i)
}

// walk visits the timers of a heap in order without changing it.
type walk struct {
	h        *timers
	frontier timerHeap // positions whose parents have been visited
}

func (h *timers) walk() *walk {
	w := &walk{h: h}
	if len(h.heap) > 0 {
		w.frontier = append(w.frontier, frontierEntry{h.heap[0], 0})
	}
	return w
}

// peek returns the next timer.
func (w *walk) peek() (timer, bool) {
	if len(w.frontier) == 0 {
		return timer{}, false
	}
	return w.frontier[0].timer, true
}

// pop advances to the timer after it.
func (w *walk) pop() {
	least := heap.Pop(&w.frontier).(frontierEntry)
	for c := 4*least.pos + 1; c < min(4*least.pos+5, len(w.h.heap)); c++ {
		heap.Push(&w.frontier, frontierEntry{w.h.heap[c], c})
	}
}

type frontierEntry struct {
	timer
	pos int
}

type timerHeap []frontierEntry

func (f timerHeap) Len() int           { return len(f) }
func (f timerHeap) Less(i, k int) bool { return f[i].before(f[k].timer) }
func (f timerHeap) Swap(i, k int)      { f[i], f[k] = f[k], f[i] }
func (f *timerHeap) Push(x any)        { *f = append(*f, x.(frontierEntry)) }
func (f *timerHeap) Pop() any {
	last := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return last
}
