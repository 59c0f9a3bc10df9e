package main

import "syscall"

// endWithParent kills a program when this process ends, even if it was killed itself. The
// children of the program go on.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
