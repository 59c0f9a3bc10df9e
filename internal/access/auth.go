// Package access authenticates callers and authorizes what they do.
//
// Callers present a bearer token. A [Keyring] knows the tokens, only by their hashes, and
// turns a valid one into an [Identity], which travels in the context. A [Guard] wraps the
// engine and has the same methods: for every call, and for every item of a batch, it
// checks that the identity has the scope for the item's queue. No face checks anything
// itself, so none can forget to.
//
// A call without an identity is rejected. A server without authentication gives every
// call the identity [Everyone].
package access

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

// Scope is a set of permissions on a queue.
type Scope uint8

// The scopes.
const (
	Submit Scope = 1 << iota // submit, change, cancel and replay jobs
	Work                     // claim jobs and settle them
	Read                     // read jobs, events, counts and settings
	Admin                    // change settings; includes all other scopes
	all          = Submit | Work | Read | Admin

	withoutContent Scope = 1 << 4 // limits Read

	// Observe is Read without the content of jobs: payloads, results, checkpoints, notes and the
	// messages of failures.
	Observe = Read | withoutContent
)

var scopeNames = []struct {
	scope Scope
	name  string
}{{Submit, "submit"}, {Work, "work"}, {Observe, "observe"}, {Read, "read"}, {Admin, "admin"}}

// ParseScope parses the name of a scope.
func ParseScope(name string) (Scope, error) {
	for _, s := range scopeNames {
		if s.name == name {
			return s.scope, nil
		}
	}
	return 0, &gq.InvalidError{Faults: []gq.Fault{{Field: "scopes", Problem: fmt.Sprintf("%.64q is not one of submit, work, observe, read, admin", name)}}}
}

// Names lists the scopes of the set.
func (s Scope) Names() (names []string) {
	for _, n := range scopeNames {
		if s&n.scope == n.scope && !(n.scope == Read && s&withoutContent != 0) {
			names = append(names, n.name)
		}
	}
	return names
}

// With adds scopes to a set. Read includes Observe.
func (s Scope) With(o Scope) Scope {
	if s.content() || o.content() {
		return (s | o) &^ withoutContent
	}
	return s | o
}

// content reports whether the set allows to see the content of jobs. Workers get it with their
// jobs.
func (s Scope) content() bool { return s&(Work|Admin) != 0 || s&Observe == Read }

func (s Scope) String() string { return strings.Join(s.Names(), ",") }

// Missing returns the error for a caller whose token has none of the scopes there.
func (s Scope) Missing(where string, args ...any) error {
	return gq.ErrDenied.Errorf("this token lacks the scope %s"+where, append([]any{strings.Join(s.Names(), " or ")}, args...)...)
}

// Limits of tokens.
const (
	MaxTokens        = 10_000    // tokens of one installation
	MaxGrants        = 16        // grants of one token
	MaxPatterns      = 64        // queue patterns of one grant
	MaxTokenRate     = 1_000_000 // calls a second that a token may be limited to
	MaxTokenBytes    = 256       // longest token that is looked up
	MinBootstrapSize = 16        // minimum length of a bootstrap token
)

// Grant gives scopes on queues. In a pattern * matches any characters.
type Grant struct {
	Scopes Scope
	Queues []string
}

func (g *Grant) allows(queue string) bool {
	return slices.ContainsFunc(g.Queues, func(p string) bool { return matches(p, queue) })
}

// matches reports whether a pattern matches a name.
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

// Identity is an authenticated caller.
type Identity struct {
	Token string // id of the token; empty for everyone and for probes
	Name  string // given by its owner

	grants  []Grant
	every   Scope // on all queues
	some    Scope // on at least one queue
	hidden  bool  // it has scopes on jobs whose content it may not see
	content bool  // it may see the content of all jobs
	expires time.Time
	limit   *limiter
	revoked atomic.Bool
	used    atomic.Int64 // last call in Unix nanoseconds, to the second
	ring    *Keyring     // the keyring of the token

	life context.Context // ends when the token is known to be revoked; nil never ends
	end  context.CancelFunc
}

// newIdentity creates an identity. Admin includes all other scopes.
func newIdentity(token, name string, grants []Grant) *Identity {
	i := &Identity{Token: token, Name: name, grants: slices.Clone(grants)}
	for n := range i.grants {
		g := &i.grants[n]
		if g.Scopes&Admin != 0 {
			g.Scopes = all
		}
		i.some |= g.Scopes
		if slices.Contains(g.Queues, "*") {
			i.content = i.content || g.Scopes.content()
			i.every |= g.Scopes
		}
	}
	for _, g := range i.grants {
		i.hidden = i.hidden || slices.ContainsFunc(g.Queues, func(p string) bool {
			return !slices.ContainsFunc(i.grants, func(o Grant) bool { return o.Scopes.content() && slices.Contains(o.Queues, p) })
		})
	}
	return i
}

// Everyone may do everything. It is the identity of all callers of a server without
// authentication.
func Everyone() *Identity { return everyone }

var (
	everyone = newIdentity("", "everyone", []Grant{{all, []string{"*"}}})
	probe    = newIdentity("", "probe", []Grant{{Read, []string{gq.DefaultQueue}}})
)

// May reports whether the identity has one of the scopes on a queue.
func (i *Identity) May(s Scope, queue string) bool {
	if i.every&s != 0 {
		return true
	}
	if i.some&s == 0 {
		return false
	}
	return slices.ContainsFunc(i.grants, func(g Grant) bool { return g.Scopes&s != 0 && g.allows(queue) })
}

// MaySeeContent reports whether the identity may see the content of the jobs of a queue, or of all
// jobs if the name is empty.
func (i *Identity) MaySeeContent(queue string) bool {
	return i.content || queue != "" && slices.ContainsFunc(i.grants, func(g Grant) bool { return g.Scopes.content() && g.allows(queue) })
}

// MayEverywhere reports whether the identity has one of the scopes on all queues.
func (i *Identity) MayEverywhere(s Scope) bool { return i.every&s != 0 }

// MaySomewhere reports whether the identity has one of the scopes on any queue.
func (i *Identity) MaySomewhere(s Scope) bool { return i.some&s != 0 }

// revoke invalidates the identity.
func (i *Identity) revoke() {
	i.revoked.Store(true)
	i.end()
}

// while returns a context that ends when the identity is known to be invalid.
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

// StillValid reports whether the caller's token is still valid: it may have been revoked
// or have expired since a stream began.
func StillValid(ctx context.Context) error {
	i, err := From(ctx)
	if err != nil {
		return err
	}
	return i.Valid(ctx)
}

// WhileValid returns a context that ends when the caller's token expires or is revoked:
// at once if revoked through this process, soon after if through another one, provided
// that [Keyring.Watch] runs.
func WhileValid(ctx context.Context) (context.Context, context.CancelFunc) {
	i, err := From(ctx)
	if err != nil {
		return ctx, func() {}
	}
	return i.while(ctx)
}

// Valid reports whether the identity is still valid: its token may have been revoked or
// have expired since.
func (i *Identity) Valid(ctx context.Context) error {
	if i.ring != nil {
		i.ring.refresh(ctx)
	}
	if i.revoked.Load() || !i.expires.IsZero() && !time.Now().Before(i.expires) {
		return gq.ErrUnauthenticated
	}
	return nil
}

// use notes that the token is in use.
func (i *Identity) use() {
	if i.ring == nil {
		return
	}
	if now := time.Now().UnixNano(); now-i.used.Load() > int64(time.Second) {
		i.used.Store(now)
	}
}

// limiter enforces a rate limit.
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

// RateError rejects a call beyond the rate of its token. It is a [gq.ErrRateLimited].
type RateError struct {
	After     time.Duration // when the next call is allowed
	PerSecond int
}

func (e *RateError) Error() string {
	return fmt.Sprintf("more than %d calls a second; the next one is allowed in %v", e.PerSecond, e.After.Round(time.Millisecond))
}

// RetryAfter returns when the next call is allowed.
func (e *RateError) RetryAfter() time.Duration { return e.After }

// Unwrap returns the sentinel.
func (e *RateError) Unwrap() error { return gq.ErrRateLimited }

// takenError says what the call conflicts with. It is a [gq.ErrConflict], but no
// concurrent change caused it.
type takenError string

func (e takenError) Error() string { return string(e) }

// Unwrap returns the sentinel.
func (takenError) Unwrap() error { return gq.ErrConflict }

type identityKey struct{}

// Via says how a call reached the server.
type Via struct {
	Face string // http, grpc or dashboard
	From string // address of the caller
}

// Through notes how a call reached the server. The context must have an identity, and no call may
// have been made with it.
func Through(ctx context.Context, via Via) context.Context {
	if v, ok := ctx.Value(identityKey{}).(*visit); ok {
		v.via = via
	}
	return ctx
}

// ViaOf returns how a call reached the server, as far as that is known.
func ViaOf(ctx context.Context) Via {
	via := Via{}
	if v, ok := ctx.Value(identityKey{}).(*visit); ok {
		via = v.via
	}
	if via.From == "" {
		if p, ok := peer.FromContext(ctx); ok {
			via.From = p.Addr.String()
		}
	}
	return via
}

// visit is one call.
type visit struct {
	*Identity
	via     Via
	counted atomic.Bool // already counted against the rate of the token
}

// With adds an identity to the context of one call, which counts once against the rate of
// the token, whatever it causes.
func With(ctx context.Context, i *Identity) context.Context {
	return context.WithValue(ctx, identityKey{}, &visit{Identity: i})
}

// Another returns a context for another call of the same caller, for streams that carry
// many.
func Another(ctx context.Context) context.Context {
	v, err := visitOf(ctx)
	if err != nil {
		return ctx
	}
	return Through(With(ctx, v.Identity), v.via)
}

// From returns the identity of a context, or [gq.ErrUnauthenticated] if there is none.
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

// Enter returns the identity of a context for a call about to run. The identity must
// still be valid, and the call counts against the rate of its token unless it already
// has.
func Enter(ctx context.Context) (*Identity, error) {
	v, err := visitOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := v.Valid(ctx); err != nil {
		return nil, err
	}
	v.use()
	if v.limit == nil || v.counted.Load() {
		return v.Identity, nil
	}
	if err := v.limit.take(time.Now()); err != nil {
		return nil, err
	}
	v.counted.Store(true)
	return v.Identity, nil
}
