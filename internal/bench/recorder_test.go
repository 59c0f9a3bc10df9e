package bench

import (
	"bytes"
	"testing"
)

func TestRecorderKeepsCopies(t *testing.T) {
	r := newRecorder(100)
	defer r.free()
	for round := range 3 {
		r.reset()
		buffer := make([]byte, 10)
		for i := range 20 {
			if full := r.full(); full != (i >= 10) {
				t.Errorf("round %d: full is %v after %d bytes of 100", round, full, i*10)
			}
			for k := range buffer {
				buffer[k] = byte(i + round)
			}
			r.record(buffer)
		}
		if len(r.commits) != 20 || r.bytes.Load() != 200 {
			t.Fatalf("round %d: %d commits with %d bytes, want 20 with 200", round, len(r.commits), r.bytes.Load())
		}
		for i, commit := range r.commits {
			if want := bytes.Repeat([]byte{byte(i + round)}, 10); !bytes.Equal(commit, want) {
				t.Errorf("round %d: commit %d is %v, want %v", round, i, commit, want)
			}
		}
	}
	if len(r.chunks) != 1 || r.resident() != 200 {
		t.Errorf("%d chunks with %d resident bytes, want one that is reused with 200", len(r.chunks), r.resident())
	}
}

func TestRecorderSpansChunks(t *testing.T) {
	const chunk = 8192
	r := newRecorder(1)
	r.size = chunk
	defer r.free()
	sizes := []int{chunk - 1, 2, 1, chunk + 1, 3}
	commit := make([]byte, chunk+1)
	for range 2 {
		r.reset()
		for i, size := range sizes {
			commit[0], commit[size-1] = byte(i), byte(i)
			r.record(commit[:size])
		}
		for i, got := range r.commits {
			if len(got) != sizes[i] || got[0] != byte(i) || got[len(got)-1] != byte(i) {
				t.Errorf("commit %d has %d bytes from %d to %d, want %d", i, len(got), got[0], got[len(got)-1], sizes[i])
			}
		}
	}
}
