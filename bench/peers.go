package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// scripts are the sides that run on Node, and what they need.
//
//go:embed peers/*.mjs peers/package.json peers/package-lock.json
var scripts embed.FS

// install puts the scripts and their packages, including Node, into a directory, if they
// are not there yet.
func install(ctx context.Context, dir string, progress io.Writer) error {
	names, err := fs.Glob(scripts, "peers/*")
	if err != nil {
		return err
	}
	for _, name := range names {
		data, err := scripts.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), data, 0o600); err != nil {
			return err
		}
	}
	wanted, err := scripts.ReadFile("peers/package-lock.json")
	if err != nil {
		return err
	}
	installed := filepath.Join(dir, "node_modules", "installed")
	if found, err := os.ReadFile(installed); err == nil && bytes.Equal(found, wanted) {
		return nil
	}
	fmt.Fprintln(progress, "installing Node and the queues on it into a scratch directory")
	npm := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
	npm.Dir, npm.Stdout, npm.Stderr = dir, progress, progress
	if err := npm.Run(); err != nil {
		return fmt.Errorf("npm ci: %w; the peers on Node need npm and access to a registry", err)
	}
	return os.WriteFile(installed, wanted, 0o600)
}

// nodeQueue is a queue driven by a script.
type nodeQueue struct {
	title, script, dir string
	rows               map[string]bool
}

func (q nodeQueue) name() string        { return q.title }
func (q nodeQueue) can(row string) bool { return q.rows[row] }

// run passes a task to the script, which reports when the clock starts and then answers
// in one line.
func (q nodeQueue) run(ctx context.Context, t task) (out outcome, err error) {
	text, err := json.Marshal(t)
	if err != nil {
		return out, err
	}
	var faults bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(q.dir, "node_modules", ".bin", "node"), q.script, string(text))
	cmd.Dir, cmd.Stderr = q.dir, &faults
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	lines, err := cmd.StdoutPipe()
	if err != nil {
		return out, err
	}
	if err := cmd.Start(); err != nil {
		return out, err
	}
	answered := false
	for said := bufio.NewScanner(lines); said.Scan(); {
		switch line := said.Bytes(); {
		case string(line) == "begin":
			t.begin()
		case json.Unmarshal(line, &out) == nil:
			t.end()
			answered = true
		}
	}
	if err := cmd.Wait(); err != nil || !answered {
		return out, fmt.Errorf("%s gave no answer: %w\n%s", q.script, err, faults.Bytes())
	}
	return out, nil
}
