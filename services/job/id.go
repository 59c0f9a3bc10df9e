package job

import (
	"crypto/rand"

	"github.com/gopherqueue/gq/machine"
)

// NewID draws a random UUIDv4.
func NewID() string {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	return machine.NewJobID(random).String()
}
