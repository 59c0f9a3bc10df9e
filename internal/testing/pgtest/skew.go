package pgtest

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"
)

// Skewed is [Own] with a clock that is ahead of this process's, or behind it if by is
// negative.
func Skewed(t testing.TB, by time.Duration) *Cluster {
	t.Helper()
	return own(t, by)
}

var errNoFaketime = errors.New(`the library libfaketime is not installed.
The tests of clocks that differ need it to have the server's clock go wrong:
  make postgres                  installs it where it can
  apt-get install libfaketime    on Debian and Ubuntu`)

// skewed returns an environment in which a program sees another time of day. Its
// monotonic clock is unchanged.
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
