package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
)

// offered returns the completions of the last word.
func (d *shell) offered(words ...string) (all []string) {
	d.t.Helper()
	got := d.gq(append([]string{"__complete"}, words...)...)
	lines := strings.Split(strings.TrimSpace(got.stdout), "\n")
	if got.status != 0 || lines[len(lines)-1] != ":4" { // no file names
		d.t.Errorf("gq %v: %+v", words, got)
	}
	for _, line := range lines[:len(lines)-1] {
		name, _, _ := strings.Cut(line, "\t")
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// unhurried is a queue whose responses are awaited without the completion's time limit.
type unhurried struct{ queue }

func (u unhurried) Queues(ctx context.Context) ([]gq.Queue, error) {
	return u.queue.Queues(context.WithoutCancel(ctx))
}

func (u unhurried) Pools(ctx context.Context) ([]gq.Pool, error) {
	return u.queue.Pools(context.WithoutCancel(ctx))
}

func (u unhurried) Schedules(ctx context.Context) ([]gq.Schedule, error) {
	return u.queue.Schedules(context.WithoutCancel(ctx))
}

func (u unhurried) List(ctx context.Context, q gq.Query) (gq.Page, error) {
	return u.queue.List(context.WithoutCancel(ctx), q)
}

func TestCompletion(t *testing.T) {
	d := newShell(t)
	d.queue = unhurried{d.queue}
	dead := d.submit("a", "--queue", "default", "--max-attempts", "1")
	d.settle(gq.Outcome{Verdict: gq.VerdictFail, Failure: gq.Failure{Category: gq.CategoryTemporary}})
	waiting := d.submit("b", "--queue", "mail")
	d.want(0, "schedule", "set", "nightly", "--every", "1h", "--type", "t")
	d.want(0, "pool", "set", "gpu", "--capacity", "1")
	both := []string{dead, waiting}
	slices.Sort(both)
	for words, want := range map[string][]string{
		"queue show |":                 {"default", "mail"},
		"queue pause ma|":              {"mail"},
		"queue pause mail |":           nil,
		"queue set |":                  {"default", "mail"},
		"job list --queue |":           {"default", "mail"},
		"dlq list --queue d|":          {"default"},
		"submit t --queue m|":          {"mail"},
		"work --queue mail,|":          {"mail,default", "mail,mail"},
		"job list --state d|":          {"DEAD_LETTER", "DELAYED"},
		"job list --state FAILED,r|":   {"FAILED,RETRYING", "FAILED,RUNNING"},
		"submit t --priority |":        {"BULK", "CRITICAL", "HIGH", "LOW", "NORMAL"},
		"job update x --priority C|":   {"CRITICAL"},
		"queue set q --pool |":         {"gpu"},
		"queue set q --preset j|":      {"jobmodel"},
		"pool set g|":                  {"gpu"},
		"schedule show |":              {"nightly"},
		"schedule delete x|":           nil,
		"schedule set s --missed s|":   {"skip"},
		"job get |":                    both,
		"job cancel |":                 {waiting},
		"job replay |":                 {dead},
		"dlq purge |":                  {dead},
		"job cancel " + waiting + " |": nil,
	} {
		words := strings.Split(strings.TrimSuffix(words, "|"), " ")
		if got := d.offered(words...); !slices.Equal(got, want) {
			t.Errorf("gq %q: %q, want %q", words, got, want)
		}
	}
	// An unreachable server gives no completions, quickly; nor does one that never
	// responds.
	got := gqIn(t.Context(), t.TempDir(), "__complete", "queue", "show", "--addr", "127.0.0.1:1", "")
	if got.status != 0 || got.stdout != ":4\n" {
		t.Errorf("nobody there: %+v", got)
	}
	d.queue = mute{d.queue}
	if all := d.offered("queue", "show", ""); len(all) > 0 {
		t.Errorf("by a server that does not answer: %q", all)
	}
}

// mute is a queue that never responds.
type mute struct{ queue }

func (mute) Queues(ctx context.Context) ([]gq.Queue, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// TestCompletionIsForWhatThereIs compares the completions with the commands.
func TestCompletionIsForWhatThereIs(t *testing.T) {
	root := newRoot(process{getenv: os.Getenv, stdin: strings.NewReader(""), stdout: os.Stdout, stderr: os.Stderr})
	for name := range argumentValues {
		if c, _, err := root.Find(strings.Fields(name)); err != nil || c.ValidArgsFunction == nil {
			t.Errorf("gq %s offers nothing: %v", name, err)
		}
	}
	offered := map[string]bool{}
	for _, name := range leaves(root, "") {
		c, _, err := root.Find(strings.Fields(name))
		if err != nil {
			t.Fatal(err)
		}
		for flag := range flagValues {
			_, ok := c.GetFlagCompletionFunc(flag)
			offered[flag] = offered[flag] || ok
		}
	}
	for flag, ok := range offered {
		if !ok {
			t.Errorf("no command offers values of --%s", flag)
		}
	}
}
