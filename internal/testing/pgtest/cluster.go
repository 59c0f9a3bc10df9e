package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

// Cluster is a running PostgreSQL server.
type Cluster struct {
	dir      string   // all its files, data and socket
	held     *os.File // the lock that marks the directory as in use
	port     int
	settled  bool          // the port must not change any more
	password string        // the superuser's, for TCP
	skew     time.Duration // how far its clock is ahead of ours
	extra    []string      // settings that override those of settings
	program
}

const (
	superuser   = "gq"
	startWithin = 5 * time.Minute
	stopWithin  = time.Minute
)

// settings keep the server small. Durability stays at its default, since the tests are
// about what survives.
func (c *Cluster) settings() []string {
	return append([]string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(c.port),
		"unix_socket_directories=" + c.dir,
		"max_connections=500", // for many stores and servers at once on many cores
		"shared_buffers=32MB",
		"max_wal_size=256MB",
		"wal_level=minimal",
		"max_wal_senders=0",
		"jit=off",
		"fsync=on",
		"synchronous_commit=on",
		"log_min_messages=warning",
	}, c.extra...)
}

// URL returns the URL of a database through the server's socket, which only this user
// can reach.
func (c *Cluster) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + database}
	u.RawQuery = url.Values{"host": {c.dir}, "port": {strconv.Itoa(c.port)}}.Encode()
	return u.String()
}

// TCP returns the URL of a database through the loopback interface.
func (c *Cluster) TCP(database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, c.password), Path: "/" + database,
		Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
	}
	return u.String()
}

// start creates a data directory and runs a server on it.
func start(skew time.Duration, extra ...string) (*Cluster, error) {
	bin, err := installed()
	if err != nil {
		return nil, err
	}
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	c := &Cluster{password: rand.Text(), skew: skew, extra: extra}
	if c.dir, c.held, err = directory(owner); err != nil {
		return nil, err
	}
	if err := c.initialise(bin, owner); err != nil {
		return nil, errors.Join(err, c.remove())
	}
	// Another process can take a free port before the server does.
	for range 3 {
		if err = c.run(bin, owner); err == nil {
			return c, nil
		}
	}
	return nil, errors.Join(err, c.remove())
}

func (c *Cluster) remove() error { return errors.Join(os.RemoveAll(c.dir), c.held.Close()) }

const directoryPrefix = "gq-pgtest-"

// directory makes a directory for a cluster. The path of a socket is limited to about a
// hundred bytes, and some systems' temporary directories use that up.
func directory(owner *account) (dir string, held *os.File, err error) {
	parent := os.TempDir()
	if len(parent) > 60 {
		parent = "/tmp"
	}
	removeStale(parent)
	if dir, err = os.MkdirTemp(parent, directoryPrefix); err != nil {
		return "", nil, err
	}
	if held, err = hold(dir); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	if owner != nil {
		if err := os.Chown(dir, int(owner.uid), int(owner.gid)); err != nil {
			return "", nil, errors.Join(err, os.RemoveAll(dir), held.Close())
		}
	}
	return dir, held, nil
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// initialise runs initdb without a sync: if the machine loses power, the tests are lost
// as well.
func (c *Cluster) initialise(bin string, owner *account) error {
	secret := filepath.Join(c.dir, "password")
	if err := os.WriteFile(secret, []byte(c.password), 0o600); err != nil {
		return err
	}
	if owner != nil {
		if err := os.Chown(secret, int(owner.uid), int(owner.gid)); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"),
		"--pgdata="+c.data(), "--username="+superuser, "--pwfile="+secret,
		"--auth-local=trust", "--auth-host=scram-sha-256",
		"--no-locale", "--encoding=UTF8", "--no-sync", "--no-instructions")
	c.environment(cmd, owner)
	// The program is ended with the thread that started it, which must therefore stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// environment keeps the developer's settings from the programs, and starts them in a
// directory that their account may enter.
func (c *Cluster) environment(cmd *exec.Cmd, owner *account) {
	cmd.Dir = c.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = attributes(owner)
}

// run starts the server and waits until it answers.
func (c *Cluster) run(bin string, owner *account) error {
	if !c.settled {
		var err error
		if c.port, err = freePort(); err != nil {
			return err
		}
	}
	args := []string{"-D", c.data()}
	for _, s := range c.settings() {
		args = append(args, "-c", s)
	}
	cmd := exec.Command(filepath.Join(bin, "postgres"), args...) //nolint:noctx // lives as long as the process; stop ends it
	c.environment(cmd, owner)
	if c.skew != 0 {
		lie, err := skewed(c.skew)
		if err != nil {
			return err
		}
		cmd.Env = append(cmd.Env, lie...)
	}
	return c.program.start(cmd, c.URL("postgres"))
}

// stop ends the server without a shutdown checkpoint, since its files are not needed
// again, and removes them.
func (c *Cluster) stop() {
	c.kill()
	_ = c.remove() // a temporary directory; ignore the error
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // nothing to wait for
	if err != nil {
		return 0, err
	}
	defer l.Close() //nolint:errcheck // only its number was wanted
	return l.Addr().(*net.TCPAddr).Port, nil
}
