package pgtest

import "syscall"

// attributes run a program under another account and end it when the test process dies,
// however that happens. On SIGQUIT the server also ends its children.
func attributes(owner *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if owner != nil {
		attr.Credential = &syscall.Credential{Uid: owner.uid, Gid: owner.gid}
	}
	return attr
}
