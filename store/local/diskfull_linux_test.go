package local

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/gopherqueue/gq"
)

const (
	onTmpfs  = "GQ_TEST_ON_TMPFS" // set in the process that may mount
	noMounts = "no mounts here: "
)

// TestDiskFullOnTmpfs is TestDiskFull on a real file system of 64 MiB. The test mounts
// it in a process with its own mount namespace, so that nothing else sees it.
func TestDiskFullOnTmpfs(t *testing.T) {
	if os.Getenv(onTmpfs) != "" {
		fillTmpfs(t)
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestDiskFullOnTmpfs$", "-test.v")
	child.Env = append(os.Environ(), onTmpfs+"=1")
	var out bytes.Buffer
	child.Stdout, child.Stderr = &out, &out
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	if err := child.Start(); err != nil {
		t.Skipf("this system allows no mount namespace: %v", err)
	}
	err := child.Wait()
	if _, reason, refused := strings.Cut(out.String(), noMounts); refused {
		reason, _, _ = strings.Cut(reason, "\n")
		t.Skipf("this system allows no mount of tmpfs: %s", reason)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Log(out.String())
}

func fillTmpfs(t *testing.T) {
	dir := t.TempDir()
	err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	if err == nil {
		err = syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, noMounts+err.Error())
		return
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}()
	// Another program uses most of the disk, and frees it in the end.
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 44*mib), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &filler{
		t: t, options: Options{fs: vfs.Default}, dir: filepath.Join(dir, "store"), sent: map[gq.JobID][]byte{},
	}
	f.open()
	refusal := f.fill(64 * mib)
	t.Logf("after %d jobs: %v", len(f.sent), refusal)
	if !strings.Contains(refusal.Error(), f.dir) {
		t.Errorf("the refusal does not name %s: %v", f.dir, refusal)
	}
	f.workOff(40)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	f.submit(100)
	f.reopen()
}
