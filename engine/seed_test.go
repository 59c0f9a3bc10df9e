package engine_test

import (
	"os"
	"strconv"
	"testing"
)

// seedFromEnvironment returns GQ_SEED, the seed of a random run to repeat, or 0.
func seedFromEnvironment(t testing.TB) uint64 {
	t.Helper()
	text := os.Getenv("GQ_SEED")
	if text == "" {
		return 0
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("GQ_SEED: %v", err)
	}
	return seed
}
