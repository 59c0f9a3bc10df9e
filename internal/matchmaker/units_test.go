package matchmaker_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/match"
)

// received submits what a requester sent.
func (f *fixture) received(text string) matchmaker.Job {
	f.Helper()
	set := match.DefaultSettings()
	e, err := match.DecodeEnqueue([]byte(text), &set)
	if err != nil {
		f.Fatal(err)
	}
	j, err := f.Submit(f.Context(), e)
	if err != nil {
		f.Fatal(err)
	}
	return j
}

// Jobs that do not name their units use up the quota of their kind; those that name 0 do not.
func TestUnnamedUnitsCount(t *testing.T) {
	for kind, member := range map[match.Kind]string{match.AI: "ai_units_per_epoch", match.Quantum: "quantum_units_per_epoch"} {
		bubble(t, matchmaker.Options{}, func(f *fixture) {
			f.policy(`{"quotas":{"` + member + `":2}}`)
			f.provider("p")
			for _, units := range []string{"", `,"units":null`, ""} {
				if j := f.received(`{"kind":"` + kind.String() + `"` + units + `}`); j.Units != 1 {
					f.Errorf("%s: a job has %d units", kind, j.Units)
				}
			}
			free := f.received(`{"kind":"` + kind.String() + `","units":0}`)
			r := f.round()
			if len(r.Assignments) != 3 || len(r.Requeued) != 1 {
				f.Fatalf("%s: assigned %+v, requeued %v", kind, r.Assignments, r.Requeued)
			}
			if now := f.is(free, "ASSIGNED", 0); now.Units != 0 {
				f.Errorf("%s: a job of 0 units has %d", kind, now.Units)
			}
			if p := f.standing("p"); p.AIUnitsUsed+p.QuantumUnitsUsed != 2 {
				f.Errorf("%s: %d and %d units are used", kind, p.AIUnitsUsed, p.QuantumUnitsUsed)
			}
			rec, err := f.RoundRecord(f.Context(), r.Number)
			if err != nil {
				f.Fatal(err)
			}
			text, err := json.Marshal(rec.Input)
			if err != nil {
				f.Fatal(err)
			}
			again, err := match.Decode(text)
			if err != nil {
				f.Fatal(err)
			}
			if err := rec.Check(); err != nil {
				f.Error(err)
			}
			if out, err := match.Match(&again); err != nil || len(out.Assignments) != 3 {
				f.Errorf("%s: what is printed gives %+v, %v", kind, out, err)
			}
		})
	}
}

// Jobs of the kinds that come through another API count one unit as well; other jobs do not.
func TestUnnamedUnitsOfOtherAPIs(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		for _, test := range []struct {
			spec gq.Spec
			want int64
		}{
			{gq.Spec{Queue: matchmaker.DefaultQueue, Type: "AI"}, 1},
			{gq.Spec{Queue: matchmaker.DefaultQueue, Type: "QUANTUM"}, 1},
			{gq.Spec{Queue: matchmaker.DefaultQueue, Type: "AI", CostUnits: 3}, 3},
			{gq.Spec{Queue: matchmaker.DefaultQueue, Type: "AI", Requires: []string{matchmaker.Requirement}}, 1},
			{gq.Spec{Queue: matchmaker.DefaultQueue, Type: "QUANTUM", Attributes: map[string]string{match.AttributeUnits: "0"}}, 0},
			{gq.Spec{Queue: matchmaker.DefaultQueue, Type: "mail"}, 0},
			{gq.Spec{Queue: "other", Type: "AI"}, 0},
		} {
			out, err := f.engine.Submit(f.Context(), test.spec)
			if err != nil {
				f.Fatal(err)
			}
			j, err := f.engine.Get(f.Context(), out.ID(), 0)
			if err != nil || j.Spec.CostUnits != test.want {
				f.Errorf("%s in %s has %d units, want %d; %v", test.spec.Type, test.spec.Queue, j.Spec.CostUnits, test.want, err)
			}
		}
	})
}

// A key that was used while jobs counted no units by default still names the same submission.
func TestUnnamedUnitsKeepTheFingerprint(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		for text, before := range map[string]string{
			`{"kind":"AI","requester":"a","max_fee":5,"idempotency_key":"1"}`:            `{"kind":"AI","requester":"a","max_fee":5}`,
			`{"kind":"AI","units":1,"regions":["eu"],"idempotency_key":"2"}`:             `{"kind":"AI","units":1,"regions":["eu"]}`,
			`{"kind":"AI","payload":[{"a":0,"units":1}],"idempotency_key":"3"}`:          `{"kind":"AI","size_bytes":19,"payload":[{"a":0,"units":1}]}`,
			`{"kind":"QUANTUM","units":12,"spec":{"gates":["h"]},"idempotency_key":"4"}`: `{"kind":"QUANTUM","spec":{"gates":["h"]},"units":12}`,
		} {
			j, err := f.engine.Get(f.Context(), jobID(f, f.received(text).ID), 0)
			if err != nil {
				f.Fatal(err)
			}
			sum := sha256.Sum256([]byte(before))
			if want := binary.BigEndian.Uint64(sum[:8]) | 1; j.Spec.Key.Fingerprint != want {
				f.Errorf("%s: the fingerprint is not that of %s", text, before)
			}
			if again := f.received(text); !again.Existing {
				f.Errorf("%s: submitted twice", text)
			}
		}
		f.received(`{"kind":"AI","idempotency_key":"5"}`)
		set := match.DefaultSettings()
		e, err := match.DecodeEnqueue([]byte(`{"kind":"AI","units":0,"idempotency_key":"5"}`), &set)
		if err != nil {
			f.Fatal(err)
		}
		_, err = f.Submit(f.Context(), e)
		f.refused("0 units under the key of a job that names none", err, gq.ErrKeyReused)
	})
}

// A job of 0 units that was stored while contents left them out still has its key.
func TestNamedNoUnitsKeepTheFingerprint(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		for _, key := range []string{"1", "2"} {
			sum := sha256.Sum256([]byte(`{"kind":"AI","max_fee":` + key + `}`))
			before, err := f.engine.Submit(f.Context(), gq.Spec{
				Queue: matchmaker.DefaultQueue, Type: "AI", MaxFee: int64(key[0] - '0'), Requires: []string{matchmaker.Requirement},
				Key:        gq.IdempotencyKey{Scope: "matching:", Name: key, Fingerprint: binary.BigEndian.Uint64(sum[:8]) | 1},
				Attributes: map[string]string{"matching.0": "{}", match.AttributeUnits: "0"},
			})
			if err != nil {
				f.Fatal(err)
			}
			again := f.received(`{"kind":"AI","max_fee":` + key + `,"units":0,"idempotency_key":"` + key + `"}`)
			if !again.Existing || again.ID != before.ID().String() {
				f.Errorf("key %s: the job is %s, existing %t, want %s", key, again.ID, again.Existing, before.ID())
			}
			set := match.DefaultSettings()
			e, err := match.DecodeEnqueue([]byte(`{"kind":"AI","max_fee":9,"units":0,"idempotency_key":"`+key+`"}`), &set)
			if err != nil {
				f.Fatal(err)
			}
			_, err = f.Submit(f.Context(), e)
			f.refused("another content", err, gq.ErrKeyReused)
		}
	})
}

// A job that was stored while jobs counted no units by default keeps its number, and so does
// the record of its round.
func TestStoredUnitsStay(t *testing.T) {
	bubble(t, matchmaker.Options{}, func(f *fixture) {
		f.policy(`{"quotas":{"ai_units_per_epoch":0}}`)
		f.provider("p")
		j := f.submit(units(0)) // stored as a job without units was
		if got := f.another(matchmaker.Options{}).job(j); got.Units != 0 {
			f.Errorf("%d units", got.Units)
		}
		r := f.round()
		if len(r.Assignments) != 1 {
			f.Fatalf("%+v", r)
		}
		f.amendPacked("matching.round", r.Number, `,"units":0`, ``)
		rec, err := f.RoundRecord(f.Context(), r.Number)
		if err != nil {
			f.Fatal(err)
		}
		if err := rec.Check(); err != nil {
			f.Error(err)
		}
	})
}
