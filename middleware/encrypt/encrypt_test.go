package encrypt_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	_ "github.com/gopherqueue/gq/driver/file"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/middleware/encrypt"
	"github.com/gopherqueue/gq/worker"
)

const secret = "4111 1111 1111 1111"

type card struct{ Number string }

type receipt struct{ Text string }

var charge = gq.NewKind[card, receipt]("charge", gq.MaxAttempts(3), gq.RetryDelay(gq.Backoff{Strategy: gq.StrategyConstant, Initial: time.Millisecond, Max: time.Second, Multiplier: 1, Jitter: gq.JitterNone}))

func key(id string) encrypt.Key {
	return encrypt.Key{ID: id, Secret: []byte((id + strings.Repeat("0123456789", 4))[:32])}
}

func keys(t *testing.T, first string, others ...string) *encrypt.Keys {
	t.Helper()
	var more []encrypt.Key
	for _, id := range others {
		more = append(more, key(id))
	}
	k, err := encrypt.NewKeys(key(first), more...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// open opens a queue in memory without middleware.
func open(t *testing.T) *gq.Client {
	t.Helper()
	c, err := gq.Open(t.Context(), "memory:")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func start(t *testing.T, c *gq.Client, register func(w *worker.Worker)) {
	t.Helper()
	w := worker.New(c, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	register(w)
	w.Start(t.Context())
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// hidden checks that nothing of a job is readable in the store.
func hidden(t *testing.T, raw *gq.Client, id gq.JobID) gq.Job {
	t.Helper()
	j, err := raw.Get(t.Context(), id, gq.WithPayload|gq.WithResult|gq.WithCheckpoint)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"payload": j.Spec.Payload.Data, "result": j.Result, "checkpoint": j.Checkpoint} {
		if bytes.Contains(data, []byte(secret)) || bytes.Contains(data, []byte("Number")) {
			t.Errorf("the %s of %s is readable: %q", name, j.Spec.Type, data)
		}
	}
	return j
}

// Handlers and waiting programs see plain values; the store has none of them.
func TestEverythingIsEncrypted(t *testing.T) {
	raw := open(t)
	c := raw.With(encrypt.Middleware(keys(t, "k1")))
	child := gq.NewKind[card, gq.None]("child")
	children := make(chan string, 2)
	start(t, c, func(w *worker.Worker) {
		worker.HandleResult(w, charge, func(ctx context.Context, job *worker.Job[card]) (receipt, error) {
			step, err := worker.Step(ctx, job, "authorize", func(context.Context) (string, error) { return job.Args.Number + " authorized", nil })
			if err != nil {
				return receipt{}, err
			}
			if job.Attempt() == 1 {
				if err := job.Checkpoint(ctx, []byte(secret)); err != nil {
					return receipt{}, err
				}
				return receipt{}, gq.Temporary(errors.New("busy"))
			}
			if string(job.LastCheckpoint()) != secret || step != secret+" authorized" {
				t.Errorf("the second attempt has the checkpoint %q and the step %q", job.LastCheckpoint(), step)
			}
			spec, err := child.Spec(job.Args)
			if err != nil {
				return receipt{}, err
			}
			job.SpawnOnSuccess(spec)
			if _, err := job.Spawn(ctx, nil, spec); err != nil {
				return receipt{}, err
			}
			return receipt{"charged " + job.Args.Number}, nil
		})
		worker.Handle(w, child, func(_ context.Context, job *worker.Job[card]) error {
			hidden(t, raw, job.ID())
			children <- job.Args.Number
			return nil
		})
	})
	id, err := charge.Submit(t.Context(), c, card{secret})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := charge.Wait(t.Context(), c, id); err != nil || got.Text != "charged "+secret {
		t.Errorf("the result is %+v, %v", got, err)
	}
	if got := []string{<-children, <-children}; got[0] != secret || got[1] != secret {
		t.Errorf("the children have %q", got)
	}
	stored := hidden(t, raw, id)
	if stored.Spec.Payload.ContentType != encrypt.ContentType || len(stored.Result) == 0 || len(stored.Checkpoint) == 0 {
		t.Errorf("stored %+v", stored)
	}
	plain, err := c.Get(t.Context(), id, gq.WithPayload|gq.WithResult|gq.WithCheckpoint)
	if args, argsErr := charge.Args(plain); err != nil || argsErr != nil || args.Number != secret || plain.Spec.Payload.ContentType != gq.JSON {
		t.Errorf("read %+v, %v, %v", plain.Spec.Payload, err, argsErr)
	}
}

// Children that are unique by a field get its blind index, in whichever way they are spawned.
func TestUniqueChildren(t *testing.T) {
	raw := open(t)
	c := raw.With(encrypt.Middleware(keys(t, "k1"), encrypt.BlindIndex(bytes.Repeat([]byte("index "), 8))))
	child := gq.NewKind[card, gq.None]("child", gq.UniqueBy("Number"), gq.Unique(gq.WhileLive), gq.Delay(time.Hour))
	existing, err := child.Submit(t.Context(), c, card{secret})
	if err != nil {
		t.Fatal(err)
	}
	start(t, c, func(w *worker.Worker) {
		worker.HandleResult(w, charge, func(ctx context.Context, job *worker.Job[card]) (receipt, error) {
			known, err := child.Spec(card{secret})
			if err != nil {
				return receipt{}, err
			}
			spawned, err := job.Spawn(ctx, nil, known)
			if err != nil {
				return receipt{}, gq.Permanent(err, "spawn")
			}
			if id := spawned[0].ID(); id != existing || spawned[0].Err != nil {
				t.Errorf("a child with the same field is job %v, %v; want %v", id, spawned[0].Err, existing)
			}
			other, err := child.Spec(card{"5500"})
			if err != nil {
				return receipt{}, err
			}
			job.SpawnOnSuccess(known, other)
			return receipt{}, nil
		})
	})
	id, err := charge.Submit(t.Context(), c, card{secret})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := charge.Wait(t.Context(), c, id); err != nil {
		t.Fatal(err)
	}
	page, err := raw.List(t.Context(), gq.Query{Types: []string{"child"}, Limit: 10})
	if err != nil || len(page.Jobs) != 2 {
		t.Fatalf("there are %d children, %v; want the existing one and another", len(page.Jobs), err)
	}
	for i := range page.Jobs {
		hidden(t, raw, page.Jobs[i].State.ID)
	}
}

// Workflows: results that other jobs read, signals, batches, schedules and edits.
func TestOtherCalls(t *testing.T) {
	raw := open(t)
	c := raw.With(encrypt.Middleware(keys(t, "k1")))
	ship := gq.NewKind[card, receipt]("ship")
	start(t, c, func(w *worker.Worker) {
		worker.HandleResult(w, charge, func(_ context.Context, job *worker.Job[card]) (receipt, error) { return receipt{job.Args.Number}, nil })
		worker.HandleResult(w, ship, func(_ context.Context, job *worker.Job[card]) (receipt, error) {
			paid, err := worker.ResultOf(job, charge, "charge")
			if err != nil {
				return receipt{}, err
			}
			approval, err := worker.ResultOf(job, charge, "approved")
			return receipt{paid.Text + approval.Text}, err
		})
	})
	flow := gq.NewWorkflow("order")
	first := flow.Add("charge", charge.With(card{secret}))
	signal := flow.Signal("approved", time.Hour)
	flow.Add("ship", ship.With(card{secret}), gq.After(first, signal))
	flowID, err := c.SubmitWorkflow(t.Context(), flow)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Signal(t.Context(), flowID, "approved", receipt{secret}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Signal(t.Context(), flowID, "approved", receipt{secret}); err != nil {
		t.Errorf("the same signal again: %v", err)
	}
	w, err := c.Workflow(t.Context(), flowID)
	if err != nil {
		t.Fatal(err)
	}
	last, _ := w.Job("ship")
	if got, err := ship.Wait(t.Context(), c, last.ID); err != nil || got.Text != secret+secret {
		t.Errorf("the workflow ends with %+v, %v", got, err)
	}
	for _, j := range w.Jobs {
		hidden(t, raw, j.ID)
	}

	ids, err := charge.SubmitMany(t.Context(), c, []card{{secret}, {secret}}, gq.Delay(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	one, two := hidden(t, raw, ids[0]), hidden(t, raw, ids[1])
	if bytes.Equal(one.Spec.Payload.Data, two.Spec.Payload.Data) {
		t.Error("equal payloads of jobs without keys are stored as equal bytes")
	}
	edited, err := c.Edit(t.Context(), ids[0], gq.JobEdit{Payload: &gq.Payload{Data: []byte(`{"Number":"` + secret + `"}`)}, Queue: "other"})
	if err != nil {
		t.Fatal(err)
	}
	hidden(t, raw, edited.ID())
	if j, err := c.Get(t.Context(), edited.ID(), gq.WithPayload); err != nil || !bytes.Contains(j.Spec.Payload.Data, []byte(secret)) {
		t.Errorf("edited: %s, %v", j.Spec.Payload.Data, err)
	}

	template, err := charge.Spec(card{secret})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.PutSchedule(t.Context(), gq.Schedule{Name: "nightly", Cron: "0 3 * * *", Template: template}); err != nil || !bytes.Contains(s.Template.Payload.Data, []byte(secret)) {
		t.Fatal(s, err)
	}
	if s, err := raw.Schedule(t.Context(), "nightly"); err != nil || bytes.Contains(s.Template.Payload.Data, []byte(secret)) {
		t.Errorf("the schedule is stored as %q, %v", s.Template.Payload.Data, err)
	}
	declared := gq.Schedule{Name: "declared", Cron: "0 3 * * *", Template: template}
	stored := func() []byte {
		if _, err := c.DeclareSchedule(t.Context(), declared); err != nil {
			t.Fatal(err)
		}
		s, err := raw.Schedule(t.Context(), "declared")
		if err != nil {
			t.Fatal(err)
		}
		return s.Template.Payload.Data
	}
	if first := stored(); !bytes.Equal(first, stored()) {
		t.Error("a second declaration changes the schedule")
	}
	slot, err := charge.Spec(card{"{{slot_date}}"})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := c.PutSchedule(t.Context(), gq.Schedule{Name: "slots", Cron: "0 3 * * *", Template: slot}); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), "template.payload") {
		t.Errorf("a placeholder that the queue cannot read: %+v, %v", s, err)
	}
	fired, err := c.TriggerSchedule(t.Context(), "nightly")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := charge.Wait(t.Context(), c, fired.Job); err != nil || got.Text != secret {
		t.Errorf("the scheduled job: %+v, %v", got, err)
	}
}

// A process with the old and the new key reads both; one without the new key leaves the job to
// others.
func TestRotation(t *testing.T) {
	raw := open(t)
	old, both, fresh := raw.With(encrypt.Middleware(keys(t, "old"))), raw.With(encrypt.Middleware(keys(t, "new", "old"))), raw.With(encrypt.Middleware(keys(t, "new")))
	before, err := charge.Submit(t.Context(), old, card{secret})
	if err != nil {
		t.Fatal(err)
	}
	after, err := charge.Submit(t.Context(), both, card{secret})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		client *gq.Client
		id     gq.JobID
		want   error
	}{
		"old key, old job": {old, before, nil}, "both keys, old job": {both, before, nil}, "both keys, new job": {both, after, nil},
		"new key, new job": {fresh, after, nil}, "old key, new job": {old, after, encrypt.ErrUnknownKey}, "new key, old job": {fresh, before, encrypt.ErrUnknownKey},
	} {
		_, err := test.client.Get(t.Context(), test.id, gq.WithPayload)
		if !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if temporary := new(gq.TemporaryError); test.want != nil && !errors.As(err, &temporary) {
			t.Errorf("%s: %v is not temporary", name, err)
		}
	}

	// A worker with the old key only fails the new job for now, and does the old one.
	ran := make(chan gq.JobID, 2)
	handle := func(w *worker.Worker) {
		worker.HandleResult(w, charge, func(_ context.Context, job *worker.Job[card]) (receipt, error) {
			ran <- job.ID()
			return receipt{}, nil
		})
	}
	failing := worker.New(old, worker.Config{Logger: slog.New(slog.DiscardHandler)})
	handle(failing)
	for range 2 {
		if ok, err := failing.RunOne(t.Context()); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	if got := <-ran; got != before {
		t.Errorf("ran %s, want %s", got, before)
	}
	j, err := raw.Get(t.Context(), after, 0)
	if err != nil || j.State.Failure == nil || j.State.Failure.Category != gq.CategoryTemporary || !j.State.Live() {
		t.Fatalf("the job with the unknown key is %+v, %v", j.State, err)
	}
	start(t, both, handle)
	if got := <-ran; got != after {
		t.Errorf("ran %s, want %s", got, after)
	}
}

// Whatever is changed in the store, nobody gets anything but an error.
func TestTampering(t *testing.T) {
	m := encrypt.Middleware(keys(t, "k1", "k2"))
	plain := gq.Data{Part: gq.WithPayload, Type: "charge", Bytes: []byte(secret), ContentType: "text/plain"}
	sealed, err := m.Seal(t.Context(), plain)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.Unseal(t.Context(), sealed); err != nil || string(got.Bytes) != secret || got.ContentType != "text/plain" {
		t.Fatalf("%+v, %v", got, err)
	}
	for i := range sealed.Bytes {
		for bit := range 8 {
			changed := sealed
			changed.Bytes = bytes.Clone(sealed.Bytes)
			changed.Bytes[i] ^= 1 << bit
			if got, err := m.Unseal(t.Context(), changed); !errors.Is(err, encrypt.ErrDamaged) && !errors.Is(err, encrypt.ErrUnknownKey) {
				t.Errorf("byte %d, bit %d: %q, %v", i, bit, got.Bytes, err)
			}
		}
	}
	for n := range sealed.Bytes {
		cut := sealed
		cut.Bytes = sealed.Bytes[:n]
		if _, err := m.Unseal(t.Context(), cut); !errors.Is(err, encrypt.ErrDamaged) {
			t.Errorf("cut after %d bytes: %v", n, err)
		}
	}
	for name, change := range map[string]func(*gq.Data){
		"another type": func(d *gq.Data) { d.Type = "refund" },
		"as a result":  func(d *gq.Data) { d.Part, d.Type, d.ContentType = gq.WithResult, "", "" },
	} {
		moved := sealed
		change(&moved)
		_, err := m.Unseal(t.Context(), moved)
		if permanent := new(gq.PermanentError); !errors.Is(err, encrypt.ErrDamaged) || !errors.As(err, &permanent) || permanent.Code != "damaged_content" {
			t.Errorf("%s: %v", name, err)
		}
	}
	result, err := m.Seal(t.Context(), gq.Data{Part: gq.WithResult, Job: gq.JobID{1}, Bytes: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*gq.Data){
		"of another job":  func(d *gq.Data) { d.Job = gq.JobID{2} },
		"as a checkpoint": func(d *gq.Data) { d.Part = gq.WithCheckpoint },
	} {
		moved := result
		change(&moved)
		if _, err := m.Unseal(t.Context(), moved); !errors.Is(err, encrypt.ErrDamaged) {
			t.Errorf("a result %s: %v", name, err)
		}
	}
	slipped := gq.Data{Part: gq.WithPayload, Type: "charge", Bytes: []byte(`{"Number":"1"}`), ContentType: gq.JSON}
	if _, err := m.Unseal(t.Context(), slipped); !errors.Is(err, encrypt.ErrPlain) {
		t.Errorf("a plain payload: %v", err)
	}
	tolerant := encrypt.Middleware(keys(t, "k1"), encrypt.AcceptPlain())
	if got, err := tolerant.Unseal(t.Context(), slipped); err != nil || string(got.Bytes) != `{"Number":"1"}` {
		t.Errorf("a plain payload while a program begins to encrypt: %q, %v", got.Bytes, err)
	}
}

// Repeated submissions are recognized, by key and by fields, without the queue reading them.
func TestKeysAndFields(t *testing.T) {
	raw := open(t)
	c := raw.With(encrypt.Middleware(keys(t, "k1"), encrypt.BlindIndex(bytes.Repeat([]byte("index "), 8))))
	first, err := charge.Submit(t.Context(), c, card{secret}, gq.Key("order-7"))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := charge.Submit(t.Context(), c, card{secret}, gq.Key("order-7")); err != nil || again != first {
		t.Errorf("the same submission again: %s, %v, want %s", again, err, first)
	}
	if other, err := charge.Submit(t.Context(), c, card{"1"}, gq.Key("order-7")); !errors.Is(err, gq.ErrKeyReused) || other != first {
		t.Errorf("another submission with the key: %s, %v", other, err)
	}
	flow := gq.NewWorkflow("order")
	flow.ID = machine.NewWorkflowID(time.Now(), [16]byte{7})
	flow.Add("charge", charge.With(card{secret}))
	for range 2 {
		if id, err := c.SubmitWorkflow(t.Context(), flow); err != nil || id != flow.ID {
			t.Errorf("a workflow with an id: %s, %v", id, err)
		}
	}
	unique := []gq.Option{gq.Unique(gq.WhileLive), gq.UniqueBy("Number")}
	first, err = charge.Submit(t.Context(), c, card{secret}, unique...)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := charge.Submit(t.Context(), c, card{secret}, unique...); err != nil || again != first {
		t.Errorf("unique by a field: %s, %v, want %s", again, err, first)
	}
	if other, err := charge.Submit(t.Context(), c, card{"1"}, unique...); err != nil || other == first {
		t.Errorf("another value of the field: %s, %v", other, err)
	}
	if j := hidden(t, raw, first); strings.Contains(j.Spec.Key.Name, secret) || !strings.HasPrefix(j.Spec.Key.Name, "blind:") {
		t.Errorf("the key is %q", j.Spec.Key.Name)
	}
	invalid := new(gq.InvalidError)
	if _, err := charge.Submit(t.Context(), raw.With(encrypt.Middleware(keys(t, "k1"))), card{secret}, unique...); !errors.As(err, &invalid) || invalid.Faults[0].Field != "unique.fields" || !strings.Contains(invalid.Faults[0].Problem, "BlindIndex") {
		t.Errorf("without an index: %v", err)
	}
	if _, err := charge.Submit(t.Context(), c, card{secret}, gq.UniqueBy("Owner")); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "Owner") {
		t.Errorf("a field that does not exist: %v", err)
	}
}

func TestNewKeys(t *testing.T) {
	for name, test := range map[string]struct {
		keys []encrypt.Key
		want []string
	}{
		"no id":         {[]encrypt.Key{{Secret: key("a").Secret}}, []string{"keys[0].id"}},
		"long id":       {[]encrypt.Key{{ID: strings.Repeat("x", 65), Secret: key("a").Secret}}, []string{"keys[0].id"}},
		"short secret":  {[]encrypt.Key{key("a"), {ID: "b", Secret: []byte("short")}}, []string{"keys[1].secret"}},
		"no secret":     {[]encrypt.Key{{}}, []string{"keys[0].id", "keys[0].secret"}},
		"zeros":         {[]encrypt.Key{{ID: "a", Secret: make([]byte, 32)}}, []string{"keys[0].secret"}},
		"an id twice":   {[]encrypt.Key{key("a"), key("a")}, []string{"keys[1].id"}},
		"nothing wrong": {[]encrypt.Key{key("a"), key("b")}, nil},
	} {
		k, err := encrypt.NewKeys(test.keys[0], test.keys[1:]...)
		var fields []string
		if invalid := new(gq.InvalidError); errors.As(err, &invalid) {
			for _, f := range invalid.Faults {
				fields = append(fields, f.Field)
			}
		}
		if strings.Join(fields, " ") != strings.Join(test.want, " ") || (err == nil) != (k != nil) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%s: the error has a secret: %v", name, err)
		}
	}
	if got := keys(t, "b", "a").IDs(); strings.Join(got, " ") != "a b" {
		t.Errorf("ids %q", got)
	}
}
