//go:build unix && !linux

package main

import "syscall"

// endWithParent has no effect: other systems cannot end a program with its parent.
func endWithParent(*syscall.SysProcAttr) {}
