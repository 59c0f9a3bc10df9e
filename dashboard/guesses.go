package dashboard

import (
	"net/netip"
	"sync"
	"time"
)

// Limits of wrong sign-ins.
const (
	maxWrong    = 20  // of one address in a minute
	maxWrongAll = 200 // of all addresses in a minute
	wrongPeriod = time.Minute
)

// guesses counts wrong sign-ins by the minute.
type guesses struct {
	mu    sync.Mutex
	began time.Time            // of the minute; guarded by mu
	all   int                  // guarded by mu
	by    map[netip.Prefix]int // guarded by mu
}

// wrong counts a sign-in with a wrong token. If there were too many, it returns how long their
// answers say nothing more. A valid token is never refused because of wrong ones: tokens cannot be
// guessed, but anyone behind the same address could lock out the others.
func (g *guesses) wrong(remote string, now time.Time) (wait time.Duration) {
	from := networkOf(remote)
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.began) >= wrongPeriod {
		g.began, g.all, g.by = now, 0, make(map[netip.Prefix]int)
	}
	if g.all >= maxWrongAll || g.by[from] >= maxWrong {
		return wrongPeriod - now.Sub(g.began)
	}
	g.all++
	g.by[from]++
	return 0
}

// networkOf returns the network of a client: an IPv4 address, or the 64 bits of an IPv6 address
// that its owner cannot choose. Addresses that it cannot parse count together.
func networkOf(remote string) netip.Prefix {
	at, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	addr := at.Addr().Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // these numbers of bits are valid
	return p
}
