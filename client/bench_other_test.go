//go:build !unix

package client_test

import "time"

// cpuTime is unknown here.
func cpuTime() time.Duration { return 0 }
