package pgtest

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// Skewed is [Own] with a clock that differs from that of this process: the
// server's is ahead by that much, or behind if it is negative.
func Skewed(t testing.TB, by time.Duration) *Cluster {
	t.Helper()
	return own(t, by)
}

var errNoFaketime = errors.New(`the library libfaketime is not installed.
The tests of clocks that differ need it to have the server's clock go wrong:
  make postgres                  installs it where it can
  apt-get install libfaketime    on Debian and Ubuntu`)

// skewed is an environment in which a program sees another time of day. What it
// measures durations by stays as it is.
func skewed(by time.Duration) ([]string, error) {
	found, err := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errNoFaketime
	}
	return []string{
		"LD_PRELOAD=" + found[0], fmt.Sprintf("FAKETIME=%+d", int(by.Seconds())), "FAKETIME_DONT_FAKE_MONOTONIC=1", "FAKETIME_DISABLE_SHM=1",
	}, nil
}
