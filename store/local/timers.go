package local

// timers orders jobs by the instant at which time has something to do for them.
// It is a heap of four children a node; each job knows its place in it.
type timers struct{ heap []timer }

type timer struct {
	at  int64 // nanoseconds since 1970
	job *job
}

func (a timer) before(b timer) bool {
	return a.at < b.at || a.at == b.at && a.job.seq < b.job.seq
}

// noTimer is the place of a job that is not in the heap.
const noTimer = -1

// set moves a job's timer; 0 takes it out.
func (h *timers) set(j *job, at int64) {
	i := int(j.timer)
	switch {
	case at == 0 && i == noTimer:
	case at == 0:
		last := len(h.heap) - 1
		moved := h.heap[last]
		h.heap[last] = timer{}
		h.heap = h.heap[:last]
		j.timer = noTimer
		if i < last {
			h.heap[i] = moved
			moved.job.timer = int32(i)
			h.down(h.up(i))
		}
	case i == noTimer:
		h.heap = append(h.heap, timer{at, j})
		j.timer = int32(len(h.heap) - 1)
		h.up(len(h.heap) - 1)
	case h.heap[i].at != at:
		h.heap[i].at = at
		h.down(h.up(i))
	}
}

// next is the earliest timer.
func (h *timers) next() (timer, bool) {
	if len(h.heap) == 0 {
		return timer{}, false
	}
	return h.heap[0], true
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
	t.job.timer = int32(i)
}

// due lists up to limit jobs whose timer is at or before now, the earliest
// first, without changing the heap.
func (h *timers) due(now int64, limit int) []*job {
	if len(h.heap) == 0 || h.heap[0].at > now {
		return nil
	}
	// A frontier of positions whose parents are listed already.
	var out []*job
	frontier := []int{0}
	for len(frontier) > 0 && len(out) < limit {
		least := 0
		for i := range frontier {
			if h.heap[frontier[i]].before(h.heap[frontier[least]]) {
				least = i
			}
		}
		at := frontier[least]
		frontier[least] = frontier[len(frontier)-1]
		frontier = frontier[:len(frontier)-1]
		if h.heap[at].at > now {
			continue
		}
		out = append(out, h.heap[at].job)
		for c := 4*at + 1; c < min(4*at+5, len(h.heap)); c++ {
			frontier = append(frontier, c)
		}
	}
	return out
}
