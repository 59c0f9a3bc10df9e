package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/cli"
)

// connect connects to the server to measure, and starts one if none was named. closing
// ends both.
func (f *benchFlags) connect(ctx context.Context, place benchPlace) (closing func(), err error) {
	addr, stop := f.addr, func() {}
	if addr == "" {
		beside, ok := place.(benchBeside)
		if !ok {
			return nil, cli.Invalid("server", "cannot be started on this store; start one and name it with --addr")
		}
		if addr, f.RemoteProcess, stop, err = startBenchServer(ctx, beside.Beside()); err != nil {
			return nil, fmt.Errorf("start a server to measure: %w", err)
		}
	}
	c, err := client.New(addr, client.Options{RetryFor: impatient, SendOnce: true}) // compared with calls that have no keys
	if err != nil {
		stop()
		return nil, err
	}
	f.Remote = c
	return func() {
		_ = c.Close()
		stop()
	}, nil
}

// startBenchServer runs this program as a server in another process, and returns its gRPC
// address and its process id.
func startBenchServer(ctx context.Context, store string) (addr string, process int, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", 0, nil, err
	}
	said := &lastBytes{most: 1000}
	c := exec.CommandContext(ctx, self, "serve", "--store", store, "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	c.Stderr = said
	stdout, err := c.StdoutPipe()
	if err != nil {
		return "", 0, nil, err
	}
	if err := c.Start(); err != nil {
		return "", 0, nil, err
	}
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadString('\n')
	_, addr, found := strings.Cut(strings.TrimSpace(line), " grpc=")
	if err != nil || !found {
		_ = c.Process.Kill()
		_ = c.Wait()
		return "", 0, nil, errors.Join(err, errors.New(strings.TrimSpace(said.String())))
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, lines)
	}()
	return addr, c.Process.Pid, func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		<-read
		_ = c.Wait() // its exit status does not matter
	}, nil
}
