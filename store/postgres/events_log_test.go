package postgres

import (
	"slices"
	"testing"

	"github.com/gopherqueue/gq"
)

// The events of a segment tell the types of their jobs, also if these take turns, and those that
// are left when others were removed.
func TestTypesThatTakeTurns(t *testing.T) {
	types := []string{"a", "b", "b", "a", "b"}
	var l eventLog
	for i, typ := range types {
		l.add("q", typ, &gq.Event{Job: gq.JobID{15: byte(i + 1)}, Type: gq.EventSubmitted, Status: gq.StatusScheduled})
	}
	if l.err != nil {
		t.Fatal(l.err)
	}
	key := &idKey{}
	for removed := range len(types) + 1 { // 0 is none
		lean, err := key.trimLog(l.data, nil, func(id gq.JobID) bool { return int(id[15]) != removed })
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if err := key.walkLog(lean, nil, func(_ int, e gq.Event) { got = append(got, e.JobType) }); err != nil {
			t.Fatal(err)
		}
		want := slices.Clone(types)
		if removed > 0 {
			want = slices.Delete(want, removed-1, removed)
		}
		if !slices.Equal(got, want) {
			t.Errorf("without event %d: types %q, want %q", removed, got, want)
		}
	}
}
