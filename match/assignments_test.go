package match_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

var (
	rewrite = flag.Bool("rewrite", false, "write testdata/assignments.json anew")
	rounds  = flag.Uint64("rounds", 2000, "random inputs that the second implementation computes; a tenth with -short")
)

const assignmentsFile = "testdata/assignments.json"

// vector is an input with its required result.
type vector struct {
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	Output match.Result    `json:"output"`
}

// vectors reads the published assignments. With -rewrite it generates them first:
//
//	go test ./match -run TestAssignments -rewrite
func vectors(t *testing.T) (list []vector) {
	t.Helper()
	if *rewrite {
		var lines [][]byte
		for _, v := range makeVectors(t) {
			line, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		text := fmt.Appendf(nil, "[\n%s\n]\n", bytes.Join(lines, []byte(",\n")))
		if err := os.WriteFile(assignmentsFile, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(assignmentsFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

func makeVectors(t *testing.T) (list []vector) {
	add := func(name string, in match.Input) {
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, vector{name, text, round(t, &in)})
	}
	published, err := os.ReadFile("testdata/round.json")
	if err != nil {
		t.Fatal(err)
	}
	in, err := match.Decode(published)
	if err != nil {
		t.Fatal(err)
	}
	add("the published round", in)
	in.Rotation = 1
	add("the published round, rotated", in)

	if published, err = os.ReadFile("testdata/units.json"); err != nil {
		t.Fatal(err)
	}
	if in, err = match.Decode(published); err != nil {
		t.Fatal(err)
	}
	add("units by default and named", in)

	add("nobody and nothing", input(nil))
	add("no provider", input(nil, job("j", match.AI)))
	add("no job", input([]match.Provider{provider("p")}))

	tied := input([]match.Provider{provider("p1"), provider("p2"), provider("p3")})
	for i := range 6 {
		tied.Jobs = append(tied.Jobs, job(fmt.Sprintf("job-%04d", i), match.AI))
	}
	add("six tied jobs, three slots", tied)

	names := input([]match.Provider{provider("æ<&>\u2028"), provider("z"), provider("Z"), provider("\U0001F600"), provider("\uFB01")},
		job("jobb-å", match.AI), job("job b", match.Quantum), job("\U0001F600", match.AI), job("\uFB01", match.AI))
	names.Chain, names.Beacon = "kjede-å", nil
	add("names beyond ASCII, ordered by their bytes", names)

	edges := input([]match.Provider{provider("p")}, job("a", match.AI), job("b", match.AI))
	edges.Epoch, edges.Height, edges.Matches, edges.Rotation = match.MaxInteger, match.MaxInteger, match.MaxInteger, match.MaxInteger
	edges.Jobs[0].MaxFee, edges.Jobs[0].SizeBytes, edges.Jobs[0].Attempt = match.MaxInteger, match.MaxInteger, match.MaxInteger
	edges.Jobs[1].EnqueuedAt = match.MaxTime
	edges.Policy.Priority = match.Priority{
		FeeWeight: 1e9, AgeWeight: 1e9, SizeWeight: 1e9, TierWeight: 1e9, FeeRef: match.MaxTime, AgeRefAI: 1, AgeRefQuantum: 1, SizeRef: match.MaxTime,
		Tiers: map[string]int64{"FREE": 1e9, "PRO": 300_000_000, "PREMIUM": 600_000_000},
	}
	add("the ends of all ranges", edges)

	for i := range uint64(24) {
		rng := rand.New(rand.NewPCG(i, 3))
		add(fmt.Sprintf("mixed %d", i+1), sample(rng.IntN, 3+rng.IntN(8), 4+rng.IntN(16)))
	}
	return list
}

// Every implementation of the function must get these results.
func TestAssignments(t *testing.T) {
	spec.Covers(t, "M-08", "M-152")
	list := vectors(t)
	if len(list) < 32 {
		t.Errorf("only %d vectors", len(list))
	}
	for _, v := range list {
		in, err := match.Decode(v.Input)
		if err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		got := round(t, &in)
		if diff := cmp.Diff(v.Output, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", v.Name, diff)
		}
		if diff := cmp.Diff(v.Output, oracle(&in)); diff != "" {
			t.Errorf("%s (-want +oracle):\n%s", v.Name, diff)
		}
	}
}

// A second implementation, in Python, agrees on the vectors and on fresh inputs.
func TestSecondImplementation(t *testing.T) {
	spec.Needs(t, "python")
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatal("there is no python3 to run it; scripts/install-python installs it")
	}
	var inputs []json.RawMessage
	var want []match.Result
	for _, v := range vectors(t) {
		inputs, want = append(inputs, v.Input), append(want, v.Output)
	}
	many := *rounds
	if testing.Short() {
		many /= 10
	}
	for i := range many {
		rng := rand.New(rand.NewPCG(i, 4))
		in := sample(rng.IntN, rng.IntN(20), rng.IntN(40))
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 { // some jobs do not name their units
			text = bytes.ReplaceAll(text, []byte(`,"units":1,`), []byte(`,`))
			text = bytes.ReplaceAll(text, []byte(`,"units":1}`), []byte(`,"units":null}`))
		}
		read, err := match.Decode(text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(in.Jobs, read.Jobs, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("input %s (-written +read):\n%s", text, diff)
		}
		inputs, want = append(inputs, text), append(want, round(t, &read))
	}
	text, err := json.Marshal(inputs)
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(t.Context(), python, "testdata/match.py")
	command.Stdin, command.Stdout, command.Stderr = bytes.NewReader(text), &stdout, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &stderr)
	}
	var got []match.Result
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d results for %d inputs", len(got), len(want))
	}
	for i := range want {
		if diff := cmp.Diff(want[i], got[i]); diff != "" {
			t.Errorf("input %s (-go +python):\n%s", inputs[i], diff)
		}
	}
}
