// Package taskwork is what the jobs of the task queue do: nothing for a while,
// and then bytes that anyone can compute again. It is pure, so that every design
// runs the same work and a load generator can check each result.
package taskwork

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
)

// MaxOutputBytes is the largest output a job may have.
const MaxOutputBytes = 262144

// TooLarge is the failure reason of a job whose output would be larger.
const TooLarge = "OUTPUT_TOO_LARGE"

// EmptyChecksum is the checksum of no output.
const EmptyChecksum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Output is what a job of that type and payload size produces. The size must
// not exceed MaxOutputBytes.
func Output(jobType string, size uint32) []byte {
	if size == 0 {
		return nil
	}
	seed := sha256.Sum256(fmt.Appendf(nil, "%d|%s", size, jobType))
	out := make([]byte, size)
	_, _ = rand.NewChaCha8(seed).Read(out) // never fails
	return out
}

// Checksum is the lower-case hex SHA-256 of an output.
func Checksum(output []byte) string {
	if len(output) == 0 {
		return EmptyChecksum
	}
	sum := sha256.Sum256(output)
	return hex.EncodeToString(sum[:])
}

// Matches tells whether an output is the one that a job should have produced.
func Matches(output []byte, jobType string, size uint32) bool {
	return bytes.Equal(output, Output(jobType, size))
}
