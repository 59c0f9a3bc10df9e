//go:build !linux

package dockertest

import "errors"

var errLinux = errors.New("the tests of containers need Linux, whose namespaces they run in")

func isolated(string, []string) (int, error)     { return 0, errLinux }
func withEngine(string, func() int) (int, error) { return 0, errLinux }
func clean(string) error                         { return nil }
