package bench

import "sync/atomic"

// recorder copies every commit of a row, so that the floor can write it again. Where the
// system allows, its memory is outside the Go heap: it does not count as the store's and
// does not change how often the garbage collector runs. It is reused from row to row.
type recorder struct {
	limit   int64
	size    int          // chunk size
	bytes   atomic.Int64 // recorded in this row
	commits [][]byte     // owned by the store's writer until the store is closed
	chunks  [][]byte
	chunk   int // index of the current chunk
	used    int // bytes used in it
	touched int64
}

func newRecorder(limit int64) *recorder {
	return &recorder{limit: limit, size: 64 << 20, commits: make([][]byte, 0, 1<<16)}
}

// record is the store's onCommit.
func (r *recorder) record(commit []byte) {
	for r.chunk < len(r.chunks) && len(r.chunks[r.chunk])-r.used < len(commit) {
		r.chunk, r.used = r.chunk+1, 0
	}
	if r.chunk == len(r.chunks) {
		r.chunks = append(r.chunks, allocate(max(r.size, len(commit))))
	}
	to := r.chunks[r.chunk][r.used : r.used+len(commit) : r.used+len(commit)]
	copy(to, commit)
	r.used += len(commit)
	r.commits = append(r.commits, to)
	r.bytes.Add(int64(len(commit)))
}

// full reports whether a row has reached its limit. Commits in progress are still
// recorded.
func (r *recorder) full() bool { return r.bytes.Load() >= r.limit }

// resident returns how much of the process's memory belongs to the recorder. A chunk that
// an earlier row used stays resident.
func (r *recorder) resident() int64 { return max(r.touched, r.bytes.Load()) }

// reset discards a row and keeps the memory.
func (r *recorder) reset() {
	r.touched = r.resident()
	r.commits = r.commits[:0]
	r.chunk, r.used = 0, 0
	r.bytes.Store(0)
}

func (r *recorder) free() {
	r.commits = nil
	for _, chunk := range r.chunks {
		release(chunk)
	}
	r.chunks = nil
}
