//go:build unix && !linux

package pgtest

import "syscall"

// attributes run a program under another account. On systems other than Linux a killed
// test process leaves its server behind.
func attributes(owner *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{}
	if owner != nil {
		attr.Credential = &syscall.Credential{Uid: owner.uid, Gid: owner.gid}
	}
	return attr
}
