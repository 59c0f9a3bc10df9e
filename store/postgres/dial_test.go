package postgres

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gopherqueue/gq/store"
)

// A host that takes connections and never answers is given up after connect_timeout, and the error
// says so. TLS, which is tried first, gets no time of its own.
func TestConnectTimeout(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close() //nolint:errcheck // nothing was written
	at := listener.Addr().String()
	url := "postgres://gq@" + at + "/app"
	for name, open := range map[string]func(url string) error{
		"Open": func(url string) error {
			_, err := Open(t.Context(), url, store.Config{})
			return err
		},
		"MigrateStatus": func(url string) error {
			_, err := MigrateStatus(t.Context(), url)
			return err
		},
	} {
		start := time.Now()
		err := open(url + "?connect_timeout=1")
		took := time.Since(start)
		if err == nil || took < time.Second {
			t.Errorf("%s: %v after %s, want an error after a second", name, err, took)
			continue
		}
		if n := accepted(t, listener); n != 1 {
			t.Errorf("%s connected %d times, want once, so that the host has its time once", name, n)
		}
		for _, want := range []string{at + " did not answer within 1s", "connect_timeout"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
	}
	for parameters, want := range map[string]time.Duration{"": connectWithin, "?connect_timeout=3": 3 * time.Second, "?connect_timeout=0": 0, "?gq_schema=x": connectWithin} {
		settings, err := parseURL(url + parameters)
		if err != nil || settings.ConnConfig.ConnectTimeout != want {
			t.Errorf("%q: a limit of %s, want %s (%v)", parameters, settings.ConnConfig.ConnectTimeout, want, err)
		}
	}
}

// accepted counts the connections that were made to a listener since the last call.
func accepted(t *testing.T, l net.Listener) (n int) {
	t.Helper()
	last, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close() //nolint:errcheck // nothing was written
	for {
		conn, err := l.Accept() // in the order in which they were made
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		if conn.RemoteAddr().String() == last.LocalAddr().String() {
			return n
		}
		n++
	}
}
