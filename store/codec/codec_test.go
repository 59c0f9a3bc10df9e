package codec_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store/codec"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew")

func intern(p gq.Policy) *gq.Policy { return new(p) }

func encodeState(t rapid.TB, s gq.State) []byte {
	t.Helper()
	raw, err := codec.AppendState(&s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// same fails the test if the value read differs from the one written.
func same[T any](t rapid.TB, wrote, read T) {
	t.Helper()
	if !reflect.DeepEqual(wrote, read) {
		t.Fatalf("read back as another (-written +read):\n%s", cmp.Diff(wrote, read))
	}
}

func TestStateRoundTrip(t *testing.T) {
	seen := fields{}
	rapid.Check(t, func(r *rapid.T) {
		s := states.Draw(r, "state")
		seen.note(s)
		seen.note(*s.Policy)
		if s.Lease != nil {
			seen.note(*s.Lease)
		}
		seen.note(s.Cancellation)
		raw := encodeState(r, s)
		back, err := codec.DecodeState(raw, s.Sequence, intern)
		if err != nil {
			r.Fatal(err)
		}
		same(r, s, back)
		truncated(r, raw, func(b []byte) error { _, err := codec.DecodeState(b, 1, intern); return err })
	})
	seen.complete(t, reflect.TypeFor[gq.State](), reflect.TypeFor[gq.Policy](), reflect.TypeFor[gq.Lease](), reflect.TypeFor[gq.Cancellation]())
}

// TestStoredPresets checks that a stored policy keeps its meaning when its preset changes: two
// bytes stand for the preset semantics without a limit of lost leases.
func TestStoredPresets(t *testing.T) {
	limited := gq.PresetSemantics.Policy()
	endless := limited
	endless.MaxLeaseLosses = 0
	state := func(p gq.Policy) []byte {
		s, _ := machine.Submit(machine.Submission{ID: machine.NewJobID([16]byte{1}), Sequence: 1, Policy: &p, Own: gq.PriorityNormal, Depth: 1}, time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
		return encodeState(t, s)
	}
	old, other := state(gq.PresetJobModel.Policy()), state(gq.PresetResilient.Policy())
	for i := range old { // they differ in the byte of the preset
		if old[i] != other[i] {
			old[i] = byte(gq.PresetSemantics)
		}
	}
	for raw, want := range map[string]gq.Policy{string(old): endless, string(state(endless)): endless, string(state(limited)): limited} {
		s, err := codec.DecodeState([]byte(raw), 1, intern)
		if err != nil {
			t.Fatal(err)
		}
		same(t, want, *s.Policy)
	}
	if !bytes.Equal(old, state(endless)) || len(state(limited)) < len(old)+20 {
		t.Errorf("an old policy is written as %x, want %x; a new one as %x", state(endless), old, state(limited))
	}
}

func TestSpecRoundTrip(t *testing.T) {
	seen := fields{}
	rapid.Check(t, func(r *rapid.T) {
		s := specs.Draw(r, "spec")
		seen.note(s)
		seen.note(s.Metadata)
		seen.note(s.Key)
		raw, err := codec.AppendSpec(&s, nil)
		if err != nil {
			r.Fatal(err)
		}
		back, err := codec.DecodeSpec(raw)
		if err != nil {
			r.Fatal(err)
		}
		if len(s.Payload.Data) == 0 {
			s.Payload.Data, back.Payload.Data = nil, nil // nil and empty are the same
		}
		same(r, s, back)
		truncated(r, raw, func(b []byte) error { _, err := codec.DecodeSpec(b); return err })
	})
	seen.complete(t, reflect.TypeFor[gq.Spec](), reflect.TypeFor[gq.Metadata](), reflect.TypeFor[gq.IdempotencyKey]())
}

func TestMetadataRoundTrip(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := metadata.Draw(r, "metadata")
		raw, err := codec.AppendMetadata(m, nil)
		if err != nil {
			r.Fatal(err)
		}
		back, err := codec.DecodeMetadata(raw)
		if err != nil {
			r.Fatal(err)
		}
		same(r, m, back)
		truncated(r, raw, func(b []byte) error { _, err := codec.DecodeMetadata(b); return err })
	})
}

func TestEventRoundTrip(t *testing.T) {
	seen := fields{"Event.Seq": true, "Event.Time": true, "Event.Queue": true, "Event.Job": true, // stored elsewhere
		"Event.Progress": true, "Event.Note": true} // not stored
	rapid.Check(t, func(r *rapid.T) {
		e := events.Draw(r, "event")
		seen.note(e)
		raw, err := codec.AppendEvent(&e, []byte("before"))
		if err != nil {
			r.Fatal(err)
		}
		back, rest, err := codec.DecodeEvent(append(raw[len("before"):], "after"...))
		if err != nil || string(rest) != "after" {
			r.Fatalf("the rest is %q: %v", rest, err)
		}
		same(r, e, back)
		truncated(r, raw[len("before"):], func(b []byte) error { _, _, err := codec.DecodeEvent(b); return err })
	})
	seen.complete(t, reflect.TypeFor[gq.Event]())
}

// truncated checks that a decoder rejects every proper prefix of a record.
func truncated(r *rapid.T, raw []byte, decode func([]byte) error) {
	n := rapid.IntRange(0, len(raw)-1).Draw(r, "cut")
	if decode(raw[:n]) == nil {
		r.Fatalf("the first %d of %d bytes are read as a whole", n, len(raw))
	}
}

// fields are the struct fields that were ever set. A field that no generator sets is
// one that no codec was tested with.
type fields map[string]bool

func (f fields) note(v any) {
	value := reflect.ValueOf(v)
	for i := range value.NumField() {
		if !value.Field(i).IsZero() {
			f[value.Type().Name()+"."+value.Type().Field(i).Name] = true
		}
	}
}

func (f fields) complete(t *testing.T, types ...reflect.Type) {
	t.Helper()
	for _, typ := range types {
		for field := range typ.Fields() {
			if name := typ.Name() + "." + field.Name; !f[name] && name != "Spec.Overrides" { // an engine clears it
				t.Errorf("%s was never set: does the codec have it?", name)
			}
		}
	}
}

// TestGolden pins the bytes on disk: existing stores contain them.
func TestGolden(t *testing.T) {
	at := time.Date(2030, 6, 1, 12, 0, 0, 123_456_789, time.UTC)
	p := gq.PresetAI.Policy()
	p.MaxAttempts, p.CancelWins, p.Backoff.Jitter = 7, true, gq.JitterTenth
	job, parent := machine.NewJobID([16]byte{1, 2, 3}), machine.NewJobID([16]byte{4, 5, 6})
	lease := machine.NewLeaseID([16]byte{7, 8, 9})
	failure := gq.Failure{Category: gq.CategoryTemporary, Code: "busy", Message: "try again", RetryAfter: time.Minute}
	meta := gq.Metadata{Priority: gq.PriorityHigh, Tags: map[string]string{"team": "red", "env": "prod"}, CorrelationID: "c-1", CallbackURL: "https://example.com/hook"}
	state := gq.State{
		ID: job, Sequence: 42, Policy: &p, Status: gq.StatusRunning, Own: gq.PriorityHigh, Inherited: gq.PriorityCritical, Depth: 2, Waits: 1, AnyOpen: true,
		Attempt: 2, Bound: 8, Faults: 1, Losses: 1, CreatedAt: at, UpdatedAt: at.Add(time.Second), RunAt: at, ScheduledAt: at.Add(time.Second),
		StartedAt: at.Add(2 * time.Second), FirstStartedAt: at.Add(time.Second), Version: 2,
		Lease: &gq.Lease{
			ID: lease, Version: 2, State: gq.LeaseActive, Worker: "worker-1", Attempt: 2, Previous: "lease-of-another-make",
			GrantedAt: at.Add(2 * time.Second), HeartbeatAt: at.Add(3 * time.Second), ExpiresAt: at.Add(13 * time.Second), TTL: 10 * time.Second,
			Renewals: 1, CostUnits: 5,
		},
		Settled: 77, PreviousLease: "lease-of-another-make", PreviousDigest: 99, Progress: 0.5, Note: "half way", Failure: &failure,
		Cancellation: gq.Cancellation{RequestedAt: at, DeliveredAt: at.Add(1), Reason: "not wanted"}, Reason: "why",
		ResultBytes: 3, CheckpointBytes: 4, Checkpoints: 2, Turn: 300,
	}
	plain, _ := machine.Submit(machine.Submission{ID: job, Sequence: 42, Policy: new(machine.DefaultPolicy()), Own: gq.PriorityNormal, Depth: 1, RunAt: at}, at)
	spec := gq.Spec{
		ID: job, Queue: "mail", Type: "send", Payload: gq.Payload{Data: []byte{0, 1, 2, 0xff}, ContentType: "application/octet-stream"}, Policy: p,
		Key: gq.IdempotencyKey{Scope: "send", Name: "once", Fingerprint: 11}, RunAt: at, Delay: time.Second,
		DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: parent}}, CostUnits: 5, Requires: []string{"gpu", "ssd"}, Requester: "me", Tier: "PRO",
		MaxFee: 100, LimitKey: "customer-7", FairKey: "tenant-3", Attributes: map[string]string{"a": "b"}, ReplayOf: parent, Metadata: meta,
	}
	simple := gq.Spec{ID: job, Type: "send", Payload: gq.Payload{Data: []byte(`{"to":"you"}`)}}.WithDefaults()
	event := gq.Event{
		Type: gq.EventRetrying, Status: gq.StatusRetrying, Attempt: 2, Lease: lease, Version: 2, LeaseState: gq.LeaseCompleted, Worker: "worker-1",
		CostUnits: 5, Until: at, Detail: gq.DetailPreparing, Failure: &failure, Reason: "why",
	}
	for name, v := range map[string]any{
		"state": &state, "state-waiting": &plain, "spec": &spec, "spec-simple": &simple, "metadata": &meta, "event": &event,
	} {
		t.Run(name, func(t *testing.T) {
			var raw []byte
			var err error
			switch v := v.(type) {
			case *gq.State:
				raw, err = codec.AppendState(v, nil)
			case *gq.Spec:
				raw, err = codec.AppendSpec(v, nil)
			case *gq.Metadata:
				raw, err = codec.AppendMetadata(*v, nil)
			case *gq.Event:
				raw, err = codec.AppendEvent(v, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, raw)
			switch v := v.(type) {
			case *gq.State:
				back, err := codec.DecodeState(raw, v.Sequence, intern)
				checkRead(t, *v, back, err)
			case *gq.Spec:
				back, err := codec.DecodeSpec(raw)
				checkRead(t, *v, back, err)
			case *gq.Metadata:
				back, err := codec.DecodeMetadata(raw)
				checkRead(t, *v, back, err)
			case *gq.Event:
				back, _, err := codec.DecodeEvent(raw)
				checkRead(t, *v, back, err)
			}
		})
	}
}

func checkRead[T any](t *testing.T, wrote, read T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	same(t, wrote, read)
}

func golden(t *testing.T, name string, raw []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *rewrite {
		if err := os.WriteFile(path, []byte(hex.Dump(raw)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(text), "\n"), strings.Split(hex.Dump(raw), "\n")); diff != "" {
		t.Errorf("the bytes on disk have changed (-pinned +now):\n%s\n"+
			"Programs that are out there write the pinned ones. If the change is meant, give it a new codecVersion, keep\n"+
			"reading the old one, and pin the new bytes with: go test -run TestGolden . -rewrite", diff)
	}
	if !bytes.Contains(text, []byte("00000000")) {
		t.Errorf("%s is empty", path)
	}
}

// TestStateMovesWithItsCreation overwrites CreatedAt where AppendMovableState says it
// is: all instants of the state must move along.
func TestStateMovesWithItsCreation(t *testing.T) {
	policy := machine.DefaultPolicy()
	submitted := func(at time.Time) gq.State {
		s, _ := machine.Submit(machine.Submission{ID: machine.NewJobID([16]byte{1}), Sequence: 1, Policy: &policy, Own: gq.PriorityHigh, Depth: 1, RunAt: at}, at)
		return s
	}
	early, late := time.Unix(0, 0).UTC(), time.Date(2026, 11, 15, 12, 0, 0, 123456789, time.UTC)
	s := submitted(early)
	data, created, err := codec.AppendMovableState(&s, []byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint64(data[created:], uint64(late.UnixNano()))
	got, err := codec.DecodeState(data[len("before"):], 1, intern)
	if want := submitted(late); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("moved it is\n%+v, want\n%+v: %v", got, want, err)
	}
}

// Skimming an event finds in it what decoding finds, and the same end.
func TestSkimEvent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := events.Draw(t, "event")
		b, err := codec.AppendEvent(&want, nil)
		if err != nil {
			t.Fatal(err)
		}
		got := gq.Event{Worker: "before"}
		rest, err := codec.SkimEvent(&got, append(b, 1, 2, 3))
		if err != nil || len(rest) != 3 {
			t.Fatalf("%d bytes are left, %v", len(rest), err)
		}
		if got.Type != want.Type || got.Status != want.Status || got.LeaseState != want.LeaseState || got.Elapsed != want.Elapsed || got.Worker != "" ||
			(got.Failure == nil) != (want.Failure == nil) || got.Failure != nil && (got.Failure.Code != want.Failure.Code || got.Failure.Category != want.Failure.Category) {
			t.Fatalf("skimmed %+v of %+v", got, want)
		}
		for cut := range b {
			if _, err := codec.SkimEvent(&got, b[:cut]); err == nil {
				t.Fatalf("%d of %d bytes are enough", cut, len(b))
			}
		}
	})
}
