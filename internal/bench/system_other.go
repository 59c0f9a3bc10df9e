//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package bench

import "time"

func allocate(size int) []byte { return make([]byte, size) }

func release([]byte) {}

func processTime() (time.Duration, bool) { return 0, false }
