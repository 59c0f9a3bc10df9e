// Package remote opens queues on servers: gq://HOST:PORT, or with TLS gqs://HOST:PORT.
// Several addresses, separated by commas, are servers on the same store: the client uses the
// first that answers, and another one if it fails. Import the package for its side effect:
//
//	import _ "github.com/gopherqueue/gq/driver/remote"
package remote

import (
	"context"
	"crypto/tls"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/client"
)

func init() {
	gq.RegisterDriver("gq", open)
	gq.RegisterDriver("gqs", open)
}

func open(_ context.Context, url string, o gq.OpenOptions) (gq.Driver, error) {
	scheme, address, _ := strings.Cut(url, "://")
	if scheme == "gqs" && o.TLS == nil {
		o.TLS = new(tls.Config)
	}
	return client.New(strings.TrimSuffix(address, "/"), client.Options{TLS: o.TLS, Token: o.Token})
}
