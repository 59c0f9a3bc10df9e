package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A server backs up its store while it serves; the second backup copies less, and both restore.
func TestBackupOfAServer(t *testing.T) {
	tmp := t.TempDir()
	dir, backups := filepath.Join(tmp, "store"), filepath.Join(tmp, "backups")
	s := startServer(t, nil, "--store", "file:"+dir, "--backup-dir", backups, "--backup-keep", "2")
	gq := func(args ...string) outcome { return gqIn(t.Context(), tmp, args...) }
	want := func(status int, args ...string) outcome {
		t.Helper()
		got := gq(args...)
		if got.status != status {
			t.Fatalf("gq %s: %+v", strings.Join(args, " "), got)
		}
		return got
	}
	first := strings.TrimSpace(want(0, "submit", "a", "--addr", s.grpc).stdout)
	if got := want(0, "backup", "now", "--addr", s.grpc); !strings.Contains(got.stdout, "; new: ") {
		t.Errorf("%+v", got)
	}
	second := strings.TrimSpace(want(0, "submit", "a", "--addr", s.grpc).stdout)
	want(0, "backup", "now", "--addr", s.grpc, "--json")
	s.Signal(syscall.SIGKILL)
	s.Ended()

	generations, err := os.ReadDir(filepath.Join(backups, "generations"))
	if err != nil || len(generations) != 2 {
		t.Fatalf("%v, %v", generations, err)
	}
	want(2, "restore", backups, "--store", "postgres://db.example/app")
	want(3, "restore", backups, "--store", "file:"+filepath.Join(tmp, "x"), "--generation", "none")
	want(2, "restore", backups, "--store", "file:"+dir)
	for i, test := range []struct {
		args   []string
		second int // exit status of reading the second job
	}{
		{nil, 0},
		{[]string{"--generation", strings.TrimSuffix(generations[0].Name(), ".json")}, 3},
	} {
		to := filepath.Join(tmp, "restored", string(rune('a'+i)))
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		want(0, append([]string{"restore", backups, "--store", "file:" + to}, test.args...)...)
		again := startServer(t, nil, "--store", "file:"+to)
		want(0, "job", "get", first, "--addr", again.grpc)
		want(test.second, "job", "get", second, "--addr", again.grpc)
		again.Signal(syscall.SIGTERM)
		again.Ended()
	}
}

// Without a directory, or with another store, the server says what to do.
func TestBackupOfAServerRefused(t *testing.T) {
	s := startServer(t, nil, "--store", "file:"+filepath.Join(t.TempDir(), "store"))
	if got := gqIn(context.Background(), t.TempDir(), "backup", "now", "--addr", s.grpc); got.status != 2 || !strings.Contains(got.stderr, "--backup-dir") {
		t.Errorf("%+v", got)
	}
	s.Signal(syscall.SIGTERM)
	s.Ended()
}
