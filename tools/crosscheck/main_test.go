package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCheck type-checks a program that uses a signal which Windows does not have.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":           "module example.com/m\n\ngo 1.24\n",
		"main.go":          "package main\n\nfunc main() { stop() }\n",
		"stop_unix.go":     "//go:build unix\n\npackage main\n\nimport \"syscall\"\n\nfunc stop() { println(syscall.SIGSTOP) }\n",
		"stop_windows.go":  "package main\n\nimport \"syscall\"\n\nfunc stop() { println(syscall.SIGSTOP) }\n",
		"stop_plan9.go":    "package main\n\nfunc stop() {}\n",
		"ignored_linux.go": "package main\n\nconst only = \"on Linux\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for platform, want := range map[string]string{
		"linux/arm64":   "",
		"plan9/amd64":   "",
		"windows/amd64": "undefined: syscall.SIGSTOP",
		"js/wasm":       "undefined: stop",
		"linux":         "want OS/ARCH",
	} {
		err := check(dir, platform, ".")
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", platform, err, want)
		}
	}
}
