package engine_test

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
	"github.com/gopherqueue/gq/store/postgres"
	"github.com/gopherqueue/gq/store/simple"
)

// innerStep is the name of a step within a call, or of a package, which means nothing to the caller.
// A call may say once what it was about to do: "submit", "list jobs".
var innerStep = regexp.MustCompile(`(^|: )(insert|update|updates\[\d+\]|change|write|read( [a-z]+)?|put [a-z]+|get|list|peek|waiting|spawn|collect|purge|keys|pools|history|documents?( \S+)?|counts|due|release|take in|local|postgres|engine|store|machine|codec): `)

// Errors name what the caller gave and what is wrong with it, on all stores: neither the steps
// within the call nor what it was about to do twice.
func TestErrorsNameNoInnerStep(t *testing.T) {
	for name, opened := range map[string]func(t *testing.T) (store.Store, error){
		"Local":  func(*testing.T) (store.Store, error) { return local.OpenMemory(local.Options{}) },
		"Memory": func(*testing.T) (store.Store, error) { return simple.Open(store.Config{}) },
		"PostgreSQL": func(t *testing.T) (store.Store, error) {
			return postgres.Open(t.Context(), pgtest.Database(t), store.Config{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := opened(t)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			f := &fixture{T: t, Engine: newEngine(t, s, engine.Options{}), store: s}
			for call, err := range f.refusals() {
				if err == nil {
					t.Errorf("%s is accepted", call)
					continue
				}
				text := err.Error()
				steps := strings.SplitN(text, ": ", 3)
				if step := innerStep.FindString(text); step != "" || len(steps) > 1 && steps[0] == steps[1] {
					t.Errorf("%s says %q, with the step %q", call, text, step)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			f.Engine = newEngine(t, s, engine.Options{}) // which has read no queues yet
			for call, err := range f.refusals() {
				if err == nil {
					continue
				}
				if step := innerStep.FindString(err.Error()); step != "" {
					t.Errorf("of a closed store %s says %q, with the step %q", call, err, step)
				}
			}
		})
	}
}

// refusals makes calls that no store can serve and returns their errors. On a closed store some
// have none.
func (f *fixture) refusals() map[string]error {
	ctx, all := f.Context(), map[string]error{}
	nowhere := gq.LeaseRef{ID: "00000000-0000-7000-8000-000000000000", Version: 1}
	big := gq.Payload{Data: json.RawMessage(`"` + strings.Repeat("x", 17<<20) + `"`), ContentType: gq.JSON}
	submit := func(call string, s gq.Spec) {
		_, all[call] = f.Submit(ctx, s)
		answers, err := f.SubmitBatch(ctx, []gq.Spec{s})
		if err == nil && len(answers) == 1 {
			err = answers[0].Err
		}
		all[call+" in a batch"] = err
		_, all[call+" in a graph"] = f.SubmitGraph(ctx, []gq.GraphJob{{Ref: "a", Spec: s}})
	}
	_, all["limit the queue"] = f.PutQueue(ctx, gq.Queue{Name: "full", MaxDepth: 1})
	_, _ = f.Submit(ctx, gq.Spec{Type: "k", Queue: "full"})
	delete(all, "limit the queue")
	submit("submit to a full queue", gq.Spec{Type: "k", Queue: "full"})
	submit("submit too much", gq.Spec{Type: "k", Payload: big})
	submit("submit after nothing", gq.Spec{Type: "k", DependsOn: []gq.Dependency{{Job: gq.JobID{1}, Kind: gq.DependencyAfter}}})
	var held gq.LeaseRef
	if out, err := f.Submit(ctx, gq.Spec{Type: "k", Queue: "held"}); err == nil {
		jobs, err := f.Claim(ctx, gq.ClaimRequest{Worker: "w", Queues: []string{"held"}, N: 1, TTL: time.Minute})
		if err == nil && len(jobs) == 1 {
			held = jobs[0].State.Lease.Ref()
		}
		_, all["replay a live job"] = f.Replay(ctx, out.ID())
		all["purge a live job"] = f.Purge(ctx, out.ID())
	}
	settle := func(call string, o gq.Outcome) {
		answers, err := f.Settle(ctx, []gq.Outcome{o})
		if err == nil && len(answers) == 1 {
			err = answers[0].Err
		}
		all[call] = err
	}
	settle("complete under no lease", gq.Outcome{Lease: nowhere, Verdict: gq.VerdictComplete})
	settle("fail under no lease", gq.Outcome{Lease: nowhere, Verdict: gq.VerdictFail})
	settle("complete with too much", gq.Outcome{Lease: held, Verdict: gq.VerdictComplete, Result: big.Data})
	settle("spawn nothing", gq.Outcome{Lease: held, Verdict: gq.VerdictComplete, Spawn: []gq.Spec{{}}})
	settle("spawn into a full queue", gq.Outcome{Lease: held, Verdict: gq.VerdictComplete, Spawn: []gq.Spec{{Type: "k", Queue: "full"}}})
	beats, err := f.Heartbeat(ctx, []gq.Heartbeat{{Lease: nowhere}})
	if err == nil && len(beats) == 1 {
		err = beats[0].Err
	}
	all["heartbeat under no lease"] = err
	_, all["start under no lease"] = f.Start(ctx, nowhere, time.Minute)
	_, all["prepare under no lease"] = f.Prepare(ctx, nowhere, gq.DetailPreparing)
	_, all["get nothing"] = f.Get(ctx, gq.JobID{1}, 0)
	_, all["history of nothing"] = f.History(ctx, gq.JobID{1})
	_, all["cancel nothing"] = f.Cancel(ctx, gq.JobID{1}, "x")
	_, all["update nothing"] = f.UpdateMetadata(ctx, gq.JobID{1}, gq.MetadataPatch{})
	_, all["reschedule nothing"] = f.Reschedule(ctx, gq.JobID{1}, time.Now().Add(time.Hour))
	_, all["edit nothing"] = f.Edit(ctx, gq.JobID{1}, gq.JobEdit{})
	_, all["explain nothing"] = f.Explain(ctx, gq.JobID{1})
	_, all["list by a bad cursor"] = f.List(ctx, gq.Query{Cursor: "!"})
	_, all["list too many"] = f.List(ctx, gq.Query{Limit: 1 << 20})
	_, all["read no queue"] = f.Queue(ctx, "nosuch")
	_, all["resume no queue"] = f.Resume(ctx, "nosuch")
	_, all["name a queue badly"] = f.PutQueue(ctx, gq.Queue{Name: "a b"})
	_, all["limit a queue below 0"] = f.PutQueue(ctx, gq.Queue{Name: "q", MaxDepth: -1})
	_, all["declare a bad queue"] = f.DeclareQueue(ctx, gq.Queue{Name: "q", MaxDepth: -1})
	all["delete a full queue"] = f.DeleteQueue(ctx, "full")
	all["delete no queue"] = f.DeleteQueue(ctx, "nosuch")
	all["put a bad pool"] = f.PutPool(ctx, gq.Pool{Name: "a b", Capacity: -1})
	_, all["set a bad key"] = f.SetQueueKey(ctx, gq.QueueKey{Queue: "q", Key: "k"})
	_, all["keys of a bad queue"] = f.QueueKeys(ctx, "a b", "", -1)
	_, all["put a bad schedule"] = f.PutSchedule(ctx, gq.Schedule{Name: "s"})
	_, all["trigger no schedule"] = f.TriggerSchedule(ctx, "nosuch")
	_, all["pause no schedule"] = f.PauseSchedule(ctx, "nosuch")
	all["delete no schedule"] = f.DeleteSchedule(ctx, "nosuch")
	_, all["get no workflow"] = f.Workflow(ctx, gq.WorkflowID{1})
	_, all["signal no workflow"] = f.Signal(ctx, gq.WorkflowID{1}, "s", true)
	_, all["cancel no workflow"] = f.CancelWorkflow(ctx, gq.WorkflowID{1}, "x")
	_, all["retry no workflow"] = f.RetryWorkflow(ctx, gq.WorkflowID{1})
	all["stop no worker"] = f.WorkerStopped(ctx, "")
	_, all["claim for nobody"] = f.Claim(ctx, gq.ClaimRequest{})
	_, all["count too much"] = f.CountWhere(ctx, gq.Query{Types: make([]string, 1000)})
	_, all["the history of a bad queue"] = f.QueueHistory(ctx, gq.HistoryQuery{Queues: []string{"a b"}})
	for call, err := range all {
		if errors.Is(err, gq.ErrCorrupt) {
			f.Errorf("%s: %v", call, err)
		}
	}
	return all
}
