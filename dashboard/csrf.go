package dashboard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/httpx"
)

// secure sets the headers of every response.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin") // a form's Origin is null without a referrer
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
}

func randomKey() []byte {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return key
}

// formSecret is what the forms of a session prove to know. Another site cannot read it.
func (d *Dashboard) formSecret(session string) []byte {
	mac := hmac.New(sha256.New, d.key)
	mac.Write([]byte("form\x00" + session))
	return mac.Sum(nil)
}

// formToken returns the token that the forms of a page carry: the secret of the session under a mask. The mask differs
// for every address, so the size of compressed pages tells nothing about the secret to those who try addresses.
func (d *Dashboard) formToken(session, address string) string {
	secret, mask := d.formSecret(session), hmac.New(sha256.New, d.key)
	mask.Write([]byte("mask\x00" + address))
	token := mask.Sum(nil)
	subtle.XORBytes(secret, secret, token)
	return base64.RawURLEncoding.EncodeToString(append(token, secret...))
}

// provesForm reports whether a token is one of the session.
func (d *Dashboard) provesForm(session, token string) bool {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) != 2*sha256.Size {
		return false
	}
	mask, secret := raw[:sha256.Size], raw[sha256.Size:]
	subtle.XORBytes(secret, secret, mask)
	return hmac.Equal(secret, d.formSecret(session))
}

// checkForm refuses a form that does not come from a page of this dashboard.
func (v *visit) checkForm() error {
	if !sameOrigin(v.r) {
		return refused("This request came from another site, so nothing was done.")
	}
	if err := v.r.ParseForm(); err != nil {
		return &gq.InvalidError{Faults: []gq.Fault{{Field: "form", Problem: "cannot be read; send it again"}}}
	}
	if !v.d.provesForm(v.session, v.r.PostForm.Get("csrf")) {
		return refused("The form was out of date, so nothing was done. Go back, reload the page and send it again.")
	}
	return nil
}

// sameOrigin reports whether a request comes from a page of this server. Browsers always send
// one of the two headers with a form; scripts that send neither use the HTTP API.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	if err != nil || origin.Host == "" {
		return false
	}
	return ofHost(r, origin.Host)
}

// ofHost reports whether a host is the one that the browser called. A proxy may have replaced it; a page of
// another site cannot set the header of the proxy.
func ofHost(r *http.Request, host string) bool {
	return strings.EqualFold(host, r.Host) || strings.EqualFold(host, r.Header.Get("X-Forwarded-Host"))
}

// foreignHost reports whether a request without access control names a host that somebody else
// may own. A web site whose name resolves to this machine would otherwise be same-origin.
func (d *Dashboard) foreignHost(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback() && r.TLS == nil && httpx.ForeignHost(r.Host) && !slices.ContainsFunc(d.options.Hosts, func(name string) bool {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		return strings.EqualFold(name, host)
	})
}
