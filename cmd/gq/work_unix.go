//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// endTogether makes a program the head of a group, so that it ends together with
// what it has started, and not by a signal that is meant for us.
func endTogether(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
}

// sweepUp ends what a program has left behind.
func sweepUp(c *exec.Cmd) {
	if c.Process != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // usually there is nothing
	}
}
