package main

import (
	"crypto/x509"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const rootsEnv = "GQ_TEST_ROOTS" // makes the test program look for root certificates

// TestRootsOfTheImage runs this program, which has the imports of gq, where the system has
// no root certificates.
func TestRootsOfTheImage(t *testing.T) {
	if os.Getenv(rootsEnv) == "" {
		nowhere := t.TempDir()
		c := exec.Command(os.Args[0], "-test.run=^TestRootsOfTheImage$")
		c.Env = append(os.Environ(), rootsEnv+"=1", "SSL_CERT_DIR="+nowhere, "SSL_CERT_FILE="+filepath.Join(nowhere, "none"))
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if pool, err := x509.SystemCertPool(); err != nil || pool.Equal(x509.NewCertPool()) {
		t.Errorf("there are no root certificates: %v", err)
	}
}
