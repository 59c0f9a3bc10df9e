// Package taskwork is the work of the task queue's jobs: they wait, and then produce
// bytes that anyone can recompute. It is pure, so that every design runs the same work
// and a load generator can check each result.
package taskwork

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"time"
)

// MaxOutputBytes is the largest output a job may have.
const MaxOutputBytes = 262144

// MaxDedupKeys is how many keys of submits are remembered. The oldest are forgotten first.
const MaxDedupKeys = 10000

// Workers tell that they live every HeartbeatInterval. One that is silent for longer than
// WorkerTimeout has lost its jobs.
const (
	HeartbeatInterval = 1000 * time.Millisecond
	WorkerTimeout     = 4000 * time.Millisecond
)

// TooLarge is the failure reason of a job whose output would exceed MaxOutputBytes.
const TooLarge = "OUTPUT_TOO_LARGE"

// EmptyChecksum is the checksum of an empty output.
const EmptyChecksum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Output returns the output of a job of that type and payload size. The size must not
// exceed MaxOutputBytes.
func Output(jobType string, size uint32) []byte {
	if size == 0 {
		return nil
	}
	seed := sha256.Sum256(fmt.Appendf(nil, "%d|%s", size, jobType))
	out := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(out) // never fails
	return out
}

// Checksum returns the lower-case hex SHA-256 of an output.
func Checksum(output []byte) string {
	if len(output) == 0 {
		return EmptyChecksum
	}
	sum := sha256.Sum256(output)
	return hex.EncodeToString(sum[:])
}

// Matches reports whether an output is the one that a job should have produced.
func Matches(output []byte, jobType string, size uint32) bool {
	return bytes.Equal(output, Output(jobType, size))
}
