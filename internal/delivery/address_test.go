package delivery

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/errs"
)

// resolver resolves numbers like inet_aton (octal, hexadecimal, short forms) and looks up
// everything else in names.
type resolver map[string][]netip.Addr

func (r resolver) lookup(_ context.Context, host string) ([]netip.Addr, error) {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if canonical, ok := canonicalHost(host); ok {
		host = canonical
	}
	if ip, ok := aton(host); ok {
		return []netip.Addr{ip}, nil
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, nil
	}
	if found := r[host]; found != nil {
		return found, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func aton(host string) (netip.Addr, bool) {
	parts := strings.Split(host, ".")
	if len(parts) > 4 {
		return netip.Addr{}, false
	}
	var value uint64
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 0, 64)
		if err != nil {
			return netip.Addr{}, false
		}
		if i == len(parts)-1 {
			value = value<<(8*(4-i)) | n
		} else {
			value = value<<8 | n&255
		}
	}
	return netip.AddrFrom4([4]byte{byte(value >> 24), byte(value >> 16), byte(value >> 8), byte(value)}), true
}

// forbiddenHosts are spellings of addresses that callbacks may not reach.
var forbiddenHosts = strings.Fields(`
	127.0.0.1 127.1 127.0.1 0177.0.0.1 0x7f.0.0.1 0x7f.1 0x7f000001 2130706433 017700000001 127.000.000.001
	0177.0x0.0.01 127.255.255.254 127.0.0.1. 0x7F.0x00.0x00.0x01 127.0.0.01
	localhost LOCALHOST localhost. LocalHost a.localhost deep.er.localhost
	0.0.0.0 0 0x0 00000000 0.0.0.0. 0.1.2.3
	10.0.0.1 10.255.255.255 0xa.0.0.1 167772161 012.0.0.1 10.1
	172.16.0.1 172.31.255.255 0xac.0x10.0.1 2886729729
	192.168.0.1 192.168.255.255 0xc0a80001 3232235521 192.168.1
	169.254.169.254 0xa9fea9fe 2852039166 0251.0376.0251.0376 169.254.43518 169.254.0.1 0xa9.254.169.254
	100.64.0.1 100.100.100.200 100.127.255.255 0x64646464
	168.63.129.16 2822734096
	192.0.0.1 192.0.0.192 192.0.2.1 198.18.0.1 198.19.255.255 198.51.100.7 203.0.113.9 192.88.99.1
	224.0.0.1 239.255.255.250 240.0.0.1 255.255.255.255 4294967295
	[::] [::1] [0:0:0:0:0:0:0:1] [0000:0000:0000:0000:0000:0000:0000:0001] [::0001] [0::1]
	[::ffff:127.0.0.1] [::ffff:7f00:1] [::FFFF:127.0.0.1] [0:0:0:0:0:ffff:7f00:0001] [::ffff:0:0]
	[::ffff:10.0.0.1] [::ffff:169.254.169.254] [::ffff:a9fe:a9fe] [::ffff:192.168.1.1] [::ffff:100.64.0.1]
	[::127.0.0.1] [::7f00:1] [::ffff:0:127.0.0.1]
	[64:ff9b::127.0.0.1] [64:ff9b::7f00:1] [64:ff9b::a9fe:a9fe] [64:ff9b::10.0.0.1] [64:ff9b:1::1] [64:ff9b:1:ffff::a9fe:a9fe]
	[2002:7f00:1::] [2002:7f00:0001::1] [2002:a9fe:a9fe::] [2002:0a00:0001::1]
	[2001:0::1] [2001::7f00:1] [2001:0:53aa:64c:0:7b2b:80ff:fffe]
	[fc00::1] [fd00::1] [fd00:ec2::254] [fdff:ffff::1]
	[fe80::1] [fe80::a9fe:a9fe] [febf::1] [fe80::1%25eth0] [fe80::1%25lo] [::1%25lo]
	[fec0::1] [ff02::1] [ff0e::1] [2001:db8::1] [100::1] [3fff::1] [5f00::1] [4000::1] [e000::1] [1234::1]
	[2606:4700::5efe:7f00:1] [2606:4700::200:5efe:10.0.0.1]
	①②⑦.⓪.⓪.① ⑯⑨。②⑤④。⑯⑨｡②⑤④ １２７.０.０.１ 127。0。0。1
	private.example mapped.example linklocal.example mixed6.example nat64.example`)

var names = resolver{
	"private.example":   {netip.MustParseAddr("10.9.8.7")},
	"mapped.example":    {netip.MustParseAddr("::ffff:127.0.0.1")},
	"linklocal.example": {netip.MustParseAddr("169.254.169.254")},
	"mixed6.example":    {netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("127.0.0.1")},
	"nat64.example":     {netip.MustParseAddr("64:ff9b::a9fe:a9fe")},
}

// Nothing listens at these addresses, but deliveries are rejected because of the address,
// not for lack of a response.
func TestForbiddenAddresses(t *testing.T) {
	if len(forbiddenHosts) < 100 {
		t.Fatalf("%d spellings, want at least 100", len(forbiddenHosts))
	}
	s := newSender(Allow{}, patience)
	s.lookup = names.lookup
	defer s.close()
	for _, host := range forbiddenHosts {
		for _, target := range []string{"http://" + host + ":9/x", "https://" + host + ":9/x"} {
			v := s.send(t.Context(), target, http.Header{}, nil)
			if v.reason != errForbidden.Error() || !v.final {
				t.Errorf("%s: %+v, want it to be forbidden", target, v)
			}
		}
	}
	t.Logf("%d spellings", len(forbiddenHosts))
}

func TestForbiddenURLs(t *testing.T) {
	s := newSender(Allow{}, patience)
	s.lookup = names.lookup
	defer s.close()
	for _, target := range []string{
		"", "x", "//host/", "file:///etc/passwd", "gopher://127.0.0.1:25/", "ftp://example.com/", "http://", "http:///x",
		"http://user:secret@93.184.216.34/", "http://127.0.0.1@93.184.216.34/", "javascript:alert(1)", "http://a b/", "http://[::1", "unix:/run/x",
		"HTTP+UNIX://x/", "data:text/plain,x",
	} {
		if v := s.send(t.Context(), target, http.Header{}, nil); v.delivered() || v.reason == "" {
			t.Errorf("%q: %+v", target, v)
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	for _, text := range []string{"8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.167.1.1", "169.253.1.1", "2606:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8"} {
		if !public(netip.MustParseAddr(text)) {
			t.Errorf("%s is refused", text)
		}
	}
}

// A name that resolves to a public address first and to a private one on connecting is
// blocked: the address of the socket counts.
func TestRebinding(t *testing.T) {
	reached := false
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s := newSender(Allow{}, patience)
	defer s.close()
	looks := 0
	s.lookup = func(context.Context, string) ([]netip.Addr, error) {
		looks++
		if looks == 1 {
			return []netip.Addr{netip.MustParseAddr("93.184.216.34")}, nil
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	// The name is resolved again for each connection, and the result is checked each
	// time.
	if _, err := s.resolve(t.Context(), "rebind.example"); err != nil {
		t.Fatal(err)
	}
	if v := s.send(t.Context(), "http://rebind.example:"+u.Port()+"/", http.Header{}, nil); v.reason != errForbidden.Error() {
		t.Errorf("%+v, want it to be forbidden", v)
	}
	if err := s.check(net.JoinHostPort("127.0.0.1", u.Port())); !errors.Is(err, errForbidden) {
		t.Errorf("a socket that connects to loopback: %v", err)
	}
	if reached {
		t.Error("the server was reached")
	}
}

func TestAllow(t *testing.T) {
	a, err := ParseAllow([]string{"loopback", "10.1.0.0/16", "192.168.7.7", "receiver.internal", "fd12::/16"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "10.1.2.3": true, "10.2.0.1": false, "192.168.7.7": true, "192.168.7.8": false,
		"fd12::5": true, "fd13::5": false, "::ffff:10.1.2.3": true, "169.254.169.254": false,
	} {
		if got := a.reaches(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
	if !a.hosts["receiver.internal"] {
		t.Error("the host is not allowed")
	}
	_, err = ParseAllow([]string{"http://x/", "10.0.0.0/99", "a:b", ""})
	if len(errs.FaultsOf(err)) != 4 {
		t.Errorf("faults %v, want 4", errs.FaultsOf(err))
	}
}

// TestCheckURL checks that a URL that can never work is rejected before a job is
// accepted, naming the setting that would allow it, and that no other URL is rejected.
func TestCheckURL(t *testing.T) {
	var none Allow
	for _, host := range forbiddenHosts {
		canonical, ok := canonicalHost(host)
		literal := strings.HasPrefix(host, "[")
		if ok {
			_, err := netip.ParseAddr(canonical)
			literal = err == nil || canonical == "localhost" || strings.HasSuffix(canonical, ".localhost")
		}
		err := none.CheckURL("https://" + host + ":8443/done")
		switch {
		case literal && err == nil:
			t.Errorf("%s is accepted", host)
		case !literal && err != nil:
			t.Errorf("%s needs a resolver, and is refused: %v", host, err)
		case literal && !strings.Contains(host, "%") && !strings.Contains(err.Error(), "webhooks.allow"):
			t.Errorf("%s: %v does not name the setting", host, err)
		}
	}
	for _, text := range []string{"https://example.com/x", "http://93.184.216.34:8080/", "http://[2606:4700::1111]/"} {
		if err := none.CheckURL(text); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	allow, err := ParseAllow([]string{"loopback", "10.1.0.0/16", "a.localhost"})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"http://127.0.0.1:1/": "", "http://localhost/": "", "http://[::1]/": "", "http://10.1.2.3/": "",
		"http://10.2.0.1/":            "add 10.2.0.1 or private to",
		"http://169.254.169.254/x":    "add 169.254.169.254 to",
		"http://user:secret@10.1.0.1": "user name",
		"ftp://10.1.0.1/":             "http",
	} {
		switch err := allow.CheckURL(text); {
		case want == "" && err != nil:
			t.Errorf("%s, which is allowed: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
	named, err := ParseAllow([]string{"a.localhost"})
	if err != nil {
		t.Fatal(err)
	}
	if err := named.CheckURL("http://A.localhost:80/"); err != nil {
		t.Errorf("a host that is allowed by its name: %v", err)
	}
}
