//go:build unix

package compare

import (
	"os"
	"os/exec"
	"syscall"
)

// ownGroup keeps the terminal's interrupt from nodes, which Stop ends in order.
func ownGroup(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// pause is the signal that stops a process until it is resumed.
const pause = syscall.SIGSTOP

// resume lets a paused process continue.
func resume(p *os.Process) { _ = p.Signal(syscall.SIGCONT) } // it may have ended
