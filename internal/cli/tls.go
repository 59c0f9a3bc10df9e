package cli

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLSHelp describes the variables that [ClientTLS] reads.
const TLSHelp = `The token is in GQ_TOKEN. For a server with TLS set GQ_TLS=1, or GQ_TLS_CA to a file
with the certificate of its authority; a client certificate is in the files
GQ_TLS_CERT and GQ_TLS_KEY.`

// ClientTLS is how a client encrypts: by the variables GQ_TLS, GQ_TLS_CA, GQ_TLS_CERT
// and GQ_TLS_KEY. nil is without.
func ClientTLS(getenv func(string) string) (*tls.Config, error) {
	ca, cert := getenv("GQ_TLS_CA"), getenv("GQ_TLS_CERT")
	if ca == "" && cert == "" && getenv("GQ_TLS") != "1" {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("GQ_TLS_CA: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, Invalid("GQ_TLS_CA", ca+" has no certificate")
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, getenv("GQ_TLS_KEY"))
		if err != nil {
			return nil, fmt.Errorf("GQ_TLS_CERT and GQ_TLS_KEY: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}
