package delivery

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits of one delivery.
const (
	sendWithin     = 10 * time.Second // see Options.Within
	dialWithin     = 5 * time.Second
	answerHeader   = 16 << 10 // limit for the response header in bytes
	answerBody     = 4 << 10  // bytes of the response body to read, so that the connection can be reused
	perHost        = 4        // concurrent connections to one host
	maxAddresses   = 8        // most addresses of one host to try
	userAgent      = "gopherqueue-webhook/1"
	idleConnection = 30 * time.Second
)

// errForbidden is the reason of a delivery that was not attempted.
var errForbidden = errors.New("the address is not one that callbacks may reach")

// sender makes requests, and only to allowed addresses.
type sender struct {
	client *http.Client
	within time.Duration // time limit of one request
	allow  Allow
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

func newSender(allow Allow, within time.Duration) *sender {
	s := &sender{allow: allow, within: within, lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}}
	s.client = &http.Client{
		Timeout: within,
		// A redirect counts as a failed attempt; it is not followed.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  nil, // a proxy would connect for us, without our checks
			DialContext:            s.dial,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout:    dialWithin,
			ResponseHeaderTimeout:  within,
			MaxResponseHeaderBytes: answerHeader,
			MaxConnsPerHost:        perHost,
			MaxIdleConns:           100,
			MaxIdleConnsPerHost:    1,
			IdleConnTimeout:        idleConnection,
			DisableCompression:     true,
		},
	}
	return s
}

func (s *sender) close() { s.client.CloseIdleConnections() }

// dial connects to one of a host's addresses. It checks the address after resolving the
// name and again, in Control, on the socket about to connect, so that a name that
// resolves differently in between cannot bypass the check.
func (s *sender) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	named := false
	if canonical, ok := canonicalHost(host); ok {
		named = s.allow.hosts[canonical]
	}
	dialer := net.Dialer{Timeout: dialWithin, Control: func(_, address string, _ syscall.RawConn) error {
		if named {
			return nil
		}
		return s.check(address)
	}}
	addresses, err := s.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var failures []error
	for _, ip := range addresses {
		if !named && !s.allow.reaches(ip) {
			failures = append(failures, fmt.Errorf("%s: %w", ip, errForbidden))
			continue
		}
		conn, err := dialer.DialContext(ctx, network, net.JoinHostPort(ip.String(), port))
		if err == nil {
			return conn, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

// resolve returns the addresses of a host, which may be a literal address.
func (s *sender) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	addresses, err := s.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	if len(addresses) == 0 {
		return nil, fmt.Errorf("%.80q has no address", host)
	}
	return addresses[:min(len(addresses), maxAddresses)], nil
}

// check rejects an address that a socket is about to connect to.
func (s *sender) check(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !s.allow.reaches(at.Addr()) {
		return fmt.Errorf("%.80s: %w", address, errForbidden)
	}
	return nil
}

// verdict is the outcome of an attempt.
type verdict struct {
	status int    // 0 if there was no response
	reason string // why it failed; never text from the receiver
	final  bool   // another attempt would not help
}

func (v verdict) delivered() bool { return v.status >= 200 && v.status < 300 }

// send makes one attempt.
func (s *sender) send(ctx context.Context, target string, header http.Header, body []byte) verdict {
	u, err := checkURL(target)
	if err != nil {
		return verdict{reason: err.Error(), final: true}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), bytes.NewReader(body))
	if err != nil {
		return verdict{reason: "the URL cannot be used", final: true}
	}
	request.Header = header
	answer, err := s.client.Do(request)
	if err != nil {
		return s.failed(err)
	}
	defer answer.Body.Close() //nolint:errcheck // nothing of it is used
	_, _ = io.CopyN(io.Discard, answer.Body, answerBody)
	v := verdict{status: answer.StatusCode}
	switch {
	case v.delivered():
	case v.status == http.StatusGone:
		v.reason, v.final = "the receiver is gone", true
	case v.status >= 300 && v.status < 400:
		v.reason = "redirects are not followed"
	default:
		v.reason = "the receiver answered " + strconv.Itoa(v.status)
	}
	return v
}

// failed says why there was no response, in our own words: the text of a network error
// may come from the receiver.
func (s *sender) failed(err error) verdict {
	dns, isDNS := errors.AsType[*net.DNSError](err)
	_, isCertificate := errors.AsType[*tls.CertificateVerificationError](err)
	timeout, isTimeout := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, errForbidden):
		return verdict{reason: errForbidden.Error(), final: true}
	case isDNS && dns.IsNotFound:
		return verdict{reason: "the host has no address"}
	case isCertificate:
		return verdict{reason: "the receiver's certificate is not valid"}
	case isTimeout && timeout.Timeout():
		return verdict{reason: fmt.Sprintf("no answer within %v", s.within)}
	case errors.Is(err, syscall.ECONNREFUSED):
		return verdict{reason: "the connection was refused"}
	default:
		return verdict{reason: "the connection failed"}
	}
}

// checkURL parses a callback URL.
func checkURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, errors.New("the URL is not well-formed")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the URL is not http or https")
	case u.User != nil:
		return nil, errors.New("the URL has a user name")
	case u.Hostname() == "":
		return nil, errors.New("the URL has no host")
	case strings.Contains(u.Hostname(), "%"):
		return nil, errForbidden // it has a zone
	}
	u.Fragment = ""
	return u, nil
}

// hostOf returns the host and port of a URL, which identify a receiver.
func hostOf(target string) string {
	u, err := checkURL(target)
	if err != nil {
		return ""
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if canonical, ok := canonicalHost(host); ok {
		host = canonical
	}
	if port == "" {
		port = u.Scheme // the scheme stands for its default port
	}
	return net.JoinHostPort(host, port)
}
