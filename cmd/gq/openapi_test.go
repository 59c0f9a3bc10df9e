package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGeneratedClients checks the descriptions of the HTTP APIs by what others make
// of them: Redocly's recommended rules find no error in any of the three, and
// clients that oapi-codegen and openapi-typescript generate work with a server that
// requires a token.
func TestGeneratedClients(t *testing.T) {
	t.Parallel()
	tools, err := filepath.Abs("../../tools/openapi")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range []string{"@redocly/openapi-core", "openapi-typescript", "openapi-fetch", "typescript"} {
		if _, err := os.Stat(filepath.Join(tools, "node_modules", module, "package.json")); err != nil {
			t.Fatalf("%s is not installed; scripts/install-node installs it", module)
		}
	}
	s := startServer(t, []string{"GQ_ADMIN_TOKEN=" + bootstrap}, "--store", "memory:")
	base, dir := "http://"+s.http, t.TempDir()
	var documents []string
	for name, path := range map[string]string{
		"openapi.json": "/openapi.json", "scheduler.json": "/api/scheduler/openapi.json", "matching.json": "/api/matching/openapi.json",
	} {
		status, text := httpGet(t, base+path)
		if status != 200 {
			t.Fatalf("GET %s: %d %s", path, status, text)
		}
		documents = append(documents, filepath.Join(dir, name))
		write(t, documents[len(documents)-1], text)
	}
	tool := func(t *testing.T, in, program string, args ...string) string {
		t.Helper()
		c := exec.Command(program, args...)
		c.Dir = in
		c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath") // Go compiles as gqtest does
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	if err := os.Symlink(filepath.Join(tools, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	module := func(name string) string { return filepath.Join(dir, "node_modules", name) }

	t.Run("rules", func(t *testing.T) {
		tool(t, tools, "node", append([]string{"lint.mjs"}, documents...)...)
	})
	t.Run("typescript", func(t *testing.T) {
		tool(t, dir, "node", module("openapi-typescript/bin/cli.js"), "openapi.json", "-o", "api.d.ts")
		copied(t, filepath.Join(tools, "testdata", "client.ts"), filepath.Join(dir, "client.ts"))
		write(t, filepath.Join(dir, "package.json"), `{"type":"module"}`)
		tool(t, dir, "node", module("typescript/bin/tsc"), "--strict", "--skipLibCheck", "--target", "es2022", "--module", "nodenext",
			"--lib", "es2022,dom,dom.iterable", "client.ts")
		if out := tool(t, dir, "node", "client.js", base, bootstrap); out != "ok\n" {
			t.Errorf("the client says %q", out)
		}
	})
	t.Run("go", func(t *testing.T) {
		program := filepath.Join(dir, "program")
		for _, name := range []string{"go.mod", "go.sum"} {
			copied(t, filepath.Join(tools, name), filepath.Join(program, name))
		}
		copied(t, filepath.Join(tools, "testdata", "main.go"), filepath.Join(program, "main.go"))
		if err := os.Mkdir(filepath.Join(program, "api"), 0o700); err != nil {
			t.Fatal(err)
		}
		tool(t, program, "go", "tool", "oapi-codegen", "-generate", "types,client", "-package", "api",
			"-o", filepath.Join("api", "api.go"), filepath.Join(dir, "openapi.json"))
		if out := tool(t, program, "go", "run", ".", base, bootstrap); out != "ok\n" {
			t.Errorf("the client says %q", out)
		}
	})
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, string(text))
}
