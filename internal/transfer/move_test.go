package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/postgres"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// directory opens the embedded store in a directory.
func directory(t testing.TB, dir string, unfinished bool) *local.Store {
	t.Helper()
	s, err := local.Open(dir, local.Options{Config: store.Config{Unfinished: unfinished}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, s) })
	return s
}

func closing(t testing.TB, s interface{ Close() error }) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// memory returns an empty store that is gone after the test.
func memory(t testing.TB) *local.Store {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closing(t, s) })
	return s
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// populate fills a store with jobs in most states, with everything that may belong to
// them.
func populate(t testing.TB, s store.Store, rounds int) {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(s.PutPool(ctx, gq.Pool{Name: "gpu", Capacity: 1000000}))
	q := machine.NewQueue("fair")
	q.Fair, q.Pool, q.Rate = true, "gpu", gq.Rate{Count: 1_000_000, Per: time.Hour, Burst: 10_000}
	check(s.PutQueue(ctx, q))
	must(s.PutDocs(ctx, []store.Doc{{Kind: "schedule", Name: "nightly", Data: []byte(`{"cron":"0 3 * * *"}`)}}))(t)
	for n := range rounds {
		var groups []store.Group
		add := func(change func(*gq.Spec)) gq.JobID {
			spec := gq.Spec{ID: machine.NewJobID([16]byte{byte(n), byte(n >> 8), byte(len(groups)), 7}), Type: "t", Queue: "q"}
			spec.Payload = gq.Payload{ContentType: "text/plain", Data: fmt.Appendf(nil, "payload %d of round %d", len(groups), n)}
			change(&spec)
			groups = append(groups, store.One(spec.WithDefaults()))
			return spec.ID
		}
		parent := add(func(spec *gq.Spec) { spec.Metadata.Priority = gq.PriorityCritical })
		late := add(func(spec *gq.Spec) { spec.Delay = time.Hour })
		add(func(spec *gq.Spec) { spec.Key = gq.IdempotencyKey{Name: fmt.Sprintf("key %d", n), Fingerprint: 1} })
		add(func(spec *gq.Spec) {
			spec.Queue, spec.FairKey, spec.CostUnits = "fair", fmt.Sprintf("tenant %d", n%3), 1
		})
		add(func(spec *gq.Spec) {
			spec.DependsOn = []gq.Dependency{{Kind: gq.DependencyAfter, Job: parent}, {Kind: gq.DependencyAfter, Job: late}}
		})
		for _, in := range must(s.Insert(ctx, groups))(t) {
			check(in.Err)
		}
		claimed := must(s.Claim(ctx, []store.Claim{
			{Filter: store.Filter{Queues: []string{"q"}}, N: 2, Worker: "w"}, {Filter: store.Filter{Queues: []string{"fair"}}, N: 1, Worker: "w", Hold: true},
		}))(t)
		for i, j := range claimed[0].Jobs {
			ref, result := j.State.Lease.Ref(), []byte("result")
			out := must(s.Update(ctx, []store.Update{{Ref: store.Ref{Job: j.State.ID}, Result: result, Apply: func(st gq.State, now time.Time) (gq.State, []gq.Event, error) {
				if i == 1 && n%2 == 0 {
					return machine.Fail(st, ref, gq.Failure{Category: gq.CategoryTemporary, Code: "busy", Message: "later"}, machine.Draw{}, now)
				}
				return machine.Complete(st, ref, result, now)
			}}}))(t)
			check(out[0].Err)
		}
	}
}

// copied copies a store and returns the report.
func copied(t testing.TB, from store.Exporter, to Destination) Report {
	t.Helper()
	x := must(from.Export(t.Context()))(t)
	defer closing(t, x)
	return must(Copy(t.Context(), x, to, Options{}))(t)
}

// backup writes a store to a file.
func backup(t testing.TB, from store.Exporter) (name string, r Report) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "backup")
	to := must(Create(name))(t)
	r = copied(t, from, to)
	closing(t, to)
	return name, r
}

func restored(t testing.TB, name string, to Destination) Report {
	t.Helper()
	f := must(OpenFile(name))(t)
	defer closing(t, f)
	if err := f.Check(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return must(Copy(t.Context(), f, to, Options{}))(t)
}

// TestRoundTrip copies from a directory to a file, to PostgreSQL, to a file and back to a
// directory. The contents stay the same all the way.
func TestRoundTrip(t *testing.T) {
	first := directory(t, filepath.Join(t.TempDir(), "first"), false)
	populate(t, first, 20)
	file, began := backup(t, first)
	if jobs := began.Sums.of(kindJob).Count; jobs != 100 {
		t.Fatalf("%d jobs were backed up, want 100", jobs)
	}
	for _, k := range []kind{kindPool, kindQueue, kindDoc, kindEvent, kindJob, kindEdge} {
		if began.Sums.of(k).Count == 0 {
			t.Errorf("there are no %s to move", k)
		}
	}
	server, err := postgres.Open(t.Context(), pgtest.Database(t), store.Config{Unfinished: true})
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, server)
	last := directory(t, filepath.Join(t.TempDir(), "last"), true)
	for _, step := range []struct {
		name string
		do   func() Report
	}{
		{"file to PostgreSQL", func() Report { return restored(t, file, server) }},
		{"PostgreSQL to file", func() Report {
			var r Report
			file, r = backup(t, server)
			return r
		}},
		{"PostgreSQL to directory", func() Report { return copied(t, server, last) }},
		{"directory to file", func() Report {
			var r Report
			file, r = backup(t, last)
			return r
		}},
		{"file to memory", func() Report { return restored(t, file, memory(t)) }},
	} {
		if r := step.do(); r.Sums != began.Sums || r.LastEvent != began.LastEvent || r.Resumed {
			t.Errorf("%s: %s; last event %d, want %d", step.name, r.Sums.difference(began.Sums), r.LastEvent, began.LastEvent)
		}
	}
}

// stumbling is a destination whose n-th part fails.
type stumbling struct {
	Destination
	parts int
}

type stumblingImport struct {
	store.Import
	s *stumbling
}

var errStumbled = errors.New("stumbled")

func (s *stumbling) Import(ctx context.Context, h store.Head) (store.Import, error) {
	in, err := s.Destination.Import(ctx, h)
	return stumblingImport{in, s}, err
}

func (s stumblingImport) Write(ctx context.Context, items store.Items, mark []byte) error {
	if s.s.parts == 0 {
		return errStumbled
	}
	s.s.parts--
	return s.Import.Write(ctx, items, mark)
}

// TestResume interrupts a restore after every part, until it is done.
func TestResume(t *testing.T) {
	source := memory(t)
	populate(t, source, 20)
	file, want := backup(t, source)
	dir := filepath.Join(t.TempDir(), "to")
	f := must(OpenFile(file))(t)
	defer closing(t, f)
	if err := f.Check(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	runs := 0
	for ; ; runs++ {
		s := must(local.Open(dir, local.Options{Config: store.Config{Unfinished: true}}))(t)
		parts := min(runs, 1) // the first run gets no further than the start
		r, err := Copy(t.Context(), f, &stumbling{s, parts}, Options{})
		closing(t, s)
		if err == nil {
			if r.Sums != want.Sums || !r.Resumed {
				t.Errorf("resumed %t: %s", r.Resumed, r.Sums.difference(want.Sums))
			}
			break
		}
		if !errors.Is(err, errStumbled) {
			t.Fatal(err)
		}
		if _, err := local.Open(dir, local.Options{}); !errors.Is(err, gq.ErrUnfinished) || !strings.Contains(err.Error(), "gq copy or gq restore") {
			t.Fatalf("a server opens an unfinished store: %v", err)
		}
	}
	if runs < 4 {
		t.Errorf("the restore was broken off only %d times", runs)
	}
	if r := copied(t, directory(t, dir, false), memory(t)); r.Sums != want.Sums {
		t.Errorf("in the end: %s", r.Sums.difference(want.Sums))
	}
}

// forgetful is a destination that loses or changes something.
type forgetful struct {
	Destination
	change func(*store.Items)
}

type forgetfulImport struct {
	store.Import
	change func(*store.Items)
}

func (f forgetful) Import(ctx context.Context, h store.Head) (store.Import, error) {
	in, err := f.Destination.Import(ctx, h)
	return forgetfulImport{in, f.change}, err
}

func (f forgetfulImport) Write(ctx context.Context, items store.Items, mark []byte) error {
	f.change(&items)
	return f.Import.Write(ctx, items, mark)
}

// TestVerification checks that destinations with wrong contents are detected and stay
// unfinished.
func TestVerification(t *testing.T) {
	source := memory(t)
	populate(t, source, 2)
	for _, test := range []struct {
		name, want string
		change     func(*store.Items)
	}{
		{"a job is lost", "9 jobs, want 10", func(i *store.Items) {
			if len(i.Jobs) > 0 {
				i.Jobs = i.Jobs[:len(i.Jobs)-1]
			}
		}},
		{"a result is lost", "jobs with checksum", func(i *store.Items) {
			for k := range i.Jobs {
				i.Jobs[k].Result = nil
			}
		}},
		{"an event has another number", "events with checksum", func(i *store.Items) {
			if n := len(i.Events); n > 0 {
				i.Events[n-1].Attempt++
			}
		}},
		{"a document is lost", "0 documents, want 1", func(i *store.Items) { i.Docs = nil }},
		{"a dependency is lost", "0 dependencies, want", func(i *store.Items) { i.Edges = nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "to")
			to := must(local.Open(dir, local.Options{Config: store.Config{Unfinished: true}}))(t)
			x := must(source.Export(t.Context()))(t)
			defer closing(t, x)
			_, err := Copy(t.Context(), x, forgetful{to, test.change}, Options{})
			closing(t, to)
			if !errors.Is(err, errDiffers) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			if _, err := local.Open(dir, local.Options{}); !errors.Is(err, gq.ErrUnfinished) {
				t.Errorf("a server opens it: %v", err)
			}
		})
	}
}

// TestSourceChanged checks that the destination stays unfinished if its source has
// changed.
func TestSourceChanged(t *testing.T) {
	source, to := memory(t), memory(t)
	populate(t, source, 1)
	x := must(source.Export(t.Context()))(t)
	defer closing(t, x)
	stop := errors.New("it has changed")
	_, err := Copy(t.Context(), x, to, Options{Unchanged: func(context.Context) error { return stop }})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	if in, err := to.Import(t.Context(), x.Head()); err != nil || in.Mark() == nil {
		t.Errorf("the copy was finished all the same: %v", err)
	}
}

// TestDamage changes every byte of a backup, and truncates it at every byte. All of it is
// detected before anything is read.
func TestDamage(t *testing.T) {
	source := memory(t)
	populate(t, source, 1)
	name, _ := backup(t, source)
	whole := must(os.ReadFile(name))(t)
	open := func(b []byte) error {
		f, err := newFile("backup", bytes.NewReader(b), int64(len(b)))
		if err == nil {
			err = f.Check(t.Context(), nil)
		}
		return err
	}
	if err := open(whole); err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		broken := bytes.Clone(whole)
		broken[i] ^= 1 << (i % 8)
		if err := open(broken); err == nil || !strings.Contains(err.Error(), "backup") {
			t.Errorf("byte %d of %d changed: %v", i, len(whole), err)
		}
		err := open(whole[:i])
		switch {
		case err == nil:
			t.Errorf("cut off at byte %d of %d: no error", i, len(whole))
		case i > len(magic) && !strings.Contains(err.Error(), fmt.Sprintf("ends at byte %d", i)):
			t.Errorf("cut off at byte %d of %d: %v", i, len(whole), err)
		}
	}
	if err := open(append(bytes.Clone(whole), 0)); err == nil || !strings.Contains(err.Error(), "1 bytes after its last block") {
		t.Errorf("with one byte more: %v", err)
	}
	// Intact blocks in another order.
	f := must(newFile("backup", bytes.NewReader(whole), int64(len(whole))))(t)
	second := must(f.frame(f.first))(t)
	third := must(f.frame(second.end))(t)
	swapped := bytes.Join([][]byte{whole[:f.first], third.whole, second.whole, whole[third.end:]}, nil)
	if err := open(swapped); err == nil || !strings.Contains(err.Error(), "stands where block 1 should be") {
		t.Errorf("blocks in another order: %v", err)
	}
	for text, want := range map[string]string{
		"":                       "is not a backup",
		"something else\n":       "is not a backup",
		"gopherqueue backup 2\n": "another format",
	} {
		if err := open([]byte(text)); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A destination is unfinished from its creation on. A copy that was killed before its first part
// leaves nothing that a server takes for a new store, and another run finishes it.
func TestKilledBeforeTheFirstPart(t *testing.T) {
	type filled interface {
		store.Store
		Destination
	}
	for name, place := range map[string]func(t *testing.T) func(unfinished bool) (filled, error){
		"file": func(t *testing.T) func(bool) (filled, error) {
			dir := filepath.Join(t.TempDir(), "to")
			return func(unfinished bool) (filled, error) {
				return local.Open(dir, local.Options{Config: store.Config{Unfinished: unfinished}})
			}
		},
		"postgres": func(t *testing.T) func(bool) (filled, error) {
			url := pgtest.Database(t)
			return func(unfinished bool) (filled, error) {
				return postgres.Open(t.Context(), url, store.Config{Unfinished: unfinished})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			open := place(t)
			from := memory(t)
			populate(t, from, 3)
			closing(t, must(open(true))(t))
			for range 2 { // a refusal changes nothing
				if s, err := open(false); !errors.Is(err, gq.ErrUnfinished) {
					t.Errorf("a server opens it: %v", err)
					if err == nil {
						closing(t, s)
					}
				}
			}
			to := must(open(true))(t)
			x := must(from.Export(t.Context()))(t)
			report, err := Copy(t.Context(), x, to, Options{})
			if err != nil || report.Resumed {
				t.Errorf("resumed %t, %v", report.Resumed, err)
			}
			closing(t, x)
			closing(t, to)
			closing(t, must(open(false))(t))
		})
	}
}

// TestUnfinishedBackup checks that an unfinished backup leaves nothing behind, and no
// file with its name.
func TestUnfinishedBackup(t *testing.T) {
	source := memory(t)
	populate(t, source, 1)
	dir := t.TempDir()
	name := filepath.Join(dir, "backup")
	if err := os.WriteFile(partial(name), []byte("left by a run that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	to := must(Create(name))(t)
	x := must(source.Export(t.Context()))(t)
	defer closing(t, x)
	if _, err := Copy(t.Context(), x, &stumbling{to, 2}, Options{}); !errors.Is(err, errStumbled) {
		t.Fatal(err)
	}
	closing(t, to)
	if left := must(os.ReadDir(dir))(t); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	to = must(Create(name))(t)
	must(Copy(t.Context(), x, to, Options{}))(t)
	closing(t, to)
	if info := must(os.Stat(name))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("others can read it: %v", info.Mode())
	}
	if _, err := Create(name); !errors.Is(err, gq.ErrConflict) {
		t.Errorf("a backup over another one: %v", err)
	}
}

// FuzzFile reads arbitrary bytes. It must only fail with an error.
func FuzzFile(f *testing.F) {
	source := memory(f)
	populate(f, source, 1)
	name, _ := backup(f, source)
	whole := must(os.ReadFile(name))(f)
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, b []byte) {
		in, err := newFile("backup", bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		checked := in.Check(t.Context(), nil)
		var sums Sums
		read := each(t.Context(), in, "", func(p part) error {
			sums.add(&p.items)
			return nil
		})
		if bytes.Equal(b, whole) && (checked != nil || read != nil || sums != in.sums) {
			t.Errorf("a good file: %v, %v", checked, read)
		}
	})
}

// FuzzDecode decodes items. Those it accepts have one encoding.
func FuzzDecode(f *testing.F) {
	source := memory(f)
	populate(f, source, 1)
	x := must(source.Export(f.Context()))(f)
	defer closing(f, x)
	if err := each(f.Context(), x, "", func(p part) error { f.Add(encode(&p.items)); return nil }); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		items, err := decode(b)
		if err != nil {
			return
		}
		once := encode(&items)
		again, err := decode(once)
		if err != nil || !bytes.Equal(encode(&again), once) {
			t.Errorf("what was accepted is not what is written: %v", err)
		}
	})
}
