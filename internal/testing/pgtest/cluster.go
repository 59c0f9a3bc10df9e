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
	"strconv"
	"time"
)

// Cluster is a running PostgreSQL server.
type Cluster struct {
	dir      string   // everything it has, data and socket
	held     *os.File // says that the directory is in use
	port     int
	settled  bool          // the port must stay, since others know it
	password string        // of the superuser over TCP
	skew     time.Duration // by which its clock is ahead of ours
	extra    []string      // settings that come after, and win over, those of settings
	program
}

const (
	superuser   = "gq"
	startWithin = 5 * time.Minute
	stopWithin  = time.Minute
	dropWithin  = 2 * time.Minute
)

// settings keep the server small. Durability stays as a user has it: the tests
// are about what survives.
func (c *Cluster) settings() []string {
	return append([]string{
		"listen_addresses=127.0.0.1",
		"port=" + strconv.Itoa(c.port),
		"unix_socket_directories=" + c.dir,
		"max_connections=300", // of many stores at once where there are many cores
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

// URL leads to a database through the server's own socket, which only this
// user can reach.
func (c *Cluster) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + database}
	u.RawQuery = url.Values{"host": {c.dir}, "port": {strconv.Itoa(c.port)}}.Encode()
	return u.String()
}

// TCP leads to a database through the loopback interface.
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
	// A free port can be taken by someone else before the server has it.
	for range 3 {
		if err = c.run(bin, owner); err == nil {
			return c, nil
		}
	}
	return nil, errors.Join(err, c.remove())
}

func (c *Cluster) remove() error { return errors.Join(os.RemoveAll(c.dir), c.held.Close()) }

const directoryPrefix = "gq-pgtest-"

// directory makes a directory for a cluster. The path of a socket may have
// about a hundred bytes, which some systems use up with their temporary
// directory.
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

// initialise runs initdb. Its files need no sync: a machine that loses power
// now has lost the tests as well.
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
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// environment keeps the settings of the developer away from the programs, and
// the programs away from a directory their account may not enter.
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

// stop ends the server without a shutdown checkpoint, since nobody will read
// its files again, and removes them.
func (c *Cluster) stop() {
	c.kill()
	_ = c.remove() // a temporary directory; there is nobody to tell
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // nothing to wait for
	if err != nil {
		return 0, err
	}
	defer l.Close() //nolint:errcheck // only its number was wanted
	return l.Addr().(*net.TCPAddr).Port, nil
}
