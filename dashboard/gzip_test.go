package dashboard_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/dashboard"
)

// Pages and assets are compressed for browsers that accept it, and are the same as without.
func TestCompression(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	for range 20 {
		s.submit(gq.Spec{Queue: "mail", Type: "email.send"})
	}
	_, style, _ := strings.Cut(s.get("jobs", http.StatusOK), `stylesheet" href="./`)
	style, _, _ = strings.Cut(style, `"`)
	for path, reload := range map[string]bool{"jobs": false, "jobs?queue=mail": true, style: false, "nothing": false} {
		ask := func(accept string) answer {
			return s.do(http.MethodGet, path, nil, func(r *http.Request) {
				r.Header.Set("Accept-Encoding", accept)
				if reload {
					r.Header.Set("Gq-Reload", "1")
				}
			})
		}
		plain := ask("br, gzip;q=0")
		if plain.Header.Get("Content-Encoding") != "" || !strings.Contains(plain.Header.Get("Vary"), "Accept-Encoding") {
			t.Errorf("%s without gzip: %v", path, plain.Header)
		}
		packed := ask("deflate, GZIP;q=0.8, br")
		if packed.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %v", path, packed.Header)
			continue
		}
		if length := packed.Header.Get("Content-Length"); length != "" && length != strconv.Itoa(len(packed.body)) {
			t.Errorf("%s has %d bytes and claims %s", path, len(packed.body), length)
		}
		r, err := gzip.NewReader(strings.NewReader(packed.body))
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || len(text) < 2*len(packed.body) || len(text) < len(plain.body)*9/10 {
			t.Errorf("%s: %d bytes of %d, %v", path, len(packed.body), len(text), err)
		}
	}
}

// The token of a form differs from address to address, so that the size of compressed pages does not tell it, and all
// of them are accepted.
func TestTokensOfForms(t *testing.T) {
	s := newSite(t, dashboard.Options{})
	s.submit(gq.Spec{Queue: "mail", Type: "t"})
	seen := make(map[string]bool)
	for _, path := range []string{"queue?name=mail", "queue?name=mail&x=1", "jobs?queue=mail"} {
		page := s.get(path, http.StatusOK)
		if first, second := s.token(page), s.token(s.get(path, http.StatusOK)); first != second {
			t.Errorf("%s: an open page would change with each reload", path)
		}
		if seen[s.token(page)] {
			t.Errorf("%s has the token of another page", path)
		}
		seen[s.token(page)] = true
		s.post(page, "queue/pause", "name", "mail")
	}
}
