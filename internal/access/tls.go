package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
)

// reloadAfter is how often the certificate files are checked for changes.
const reloadAfter = 10 * time.Second

// Certificates are the certificate of a server and the authorities of its clients. Files that
// change on disk are read again; until they are good, the last good ones stay in use.
type Certificates struct {
	cert, key, clientCA string
	log                 *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate // guarded by mu, as is the rest
	clients *x509.CertPool   // nil: clients need no certificate
	stamp   string           // of the files that were read last
	checked time.Time
	problem string // why the files on disk are not in use
}

// NewCertificates reads the files. If one of authorities is given, every client needs a
// certificate signed by one of them.
func NewCertificates(cert, key, clientCA string, log *slog.Logger) (*Certificates, error) {
	c := &Certificates{cert: cert, key: key, clientCA: clientCA, log: log, checked: time.Now()}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stamp = c.stampOf()
	return c, c.loadLocked()
}

// TLS returns the configuration of a server.
func (c *Certificates) TLS() *tls.Config {
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
	if c.clientCA != "" {
		// The authorities can change, so they are not part of the configuration. Resumed
		// connections are verified too.
		config.ClientAuth, config.VerifyConnection = tls.RequireAnyClientCert, c.verify
	}
	return config
}

// Run looks for new files until the context ends.
func (c *Certificates) Run(ctx context.Context) error {
	ticker := time.NewTicker(reloadAfter)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			c.look(0)
		}
	}
}

// State returns when the certificate in use expires, and why the files on disk are not in use.
func (c *Certificates) State() (expires time.Time, problem string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current.Leaf.NotAfter, c.problem
}

func (c *Certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.look(reloadAfter)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current, nil
}

// verify checks the certificate of a client.
func (c *Certificates) verify(state tls.ConnectionState) error {
	c.mu.Lock()
	options := x509.VerifyOptions{Roots: c.clients, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	c.mu.Unlock()
	if len(state.PeerCertificates) == 0 {
		return errors.New("the client has no certificate")
	}
	for _, more := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(more)
	}
	_, err := state.PeerCertificates[0].Verify(options)
	return err
}

// look reads the files again if they have changed or were bad, unless it did that recently.
func (c *Certificates) look(again time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < again {
		return
	}
	c.checked = time.Now()
	stamp := c.stampOf()
	if stamp == c.stamp && c.problem == "" {
		return
	}
	c.stamp = stamp
	before := c.problem
	switch err := c.loadLocked(); {
	case err == nil:
		c.problem = ""
		c.log.Info("the certificate files changed and are in use", "event", "certificate_reloaded", "file", c.cert, "expires_at", c.current.Leaf.NotAfter)
	default: // maybe half-renewed
		if c.problem = err.Error(); c.problem != before {
			c.log.Error("the certificate files changed and cannot be used; the last good ones stay in use", "event", "certificate_reload",
				"error", err, "expires_at", c.current.Leaf.NotAfter)
		}
	}
}

// stampOf changes when a file does.
func (c *Certificates) stampOf() (stamp string) {
	for _, name := range []string{c.cert, c.key, c.clientCA} {
		if info, err := os.Stat(name); err == nil {
			stamp += fmt.Sprintln(info.ModTime().UnixNano(), info.Size())
		} else {
			stamp += "missing\n"
		}
	}
	return stamp
}

// loadLocked reads all files, and uses them if all are good.
func (c *Certificates) loadLocked() error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("read the certificate: %w", err)
	}
	var clients *x509.CertPool
	if c.clientCA != "" {
		pem, err := os.ReadFile(c.clientCA)
		if err != nil {
			return fmt.Errorf("read the authorities of clients: %w", err)
		}
		clients = x509.NewCertPool()
		if !clients.AppendCertsFromPEM(pem) {
			return fmt.Errorf("%s: %w", c.clientCA, &gq.InvalidError{Faults: []gq.Fault{{Field: "auth.client_ca", Problem: "has no certificate"}}})
		}
	}
	c.current, c.clients = &pair, clients
	return nil
}
