package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
)

// reloadAfter is how often the certificate files are checked for changes.
const reloadAfter = 10 * time.Second

// ServerTLS returns the TLS configuration of a server. If a file of authorities is given,
// every client needs a certificate signed by one of them. A certificate that is renewed
// on disk is picked up.
func ServerTLS(certFile, keyFile, clientCA string) (*tls.Config, error) {
	c := &certificate{cert: certFile, key: keyFile}
	if err := c.load(); err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
	if clientCA == "" {
		return config, nil
	}
	pem, err := os.ReadFile(clientCA)
	if err != nil {
		return nil, fmt.Errorf("read the authorities of clients: %w", err)
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: %w", clientCA, &gq.InvalidError{Faults: []gq.Fault{{Field: "auth.client_ca", Problem: "has no certificate"}}})
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	return config, nil
}

// certificate is reloaded when its files change.
type certificate struct {
	cert, key string

	mu      sync.Mutex
	current *tls.Certificate // guarded by mu
	changed time.Time        // modification time of the loaded file; guarded by mu
	checked time.Time        // guarded by mu
}

func (c *certificate) load() error {
	info, err := os.Stat(c.cert)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	c.current, c.changed, c.checked = &pair, info.ModTime(), time.Now()
	return nil
}

func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) >= reloadAfter {
		c.checked = time.Now()
		if info, err := os.Stat(c.cert); err == nil && !info.ModTime().Equal(c.changed) {
			_ = c.load() // half-renewed: keep the old certificate until both files match
		}
	}
	return c.current, nil
}
