package matchmaker_test

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
	"github.com/gopherqueue/gq/store"
)

// Jobs of two kinds compete for the first place in the queue. Rounds of one job see each take
// it at the second when its score is higher.
func TestKindsChangePlacesInTheQueue(t *testing.T) {
	for _, test := range []struct {
		after time.Duration
		first []match.Kind
	}{
		{3455 * time.Second, []match.Kind{match.AI, match.AI, match.Quantum, match.Quantum}},
		{3457 * time.Second, []match.Kind{match.Quantum, match.Quantum, match.AI, match.AI}},
	} {
		bubble(t, matchmaker.Options{}, func(f *fixture) {
			f.policy(`{"batch_size":1,"starvation":{"every":0},"eligibility":{"heartbeat_timeout_secs":100000}}`)
			f.provider("p0")
			kinds := make(map[string]match.Kind)
			var list []matchmaker.Job
			for _, j := range []matchmaker.Job{
				f.submit(fee(500_000)), f.submit(quantum, fee(300_000)), f.submit(fee(500_000), model("m")), f.submit(quantum, fee(300_000)),
			} {
				kinds[j.ID] = j.Kind
				list = append(list, j)
			}
			time.Sleep(test.after)
			var got []match.Kind
			for range list {
				r := f.round()
				if len(r.Assignments) != 1 {
					t.Fatalf("after %v: %+v", test.after, r)
				}
				got = append(got, kinds[r.Assignments[0].Job])
			}
			if !slices.Equal(got, test.first) {
				t.Errorf("after %v %v were taken, want %v", test.after, got, test.first)
			}
		})
	}
}

// A policy stored with one age reference for both kinds is read with the default references,
// and nothing else of it changes.
func TestPolicyWithTheFormerAgeReference(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		set := f.policy(`{"batch_size":7,"priority":{"age_ref_ai_secs":5,"age_ref_quantum_secs":5,"tiers":{"GOLD":9}}}`)
		f.provider("p")
		f.submit()
		f.amend("matching", "settings", `"age_ref_ai_secs":5,"age_ref_quantum_secs":5`, `"age_ref_secs":625000`)
		set.Priority.AgeRefAI, set.Priority.AgeRefQuantum = 86_400, 7200

		again := f.another(matchmaker.Options{})
		got, err := again.Settings(t.Context())
		if diff := cmp.Diff(set, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		r := again.round()
		rec, err := again.RoundRecord(t.Context(), r.Number)
		if err != nil || len(r.Assignments) != 1 {
			t.Fatal(r, err)
		}
		if diff := cmp.Diff(set.Priority, rec.Input.Policy.Priority); diff != "" {
			t.Errorf("policy of the round (-want +got):\n%s", diff)
		}
		if changed := again.policy(`{"batch_size":8}`); changed.Priority.AgeRefAI != 86_400 {
			t.Errorf("%+v", changed.Priority)
		}
	})
}

// Rounds recorded with one age reference for both kinds are computed again with it.
func TestRecordWithTheFormerAgeReference(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"priority":{"age_ref_ai_secs":625000,"age_ref_quantum_secs":625000},"eligibility":{"heartbeat_timeout_secs":100000}}`)
		f.provider("p")
		for range 2 {
			f.submit(fee(5))
			f.submit(quantum, fee(5))
			time.Sleep(time.Hour)
			r := f.round()
			if len(r.Assignments) != 2 || r.Assignments[0].Score != r.Assignments[1].Score {
				t.Fatalf("%+v", r)
			}
			f.amendPacked("matching.round", r.Number, `"age_ref_ai_secs":625000,"age_ref_quantum_secs":625000`, `"age_ref_secs":625000`)
			rec, err := f.RoundRecord(t.Context(), r.Number)
			if err != nil {
				t.Fatal(err)
			}
			if err := rec.Check(); err != nil {
				t.Error(err)
			}
			printed, err := json.Marshal(rec.Input)
			if err != nil {
				t.Fatal(err)
			}
			in, err := match.Decode(printed)
			if err != nil {
				t.Fatal(err)
			}
			out, err := match.Match(&in)
			if diff := cmp.Diff(r.Assignments, out.Assignments); diff != "" || err != nil {
				t.Errorf("what is printed gives %v (-recorded +got):\n%s", err, diff)
			}
		}
	})
}

// amend replaces a text in a stored document, as if an older version had written it.
func (f *fixture) amend(kind, name, from, to string) {
	f.Helper()
	f.rewrite(kind, name, func(data []byte) []byte { return f.replace(data, from, to) })
}

// amendPacked does the same to the record of a round.
func (f *fixture) amendPacked(kind string, n uint64, from, to string) {
	f.Helper()
	f.rewrite(kind, fmt.Sprintf("%020d", n), func(data []byte) []byte {
		text, err := io.ReadAll(flate.NewReader(bytes.NewReader(data)))
		if err != nil {
			f.Fatal(err)
		}
		var packed bytes.Buffer
		w, err := flate.NewWriter(&packed, flate.BestSpeed)
		if err != nil {
			f.Fatal(err)
		}
		if _, err := w.Write(f.replace(text, from, to)); err != nil {
			f.Fatal(err)
		}
		if err := w.Close(); err != nil {
			f.Fatal(err)
		}
		return packed.Bytes()
	})
}

func (f *fixture) replace(text []byte, from, to string) []byte {
	f.Helper()
	if !bytes.Contains(text, []byte(from)) {
		f.Fatalf("%s is not in %s", from, text)
	}
	return bytes.ReplaceAll(text, []byte(from), []byte(to))
}

func (f *fixture) rewrite(kind, name string, change func([]byte) []byte) {
	f.Helper()
	d, err := f.store.Doc(f.Context(), kind, name)
	if err != nil {
		f.Fatal(err)
	}
	d.Data = change(d.Data)
	if _, err := f.store.PutDocs(f.Context(), []store.Doc{d}); err != nil {
		f.Fatal(err)
	}
}
