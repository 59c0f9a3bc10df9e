//go:build unix

package main

import (
	"os/exec"
	"syscall"
)

// endTogether puts a program into its own process group, so that its children end with it
// and signals meant for us do not reach it.
func endTogether(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	endWithParent(c.SysProcAttr)
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
}

// sweepUp kills processes that a program left behind.
func sweepUp(c *exec.Cmd) {
	if c.Process != nil {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // usually there are none
	}
}
