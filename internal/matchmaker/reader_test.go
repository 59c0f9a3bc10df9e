package matchmaker

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// What is remembered of other jobs makes no difference to what a job asks for.
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

// The books of a provider with as many leases as it can have fit into a document, however
// large the numbers in them.
func TestBooksFitIntoADocument(t *testing.T) {
	b := books{Open: make([]entry, MaxOpen)}
	for i := range b.Open {
		b.Open[i] = entry{
			Lease: gq.LeaseID(strings.Repeat("f", 64)), Job: machine.NewJobID([16]byte{255}), Kind: match.Quantum, Units: gq.MaxCostUnits,
			Epoch: match.MaxInteger, At: math.MaxInt64, Place: match.MaxInteger,
		}
	}
	written, err := doc(kindBooks, "p", 0, b)
	if err == nil {
		err = store.CheckDocs([]store.Doc{written})
	}
	if err != nil {
		t.Error(err)
	}
}
