package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gopherqueue/gq/internal/cli"
	"github.com/gopherqueue/gq/match"
)

// matchOf runs gq match with standard input.
func matchOf(t *testing.T, stdin, file string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), []string{"match", file}, func(string) string { return "" }, strings.NewReader(stdin), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// The command prints the published vectors unchanged, from a file and from standard
// input.
func TestMatchVectors(t *testing.T) {
	text, err := os.ReadFile("../../match/testdata/assignments.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name          string
		Input, Output json.RawMessage
	}
	if err := json.Unmarshal(text, &vectors); err != nil || len(vectors) == 0 {
		t.Fatal(err)
	}
	for _, v := range vectors {
		got := matchOf(t, string(v.Input), "-")
		var result, want any
		if err := json.Unmarshal([]byte(got.stdout), &result); err != nil {
			t.Fatalf("%s: %v in\n%s", v.Name, err, got.stdout)
		}
		if err := json.Unmarshal(v.Output, &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, result); diff != "" || got.status != cli.ExitOK || got.stderr != "" {
			t.Errorf("%s: status %d, %s (-want +got):\n%s", v.Name, got.status, got.stderr, diff)
		}

		file := filepath.Join(t.TempDir(), "input.json")
		if err := os.WriteFile(file, v.Input, 0o600); err != nil {
			t.Fatal(err)
		}
		if fromFile := matchOf(t, "", file); fromFile != got {
			t.Errorf("%s: from a file %+v", v.Name, fromFile)
		}
	}
}

// The output has these members, in this order, and lists even if they are empty.
func TestMatchOutput(t *testing.T) {
	got := matchOf(t, `{"chain_id": "c"}`, "-")
	seed := match.NewSeed("c", 0, 0, nil)
	want := "{\n  \"seed\": \"" + seed.String() + "\",\n  \"order\": [],\n  \"assignments\": [],\n  \"requeued\": []\n}\n"
	if got != (outcome{cli.ExitOK, want, ""}) {
		t.Errorf("%+v, want %q", got, want)
	}
}

func TestMatchRefuses(t *testing.T) {
	for _, test := range []struct {
		stdin string
		want  []string // all of it on standard error
	}{
		{"", []string{"is not JSON"}},
		{"[]", []string{"is not a JSON object"}},
		{
			`{"chain_id":"a|b","now":1.5,"nov":1,"providers":[{"id":"p"},{"id":"p","status":"ACTIVE"}],"jobs":[{"id":"j","kind":"GPU","max_fee":-1}]}`,
			[]string{"chain_id: ", "now: ", "nov: ", "providers[0].status: ", "providers[1].id: ", "jobs[0].kind: ", "jobs[0].max_fee: "},
		},
	} {
		got := matchOf(t, test.stdin, "-")
		if got.status != cli.ExitUsage || got.stdout != "" {
			t.Errorf("%s: status %d, standard output %q", test.stdin, got.status, got.stdout)
		}
		for _, want := range test.want {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("%s: %q is missing in %s", test.stdin, want, got.stderr)
			}
		}
	}
	if got := matchOf(t, "", filepath.Join(t.TempDir(), "missing.json")); got.status != cli.ExitUsage || got.stdout != "" || !strings.Contains(got.stderr, "missing.json") {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"match"}, {"match", "a", "b"}} {
		if got := gqIn(t.Context(), "", args...); got.status != cli.ExitUsage || got.stdout != "" || !strings.Contains(got.stderr, "takes one file") {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
