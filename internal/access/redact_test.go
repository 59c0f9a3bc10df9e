package access

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
)

// TestRedactingIsTotal checks that each call whose answer may have content of jobs is redacted, or
// needs a scope that shows it.
func TestRedactingIsTotal(t *testing.T) {
	open := map[string]Scope{
		"Claim": Work, "Start": Work, "Fail": Work, "Release": Work, "Complete": Work,
		"Prepare": Work, "Report": Work, "Admit": Work,
		"PutSchedule": Admin, "DeclareSchedule": Admin, "PauseSchedule": Admin, "ResumeSchedule": Admin,
	}
	content := []reflect.Type{reflect.TypeFor[gq.Payload](), reflect.TypeFor[gq.State](), reflect.TypeFor[gq.Failure](), reflect.TypeFor[gq.Job]()}
	var has func(x reflect.Type, seen map[reflect.Type]bool) bool
	has = func(x reflect.Type, seen map[reflect.Type]bool) bool {
		if seen[x] {
			return false
		}
		seen[x] = true
		for _, c := range content {
			if x == c {
				return true
			}
		}
		switch x.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Chan:
			return has(x.Elem(), seen)
		case reflect.Func:
			for i := range x.NumIn() {
				if has(x.In(i), seen) {
					return true
				}
			}
		case reflect.Struct:
			for i := range x.NumField() {
				if has(x.Field(i).Type, seen) {
					return true
				}
			}
		}
		return false
	}
	for m := range reflect.TypeFor[redacting]().Methods() {
		shows := false
		for i := range m.Type.NumOut() {
			shows = shows || has(m.Type.Out(i), map[reflect.Type]bool{})
		}
		for i := range m.Type.NumIn() {
			if in := m.Type.In(i); in.Kind() == reflect.Func {
				shows = shows || has(in, map[reflect.Type]bool{})
			}
		}
		file, _ := runtime.FuncForPC(m.Func.Pointer()).FileLine(m.Func.Pointer())
		redacts := strings.HasSuffix(file, "redact.go")
		if shows && !redacts && calls[m.Name].needs&^open[m.Name] != 0 {
			t.Errorf("%s answers with content of jobs and is not redacted", m.Name)
		}
	}
}

// TestContentStaysInItsQueue checks that a caller who may not see the content of a job cannot carry
// it to where it may.
func TestContentStaysInItsQueue(t *testing.T) {
	const callback = "https://example.com/"
	for grants, may := range map[[2]string]bool{
		{"submit@c", "submit,read@d"}: false, {"observe,submit@c", "submit,work@d"}: false, {"submit,observe@*", "admin@d"}: false,
		{"submit,read@c", "submit@d"}: true, {"submit@*", "work@c"}: true, {"submit,read@*"}: true,
	} {
		f := newFixture(t)
		ctx := f.as(slices.DeleteFunc(grants[:], func(g string) bool { return g == "" })...)
		flow := gq.NewWorkflow("")
		for _, ref := range []string{"a", "b"} {
			flow.Add(ref, gq.Draft{Spec: gq.Spec{Queue: "c", Type: "t"}})
		}
		id, err := f.engine.SubmitWorkflow(t.Context(), flow)
		if err != nil {
			t.Fatal(err)
		}
		w, err := f.engine.Workflow(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		add := func(ref, queue string, needs []gq.Dependency, on ...gq.Dependency) error {
			_, err := f.guard.AddToWorkflow(ctx, id, &gq.Flow{Jobs: []gq.GraphJob{{Ref: ref, Needs: needs, Spec: gq.Spec{Queue: queue, Type: "t", DependsOn: on}}}})
			return err
		}
		waiting := func(queue string) gq.JobID {
			out, err := f.engine.Submit(t.Context(), gq.Spec{Queue: queue, Type: "t"})
			if err != nil {
				t.Fatal(err)
			}
			return out.ID()
		}
		edit := func(change gq.JobEdit) error {
			_, err := f.guard.Edit(ctx, waiting("c"), change)
			return err
		}
		url := func(url string) error {
			_, err := f.guard.UpdateMetadata(ctx, waiting("c"), gq.MetadataPatch{CallbackURL: &url})
			return err
		}
		need := []gq.Dependency{{Kind: gq.DependencyAfter, Ref: "b"}}
		for what, c := range map[string]struct {
			err    error
			always bool
		}{
			"move":                        {edit(gq.JobEdit{Queue: "d"}), false},
			"move with another payload":   {edit(gq.JobEdit{Queue: "d", Payload: &gq.Payload{Data: []byte("1")}}), false},
			"edit":                        {edit(gq.JobEdit{Payload: &gq.Payload{Data: []byte("1")}}), true},
			"edit in its queue":           {edit(gq.JobEdit{Queue: "c", Payload: &gq.Payload{Data: []byte("1")}}), true},
			"callback":                    {url(callback), false},
			"no callback":                 {url(""), true},
			"add a job that needs one":    {add("x", "d", need), false},
			"add a job after one":         {add("y", "d", nil, gq.Dependency{Kind: gq.DependencyAfter, Job: w.Jobs[0].ID}), false},
			"add a job beside":            {add("z", "d", nil), true},
			"add a job of the same queue": {add("same", "c", need), true},
		} {
			if denied := errors.Is(c.err, gq.ErrDenied); denied == (may || c.always) || c.err != nil && !denied {
				t.Errorf("%v: %s: %v, allowed %t", grants, what, c.err, may || c.always)
			}
		}
	}
}

// secretive is an engine that answers with content and an error.
type secretive struct {
	engine.API
	job gq.Job
}

var errSecretive = errors.New("with an answer")

func (s secretive) Get(context.Context, gq.JobID, gq.Parts) (gq.Job, error) {
	return s.job, errSecretive
}
func (s secretive) Wait(context.Context, gq.JobID) (gq.Job, error) { return s.job, errSecretive }
func (s secretive) ByLease(context.Context, gq.LeaseID, gq.Parts) (gq.Job, error) {
	return s.job, errSecretive
}

func (s secretive) UpdateMetadata(context.Context, gq.JobID, gq.MetadataPatch) (gq.Job, error) {
	return s.job, errSecretive
}

func (s secretive) Submit(context.Context, gq.Spec) (gq.SubmitResult, error) {
	return gq.SubmitResult{State: s.job.State}, errSecretive
}

func (s secretive) Settle(context.Context, []gq.Outcome) ([]gq.LeaseResult, error) {
	return []gq.LeaseResult{{Spawned: []gq.SubmitResult{{State: s.job.State}}}}, errSecretive
}

func (s secretive) Heartbeat(context.Context, []gq.Heartbeat) ([]gq.LeaseResult, error) {
	return []gq.LeaseResult{{Spawned: []gq.SubmitResult{{State: s.job.State}}}}, errSecretive
}

func (s secretive) Cancel(context.Context, gq.JobID, string) (gq.State, error) {
	return s.job.State, errSecretive
}

func (s secretive) Workflow(context.Context, gq.WorkflowID) (gq.Workflow, error) {
	return gq.Workflow{Jobs: []gq.WorkflowJob{{Job: s.job}}}, errSecretive
}

func (s secretive) Explain(context.Context, gq.JobID) (gq.Explanation, error) {
	return gq.Explanation{Timeline: []gq.Event{{Queue: "q", Failure: s.job.State.Failure}}}, errSecretive
}

// TestRedactedBesideErrors checks that an answer that comes with an error is redacted, too: for
// tokens that observe, and for those that only submit.
func TestRedactedBesideErrors(t *testing.T) {
	f := newFixture(t)
	const secret = "SECRET"
	s := secretive{job: gq.Job{
		Spec: gq.Spec{Queue: "q", Payload: gq.Payload{Data: []byte(secret)}}, Result: []byte(secret), Checkpoint: []byte(secret),
		State: gq.State{Note: secret, Failure: &gq.Failure{Message: secret}},
	}}
	r := redacting{s}
	for name, call := range map[string]func(ctx context.Context) (any, error){
		"Get":            func(ctx context.Context) (any, error) { return r.Get(ctx, gq.JobID{}, 0) },
		"Wait":           func(ctx context.Context) (any, error) { return r.Wait(ctx, gq.JobID{}) },
		"ByLease":        func(ctx context.Context) (any, error) { return r.ByLease(ctx, "", 0) },
		"UpdateMetadata": func(ctx context.Context) (any, error) { return r.UpdateMetadata(ctx, gq.JobID{}, gq.MetadataPatch{}) },
		"Submit":         func(ctx context.Context) (any, error) { return r.Submit(ctx, gq.Spec{}) },
		"Settle":         func(ctx context.Context) (any, error) { return r.Settle(ctx, nil) },
		"Heartbeat":      func(ctx context.Context) (any, error) { return r.Heartbeat(ctx, nil) },
		"Cancel":         func(ctx context.Context) (any, error) { return r.Cancel(ctx, gq.JobID{}, "") },
		"Workflow":       func(ctx context.Context) (any, error) { return r.Workflow(ctx, gq.WorkflowID{}) },
		"Explain":        func(ctx context.Context) (any, error) { return r.Explain(ctx, gq.JobID{}) },
	} {
		for grants, sees := range map[[2]string]bool{
			{"observe@*"}: false, {"observe,submit@q"}: false, {"submit@q"}: false, {"work@other", "submit@q"}: false,
			{"read@q"}: true, {"submit,read@q"}: true, {"submit@q", "read@q"}: true,
		} {
			answer, err := call(f.as(slices.DeleteFunc(grants[:], func(g string) bool { return g == "" })...))
			if !errors.Is(err, errSecretive) {
				t.Fatal(err)
			}
			text, err := json.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			if shown := strings.Contains(string(text), secret); shown != sees {
				t.Errorf("%s shows %v the secret: %t, want %t", name, grants, shown, sees)
			}
		}
	}
}
