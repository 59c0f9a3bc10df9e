// Package repo_test has tests about the repository as a whole: which package may import which,
// what the documentation says, and which words are used.
package repo_test

import (
	"os"
	"testing"
)

// TestMain runs the tests in the root of the repository, so that they name files as readers do.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	m.Run()
}
