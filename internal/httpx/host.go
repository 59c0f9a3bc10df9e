package httpx

import (
	"net"
	"strings"
)

// ForeignHost reports whether a Host header names a host that somebody else may own. IP
// addresses, localhost and other names without a dot are safe, because nobody can register
// them.
func ForeignHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	return strings.Contains(name, ".") && !strings.HasSuffix(name, ".localhost") && net.ParseIP(name) == nil
}
