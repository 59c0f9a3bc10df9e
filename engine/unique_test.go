package engine_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/errs"
)

type sync7 struct {
	Customer int    `json:"customer"`
	Day      string `json:"day"`
	Note     string `json:"note,omitempty"`
}

var syncKind = gq.NewKind[sync7, gq.None]("customer.sync", gq.UniqueBy("customer", "day"))

func TestUniqueByFields(t *testing.T) {
	f := newFixture(t, engine.Options{}, nil)
	ctx := t.Context()
	submit := func(args sync7, options ...gq.Option) (gq.JobID, error) {
		return syncKind.Submit(ctx, f, args, options...)
	}
	first, err := submit(sync7{7, "mon", "a"}, gq.Unique(gq.WhileLive))
	if err != nil {
		t.Fatal(err)
	}
	same, err := submit(sync7{7, "mon", "other content"}, gq.Unique(gq.WhileLive))
	if err != nil || same != first {
		t.Errorf("equal fields: job %s, %v; want %s", same, err, first)
	}
	if other, err := submit(sync7{8, "mon", "a"}); err != nil || other == first {
		t.Errorf("another customer: job %s, %v; want a new one", other, err)
	}
	_, err = submit(sync7{7, "mon", ""}, gq.Unique(gq.WhileLive, gq.Refuse))
	if u, ok := errors.AsType[*gq.UniqueError](err); !ok || u.Job != first || !errors.Is(err, gq.ErrNotUnique) {
		t.Errorf("refused with %v, want a UniqueError that names %s", err, first)
	}
	next, err := submit(sync7{7, "mon", "new"}, gq.Unique(gq.WhileWaiting, gq.Replace))
	if err != nil {
		t.Fatal(err)
	}
	if j, err := f.Get(ctx, first, 0); err != nil || j.State.ReplacedBy != next || j.State.Status != gq.StatusCancelled {
		t.Errorf("the replaced job: %+v, %v", j.State, err)
	}
	for form, payload := range map[string]string{
		"in another order": `{"day":"mon","customer":7}`, "a number in another form": `{"customer":7.0,"day":"mon"}`, "an exponent": `{"day":"mon","customer":70e-1}`,
	} {
		out, err := f.Submit(ctx, gq.Spec{
			Type: "customer.sync", Payload: gq.Payload{Data: []byte(payload)}, Unique: gq.UniqueRule{Fields: []string{"day", "customer"}},
		})
		if err != nil || out.ID() != next || !out.Existing {
			t.Errorf("%s: job %s, existing %t, %v; want %s", form, out.ID(), out.Existing, err, next)
		}
	}
	nested := gq.Spec{Type: "t", Payload: gq.Payload{Data: []byte(`{"a":{"b":[1,{"c":2}]}}`)}, Unique: gq.UniqueRule{Fields: []string{"a.b"}}}
	id := f.submit(nested)
	if again := f.submit(nested); again != id {
		t.Errorf("a field of a field: job %s, want %s", again, id)
	}
}

func TestUniqueContradictions(t *testing.T) {
	f := newFixture(t, engine.Options{}, nil)
	object := gq.Payload{Data: []byte(`{"a":1}`)}
	key := gq.IdempotencyKey{Name: "k"}
	for name, c := range map[string]struct {
		spec   gq.Spec
		fields []string
	}{
		"neither key nor fields":       {gq.Spec{Unique: gq.UniqueRule{While: gq.WhileLive}}, []string{"unique"}},
		"key and fields":               {gq.Spec{Key: key, Payload: object, Unique: gq.UniqueRule{Fields: []string{"a"}}}, []string{"unique.fields"}},
		"a field that is absent":       {gq.Spec{Payload: object, Unique: gq.UniqueRule{Fields: []string{"a", "b"}}}, []string{"unique.fields[1]"}},
		"a payload that is no object":  {gq.Spec{Payload: gq.Payload{Data: []byte(`[1]`)}, Unique: gq.UniqueRule{Fields: []string{"a"}}}, []string{"unique.fields[0]"}},
		"a payload that is not JSON":   {gq.Spec{Payload: gq.Payload{Data: []byte("a"), ContentType: "text/plain"}, Unique: gq.UniqueRule{Fields: []string{"a"}}}, []string{"unique.fields"}},
		"a broken payload":             {gq.Spec{Payload: gq.Payload{Data: []byte("{")}, Unique: gq.UniqueRule{Fields: []string{"a"}}}, []string{"payload"}},
		"an empty field name":          {gq.Spec{Payload: object, Unique: gq.UniqueRule{Fields: []string{""}}}, []string{"unique.fields[0]"}},
		"an unknown rule":              {gq.Spec{Key: key, Unique: gq.UniqueRule{While: 9}}, []string{"unique.while"}},
		"an unknown action":            {gq.Spec{Key: key, Unique: gq.UniqueRule{OnCollision: 9}}, []string{"unique.on_collision"}},
		"a period without an end":      {gq.Spec{Key: key, Unique: gq.UniqueRule{While: gq.ForPeriod}}, []string{"unique.period"}},
		"a negative period":            {gq.Spec{Key: key, Unique: gq.UniqueRule{Period: -time.Second}}, []string{"unique.period"}},
		"a period with another rule":   {gq.Spec{Key: key, Unique: gq.UniqueRule{While: gq.WhileLive, Period: time.Second}}, []string{"unique.period"}},
		"throttle without a period":    {gq.Spec{Key: key, Unique: gq.UniqueRule{OnCollision: gq.Throttled}}, []string{"unique.period"}},
		"throttle while live":          {gq.Spec{Key: key, Unique: gq.UniqueRule{While: gq.WhileLive, OnCollision: gq.Throttled}}, []string{"unique.while"}},
		"throttle beyond the lifetime": {gq.Spec{Key: key, Policy: shortLived(), Unique: gq.UniqueRule{OnCollision: gq.Throttled, Period: time.Minute}}, []string{"unique.period"}},
		"debounce without a delay":     {gq.Spec{Key: key, Unique: gq.UniqueRule{OnCollision: gq.Debounced}}, []string{"delay"}},
		"debounce for a period":        {gq.Spec{Key: key, Delay: time.Second, Unique: gq.UniqueRule{OnCollision: gq.Debounced, Period: time.Minute}}, []string{"unique.while"}},
		"a job that names another":     {gq.Spec{Replaces: f.submit(gq.Spec{})}, []string{"replaces"}},
		"a replay that nobody asked":   {gq.Spec{ReplayOf: f.submit(gq.Spec{})}, []string{"replay_of"}},
		"a replay by somebody":         {gq.Spec{Attributes: map[string]string{gq.AttributeReplayedBy: "ada"}}, []string{"attributes"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.spec.Type = "t"
			_, err := f.Submit(t.Context(), c.spec)
			var got []string
			for _, fault := range errs.FaultsOf(err) {
				got = append(got, fault.Field)
			}
			if !errors.Is(err, gq.ErrInvalid) || !slices.Equal(slices.Compact(got), c.fields) {
				t.Errorf("error %v, want faults of %v", err, c.fields)
			}
		})
	}
	if _, err := f.PutSchedule(t.Context(), gq.Schedule{Name: "s", Every: time.Minute, Template: gq.Spec{Type: "t", Unique: gq.UniqueRule{While: gq.WhileLive}}}); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a schedule with unique jobs: %v, want ErrInvalid", err)
	}
}

func shortLived() gq.Policy {
	p := gq.PresetJobModel.Policy()
	p.Lifetime = time.Minute
	return p
}

// Debounce and Throttle as a program uses them.
func TestDebounceAndThrottle(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		kind := gq.NewKind[sync7, gq.None]("t", gq.UniqueBy("customer"))
		first, err := kind.Submit(t.Context(), f, sync7{Customer: 1}, gq.Debounce(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		again, err := kind.Submit(t.Context(), f, sync7{Customer: 1}, gq.Debounce(time.Minute))
		if err != nil || again != first {
			t.Fatalf("debounced: job %s, %v; want %s", again, err, first)
		}
		time.Sleep(59 * time.Second)
		f.claim(0)
		time.Sleep(time.Second)
		f.claim(1)

		a, _ := kind.Submit(t.Context(), f, sync7{Customer: 2}, gq.Throttle(time.Minute))
		b, err := kind.Submit(t.Context(), f, sync7{Customer: 2}, gq.Throttle(time.Minute))
		if err != nil || a == b {
			t.Fatalf("throttled: jobs %s and %s, %v; want two", a, b, err)
		}
		if c, err := kind.Submit(t.Context(), f, sync7{Customer: 2}, gq.Throttle(time.Minute)); err != nil || c != b {
			t.Errorf("a third one: job %s, %v; want %s", c, err, b)
		}
		f.claim(1, func(r *gq.ClaimRequest) { r.N = 10 })
		time.Sleep(time.Minute)
		f.claim(1, func(r *gq.ClaimRequest) { r.N = 10 })
	})
}

func TestReplayOfUniqueJob(t *testing.T) {
	f := newFixture(t, engine.Options{}, nil)
	spec := gq.Spec{Type: "t", Key: gq.IdempotencyKey{Name: "k"}, Unique: gq.UniqueRule{While: gq.UntilDone}}
	failed := f.submit(spec)
	_, lease := f.take()
	if _, err := f.Fail(t.Context(), lease, gq.Failure{Category: gq.CategoryPermanent}); err != nil {
		t.Fatal(err)
	}
	if again := f.submit(spec); again != failed {
		t.Errorf("a failed job lost its key to %s", again)
	}
	replay, err := f.Replay(t.Context(), failed)
	if err != nil {
		t.Fatal(err)
	}
	if again := f.submit(spec); again != replay.ID() {
		t.Errorf("after the replay: job %s, want %s", again, replay.ID())
	}
	if second, err := f.Replay(t.Context(), failed); err != nil || !second.Existing || second.ID() != replay.ID() {
		t.Errorf("a second replay: %+v, %v, want job %s", second, err, replay.ID())
	}
}

// An edit keeps the run time of a job that waits for it, also after an attempt, unless it sets another one.
func TestEditKeepsRunTime(t *testing.T) {
	bubble(t, func(t *testing.T, f *fixture) {
		delayed := f.submit(gq.Spec{Queue: "q", Delay: time.Hour})
		at := f.submit(gq.Spec{Queue: "q", RunAt: time.Now().Add(2 * time.Hour)})
		moved := f.submit(gq.Spec{Queue: "q", Delay: time.Hour})
		earlier := time.Now().Add(time.Minute)
		for id, edit := range map[gq.JobID]gq.JobEdit{
			delayed: {Payload: &gq.Payload{Data: []byte("1")}},
			at:      {Payload: &gq.Payload{Data: []byte("1")}},
			moved:   {Payload: &gq.Payload{Data: []byte("1")}, RunAt: earlier},
		} {
			want := f.get(id).State.RunAt
			if id == moved {
				want = earlier
			}
			out := must[gq.SubmitResult](t)(f.Edit(t.Context(), id, edit))
			if got := f.get(out.ID()); got.State.Status != gq.StatusDelayed || !got.State.RunAt.Equal(want) {
				t.Errorf("the copy is %s until %v, want DELAYED until %v", got.State.Status, got.State.RunAt, want)
			}
		}
		if early := must[[]gq.Job](t)(f.Claim(t.Context(), gq.ClaimRequest{Queues: []string{"q"}, Worker: "w", N: 9})); len(early) > 0 {
			t.Errorf("%d jobs were claimed before their run time", len(early))
		}
	})
}

func TestEdit(t *testing.T) {
	f := newFixture(t, engine.Options{}, nil)
	ctx := t.Context()
	parent := f.submit(gq.Spec{Delay: time.Hour})
	spec := gq.Spec{
		Type: "mail", Payload: gq.Payload{Data: []byte(`{"to":"old"}`)}, Key: gq.IdempotencyKey{Name: "k"}, DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: parent}},
		Metadata: gq.Metadata{Tags: map[string]string{"a": "b"}, Priority: gq.PriorityHigh},
	}
	old := f.submit(spec)
	child := f.submit(gq.Spec{DependsOn: []gq.Dependency{{Kind: gq.DependencyAfter, Job: old}}})
	out, err := f.Edit(ctx, old, gq.JobEdit{Payload: &gq.Payload{Data: []byte(`{"to":"new"}`)}, Queue: "mail"})
	if err != nil {
		t.Fatal(err)
	}
	before, err := f.Get(ctx, old, gq.WithPayload)
	if err != nil || before.State.Status != gq.StatusCancelled || before.State.ReplacedBy != out.ID() || string(before.Spec.Payload.Data) != `{"to":"old"}` {
		t.Errorf("the old job: %+v, %v", before, err)
	}
	after, err := f.Get(ctx, out.ID(), gq.WithPayload)
	if err != nil || after.Spec.Replaces != old || after.Spec.Queue != "mail" || string(after.Spec.Payload.Data) != `{"to":"new"}` ||
		after.State.Status != gq.StatusPending || after.Metadata.Tags["a"] != "b" || after.State.Own != gq.PriorityHigh {
		t.Errorf("the new job: %+v, %v", after, err)
	}
	if again := f.submit(spec); again != out.ID() {
		t.Errorf("the key belongs to %s, want the new job %s", again, out.ID())
	}
	if j, err := f.Get(ctx, child, 0); err != nil || j.State.Status != gq.StatusPending || j.Spec.DependsOn[0].Job != out.ID() {
		t.Errorf("a dependent is %s, %v; want it to wait for the new job: %v", j.State.Status, err, j.Spec.DependsOn)
	}
	// An edited dependent follows the replaced dependency.
	moved, err := f.Edit(ctx, child, gq.JobEdit{Queue: "slow"})
	if err != nil || moved.State.Status != gq.StatusPending {
		t.Fatalf("edit of a dependent: %s, %v", moved.State.Status, err)
	}
	if _, err := f.Edit(ctx, old, gq.JobEdit{Queue: "x"}); !errors.Is(err, gq.ErrIllegalMove) {
		t.Errorf("an edit of a replaced job: %v, want ErrIllegalMove", err)
	}
	if _, err := f.Edit(ctx, out.ID(), gq.JobEdit{}); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("an empty edit: %v, want ErrInvalid", err)
	}
	if _, err := f.Edit(ctx, out.ID(), gq.JobEdit{Payload: &gq.Payload{Data: []byte("{")}}); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("an invalid payload: %v, want ErrInvalid", err)
	}
	if _, err := f.Edit(ctx, gq.JobID{1}, gq.JobEdit{Queue: "x"}); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("an unknown job: %v, want ErrNotFound", err)
	}
	running := f.submit(gq.Spec{Queue: "run"})
	f.claim(1, func(r *gq.ClaimRequest) { r.Queues = []string{"run"} })
	if _, err := f.Edit(ctx, running, gq.JobEdit{Queue: "x"}); !errors.Is(err, gq.ErrIllegalMove) {
		t.Errorf("an edit of a running job: %v, want ErrIllegalMove", err)
	}
}
