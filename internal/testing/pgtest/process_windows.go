package pgtest

import "syscall"

// attributes are the default: PostgreSQL drops its privileges itself.
func attributes(*account) *syscall.SysProcAttr { return nil }
