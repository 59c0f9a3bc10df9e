package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

// fill submits jobs with the numbers from first on, with payloads that do not compress.
func fill(t *testing.T, s *Store, first, n int) {
	t.Helper()
	r := rand.NewChaCha8([32]byte{byte(first)})
	groups := make([]store.Group, n)
	for i := range groups {
		payload := make([]byte, 4096)
		_, _ = r.Read(payload)
		groups[i] = store.One(gq.Spec{
			ID: numberedID(first + i), Type: "send", Payload: gq.Payload{Data: payload, ContentType: gq.OctetStream},
		}.WithDefaults())
	}
	out, err := s.Insert(t.Context(), groups)
	for _, o := range out {
		err = errors.Join(err, o.Err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func numberedID(n int) gq.JobID {
	var id [16]byte
	binary.BigEndian.PutUint32(id[:], uint32(n))
	return machine.NewJobID(id)
}

// holds fails unless a store has exactly the jobs with the numbers from 1 to n.
func holds(t *testing.T, dir string, n int) {
	t.Helper()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	refs := make([]store.Ref, n+1)
	for i := range refs {
		refs[i].Job = numberedID(i + 1)
	}
	found, err := s.Get(t.Context(), refs, gq.WithPayload)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range found[:n] {
		if f.Err != nil || len(f.Spec.Payload.Data) != 4096 {
			t.Fatalf("job %d of %d: %d bytes, %v", i+1, n, len(f.Spec.Payload.Data), f.Err)
		}
	}
	if !errors.Is(found[n].Err, gq.ErrNotFound) {
		t.Errorf("a job that was submitted later is there: %v", found[n].Err)
	}
	claimed, err := s.Claim(t.Context(), []store.Claim{{Filter: store.Filter{Queues: []string{gq.DefaultQueue}}, N: 1, Worker: "w"}})
	if err != nil || len(claimed[0].Jobs) != 1 {
		t.Errorf("claim from a restored store: %+v, %v", claimed, err)
	}
}

// A second backup copies only what is new; each generation restores to what it was taken of, and
// old ones go without taking files from newer ones.
func TestBackupIsIncremental(t *testing.T) {
	root := t.TempDir()
	dir, backups := filepath.Join(root, "store"), filepath.Join(root, "backups")
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	take := func(keep int) gq.Backup {
		t.Helper()
		b, err := s.Backup(t.Context(), backups, keep)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, checkpointDir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the checkpoint is still there: %v", err)
		}
		return b
	}
	fill(t, s, 1, 1000)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	first := take(0)
	if first.CopiedBytes != first.Bytes || first.Bytes < 4_000_000 {
		t.Errorf("the first backup: %+v", first)
	}
	fill(t, s, 1001, 10)
	second := take(0)
	if second.CopiedBytes > second.Bytes/2 || second.LastEvent <= first.LastEvent || second.Bytes < first.Bytes {
		t.Errorf("the second backup: %+v", second)
	}
	if at, err := LastBackup(backups); err != nil || !at.Equal(second.Time) {
		t.Errorf("the last backup is of %v, %v; want %v", at, err, second.Time)
	}
	fill(t, s, 1011, 10)

	for _, test := range []struct {
		name string
		jobs int
	}{{first.Generation, 1000}, {second.Generation, 1010}, {"", 1010}} {
		to := filepath.Join(root, "restored-"+test.name)
		if _, err := RestoreBackup(t.Context(), backups, test.name, to); err != nil {
			t.Fatal(err)
		}
		holds(t, to, test.jobs)
	}
	third := take(2)
	if third.Removed != 1 {
		t.Errorf("the third backup removed %d generations", third.Removed)
	}
	if names, err := Generations(backups); err != nil || !slices.Equal(names, []string{second.Generation, third.Generation}) {
		t.Errorf("generations %v, %v", names, err)
	}
	for name, jobs := range map[string]int{second.Generation: 1010, third.Generation: 1020} {
		to := filepath.Join(root, "kept-"+name)
		if _, err := RestoreBackup(t.Context(), backups, name, to); err != nil {
			t.Fatal(err)
		}
		holds(t, to, jobs)
	}
}

// Bad input and damage are refused; nothing is left behind that could be taken for a store.
func TestBackupRefusals(t *testing.T) {
	root := t.TempDir()
	dir, backups := filepath.Join(root, "store"), filepath.Join(root, "backups")
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	other, err := Open(filepath.Join(root, "other"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{"none": "", "within the store": filepath.Join(dir, "b"), "the store": dir, "another store": filepath.Join(root, "other")} {
		if _, err := s.Backup(t.Context(), bad, 0); !errors.Is(err, gq.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Backup(t.Context(), backups, -1); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a negative number of generations: %v", err)
	}
	memory, err := OpenMemory(Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := memory.Backup(t.Context(), backups, 0); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("a store in memory: %v", err)
	}
	_ = memory.Close()

	to := filepath.Join(root, "to")
	if _, err := RestoreBackup(t.Context(), backups, "", to); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("restore without a backup: %v", err)
	}
	fill(t, s, 1, 10)
	lock, err := openBackups(backups)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backup(t.Context(), backups, 0); !errors.Is(err, gq.ErrInUse) {
		t.Errorf("while another backup is written: %v", err)
	}
	if err := lock.close(); err != nil {
		t.Fatal(err)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Backup(cancelled, backups, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("a backup whose caller has left: %v", err)
	}
	made, err := s.Backup(t.Context(), backups, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreBackup(t.Context(), backups, "", dir); !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("restore over a store: %v", err)
	}
	if _, err := RestoreBackup(t.Context(), backups, "20000101T000000.000000000Z", to); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("restore of an unknown generation: %v", err)
	}
	g, err := readGeneration(backups, made.Generation)
	if err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(to+partialSuffix, "letter")
	if err := errors.Join(os.Mkdir(to+partialSuffix, 0o700), os.WriteFile(foreign, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreBackup(t.Context(), backups, "", to); !errors.Is(err, gq.ErrInvalid) || !strings.Contains(err.Error(), to+partialSuffix) {
		t.Errorf("restore beside a directory of somebody else: %v", err)
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("the restore removed a file that it had not made: %v", err)
	}
	if err := os.Rename(foreign, filepath.Join(to+partialSuffix, restoreMark)); err != nil { // as a restore that was killed leaves it
		t.Fatal(err)
	}
	again := to + "-again"
	if err := os.Rename(to+partialSuffix, again+partialSuffix); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreBackup(t.Context(), backups, "", again); err != nil {
		t.Errorf("restore after one that was killed: %v", err)
	}
	entries, err := os.ReadDir(again)
	if err != nil || len(entries) != len(g.Files) {
		t.Errorf("the restored store has %d files, want the %d of the backup: %v", len(entries), len(g.Files), err)
	}
	for _, damage := range []func(path string) error{
		func(path string) error { return os.Truncate(path, 1) },
		os.Remove,
	} {
		path := filepath.Join(backups, contentDir, g.Files[len(g.Files)-1].Sum)
		if err := damage(path); err != nil {
			t.Fatal(err)
		}
		if _, err := RestoreBackup(t.Context(), backups, "", to); !errors.Is(err, gq.ErrCorrupt) {
			t.Errorf("restore of a damaged backup: %v", err)
		}
		if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a damaged backup left %s: %v", to, err)
		}
	}
}

// A directory for backups that is full, or that the server may not write to, is told to the caller.
func TestBackupTargetFaults(t *testing.T) {
	for cause, want := range map[error]error{
		syscall.ENOSPC: gq.ErrDiskFull, syscall.EDQUOT: gq.ErrDiskFull, syscall.EACCES: gq.ErrInvalid, syscall.EROFS: gq.ErrInvalid, syscall.EIO: syscall.EIO,
	} {
		err := targetFault("/mnt/b", fmt.Errorf("copy: %w", &fs.PathError{Op: "write", Path: "/mnt/b/x", Err: cause}))
		if !errors.Is(err, want) || want != syscall.EIO && !strings.Contains(err.Error(), "/mnt/b") {
			t.Errorf("%v became %v", cause, err)
		}
	}
}

// A backup that fails is in the log too: the timer that asked for it may tell nobody.
func TestBackupFailureIsLogged(t *testing.T) {
	log := &lines{}
	s, err := Open(t.TempDir(), Options{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	blocked := filepath.Join(t.TempDir(), "b")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Backup(t.Context(), filepath.Join(blocked, "c"), 0); err == nil {
		t.Error("a backup below a file succeeds")
	}
	if got := log.with("event=backup_failed"); len(got) != 1 || !strings.Contains(got[0], "level=ERROR") || !strings.Contains(got[0], blocked) {
		t.Errorf("logged %q", got)
	}
	if _, err := s.Backup(t.Context(), filepath.Join(t.TempDir(), "good"), 0); err != nil || len(log.with("event=backup_failed")) != 1 {
		t.Errorf("%v; logged %q", err, log.with("backup"))
	}
}
