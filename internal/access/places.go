package access

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
)

// Limits of what callers keep open on one server: of all together, and of one token.
const (
	maxWaiting       = 20_000
	maxWaitingEach   = 12_000
	maxStreams       = 20_000
	maxStreamsEach   = 12_000
	maxSubscribed    = 10_000
	maxSubscribeEach = 5_000
)

// Places limits what callers keep open at the same time, in all and for each token, so that no
// caller takes all memory of a server and no token takes the places of all others. A nil *Places
// limits nothing.
type Places struct {
	what      string // plural, for refusals
	all, each int

	mu    sync.Mutex
	taken int            // guarded by mu
	of    map[string]int // by token; guarded by mu
}

// NewPlaces creates as many places for what as all callers together, and each token, may take.
func NewPlaces(what string, all, each int) *Places {
	return &Places{what: what, all: all, each: each, of: make(map[string]int)}
}

// NewStreams creates the places of Work streams.
func NewStreams() *Places { return NewPlaces("Work streams", maxStreams, maxStreamsEach) }

// Take takes a place for the caller, who must give it back by free. It is refused with
// [gq.ErrTooMany]. Callers without a token have no limit of their own.
func (p *Places) Take(ctx context.Context) (free func(), err error) {
	if p == nil {
		return func() {}, nil
	}
	token := ""
	if i, err := From(ctx); err == nil {
		token = i.Token
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case token != "" && p.of[token] >= p.each:
		return nil, placesError(fmt.Sprintf("this token has %d %s open, as many as one token may have on a server", p.each, p.what))
	case p.taken >= p.all:
		return nil, placesError(fmt.Sprintf("%d %s are open, as many as one server allows", p.all, p.what))
	}
	p.taken++
	p.of[token]++
	return sync.OnceFunc(func() { p.free(token) }), nil
}

func (p *Places) free(token string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.of[token]--; p.of[token] == 0 {
		delete(p.of, token)
	}
}

// placesError refuses a caller for whom there is no place. It is a [gq.ErrTooMany].
type placesError string

func (e placesError) Error() string { return string(e) }

// RetryAfter returns when another try makes sense.
func (placesError) RetryAfter() time.Duration { return 4 * time.Second }

// Unwrap returns the sentinel.
func (placesError) Unwrap() error { return gq.ErrTooMany }
