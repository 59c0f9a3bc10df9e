package postgres

import (
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
)

// TestLargeSegmentsAreReadOnce reads the log of large transactions a few events at a time. Each
// read may decode the segments that it returns events of, not all that follow.
func TestLargeSegmentsAreReadOnce(t *testing.T) {
	s, err := Open(t.Context(), pgtest.Database(t), store.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const segments, jobs, events = 20, 300, 600
	for range segments {
		fastInserts(t, s, jobs)
	}
	last, err := s.LastEvent(t.Context())
	if err != nil || last != segments*events {
		t.Fatal(last, err)
	}
	decoded, reads := 0, 0
	var after uint64
	for ; after < last; reads++ {
		err := s.read(t.Context(), func(tx *txn) error {
			n := 0
			return tx.segmentsAfter(t.Context(), int64(after), events, "", nil, func(seq, _ int64, data []byte) (end int64, err error) {
				err = skimLog(data, func(place int, _ *gq.Event) {
					end = seq + int64(place)
					n++
					decoded++
				})
				after = uint64(end)
				return end, err
			}, func() bool { return n < events })
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if decoded != segments*events || reads > segments {
		t.Errorf("%d events were decoded in %d reads, want each of %d once", decoded, reads, segments*events)
	}
	found, err := s.Events(t.Context(), last-events-10, events)
	if err != nil || len(found) != events || found[0].Seq != last-events-9 || found[events-1].Seq != last-10 {
		t.Errorf("%d events of two segments, %v", len(found), err)
	}
}
