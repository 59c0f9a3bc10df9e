package e2e_test

import (
	"crypto/x509"
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

const rootsEnv = "GQ_TEST_ROOTS" // makes the test program look for root certificates

// TestRootsOfTheImage runs this program, which has the imports of gq, where the system has
// no root certificates.
func TestRootsOfTheImage(t *testing.T) {
	if os.Getenv(rootsEnv) == "" {
		nowhere := t.TempDir()
		c := exec.Command(os.Args[0], "-test.run=^TestRootsOfTheImage$")
		c.Env = append(os.Environ(), rootsEnv+"=1", "SSL_CERT_DIR="+nowhere, "SSL_CERT_FILE="+filepath.Join(nowhere, "none"))
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if pool, err := x509.SystemCertPool(); err != nil || pool.Equal(x509.NewCertPool()) {
		t.Errorf("there are no root certificates: %v", err)
	}
}
