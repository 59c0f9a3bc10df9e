package access

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// selfSigned returns a certificate that is its own authority, and its key.
func selfSigned(t *testing.T, name string, expires time.Time) (cert, key []byte, pair tls.Certificate) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: expires, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
	pair, err = tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key, pair
}

// shake connects a client with a certificate to a server and returns the error of the server's
// side, and the name of the server's certificate.
func shake(t *testing.T, server *tls.Config, client tls.Certificate) (name string, err error) {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	defer there.Close()
	peer := tls.Client(there, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{client}}) //nolint:gosec // the test looks at the certificate itself
	done := make(chan error, 1)
	go func() { // it also reads what follows the handshake, or the alert
		_, err := peer.Read(make([]byte, 1))
		done <- err
	}()
	own := tls.Server(here, server)
	if err = own.Handshake(); err == nil {
		_, err = own.Write([]byte("x"))
	}
	if err != nil {
		here.Close()
	}
	if other := <-done; err == nil {
		err = other
	}
	if certs := peer.ConnectionState().PeerCertificates; len(certs) > 0 {
		name = certs[0].Subject.CommonName
	}
	return name, err
}

// Files that are renewed are used, bad ones are not, and the log says so once.
func TestCertificatesReload(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	soon, late := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(48*time.Hour).Truncate(time.Second)
	cert, key, _ := selfSigned(t, "first", soon)
	authority, _, client := selfSigned(t, "client", late)
	newAuthority, _, newClient := selfSigned(t, "new client", late)
	var log bytes.Buffer
	c, err := NewCertificates(file("crt", cert), file("key", key), file("ca", authority), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	config := c.TLS()
	check := func(want string, expires time.Time, problem, logged string) {
		t.Helper()
		c.look(0)
		if got, err := shake(t, config, client); err != nil || got != want {
			t.Errorf("the server has the certificate %q, want %q: %v", got, want, err)
		}
		if at, why := c.State(); !at.Equal(expires) || !strings.Contains(why, problem) || (why == "") != (problem == "") {
			t.Errorf("expires %v, problem %q", at, why)
		}
		if got := log.String(); strings.Count(got, "level=") > 1 || !strings.Contains(got, logged) || (got == "") != (logged == "") {
			t.Errorf("logged %q, want %q once", got, logged)
		}
		log.Reset()
	}
	check("first", soon, "", "")
	if _, err := shake(t, config, newClient); err == nil {
		t.Error("a client of an unknown authority is served")
	}
	file("crt", []byte("garbage"))
	check("first", soon, "read the certificate", "level=ERROR")
	check("first", soon, "read the certificate", "") // the same failure again
	cert, key, _ = selfSigned(t, "second", late)
	file("crt", cert)
	check("first", soon, "private key does not match", "level=ERROR") // half-renewed
	file("key", key)
	check("second", late, "", "level=INFO")
	info, err := os.Stat(filepath.Join(dir, "crt"))
	if err != nil {
		t.Fatal(err)
	}
	alike := func(text []byte) { // with the size and the time of the good one
		if err := os.Chtimes(file("crt", text), info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
	}
	file("crt", bytes.Repeat([]byte("x"), len(cert)+1))
	check("second", late, "read the certificate", "level=ERROR")
	alike(bytes.Repeat([]byte("x"), len(cert)))
	check("second", late, "read the certificate", "")
	alike(cert)
	check("second", late, "", "level=INFO") // bad files are read again even if they seem to be unchanged
	file("ca", []byte("nothing"))
	check("second", late, "has no certificate", "level=ERROR")
	file("ca", append(authority, newAuthority...))
	check("second", late, "", "level=INFO")
	if _, err := shake(t, config, newClient); err != nil {
		t.Errorf("a client of the added authority: %v", err)
	}
	file("ca", newAuthority)
	c.look(0)
	if _, err := shake(t, config, client); err == nil {
		t.Error("a client of the removed authority is served")
	}
	if err := os.Remove(filepath.Join(dir, "ca")); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	c.look(0)
	if _, why := c.State(); !strings.Contains(why, "no such file") || !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("a missing file: %q, %s", why, log.String())
	}
}
