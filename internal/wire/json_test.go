package wire

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/spelling"
	"github.com/gopherqueue/gq/machine"
)

func noQueue(string) (gq.Policy, error) { return machine.DefaultPolicy(), nil }

func TestEveryKindHasAnHTTPStatus(t *testing.T) {
	for _, k := range enum.All[gq.ErrorKind]() {
		if _, ok := statuses[k]; !ok {
			t.Errorf("%v has none", k)
		}
	}
	if len(statuses) != len(enum.All[gq.ErrorKind]()) {
		t.Errorf("%d statuses for %d kinds", len(statuses), len(enum.All[gq.ErrorKind]()))
	}
}

// otherPolicy differs from its preset in everything.
var otherPolicy = gq.Policy{
	Preset: gq.PresetAI, MaxAttempts: 11, MaxLeaseLosses: 12, RetryNever: true, OnLoss: gq.LossFails, CancelWins: true,
	LeaseTTL: 13 * time.Second, Hold: 14 * time.Second, Extend: gq.ExtendAdd, ExtendPPB: 15, RenewByPPB: 16, RenewalsMax: 17,
	ExecutionTimeout: 18 * time.Second, Lifetime: 19 * time.Second, RunLifetime: 20 * time.Second, StartWithin: 22 * time.Second, Retention: 23 * time.Second, Aging: 24 * time.Second, IdempotencyWindow: 21 * time.Second,
	Backoff: gq.Backoff{Strategy: gq.StrategyCustom, Initial: time.Second, Max: 2 * time.Second, Multiplier: 3, Jitter: gq.JitterTenth, Custom: "f"},
}

func TestEveryFieldOfAPolicyGoesThrough(t *testing.T) {
	for _, preset := range enum.All[gq.Preset]() {
		want := preset.Policy()
		if got := PolicyOf(&want).Over(gq.Policy{}); got != want {
			t.Errorf("%v (-want +got):\n%s", preset, cmp.Diff(want, got))
		}
	}
	want := otherPolicy
	text, err := json.Marshal(PolicyOf(&want))
	if err != nil {
		t.Fatal(err)
	}
	var back Policy
	if err := DecodeJSON(text, &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Over(gq.Policy{}); got != want {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
	if n, fields := reflect.TypeFor[Policy]().NumField(), reflect.TypeFor[gq.Policy]().NumField(); n != fields {
		t.Errorf("%d names for %d numbers", n, fields)
	}
}

func TestAPartialPolicyIsCompleted(t *testing.T) {
	base := gq.PresetSemantics.Policy()
	var p Policy
	if err := DecodeJSON([]byte(`{"max_attempts":9,"backoff":{"initial":"7s"}}`), &p); err != nil {
		t.Fatal(err)
	}
	want := base
	want.MaxAttempts, want.Backoff.Initial = 9, 7*time.Second
	if got := p.Over(base); got != want {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
	preset := gq.PresetScheduler
	p.Preset = &preset
	want = preset.Policy()
	want.MaxAttempts, want.Backoff.Initial = 9, 7*time.Second
	if got := p.Over(base); got != want {
		t.Errorf("with a preset (-want +got):\n%s", cmp.Diff(want, got))
	}
	if got := (*Policy)(nil).Over(base); got != base {
		t.Errorf("none is %v", got)
	}
}

func TestPriorities(t *testing.T) {
	for text, want := range map[string]gq.Priority{
		`"CRITICAL"`: gq.PriorityCritical, `"BULK"`: gq.PriorityBulk, `0`: gq.PriorityCritical, `4`: gq.PriorityBulk, `"3"`: gq.PriorityLow,
		`5`: 0, `-1`: 0, `1.0`: 0, `"high"`: 0, `""`: 0, `true`: 0, `{}`: 0,
	} {
		var s Spec
		err := DecodeJSON([]byte(`{"type":"a","priority":`+text+`}`), &s)
		if gq.Priority(s.Priority) != want || (err == nil) != (want != 0) {
			t.Errorf("%s is %v, %v", text, gq.Priority(s.Priority), err)
		}
	}
}

func TestHalfCharacters(t *testing.T) {
	for text, ok := range map[string]bool{
		`"a"`: true, `"\u0041"`: true, `"\ud83d\ude00"`: true, `"x\ud83d\ude00y\uD83D\uDE00"`: true, `"\\ud800"`: true, `"\\\\ud800"`: true,
		`"\ud800"`: false, `"\ude00"`: false, `"\ud83dx"`: false, `"\ud83d\u0041"`: false, `"\ud83d\ud83d\ude00"`: false, `"\ud83d\\ude00"`: false,
		`"\ud83d\n"`: false, `"\uDE00\uD83D"`: false,
	} {
		for _, body := range []string{`{"type":` + text + `}`, `{"type":"a","tags":{` + text + `:"x"}}`, `{"type":"a","tags":{"x":` + text + `}}`} {
			var s Spec
			if err := DecodeJSON([]byte(body), &s); (err == nil) != ok || err != nil && errs.KindOf(err) != gq.KindInvalid {
				t.Errorf("%s: %v", body, err)
			}
		}
		var s Spec // the contents of a payload are not checked
		if err := DecodeJSON([]byte(`{"type":"a","payload":`+text+`}`), &s); err != nil || string(s.Payload) != text {
			t.Errorf("payload %s: %s, %v", text, s.Payload, err)
		}
	}
}

func TestContentOfPayloads(t *testing.T) {
	for body, want := range map[string]gq.Payload{
		`{"type":"a"}`:                    {},
		`{"type":"a","payload":null}`:     {Data: []byte("null")},
		`{"type":"a","payload": [1, 2] }`: {Data: []byte("[1, 2]")},
		`{"type":"a","payload":1,"content_type":"application/x+json"}`:     {Data: []byte("1"), ContentType: "application/x+json"},
		`{"type":"a","payload_base64":""}`:                                 {Data: []byte{}, ContentType: "application/octet-stream"},
		`{"type":"a","payload_base64":"aGk=","content_type":"text/plain"}`: {Data: []byte("hi"), ContentType: "text/plain"},
	} {
		var s Spec
		if err := DecodeJSON([]byte(body), &s); err != nil {
			t.Fatal(err)
		}
		got, err := s.Domain(noQueue)
		if err != nil || !bytes.Equal(got.Payload.Data, want.Data) || got.Payload.ContentType != want.ContentType {
			t.Errorf("%s is %q %q, %v", body, got.Payload.Data, got.Payload.ContentType, err)
		}
	}
	for _, body := range []string{
		`{"type":"a","payload":1,"payload_base64":"AA=="}`, `{"type":"a","payload":1,"content_type":"text/plain"}`,
	} {
		var s Spec
		if err := DecodeJSON([]byte(body), &s); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Domain(noQueue); errs.KindOf(err) != gq.KindInvalid {
			t.Errorf("%s is %v", body, err)
		}
	}
}

func TestWhatIsNotJSONIsBase64(t *testing.T) {
	for _, test := range []struct {
		payload gq.Payload
		want    string
	}{
		{gq.Payload{Data: []byte(`{"a":1}`), ContentType: gq.JSON}, `"payload":{"a":1}`},
		{gq.Payload{Data: []byte(`{"a":`), ContentType: gq.JSON}, `"payload_base64":"eyJhIjo="`},
		{gq.Payload{Data: []byte(`1`), ContentType: "text/plain"}, `"payload_base64":"MQ=="`},
		{gq.Payload{Data: []byte("\"\xff\""), ContentType: gq.JSON}, `"payload_base64":"Iv8i"`},
	} {
		job := gq.Job{Spec: gq.Spec{Type: "a", Payload: test.payload}, State: gq.State{Status: gq.StatusScheduled}}
		var b bytes.Buffer
		if err := EncodeJSON(&b, JobOf(&job)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), test.want) {
			t.Errorf("%q is %s", test.payload.Data, b.String())
		}
	}
}

func TestAJobWithoutAnythingCanBeWritten(t *testing.T) {
	for _, v := range []any{
		JobOf(&gq.Job{}), EventOf(&gq.Event{Time: time.Unix(1, 0)}), QueueOf(&gq.Queue{}, nil), ScheduleOf(&gq.Schedule{}), StatsOf(&gq.Stats{}),
		ExplanationOf(&gq.Explanation{}), WorkersOf([]gq.LiveWorker{{}}), JobsOf(gq.Page{}),
		BatchAnswer{},
		BatchAnswer{Problem: &Problem{}},
		QueuesOf(nil, nil), ProblemOf(gq.ErrInvalid, "x"),
	} {
		var b bytes.Buffer
		if err := EncodeJSON(&b, v); err != nil {
			t.Errorf("%T: %v", v, err)
		}
		if strings.Contains(b.String(), "0001-01-01") && !strings.Contains(b.String(), "last_seen_at") {
			t.Errorf("%T has an instant that never was: %s", v, b.String())
		}
	}
	if _, err := json.Marshal(JobOf(&gq.Job{State: gq.State{Progress: math.NaN()}})); err != nil {
		t.Errorf("a progress that is no number: %v", err)
	}
}

func TestSuggestions(t *testing.T) {
	for name, want := range map[string]string{"paylod": "payload", "queu": "queue", "Type": "type", "zzz": "", "correlationid": "correlation_id"} {
		if got := spelling.Nearest(name, fieldsOf(reflect.TypeFor[Spec]()).names); got != want {
			t.Errorf("%q is taken for %q, want %q", name, got, want)
		}
	}
}

// decoders are all types decoded from outside.
var decoders = []func() any{
	func() any { return new(Spec) }, func() any { return new(Batch) }, func() any { return new(Patch) }, func() any { return new(Policy) },
	func() any { return new(QueueChange) }, func() any { return new(PoolChange) }, func() any { return new(ScheduleDraft) },
}

func FuzzDecodeJSON(f *testing.F) {
	for _, seed := range []string{
		`{"type":"a","payload":{"x":[1,2,{"y":null}]},"tags":{"k":"v"},"delay":"5s","priority":3,"run_at":"2030-01-31T12:00:00Z"}`,
		`{"jobs":[{"type":"a","ref":"x"},{"type":"b","needs":[{"kind":"AFTER","ref":"x"}]}],"atomic":true}`,
		`{"cron":"* * * * *","job":{"type":"x","payload_base64":"AA=="},"missed":"all"}`,
		`{"rate":{"count":1,"per":"1s"},"policy":{"preset":"jobmodel","backoff":{"multiplier":2.5,"jitter":"full"}}}`,
		`{"a":"\u0000\ud800","b":"}{][,:\"" }`, `[[[[`, "\"\xff", `{"type":"a",}`, `{"tags":{"":""}}`, `null`, "{\"a\"\n:\t1 }",
	} {
		for i := range decoders {
			f.Add(i, []byte(seed))
		}
	}
	f.Fuzz(func(t *testing.T, which int, data []byte) {
		if which < 0 {
			which = -(which + 1)
		}
		into := decoders[which%len(decoders)]()
		err := DecodeJSON(data, into)
		if err != nil {
			if len(errs.FaultsOf(err)) == 0 || len(errs.FaultsOf(err)) > maxFaults {
				t.Fatalf("%q is %v", data, err)
			}
			return
		}
		if b, ok := into.(*Batch); ok && len(b.unreadable) > 0 {
			if _, refused, err := b.Domain(noQueue, true); err == nil && len(refused) == 0 {
				t.Fatalf("%q has a job that cannot be read, and nobody is told", data)
			}
			return
		}
		// What we accept, the standard library decodes to the same value.
		same := decoders[which%len(decoders)]()
		strict := json.NewDecoder(bytes.NewReader(data))
		strict.DisallowUnknownFields()
		if err := strict.Decode(same); err != nil {
			t.Fatalf("%q was accepted, but: %v", data, err)
		}
		a, erra := json.Marshal(into)
		b, errb := json.Marshal(same)
		if erra != nil || errb != nil || !bytes.Equal(a, b) {
			t.Fatalf("%q was read as\n%s, %v\nand by the standard library as\n%s, %v", data, a, erra, b, errb)
		}
		if s, ok := into.(*Spec); ok {
			_, _ = s.Domain(noQueue)
		}
		if s, ok := into.(*Batch); ok {
			_, _, _ = s.Domain(noQueue, true)
		}
	})
}

// TestPolicyDifferenceMakesThePolicyAgain checks that showing only the differences from a
// preset loses nothing.
func TestPolicyDifferenceMakesThePolicyAgain(t *testing.T) {
	for _, p := range enum.All[gq.Preset]() {
		policy := p.Policy()
		if text, err := json.Marshal(PolicyDifference(&policy)); err != nil || string(text) != `{"preset":"`+p.String()+`"}` {
			t.Errorf("%s as it is: %s, %v", p, text, err)
		}
	}
	rapid.Check(t, func(r *rapid.T) {
		preset := rapid.SampledFrom(enum.All[gq.Preset]()).Draw(r, "preset")
		policy := preset.Policy()
		other := reflect.ValueOf(rapid.SampledFrom([]gq.Policy{otherPolicy, {}}).Draw(r, "other"))
		changeFields(r, reflect.ValueOf(&policy).Elem(), other)
		policy.Preset = preset
		if got := PolicyDifference(&policy).Over(gq.Policy{}); got != policy {
			r.Fatalf("%+v became %+v", policy, got)
		}
	})
}

// changeFields replaces some of the fields of a struct with those of another one.
func changeFields(r *rapid.T, v, other reflect.Value) {
	for i := range v.NumField() {
		switch {
		case v.Field(i).Kind() == reflect.Struct:
			changeFields(r, v.Field(i), other.Field(i))
		case rapid.Bool().Draw(r, "change "+v.Type().Field(i).Name):
			v.Field(i).Set(other.Field(i))
		}
	}
}
