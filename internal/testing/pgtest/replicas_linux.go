package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Replicas are three PostgreSQL servers, one of which Patroni makes the primary, with
// etcd for consensus. They listen on loopback only.
type Replicas struct {
	t        testing.TB
	dir      string
	owner    *account
	password string
	sync     bool
	etcd     *daemon
	etcdPort int
	nodes    []*replica
}

type replica struct {
	name           string
	dir            string
	port, restPort int
	patroni        *daemon
}

// patroniSettings configure one node. A primary that is silent for the ttl is replaced.
const patroniSettings = `
scope: gq
name: %[1]s
restapi: {listen: "127.0.0.1:%[3]d", connect_address: "127.0.0.1:%[3]d"}
etcd3: {host: "127.0.0.1:%[4]d"}
bootstrap:
  dcs:
    ttl: 8
    loop_wait: 1
    retry_timeout: 3
    maximum_lag_on_failover: 104857600
    synchronous_mode: %[5]t
    synchronous_mode_strict: %[5]t
    postgresql:
      use_pg_rewind: true
      parameters:
        max_connections: 100
        shared_buffers: 32MB
        max_wal_size: 256MB
        wal_keep_size: 256MB
        wal_log_hints: "on"
        synchronous_commit: "on"
  initdb: [{encoding: UTF8}, {locale: C}, {auth-host: scram-sha-256}, {auth-local: trust}]
postgresql:
  listen: "127.0.0.1:%[2]d"
  connect_address: "127.0.0.1:%[2]d"
  data_dir: %[6]s/data
  bin_dir: %[7]s
  pgpass: %[6]s/pgpass
  authentication:
    superuser: {username: %[8]s, password: %[9]s}
    replication: {username: replicator, password: %[9]s}
    rewind: {username: %[8]s, password: %[9]s}
  parameters: {unix_socket_directories: %[6]s}
  pg_hba:
    - local all all trust
    - host all all 127.0.0.1/32 scram-sha-256
    - host replication all 127.0.0.1/32 scram-sha-256
tags: {nofailover: false, noloadbalance: false, clonefrom: false, nosync: false}
`

// NewReplicas starts them and waits for a primary. If synchronous, it also waits for a
// standby that commits wait for. They are stopped when the test ends.
func NewReplicas(t testing.TB, synchronous bool) *Replicas {
	t.Helper()
	bin, err := installed()
	check(t, err)
	owner, err := unprivileged()
	check(t, err)
	r := &Replicas{t: t, owner: owner, password: rand.Text(), sync: synchronous}
	var held *os.File
	r.dir, held, err = directory(owner)
	check(t, err)
	t.Cleanup(func() { _ = errors.Join(os.RemoveAll(r.dir), held.Close()) })
	t.Cleanup(r.stop)
	r.etcdPort, err = freePort()
	check(t, err)
	peer, err := freePort()
	check(t, err)
	at := fmt.Sprintf("http://127.0.0.1:%d", r.etcdPort)
	peers := fmt.Sprintf("http://127.0.0.1:%d", peer)
	r.etcd = r.run("etcd", "etcd", "--name", "one", "--data-dir", filepath.Join(r.dir, "etcd"),
		"--listen-client-urls", at, "--advertise-client-urls", at,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "one="+peers)
	r.await("etcd", func() bool { return answers(at+"/health") == http.StatusOK })
	for i := range 3 {
		n := &replica{name: fmt.Sprintf("node%d", i+1)}
		n.dir = filepath.Join(r.dir, n.name)
		check(t, os.Mkdir(n.dir, 0o700))
		n.port, err = freePort()
		check(t, err)
		n.restPort, err = freePort()
		check(t, err)
		text := fmt.Sprintf(patroniSettings, n.name, n.port, n.restPort, r.etcdPort, synchronous, n.dir, bin, superuser, r.password)
		check(t, os.WriteFile(filepath.Join(n.dir, "patroni.yml"), []byte(text), 0o600))
		r.own(n.dir, filepath.Join(n.dir, "patroni.yml"))
		r.nodes = append(r.nodes, n)
		r.startNode(n)
	}
	r.Ready()
	return r
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
}

func (r *Replicas) own(names ...string) {
	for _, name := range names {
		if r.owner != nil {
			check(r.t, os.Chown(name, int(r.owner.uid), int(r.owner.gid)))
		}
	}
}

func (r *Replicas) startNode(n *replica) {
	r.t.Helper()
	n.patroni = r.run(n.name, "patroni", filepath.Join(n.dir, "patroni.yml"))
}

// URL returns the URL of a database on whichever server is writable.
func (r *Replicas) URL(database string) string {
	var hosts []string
	for _, n := range r.nodes {
		hosts = append(hosts, net.JoinHostPort("127.0.0.1", strconv.Itoa(n.port)))
	}
	return "postgres://" + url.UserPassword(superuser, r.password).String() + "@" + strings.Join(hosts, ",") + "/" + database +
		"?target_session_attrs=read-write&connect_timeout=3"
}

// primary returns the node that reports itself as primary.
func (r *Replicas) primary() *replica {
	for _, n := range r.nodes {
		if n.patroni != nil && answers(fmt.Sprintf("http://127.0.0.1:%d/primary", n.restPort)) == http.StatusOK {
			return n
		}
	}
	return nil
}

// Ready waits until there is a writable primary that both others follow, one of them
// synchronously if configured.
func (r *Replicas) Ready() {
	r.t.Helper()
	r.await("a primary with two standbys", func() bool {
		if r.primary() == nil {
			return false
		}
		var streaming, waitedFor int
		err := r.ask("SELECT count(*) FILTER (WHERE state = 'streaming'), count(*) FILTER (WHERE sync_state = 'sync') FROM pg_stat_replication",
			&streaming, &waitedFor)
		return err == nil && streaming == 2 && (!r.sync || waitedFor >= 1)
	})
}

// ask runs a query on the primary.
func (r *Replicas) ask(query string, into ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, r.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing was written
	return conn.QueryRow(ctx, query).Scan(into...)
}

// Fail simulates the death of the primary's machine: it sends nothing to its standbys
// while behind runs, then all its processes are killed at once, and dead runs. Fail
// waits until another server takes writes, and returns how long that took.
func (r *Replicas) Fail(behind, dead func()) time.Duration {
	r.t.Helper()
	old := r.primary()
	if old == nil {
		r.t.Fatal("pgtest: there is no primary to fail")
	}
	// A standby may be reconnecting, as it does when its settings change.
	r.await("a primary that is held up towards both standbys", func() bool {
		var held []int
		for _, pid := range old.processes() {
			if strings.Contains(title(pid), "walsender") && syscall.Kill(pid, syscall.SIGSTOP) == nil {
				held = append(held, pid)
			}
		}
		if len(held) == 2 {
			return true
		}
		for _, pid := range held {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
		return false
	})
	behind()
	began := time.Now()
	_ = old.patroni.cmd.Process.Kill()
	for _, pid := range old.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	dead()
	<-old.patroni.exited
	old.patroni = nil
	r.await("another primary", func() bool {
		var standby bool
		return r.primary() != nil && r.ask("SELECT pg_is_in_recovery()", &standby) == nil && !standby
	})
	return time.Since(began)
}

// Return restarts the failed node and waits until it follows.
func (r *Replicas) Return() {
	r.t.Helper()
	for _, n := range r.nodes {
		if n.patroni == nil {
			r.startNode(n)
		}
	}
	r.Ready()
}

// processes returns the ids of a node's server and its children.
func (n *replica) processes() []int {
	text, err := os.ReadFile(filepath.Join(n.dir, "data", "postmaster.pid"))
	if err != nil {
		return nil
	}
	first, _, _ := strings.Cut(string(text), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		return nil
	}
	all := []int{postmaster}
	found, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, name := range found {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == first {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			all = append(all, pid)
		}
	}
	return all
}

func title(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)) // empty if it has ended
	return string(text)
}

func (r *Replicas) stop() {
	for _, n := range r.nodes {
		if n.patroni != nil {
			_ = n.patroni.cmd.Process.Kill()
			<-n.patroni.exited
		}
		for _, pid := range n.processes() {
			if strings.Contains(title(pid), n.dir) || strings.HasPrefix(title(pid), "postgres: ") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	if r.etcd != nil {
		_ = r.etcd.cmd.Process.Kill()
		<-r.etcd.exited
	}
}

// await waits for a condition that other programs bring about.
func (r *Replicas) await(what string, ok func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(50 * time.Millisecond) { //nolint:forbidigo // this is how it waits for a condition
		if time.Now().After(deadline) {
			for _, name := range []string{"etcd", "node1", "node2", "node3"} {
				text, _ := os.ReadFile(filepath.Join(r.dir, name+".log"))
				r.t.Logf("%s:\n%s", name, text[max(0, len(text)-3000):])
			}
			r.t.Fatalf("pgtest: waited in vain for %s", what)
		}
	}
}

func answers(at string) (status int) {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(at) //nolint:noctx // it has a time limit
	if err != nil {
		return 0
	}
	defer response.Body.Close() //nolint:errcheck // only the status was wanted
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// daemon is a background program that writes to a log.
type daemon struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

func (r *Replicas) run(name, program string, args ...string) *daemon {
	r.t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		r.t.Fatalf("pgtest: %s is not installed; on Debian and Ubuntu: apt-get install patroni etcd-server", program)
	}
	log, err := os.OpenFile(filepath.Join(r.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(r.t, err)
	defer log.Close()                                                           //nolint:errcheck // the program has its own
	d := &daemon{cmd: exec.Command(path, args...), exited: make(chan struct{})} //nolint:noctx // stop ends it
	d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = r.dir, log, log
	d.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "ETCD_ENABLE_V2=false"}
	d.cmd.SysProcAttr = attributes(r.owner)
	d.cmd.SysProcAttr.Pdeathsig = syscall.SIGTERM // Patroni ends its server too
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // as for a server
		err := d.cmd.Start()
		started <- err
		if err == nil {
			_ = d.cmd.Wait() // its log says how it ended
		}
		close(d.exited)
	}()
	check(r.t, <-started)
	return d
}
