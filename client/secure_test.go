package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// certificate creates a certificate for 127.0.0.1.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLSAndToken(t *testing.T) {
	cert, pool := certificate(t)
	var mine bool
	authorize := func(ctx context.Context, _ string, _ proto.Message) error {
		if got := metadata.ValueFromIncomingContext(ctx, "authorization"); len(got) != 1 || got[0] != "Bearer secret" {
			return gq.ErrUnauthenticated
		}
		return nil
	}
	secure := func(f *fixture) {
		f.options.Authorize = authorize
		f.options.Server = []grpc.ServerOption{grpc.Creds(credentials.NewServerTLSFromCert(&cert))}
		f.client.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
		if f.client.Token = ""; mine {
			f.client.Token = "secret"
		}
	}
	mine = true
	f := serve(t, secure)
	f.job()
	if _, err := f.Complete(t.Context(), f.claim().State.Lease.Ref(), nil); err != nil {
		t.Error(err)
	}
	mine = false
	f = serve(t, secure)
	if _, err := f.Submit(t.Context(), gq.Spec{Type: "t"}); !errors.Is(err, gq.ErrUnauthenticated) {
		t.Errorf("without a token: %v", err)
	}
	if _, err := f.Claim(t.Context(), gq.ClaimRequest{Worker: "w", N: 1}); !errors.Is(err, gq.ErrUnauthenticated) {
		t.Errorf("a stream without a token: %v", err)
	}
	f = serve(t, func(f *fixture) { f.options.Authorize, f.client.Token = authorize, "secret" })
	f.job() // unencrypted, but only on this machine
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		address string
		options client.Options
		field   string // the invalid one
	}{
		{"", client.Options{}, ""},
		{"127.0.0.1:1", client.Options{Token: "t"}, ""},
		{"[::1]:1", client.Options{Token: "t"}, ""},
		{"localhost:1", client.Options{Token: "t"}, ""},
		{"dns:///localhost:1", client.Options{Token: "t"}, ""},
		{"unix:/tmp/gq.sock", client.Options{Token: "t"}, ""},
		{"example.com:1", client.Options{}, ""},
		{"example.com:1", client.Options{Token: "t", TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, ""},
		{"example.com:1", client.Options{Token: "t"}, "token"},
		{"10.0.0.1:1", client.Options{Token: "t"}, "token"},
		{"dns:///example.com:1", client.Options{Token: "t"}, "token"},
		{"localhost.example.com:1", client.Options{Token: "t"}, "token"},
		{"127.0.0.1:1", client.Options{Token: "a b"}, "token"},
		{"127.0.0.1:1", client.Options{Token: "a\nb"}, "token"},
		{"no-such-scheme://\x00", client.Options{}, "address"},
	} {
		q, err := client.New(c.address, c.options)
		if c.field == "" {
			if err != nil {
				t.Errorf("%q: %v", c.address, err)
				continue
			}
			if err := q.Close(); err != nil {
				t.Errorf("%q: %v", c.address, err)
			}
			continue
		}
		if faults := errs.FaultsOf(err); len(faults) == 0 || faults[0].Field != c.field {
			t.Errorf("%q: %v", c.address, err)
		}
	}
}

// An error carries the id of the call in the server's log.
func TestRequestID(t *testing.T) {
	f := serve(t)
	_, err := f.Get(t.Context(), machine.NewJobID([16]byte{1}), 0)
	if client.RequestID(err) == "" {
		t.Errorf("%v has no request id", err)
	}
	if client.RequestID(errors.New("mine")) != "" {
		t.Error("an error of mine has one")
	}
}
