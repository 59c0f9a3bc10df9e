package main

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

// guard_calls.go is what the directives say now.
func TestGuardIsGenerated(t *testing.T) {
	want, err := generate("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../internal/access/guard_calls.go")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("internal/access/guard_calls.go is not what the directives say: run go generate ./internal/access")
	}
}

// A directive that cannot be read is an error, never a call without a check.
func TestDirectives(t *testing.T) {
	for text, want := range map[string]string{
		"//gq:needs submit on the job":     "",
		"//gq:needs read or work on queue": "cannot read",
		"//gq:needs write on the job":      "cannot read",
		"//gq:need submit on the job":      "cannot read",
	} {
		tree, err := parser.ParseFile(token.NewFileSet(), "x.go", "package gq\ntype D interface {\n\t"+text+"\n\tM(ctx C, id string) error\n}\n", parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		calls, err := callsOf(tree)
		if want == "" && (err != nil || len(calls) != 1 || calls[0].scopes != "Submit") {
			t.Errorf("%s: %+v, %v", text, calls, err)
		}
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want an error", text, err)
		}
	}
}
