package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gopherqueue/gq/internal/testing/cmdtest"
)

// inImage returns a command of the program in a root directory that contains nothing else,
// as in our image.
func inImage(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	root := t.TempDir()
	program, err := os.ReadFile(cmdtest.Program(t))
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "gq"), program, 0o755) //nolint:gosec // a program
	}
	if err != nil {
		t.Fatal(err)
	}
	attributes := &syscall.SysProcAttr{Chroot: root}
	if os.Geteuid() != 0 {
		attributes.Cloneflags = syscall.CLONE_NEWUSER
		attributes.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	}
	command := func(args ...string) *exec.Cmd {
		c := exec.Command("/gq", args...)
		c.Dir, c.SysProcAttr = "/", attributes
		return c
	}
	if err := command("version").Run(); errors.Is(err, fs.ErrPermission) {
		t.Skip("this user may not change the root directory")
	}
	return command(args...)
}

func TestTimeZonesOfTheImage(t *testing.T) {
	s := launch(t, nil, inImage(t, "serve", "--store", "memory:", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"))
	for _, zone := range []string{"Europe/Berlin", "America/New_York"} {
		if got := s.gq("schedule", "set", strings.ToLower(filepath.Base(zone)), "--cron", "0 2 * * *", "--time-zone", zone, "--type", "t"); got.status != 0 {
			t.Errorf("a schedule in %s: %+v", zone, got)
		}
	}
}
