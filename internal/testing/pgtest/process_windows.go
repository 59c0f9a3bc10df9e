package pgtest

import "syscall"

// attributes are the default ones: PostgreSQL gives up its own privileges.
func attributes(*account) *syscall.SysProcAttr { return nil }
