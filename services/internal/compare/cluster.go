package compare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Place is where a cluster runs.
type Place struct {
	Binary   string    // path of the gqlab program
	Dir      string    // directory of the logs: NAME.log, JSON lines
	Log      io.Writer // if set, gets the logs of all nodes instead
	BasePort int       // first port; 0 uses any free ports
	Env      []string  // additional environment, NAME=VALUE
}

// A Cluster is a running design.
type Cluster struct {
	Design Design
	Public []string // addresses, in the order of their nodes

	place Place
	data  string // directory of all nodes' data; empty if no node keeps any
	mu    sync.Mutex
	nodes map[string]*node // guarded by mu
	order []string
}

type node struct {
	Process
	command *exec.Cmd
	log     io.Closer
	ended   chan struct{}
}

// startTime is how long a design may take to start all its nodes.
const startTime = 2 * time.Minute

// Up starts a design and waits until it serves.
func Up(ctx context.Context, d Design, p Place) (*Cluster, error) {
	addrs, err := addresses(ctx, d.Addresses, p.BasePort)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Design: d, place: p, nodes: make(map[string]*node)}
	for _, process := range d.Processes(d.Slots, addrs) {
		c.order = append(c.order, process.Name)
		if process.Public {
			c.Public = append(c.Public, process.Listen)
		}
		if err := c.keep(&process); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		if err := c.start(process); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for _, name := range c.order {
		if err := c.Ready(ctx, name); err != nil {
			return nil, errors.Join(err, c.Stop())
		}
	}
	return c, nil
}

func addresses(ctx context.Context, n, base int) (addrs []string, err error) {
	for i := range n {
		if base > 0 {
			addrs = append(addrs, net.JoinHostPort("127.0.0.1", strconv.Itoa(base+i)))
			continue
		}
		listener, err := listen(ctx)
		if err != nil {
			return nil, err
		}
		defer listener.Close() //nolint:errcheck // it served its purpose; closed when all ports are known, so that they differ
		addrs = append(addrs, listener.Addr().String())
	}
	return addrs, nil
}

// The ports are below the range from which systems assign ephemeral ports, so that no
// other process gets one by chance before the node starts, or between a kill and a
// restart.
const (
	firstPort = 20_000
	ports     = 12_000
)

// listen opens a free port.
func listen(ctx context.Context) (listener net.Listener, err error) {
	for range 100 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstPort+rand.IntN(ports)))
		if listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", addr); err == nil {
			return listener, nil
		}
	}
	return nil, fmt.Errorf("find a free port: %w", err)
}

// keep gives a node a data directory that lasts until the cluster is stopped.
func (c *Cluster) keep(p *Process) (err error) {
	if p.Data == "" {
		return nil
	}
	if c.data == "" {
		if c.data, err = os.MkdirTemp(c.place.Dir, "gq-data-"); err != nil {
			return fmt.Errorf("make room for data: %w", err)
		}
	}
	p.Args = append(p.Args, p.Data, filepath.Join(c.data, p.Name))
	return nil
}

func (c *Cluster) start(p Process) error {
	log, err := c.openLog(p.Name)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	command := exec.Command(c.place.Binary, p.Args...) //nolint:noctx // ends by Stop, in order
	command.Stderr = log
	command.Env = append(os.Environ(), c.place.Env...)
	ownGroup(command)
	if err := command.Start(); err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", p.Name, err), log.Close())
	}
	n := &node{Process: p, command: command, log: log, ended: make(chan struct{})}
	go func() {
		_ = command.Wait() // the ended channel reports it
		close(n.ended)
	}()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[p.Name] = n
	return nil
}

func (c *Cluster) openLog(name string) (io.WriteCloser, error) {
	if c.place.Log != nil {
		return shared{c.place.Log}, nil
	}
	return os.OpenFile(c.LogFile(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// shared is a writer that the cluster must not close.
type shared struct{ io.Writer }

func (shared) Close() error { return nil }

// LogFile returns the path of a node's log.
func (c *Cluster) LogFile(name string) string { return filepath.Join(c.place.Dir, name+".log") }

// Names returns the names of the nodes.
func (c *Cluster) Names() []string { return c.order }

func (c *Cluster) node(name string) *node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[name]
}

// pollInterval is how often a starting node is polled.
const pollInterval = 20 * time.Millisecond

// Ready waits until a node serves. It returns an error if the node ends instead.
func (c *Cluster) Ready(ctx context.Context, name string) error {
	n := c.node(name)
	if n.Listen == "" {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- serving(ctx, n.Listen) }()
	select {
	case err := <-served:
		return err
	case <-n.ended:
		cancel()
		<-served
		return fmt.Errorf("%s ended at once; its log is %s", name, c.LogFile(name))
	}
}

// Signal sends a signal to a node, such as SIGKILL, SIGSTOP or SIGCONT.
func (c *Cluster) Signal(name string, s syscall.Signal) error {
	n := c.node(name)
	if err := n.command.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", name, err)
	}
	switch s { //nolint:exhaustive // the others take effect in their own time
	case syscall.SIGKILL:
		<-n.ended
	case pause:
		stopped(n.command.Process.Pid)
	}
	return nil
}

// stopped waits until all threads of a process have stopped, if the system can tell: a
// running thread continues for a moment.
func stopped(pid int) {
	for limit := time.Now().Add(stopTime); time.Now().Before(limit); {
		running := false
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, name := range stats {
			text, err := os.ReadFile(name) //nolint:gosec // of a process of ours
			if _, rest, ok := strings.Cut(string(text), ") "); err == nil && ok && !strings.HasPrefix(rest, "T") {
				running = true
			}
		}
		if !running {
			return
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // the kernel stops its threads one by one and tells nobody
	}
}

// Restart restarts a node that has ended, and waits until it serves.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	n := c.node(name)
	<-n.ended
	_ = n.log.Close() // start opens it again
	if err := c.start(n.Process); err != nil {
		return err
	}
	return c.Ready(ctx, name)
}

// stopTime is how long a node may take to end.
const stopTime = time.Minute

// Stop ends all nodes and removes their data.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	nodes := c.nodes
	c.nodes = nil
	c.mu.Unlock()
	for _, n := range nodes {
		resume(n.command.Process)                     // a paused node could not end
		_ = n.command.Process.Signal(syscall.SIGTERM) // it may have ended already
	}
	hurry := time.NewTimer(stopTime)
	defer hurry.Stop()
	var faults []error
	for name, n := range nodes {
		select {
		case <-n.ended:
		case <-hurry.C:
			hurry.Reset(0)
			_ = n.command.Process.Kill()
			<-n.ended
			faults = append(faults, fmt.Errorf("%s did not end and was killed", name))
		}
		faults = append(faults, n.log.Close())
	}
	if c.data != "" {
		faults = append(faults, os.RemoveAll(c.data))
	}
	return errors.Join(faults...)
}
