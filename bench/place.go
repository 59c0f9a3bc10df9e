package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

// place is where a side keeps its jobs.
type place interface {
	// use makes an empty place, calls f with its address and the process id of its
	// server, and removes the place. The id is 0 if there is no server.
	use(ctx context.Context, f func(address string, server int) error) error
}

// database is a place on the PostgreSQL server that the sides share.
type database struct{ cluster *pgtest.Cluster }

func (d database) use(ctx context.Context, f func(string, int) error) error {
	return withDatabase(ctx, d.cluster, databaseName, func(url string) error { return f(url, d.cluster.Process()) })
}

// directory is a place for a store in this process.
type directory struct{}

func (directory) use(_ context.Context, f func(string, int) error) error {
	dir, err := os.MkdirTemp("", "gq-bench-data-")
	if err != nil {
		return err
	}
	return errors.Join(f(dir, 0), os.RemoveAll(dir))
}

// daemon is a place on a server of its own.
type daemon struct {
	// command returns the command that serves an empty directory on a port of the
	// loopback address, in the foreground.
	command func(dir string, port int) (*exec.Cmd, error)
}

// Limits for servers, far above what they need on a busy machine.
const (
	startWithin = 20 * time.Second
	stopWithin  = 20 * time.Second
)

func (d daemon) use(ctx context.Context, f func(string, int) error) error {
	return directory{}.use(ctx, func(dir string, _ int) error {
		port, err := freePort()
		if err != nil {
			return err
		}
		cmd, err := d.command(dir, port)
		if err != nil {
			return err
		}
		var log bytes.Buffer
		cmd.Stdout, cmd.Stderr = &log, &log
		if err := cmd.Start(); err != nil {
			return err
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		err = listening(ctx, address, ended)
		if err == nil {
			err = f(address, cmd.Process.Pid)
		}
		stop(cmd.Process, ended)
		if err != nil && log.Len() > 0 {
			err = fmt.Errorf("%w\n%s said:\n%s", err, cmd.Path, log.Bytes())
		}
		return err
	})
}

// listening waits until a server accepts connections.
func listening(ctx context.Context, address string, ended chan error) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		select {
		case err := <-ended:
			ended <- err
			return fmt.Errorf("the server ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("the server does not listen: %w", err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// stop ends a server, if need be without its consent.
func stop(p *os.Process, ended chan error) {
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(stopWithin):
		_ = p.Kill()
		<-ended
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
