package simple

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/storetest"
)

// bug is a mistake that the contract's suite must find.
type bug struct {
	what    string
	cases   []string // that must fail, by prefixes of their names
	stories bool     // the random stories of the suite find it too
	plant   func(*planted)
}

// found is a bug that cases of the suite find, and its random stories too.
func found(what, cases string, plant func(*planted)) bug {
	return bug{what, strings.Fields(cases), true, plant}
}

// missed is a bug that only cases of the suite find: stories do not do what it takes, or hardly ever.
// They have one caller, who may do everything, keeps no memory, and listens to nobody; they do not
// spawn jobs, replace them by name, or change documents and jobs together.
func missed(what, cases string, plant func(*planted)) bug {
	return bug{what, strings.Fields(cases), false, plant}
}

func bugs() []bug {
	return slices.Concat(insertBugs, memoryBugs, claimBugs, limitBugs, updateBugs, timeBugs, readBugs, docBugs, openBugs)
}

// name returns the name of a bug's subtest.
func (b bug) name() string { return strings.ReplaceAll(b.what, " ", "_") }

func (b bug) backend() storetest.Backend {
	out := backend(b.plant)
	out.Patience = time.Second // a notification that a bug suppresses never comes
	return out
}

// The suite must fail a store that breaks the contract: the cases about a bug must find it.
func TestPlantedBugs(t *testing.T) {
	race.Spare(t)
	t.Parallel()
	names := make(map[string]bool)
	for _, b := range bugs() {
		if names[b.what] {
			t.Errorf("two bugs are named %q", b.what)
		}
		names[b.what] = true
		t.Run(b.name(), func(t *testing.T) {
			t.Parallel()
			failures := storetest.Failures(t, b.backend(), b.cases...)
			for _, name := range b.cases {
				if !slices.ContainsFunc(failures, func(f storetest.Failure) bool { return strings.HasPrefix(f.Case, name) }) {
					t.Errorf("no case %s… failed", name)
				}
			}
			for _, f := range failures {
				if !strings.Contains(f.Output, "clause: ") {
					t.Errorf("the failure of %s does not quote its clause: %s", f.Case, f.Output)
				}
			}
		})
	}
}

// A store without a bug fails no case.
func TestFailuresOfGoodStore(t *testing.T) {
	if failures := storetest.Failures(t, backend(func(*planted) {}), "Insert/", "Lease/"); len(failures) != 0 {
		t.Errorf("a good store fails %+v", failures)
	}
}

// recorded says for each bug which story finds it. The stories change when what they may do
// changes; then -record looks for others.
const recorded = "testdata/stories.txt"

var record = flag.Bool("record", false, "look for a story that finds each planted bug, and write down which")

// The random stories of the suite must find the bugs by themselves.
func TestPlantedBugsModel(t *testing.T) {
	race.Spare(t)
	t.Parallel()
	stories := readStories(t)
	var mu sync.Mutex
	again := make(map[string]int)
	t.Run("bugs", func(t *testing.T) {
		for _, b := range bugs() {
			if !b.stories {
				continue
			}
			t.Run(b.name(), func(t *testing.T) {
				t.Parallel()
				story, ok := stories[b.what]
				if !ok || storetest.StoryFailure(t, b.backend(), story) == "" {
					if story = firstStory(t, b); !*record {
						t.Logf("story %d finds this, not story %d as recorded: renew the record with -record", story, stories[b.what])
					}
				}
				mu.Lock()
				defer mu.Unlock()
				again[b.what] = story
			})
		}
	})
	if *record && !t.Failed() {
		writeStories(t, again)
	}
}

// firstStory returns the first story that finds a bug.
func firstStory(t *testing.T, b bug) int {
	t.Helper()
	for story := range 500 {
		if storetest.StoryFailure(t, b.backend(), story) != "" {
			return story
		}
	}
	t.Errorf("no story found that %s", b.what)
	return 0
}

func readStories(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(recorded)
	if err != nil {
		t.Fatal(err)
	}
	stories := make(map[string]int)
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		number, what, ok := strings.Cut(lines.Text(), "\t")
		if n, err := strconv.Atoi(number); ok && err == nil {
			stories[what] = n
		} else {
			t.Fatalf("%s: %q is not the number of a story and a bug", recorded, lines.Text())
		}
	}
	return stories
}

func writeStories(t *testing.T, stories map[string]int) {
	t.Helper()
	var text strings.Builder
	for _, b := range bugs() {
		if story, ok := stories[b.what]; ok {
			fmt.Fprintf(&text, "%d\t%s\n", story, b.what)
		}
	}
	if err := os.WriteFile(recorded, []byte(text.String()), 0o644); err != nil { //nolint:gosec // source
		t.Fatal(err)
	}
}

// otherwise makes the choices that the contract leaves to a store in another way than [Store]:
// reads show jobs as they were recorded last, claims record all that is due in their queues, and
// dependents are told at once.
func otherwise(p *planted) {
	p.rules.show = func(s gq.State, _ time.Time) gq.State { return s }
	p.on.Claim = func(ctx context.Context, claims []store.Claim) ([]store.Claimed, error) {
		now := p.nowLocked()
		for _, j := range slices.Clone(p.submitted.items) {
			asked := slices.ContainsFunc(claims, func(c store.Claim) bool { return slices.Contains(c.Queues, j.spec.Queue) })
			if next, events, err := machine.Advance(j.state, p.draw(), now); asked && err == nil && next != j.state {
				p.write(j, next, events, now)
			}
		}
		return p.Store.Claim(ctx, claims)
	}
	p.after = func() {
		for len(p.dependents) > 0 && !p.closed {
			_, _ = p.Store.ReleaseDependents(context.Background(), len(p.dependents))
		}
	}
}

// A store can pass the suite with any of the choices that the contract allows.
func TestContractOtherwise(t *testing.T) {
	b := backend(otherwise)
	b.Parallel, b.Again = true, true
	if race.Share() {
		b.Only = func(c storetest.Case) bool { return len(c.Covers) > 0 }
	}
	storetest.Run(t, b)
}

func TestModelOtherwise(t *testing.T) {
	race.Spare(t)
	storetest.RunModel(t, backend(otherwise))
}
