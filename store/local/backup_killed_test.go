package local_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

const backedUpDir = "GQ_TEST_BACKED_UP_DIR"

func backedUpID(n uint32) gq.JobID {
	var id [16]byte
	binary.BigEndian.PutUint32(id[:], n)
	return machine.NewJobID(id)
}

// TestBackUpUntilKilled is the process that TestBackupWhileServing kills: it submits one job after
// another and makes backups at the same time. It tells how many jobs were acknowledged before each.
func TestBackUpUntilKilled(t *testing.T) {
	root := os.Getenv(backedUpDir)
	if root == "" {
		t.Skip("runs in a process of its own")
	}
	s, err := local.Open(filepath.Join(root, "store"), local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var acknowledged atomic.Uint32
	go func() {
		for n := uint32(1); ; n++ {
			spec := gq.Spec{ID: backedUpID(n), Type: "send", Payload: gq.Payload{Data: make([]byte, 1000), ContentType: gq.OctetStream}}.WithDefaults()
			out, err := s.Insert(context.Background(), []store.Group{store.One(spec)})
			if err != nil || out[0].Err != nil {
				fmt.Println("insert:", err, out)
				os.Exit(1)
			}
			acknowledged.Store(n)
		}
	}()
	for {
		before := acknowledged.Load()
		b, err := s.Backup(context.Background(), filepath.Join(root, "backups"), 0)
		if err != nil {
			fmt.Println("backup:", err)
			os.Exit(1)
		}
		fmt.Println("made", b.Generation, before, b.LastEvent)
	}
}

// A backup that is taken while jobs are submitted has everything that was acknowledged before it
// began, also if the process is killed while it makes the next one. The store itself is not harmed.
func TestBackupWhileServing(t *testing.T) {
	root := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestBackUpUntilKilled$")
	child.Env = append(os.Environ(), backedUpDir+"="+root)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	type made struct {
		generation string
		jobs       uint32
		event      uint64
	}
	var all []made
	for lines := bufio.NewScanner(out); len(all) < 5 && lines.Scan(); {
		var m made
		if _, err := fmt.Sscanf(lines.Text(), "made %s %d %d", &m.generation, &m.jobs, &m.event); err != nil {
			t.Logf("the process says %q", lines.Text())
			continue
		}
		all = append(all, m)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	if len(all) < 5 || all[4].jobs == 0 {
		t.Fatalf("backups: %v", all)
	}
	has := func(dir string, n uint32, event uint64) {
		t.Helper()
		s, err := local.Open(dir, local.Options{})
		if err != nil {
			t.Fatal(err)
		}
		refs := make([]store.Ref, n)
		for i := range refs {
			refs[i].Job = backedUpID(uint32(i + 1))
		}
		found, err := s.Get(t.Context(), refs, 0)
		for i := range found {
			err = errors.Join(err, found[i].Err)
		}
		last, failed := s.LastEvent(t.Context())
		if err = errors.Join(err, failed, s.Close()); err != nil {
			t.Errorf("%s, which must have %d jobs: %v", dir, n, err)
		}
		if last < event {
			t.Errorf("%s: the last event is %d, want at least %d", dir, last, event)
		}
	}
	for i, m := range all {
		to := filepath.Join(root, fmt.Sprint("restored-", i))
		if _, err := local.RestoreBackup(t.Context(), filepath.Join(root, "backups"), m.generation, to); err != nil {
			t.Fatal(err)
		}
		has(to, m.jobs, m.event)
	}
	has(filepath.Join(root, "store"), all[4].jobs, all[4].event)
	if _, err := local.RestoreBackup(t.Context(), filepath.Join(root, "backups"), "", filepath.Join(root, "newest")); err != nil {
		t.Errorf("the newest generation: %v", err)
	}
}
