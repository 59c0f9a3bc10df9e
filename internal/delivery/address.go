package delivery

import (
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/idna"

	"github.com/gopherqueue/gq"
)

// forbidden lists addresses that callbacks may not reach unless the configuration allows
// it: everything outside the public internet. Any address that is not public unicast is
// rejected too, even if it is not listed here.
var forbidden = prefixes(
	"0.0.0.0/8",         // this network; Linux treats 0.0.0.0 as loopback
	"10.0.0.0/8",        // private
	"100.64.0.0/10",     // carrier-grade NAT; metadata of Alibaba Cloud
	"127.0.0.0/8",       // loopback
	"168.63.129.16/32",  // Azure's platform address, public in number only
	"169.254.0.0/16",    // link-local; metadata of most clouds
	"172.16.0.0/12",     // private
	"192.0.0.0/24",      // protocol assignments; metadata of Oracle Cloud
	"192.0.2.0/24",      // documentation
	"192.31.196.0/24",   // AS112
	"192.52.193.0/24",   // AMT
	"192.88.99.0/24",    // 6to4 relays
	"192.168.0.0/16",    // private
	"192.175.48.0/24",   // AS112
	"198.18.0.0/15",     // benchmarks
	"198.51.100.0/24",   // documentation
	"203.0.113.0/24",    // documentation
	"224.0.0.0/4",       // multicast
	"240.0.0.0/4",       // reserved, broadcast
	"::/8",              // unspecified, loopback, IPv4-compatible and IPv4-mapped
	"64:ff9b::/96",      // NAT64: embeds an IPv4 address
	"64:ff9b:1::/48",    // NAT64 for local use
	"100::/64",          // discard
	"2001::/23",         // protocol assignments; Teredo
	"2001:db8::/32",     // documentation
	"2002::/16",         // 6to4: embeds an IPv4 address
	"2620:4f:8000::/48", // AS112
	"3fff::/20",         // documentation
	"5f00::/16",         // segment routing
	"fc00::/7",          // unique local; metadata of AWS
	"fe80::/10",         // link-local
	"fec0::/10",         // site-local
	"ff00::/8",          // multicast
)

// publicV6 is the range of public IPv6 addresses.
var publicV6 = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

// public reports whether an address belongs to the public internet.
func public(a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	for _, p := range forbidden {
		if p.Contains(a) {
			return false
		}
	}
	if a.Is6() {
		b := a.As16()
		isatap := b[10] == 0x5e && b[11] == 0xfe && b[9] == 0 && b[8]&^2 == 0 // embeds an IPv4 address
		return publicV6.Contains(a) && !isatap
	}
	return a.IsValid()
}

// Allow lists what callbacks may reach in addition to the public internet.
type Allow struct {
	prefixes []netip.Prefix
	hosts    map[string]bool
}

// words are names for commonly allowed ranges.
var words = map[string][]netip.Prefix{
	"loopback": prefixes("127.0.0.0/8", "::1/128"),
	"private":  prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"),
}

// ParseAllow parses exceptions: an address, a range such as 10.1.0.0/16, a host name, or
// one of the words loopback and private. A host allowed by name may have any address.
func ParseAllow(texts []string) (Allow, error) {
	a := Allow{hosts: map[string]bool{}}
	var faults []gq.Fault
	for i, text := range texts {
		text = strings.TrimSpace(text)
		if ranges, ok := words[text]; ok {
			a.prefixes = append(a.prefixes, ranges...)
			continue
		}
		if p, err := netip.ParsePrefix(text); err == nil {
			a.prefixes = append(a.prefixes, p.Masked())
			continue
		}
		if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
			ip = ip.Unmap()
			a.prefixes = append(a.prefixes, netip.PrefixFrom(ip, ip.BitLen()))
			continue
		}
		if host, ok := canonicalHost(text); ok && !strings.ContainsAny(text, ":/@?#%*") {
			a.hosts[host] = true
			continue
		}
		faults = append(faults, gq.Fault{
			Field:   fmt.Sprintf("webhooks.allow[%d]", i),
			Problem: fmt.Sprintf("%.80q is not an address, a range such as 10.1.0.0/16, a host, loopback or private", text),
		})
	}
	if len(faults) > 0 {
		return Allow{}, &gq.InvalidError{Faults: faults}
	}
	return a, nil
}

// canonicalHost normalizes a host name for comparison.
func canonicalHost(name string) (string, bool) {
	ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(name, "."))
	if err != nil || ascii == "" {
		return "", false
	}
	return strings.ToLower(ascii), true
}

// reaches reports whether callbacks may connect to an address.
func (a *Allow) reaches(ip netip.Addr) bool {
	if public(ip) {
		return true
	}
	if ip.Zone() != "" {
		return false
	}
	ip = ip.Unmap()
	for _, p := range a.prefixes {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// CheckURL checks a callback URL with the configured exceptions, see [Allow.CheckURL].
func (h *Hooks) CheckURL(url string) error { return h.options.Allow.CheckURL(url) }

// CheckURL returns why deliveries to a callback URL can never succeed, judging by the URL
// alone. Resolved addresses are checked at delivery.
func (a *Allow) CheckURL(text string) error {
	u, err := checkURL(text)
	if err != nil {
		return err
	}
	host := u.Hostname()
	if canonical, ok := canonicalHost(host); ok {
		if a.hosts[canonical] {
			return nil
		}
		host = canonical
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil:
	case host == "localhost" || strings.HasSuffix(host, ".localhost"): // always loopback, see RFC 6761
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	default:
		return nil
	}
	if a.reaches(ip) {
		return nil
	}
	word := ip.String()
	for name, ranges := range words {
		for _, p := range ranges {
			if p.Contains(ip.Unmap()) {
				word += " or " + name
			}
		}
	}
	return fmt.Errorf("%.80s is not a public address, and a delivery there would be refused; to permit it add %s to the server's setting webhooks.allow", u.Hostname(), word)
}
