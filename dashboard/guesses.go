package dashboard

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"
)

// Limits of wrong sign-ins.
const (
	maxWrong    = 20  // of one network in a minute
	maxWrongAll = 200 // of all networks in a minute
	wrongPeriod = time.Minute

	guessPause = time.Second // before each sign-in of a network beyond the limits, which come one at a time
	maxGuesses = 10          // that wait in one network
)

// errCrowded refuses a sign-in that would have to wait for too many others.
var errCrowded = errors.New("too many sign-ins wait")

// guesses limits wrong sign-ins by the minute. Beyond the limits a network is not locked out, since
// others may be behind the same address: its sign-ins are tried one after another, with pauses.
type guesses struct {
	mu    sync.Mutex
	began time.Time                   // of the minute; guarded by mu
	all   int                         // guarded by mu
	by    map[netip.Prefix]int        // guarded by mu
	lines map[netip.Prefix]*guessLine // of networks beyond the limits with sign-ins that wait; guarded by mu
}

// guessLine is the sign-ins of a network beyond the limits.
type guessLine struct {
	length int           // with the one whose turn it is; guarded by guesses.mu
	turn   chan struct{} // holds one while nobody has the turn
}

// guess is a sign-in that may be tried. End it after that.
type guess struct {
	of    *guesses
	from  netip.Prefix
	began time.Time  // the minute in which it counts as wrong until it proves right
	line  *guessLine // nil within the limits
}

// begin returns when a sign-in may be tried. If too many of its network wait already, the error is
// errCrowded.
func (g *guesses) begin(ctx context.Context, remote string, now time.Time) (*guess, error) {
	one := &guess{of: g, from: networkOf(remote)}
	if g.enter(one, now) {
		return one, nil
	}
	if one.line == nil {
		return nil, errCrowded
	}
	select {
	case <-one.line.turn:
	case <-ctx.Done():
		one.leave()
		return nil, ctx.Err()
	}
	pause := time.NewTimer(guessPause)
	defer pause.Stop()
	select {
	case <-pause.C:
		return one, nil
	case <-ctx.Done():
		one.end(false)
		return nil, ctx.Err()
	}
}

// enter counts a sign-in as wrong and reports true, or, beyond the limits, lets it stand in line if
// there is room.
func (g *guesses) enter(one *guess, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.began) >= wrongPeriod {
		g.began, g.all, g.by = now, 0, make(map[netip.Prefix]int)
	}
	one.began = g.began
	if g.all < maxWrongAll && g.by[one.from] < maxWrong {
		g.all++
		g.by[one.from]++
		return true
	}
	l := g.lines[one.from]
	if l == nil {
		if g.lines == nil {
			g.lines = make(map[netip.Prefix]*guessLine)
		}
		l = &guessLine{turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		g.lines[one.from] = l
	}
	if l.length < maxGuesses {
		l.length++
		one.line = l
	}
	return false
}

// end says whether the token was wrong.
func (one *guess) end(wrong bool) {
	if one.line != nil {
		one.line.turn <- struct{}{}
		one.leave()
		return
	}
	g := one.of
	g.mu.Lock()
	defer g.mu.Unlock()
	if !wrong && g.began.Equal(one.began) {
		g.all--
		g.by[one.from]--
	}
}

// leave takes a sign-in out of its line.
func (one *guess) leave() {
	g := one.of
	g.mu.Lock()
	defer g.mu.Unlock()
	if one.line.length--; one.line.length == 0 {
		delete(g.lines, one.from)
	}
}

// slowed reports whether the sign-in was beyond the limits, and how long the minute lasts in which
// others of its network are too.
func (one *guess) slowed(now time.Time) (rest time.Duration, slowed bool) {
	return max(0, wrongPeriod-now.Sub(one.began)), one.line != nil
}

// clientOf returns the address that a request comes from: what a reverse proxy of this machine says
// last, since all its visitors have one address otherwise.
func clientOf(r *http.Request) string {
	if at, err := netip.ParseAddrPort(r.RemoteAddr); err == nil && at.Addr().Unmap().IsLoopback() {
		hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
		if last := strings.TrimSpace(hops[len(hops)-1]); last != "" {
			return last
		}
	}
	return r.RemoteAddr
}

// networkOf returns the network of a client: an IPv4 address, or the 64 bits of an IPv6 address
// that its owner cannot choose. Addresses that it cannot parse count together.
func networkOf(remote string) netip.Prefix {
	addr, err := netip.ParseAddr(remote)
	if err != nil {
		at, err := netip.ParseAddrPort(remote)
		if err != nil {
			return netip.Prefix{}
		}
		addr = at.Addr()
	}
	addr = addr.Unmap().WithZone("")
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // these numbers of bits are valid
	return p
}
