// Package remote opens queues on servers: gq://HOST:PORT, or with TLS gqs://HOST:PORT.
// Several addresses, separated by commas, are servers on the same store: the client uses the
// first that answers, and another one if it fails. Import the package for its side effect:
//
//	import _ "github.com/gopherqueue/gq/driver/remote"
package remote

import (
	"context"
	"crypto/tls"
	"fmt"
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
	for _, one := range strings.Split(strings.TrimSuffix(address, "/"), ",") {
		if host, _, _ := strings.Cut(one, ":"); host == "" && !strings.HasPrefix(one, ":") || one == ":" {
			return nil, &gq.InvalidError{Faults: []gq.Fault{{Field: "url", Problem: fmt.Sprintf(
				"%.80q has no server; write its address, such as %s://127.0.0.1:8790", url, scheme)}}}
		}
	}
	if scheme == "gqs" && o.TLS == nil {
		o.TLS = new(tls.Config)
	}
	return client.New(strings.TrimSuffix(address, "/"), client.Options{TLS: o.TLS, Token: o.Token})
}
