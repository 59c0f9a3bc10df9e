// Package access decides who may do what.
//
// Callers show a bearer token. A [Keyring] knows the tokens, by their hashes
// only, and turns a valid one into an [Identity], which travels in the context.
// A [Guard] stands between the faces and the engine and has the same methods: it
// asks of every call, and of every item inside a batch, whether the identity has
// the scope for the queue that the item is about. No face checks anything itself,
// so none can forget to.
//
// A call without an identity is refused. A server that asks nobody for a token
// gives every call [Everyone].
package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Scope is a set of things that may be done with a queue.
type Scope uint8

// The scopes.
const (
	Submit Scope = 1 << iota // submit, change, cancel and replay jobs
	Work                     // claim jobs and settle them
	Read                     // see jobs, events, counts and settings
	Admin                    // change settings; everything else too
	all    = Submit | Work | Read | Admin
)

var scopeNames = []struct {
	scope Scope
	name  string
}{{Submit, "submit"}, {Work, "work"}, {Read, "read"}, {Admin, "admin"}}

// ParseScope reads a scope's name.
func ParseScope(name string) (Scope, error) {
	for _, s := range scopeNames {
		if s.name == name {
			return s.scope, nil
		}
	}
	return 0, &gq.InvalidError{Faults: []gq.Fault{{Field: "scopes", Problem: fmt.Sprintf("%.64q is not one of submit, work, read, admin", name)}}}
}

// Names lists the scopes of a set.
func (s Scope) Names() (names []string) {
	for _, n := range scopeNames {
		if s&n.scope != 0 {
			names = append(names, n.name)
		}
	}
	return names
}

func (s Scope) String() string { return strings.Join(s.Names(), ",") }

// Missing refuses a caller whose token has none of the scopes there.
func (s Scope) Missing(where string, args ...any) error {
	return gq.ErrDenied.Errorf("this token lacks the scope %s"+where, append([]any{strings.Join(s.Names(), " or ")}, args...)...)
}

// Limits of tokens.
const (
	MaxTokens        = 10_000    // tokens of one installation
	MaxGrants        = 16        // grants of one token
	MaxPatterns      = 64        // queue patterns of one grant
	MaxTokenRate     = 1_000_000 // calls a second that a token may be limited to
	MaxTokenBytes    = 256       // what a caller may present
	MinBootstrapSize = 16        // characters of a bootstrap token
)

// Grant is a set of scopes on queues. In a pattern * stands for any characters.
type Grant struct {
	Scopes Scope
	Queues []string
}

func (g *Grant) allows(queue string) bool {
	return slices.ContainsFunc(g.Queues, func(p string) bool { return matches(p, queue) })
}

// matches reports whether a pattern stands for a name.
func matches(pattern, name string) bool {
	first, rest, found := strings.Cut(pattern, "*")
	if !found {
		return pattern == name
	}
	name, found = strings.CutPrefix(name, first)
	if !found {
		return false
	}
	for {
		part, next, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(name, part)
		}
		_, after, ok := strings.Cut(name, part)
		if !ok {
			return false
		}
		name, rest = after, next
	}
}

// Identity is who calls.
type Identity struct {
	Token string // the id of the token; empty for nobody in particular
	Name  string // what its owner calls it

	grants  []Grant
	every   Scope // on all queues
	some    Scope // on any queue at all
	expires time.Time
	limit   *limiter
	revoked atomic.Bool
	ring    *Keyring // whose token it is

	life context.Context // ends when the token is known to be revoked; nil is never
	end  context.CancelFunc
}

// newIdentity makes an identity. Admin has all the other scopes.
func newIdentity(token, name string, grants []Grant) *Identity {
	i := &Identity{Token: token, Name: name, grants: slices.Clone(grants)}
	for n := range i.grants {
		g := &i.grants[n]
		if g.Scopes&Admin != 0 {
			g.Scopes = all
		}
		i.some |= g.Scopes
		if slices.Contains(g.Queues, "*") {
			i.every |= g.Scopes
		}
	}
	return i
}

// Everyone may do everything: the identity of all callers of a server that asks
// nobody for a token.
func Everyone() *Identity { return everyone }

// Probe may see whether a server works, and nothing else.
func Probe() *Identity { return probe }

var (
	everyone = newIdentity("", "everyone", []Grant{{all, []string{"*"}}})
	probe    = newIdentity("", "probe", []Grant{{Read, []string{gq.DefaultQueue}}})
)

// May reports whether the identity has one of the scopes for a queue.
func (i *Identity) May(s Scope, queue string) bool {
	if i.every&s != 0 {
		return true
	}
	if i.some&s == 0 {
		return false
	}
	return slices.ContainsFunc(i.grants, func(g Grant) bool { return g.Scopes&s != 0 && g.allows(queue) })
}

// MayEverywhere reports whether it has one of the scopes for all queues.
func (i *Identity) MayEverywhere(s Scope) bool { return i.every&s != 0 }

// MaySomewhere reports whether it has one of the scopes for any queue.
func (i *Identity) MaySomewhere(s Scope) bool { return i.some&s != 0 }

// revoke ends the identity.
func (i *Identity) revoke() {
	i.revoked.Store(true)
	i.end()
}

// while is a context that ends when the identity is known not to stand any more.
func (i *Identity) while(ctx context.Context) (context.Context, context.CancelFunc) {
	if i.life == nil {
		return ctx, func() {}
	}
	var cancel context.CancelFunc
	if i.expires.IsZero() {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithDeadline(ctx, i.expires)
	}
	stop := context.AfterFunc(i.life, cancel)
	i.ring.streams.Add(1)
	var once sync.Once
	return ctx, func() {
		once.Do(func() { i.ring.streams.Add(-1) })
		stop()
		cancel()
	}
}

// StillValid reports whether the token of a context's caller is still valid: it may
// have been revoked or have expired since a stream began.
func StillValid(ctx context.Context) error {
	i, err := From(ctx)
	if err != nil {
		return err
	}
	return i.Valid(ctx)
}

// WhileValid is a context that ends when the token of the caller expires, at once
// when it is revoked through this process, and soon after it was through another one
// where [Keyring.Watch] runs.
func WhileValid(ctx context.Context) (context.Context, context.CancelFunc) {
	i, err := From(ctx)
	if err != nil {
		return ctx, func() {}
	}
	return i.while(ctx)
}

// Valid reports whether the identity still stands: its token may have been
// revoked or have expired since.
func (i *Identity) Valid(ctx context.Context) error {
	if i.ring != nil {
		i.ring.refresh(ctx)
	}
	if i.revoked.Load() || !i.expires.IsZero() && !time.Now().Before(i.expires) {
		return gq.ErrUnauthenticated
	}
	return nil
}

// limiter keeps calls to a rate.
type limiter struct {
	rate gq.Rate
	mu   sync.Mutex
	due  time.Time // guarded by mu
}

func newLimiter(perSecond int) *limiter {
	if perSecond == 0 {
		return nil
	}
	return &limiter{rate: gq.Rate{Count: perSecond, Per: time.Second, Burst: perSecond}}
}

func (l *limiter) take(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next, ok := machine.TakeRate(l.rate, l.due, now)
	if !ok {
		return &RateError{After: machine.RateAt(l.rate, l.due, now).Sub(now), PerSecond: l.rate.Count}
	}
	l.due = next
	return nil
}

// RateError refuses a call beyond the rate of its token. It is
// [gq.ErrRateLimited].
type RateError struct {
	After     time.Duration // when the next one is allowed
	PerSecond int
}

func (e *RateError) Error() string {
	return fmt.Sprintf("more than %d calls a second; the next one is allowed in %v", e.PerSecond, e.After.Round(time.Millisecond))
}

// RetryAfter is when the next call is allowed.
func (e *RateError) RetryAfter() time.Duration { return e.After }

// Unwrap is the sentinel.
func (e *RateError) Unwrap() error { return gq.ErrRateLimited }

// takenError says what is in the way. It is [gq.ErrConflict], and nobody has changed
// anything in the meantime.
type takenError string

func (e takenError) Error() string { return string(e) }

// Unwrap is the sentinel.
func (takenError) Unwrap() error { return gq.ErrConflict }

type identityKey struct{}

// visit is one call.
type visit struct {
	*Identity
	counted atomic.Bool // against the rate of the token
}

// With puts an identity into a context, for one call: it counts once against the
// rate of the token, whatever is done for its sake.
func With(ctx context.Context, i *Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, &visit{Identity: i})
}

// Another is a context for another call of the same caller: a stream carries many.
func Another(ctx context.Context) context.Context {
	i, err := From(ctx)
	if err != nil {
		return ctx
	}
	return With(ctx, i)
}

// From is the identity of a context; the error is [gq.ErrUnauthenticated] where
// there is none.
func From(ctx context.Context) (*Identity, error) {
	v, err := visitOf(ctx)
	if err != nil {
		return nil, err
	}
	return v.Identity, nil
}

func visitOf(ctx context.Context) (*visit, error) {
	if v, ok := ctx.Value(identityKey{}).(*visit); ok && v.Identity != nil {
		return v, nil
	}
	return nil, gq.ErrUnauthenticated
}

// Enter is From for what is about to be done: the identity must still stand, and
// the call counts against the rate of its token unless it has done so.
func Enter(ctx context.Context) (*Identity, error) {
	v, err := visitOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := v.Valid(ctx); err != nil {
		return nil, err
	}
	if v.limit == nil || v.counted.Load() {
		return v.Identity, nil
	}
	if err := v.limit.take(time.Now()); err != nil {
		return nil, err
	}
	v.counted.Store(true)
	return v.Identity, nil
}
