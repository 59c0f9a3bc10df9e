package matchmaker

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/match"
)

// A reader's cache of other jobs does not change the demands of a job.
func TestReaderRemembersOnlyWhatIsTheSame(t *testing.T) {
	r := newReader()
	for range 2 {
		for _, a := range []asks{
			{},
			{SizeBytes: 1},
			{SizeBytes: match.MaxInteger},
			{Spec: match.Demand{Model: "m"}},
			{Spec: match.Demand{Model: "m"}, SizeBytes: 7},
			{Spec: match.Demand{Model: "m"}, SizeBytes: 8},
			{Spec: match.Demand{Model: `"size_bytes":`, Precision: "size_bytes"}, SizeBytes: 9},
			{Spec: match.Demand{Gates: []string{"size_bytes", "h"}, Depth: 3}, Regions: []string{"size_bytes"}, SizeBytes: 10},
			{Regions: []string{"eu", "us"}},
		} {
			attributes, err := attributesOf(a)
			if err != nil {
				t.Fatal(err)
			}
			j := &gq.Job{Spec: gq.Spec{Type: "AI", Attributes: attributes, Requester: "r", Tier: "PRO"}, State: gq.State{CreatedAt: time.Unix(1, 0)}}
			want, err := matchJob(j, nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := matchJob(j, r)
			if diff := cmp.Diff(want, got); err != nil || diff != "" || got.SizeBytes != a.SizeBytes {
				t.Errorf("%+v: %v (-want +got):\n%s", a, err, diff)
			}
		}
	}
	for _, text := range []string{``, `{`, `{"size_bytes":1`, `{"size_bytes":"x"}`, `{"spec":{"model":1},"size_bytes":5}`} {
		if a, err := r.asks([]byte(text)); err == nil {
			t.Errorf("%q is %+v", text, a)
		}
	}
}
