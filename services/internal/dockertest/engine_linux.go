package dockertest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// isolated runs a command in new namespaces, as process 1 there, so that all other
// processes end with it.
func isolated(dir string, command []string) (code int, err error) {
	// Linux sends the parent death signal when this thread ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	c := exec.CommandContext(context.Background(), "unshare", append([]string{"--net", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--"}, command...)...)
	c.Env = append(os.Environ(), dirVariable+"="+dir)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = c.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // below 0 if a signal ended it
	}
	return 0, err
}

// startTime is how long an engine may take to answer.
const startTime = 2 * time.Minute

// withEngine runs a function while an engine runs. It is called inside the namespaces.
func withEngine(dir string, run func() int) (code int, err error) {
	if err := syscall.Mount("gq", dir, "tmpfs", 0, "mode=0711"); err != nil {
		return 0, fmt.Errorf("mount a file system in memory: %w", err)
	}
	if out, err := exec.CommandContext(context.Background(), "ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("ip link set lo up: %w: %s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "dockerd.log"))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	socket, config := filepath.Join(dir, "docker.sock"), filepath.Join(dir, "daemon.json")
	if err := os.WriteFile(config, []byte("{}"), 0o600); err != nil { // instead of the machine's configuration
		return 0, err
	}
	daemon := exec.CommandContext(context.Background(), "dockerd", "--config-file", config, "--host", "unix://"+socket, "--pidfile", filepath.Join(dir, "docker.pid"),
		"--data-root", filepath.Join(dir, "data"), "--exec-root", filepath.Join(dir, "exec"),
		"--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", "/"+filepath.Base(dir))
	daemon.Stdout, daemon.Stderr = log, log
	if err := daemon.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- daemon.Wait() }()
	if err := answers(socket, ended); err != nil {
		_ = daemon.Process.Kill()
		return 0, fmt.Errorf("the Docker engine does not start here: %w; the end of its log:\n%s", err, tail(log.Name()))
	}
	err = errors.Join(os.Setenv("DOCKER_HOST", "unix://"+socket), os.Setenv("COMPOSE_HTTP_TIMEOUT", "180"), // instead of 60 s
		os.Mkdir(filepath.Join(dir, "tmp"), 0o777), os.Setenv("TMPDIR", filepath.Join(dir, "tmp")))
	if err != nil {
		return 0, err
	}
	code = run()
	if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
		return code, fmt.Errorf("stop the engine: %w", err)
	}
	return code, <-ended
}

// answers waits until an engine answers on its socket.
func answers(socket string, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case err := <-ended:
			return fmt.Errorf("dockerd ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("dockerd is silent for %v: %w", startTime, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// tail returns the end of a log.
func tail(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// clean removes what is outside of the namespaces: the directory, which a mount covered
// inside and which is empty, and the containers' control groups.
func clean(dir string) error {
	faults := []error{os.Remove(dir)}
	for _, pattern := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} { // versions 1 and 2
		groups, err := filepath.Glob(pattern + filepath.Base(dir))
		faults = append(faults, err)
		for _, group := range groups {
			faults = append(faults, removeGroup(group))
		}
	}
	return errors.Join(faults...)
}

// removeGroup removes a control group and those below it, the deepest first. The files
// in them are virtual: only the directories can be removed.
func removeGroup(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, name)
		}
		return err
	})
	for _, name := range slices.Backward(dirs) {
		err = errors.Join(err, removeWhenEmpty(name))
	}
	return err
}

// removeWhenEmpty removes a group whose processes are being killed.
func removeWhenEmpty(group string) (err error) {
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
		if err = syscall.Rmdir(group); !errors.Is(err, syscall.EBUSY) {
			return err
		}
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the kernel empties the group and tells nobody
	}
	return fmt.Errorf("remove %s: %w", group, err)
}
