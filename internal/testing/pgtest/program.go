package pgtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// program is a server process that speaks the PostgreSQL protocol.
type program struct {
	process *os.Process
	exited  chan struct{} // closed when the process has ended
}

// start runs the program and waits until it answers.
func (p *program) start(cmd *exec.Cmd, url string) error {
	name := filepath.Base(cmd.Path)
	var log tail
	cmd.Stdout, cmd.Stderr = &log, &log
	started := make(chan error)
	p.exited = make(chan struct{})
	go func() {
		// The parent death signal is tied to the thread that started the child, so this
		// thread must not end before the child.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its log says how it ended
		}
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	p.process = cmd.Process
	if err := p.ready(url); err != nil {
		p.kill()
		return fmt.Errorf("start %s: %w\n%s", name, err, log.String())
	}
	return nil
}

// ready waits until the server answers.
func (p *program) ready(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-tick.C:
		case <-p.exited:
			return errors.New("the server ended at once")
		case <-ctx.Done():
			return err
		}
	}
}

// kill kills it and its children.
func (p *program) kill() {
	_ = p.process.Signal(syscall.SIGQUIT)
	select {
	case <-p.exited:
	case <-time.After(stopWithin):
		_ = p.process.Kill()
		<-p.exited
	}
}

// tail keeps the last part of a program's output. It is read only after the program has
// ended.
type tail struct{ buf bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	const most = 64 << 10
	if t.buf.Len()+len(p) > most {
		t.buf.Reset()
	}
	return t.buf.Write(p)
}

func (t *tail) String() string { return t.buf.String() }
