package local

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// All jobs that wait for a replaced job wait for its successor, on disk too, and nothing of the replaced job is left there.
func TestEdgesFollowTheSuccessor(t *testing.T) {
	s, err := open("db", Options{fs: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	insert := func(spec gq.Spec) gq.State {
		t.Helper()
		out, err := s.Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec.WithDefaults()}, Mint: true}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		return out[0].Jobs[0].State
	}
	old := insert(gq.Spec{ID: numberedID(1), Type: "t", Delay: time.Hour})
	var want [][2]uint64
	for i := range 3 {
		child := insert(gq.Spec{ID: numberedID(2 + i), Type: "t", DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: old.ID}}})
		want = append(want, [2]uint64{0, child.Sequence})
	}
	next := insert(gq.Spec{ID: numberedID(9), Type: "t", Delay: time.Hour, Replaces: old.ID})
	for i := range want {
		want[i][0] = next.Sequence
	}
	var got [][2]uint64
	if err := s.each(prefixEdge, func(key, _ []byte) error {
		got = append(got, [2]uint64{binary.BigEndian.Uint64(key[1:]), binary.BigEndian.Uint64(key[9:])})
		return nil
	}); err != nil || !slices.Equal(got, want) {
		t.Errorf("edges %v, want %v, %v", got, want, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
