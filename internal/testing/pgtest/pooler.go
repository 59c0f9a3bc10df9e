package pgtest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

var errNoPooler = errors.New(`the program pgbouncer is not installed.
The tests of poolers start one of their own and need it:
  make postgres                  installs it where it can
  apt-get install pgbouncer      on Debian and Ubuntu`)

// Pooler is a running PgBouncer in front of a server.
type Pooler struct {
	dir  string
	port int
	program
}

// poolerSettings select transaction mode with fewer connections than clients, so that
// clients keep changing connections.
const poolerSettings = `
[databases]
* = host=%s port=%d user=%s

[pgbouncer]
listen_addr =
listen_port = %d
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = 6
max_client_conn = 500
server_idle_timeout = 5
log_connections = 0
log_disconnections = 0
`

// Pooler starts a PgBouncer in transaction mode in front of the server. It is
// stopped when the test ends.
func (c *Cluster) Pooler(t testing.TB) *Pooler {
	t.Helper()
	p, err := c.pooler()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(p.kill)
	return p
}

func (c *Cluster) pooler() (*Pooler, error) {
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer" // often not in PATH
	}
	if _, err := os.Stat(path); err != nil {
		return nil, errNoPooler
	}
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	p := &Pooler{}
	if p.port, err = freePort(); err != nil {
		return nil, err
	}
	if p.dir, err = os.MkdirTemp(c.dir, "pooler-"); err != nil {
		return nil, err
	}
	file := filepath.Join(p.dir, "pgbouncer.ini")
	text := fmt.Sprintf(poolerSettings, c.dir, c.port, superuser, p.port, p.dir)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if owner != nil {
		for _, name := range []string{p.dir, file} {
			if err := os.Chown(name, int(owner.uid), int(owner.gid)); err != nil {
				return nil, err
			}
		}
	}
	cmd := exec.Command(path, file) //nolint:noctx // lives as long as the test; kill ends it
	c.environment(cmd, owner)
	return p, p.start(cmd, p.URL("postgres")+"&default_query_exec_mode=exec")
}

// URL returns the URL of a database through the pooler.
func (p *Pooler) URL(database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Path: "/" + database}
	u.RawQuery = url.Values{"host": {p.dir}, "port": {strconv.Itoa(p.port)}}.Encode()
	return u.String()
}

// Behind returns the URL of the same database through the pooler.
func (p *Pooler) Behind(direct string) (string, error) {
	u, err := url.Parse(direct)
	if err != nil {
		return "", err
	}
	return p.URL(filepath.Base(u.Path)), nil
}
