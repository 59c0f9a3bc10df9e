package access

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

// Documents is where tokens are stored; every store implements it.
type Documents interface {
	PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error)
	Doc(ctx context.Context, kind, name string) (store.Doc, error)
	Docs(ctx context.Context, kind, after string, limit int) ([]store.Doc, error)
}

// Kind is the document kind of tokens.
const Kind = "token"

// How long a keyring relies on what it has read. A token that another process revoked is
// rejected after freshFor. If tokens cannot be read for trustFor, nobody gets in, except to
// what answers without the store; see trustAt.
const (
	freshFor     = 2 * time.Second
	trustFor     = time.Minute
	trustOffline = 24 * time.Hour         // for what answers without the store
	askAgain     = 200 * time.Millisecond // between two reads for unknown tokens
	readLimit    = 10 * time.Second       // of one read
	refreshFor   = 500 * time.Millisecond // how long a caller waits for newer tokens if it knows older ones
)

// Keyring verifies and manages tokens.
type Keyring struct {
	docs      Documents
	bootstrap digest
	root      *Identity // identity of the bootstrap token; nil without one

	now func() time.Time

	known   atomic.Pointer[snapshot]
	streams atomic.Int64 // open streams that end with their tokens

	mu      sync.Mutex
	reading *reading  // in progress, or nil; guarded by mu
	begun   uint64    // reads so far; guarded by mu
	failed  time.Time // when the last read began, if it failed; guarded by mu
}

// snapshot has all tokens as of one read. It is immutable.
type snapshot struct {
	at   time.Time // when the read began
	read uint64    // its number
	keys map[string]*key
}

// reading is a read of all tokens, for all who wait for one.
type reading struct {
	number uint64
	done   chan struct{}
	err    error // set before done is closed
}

type key struct {
	token    Token
	hash     digest
	identity *Identity
}

// find returns the key with this id and secret hash, or nil.
func (s *snapshot) find(id string, hash digest) *key {
	if found := s.keys[id]; found != nil && found.hash.equal(hash) {
		return found
	}
	return nil
}

// NewKeyring creates a keyring over documents. The bootstrap token allows everything; ""
// disables it.
func NewKeyring(d Documents, bootstrap string) (*Keyring, error) {
	k := &Keyring{docs: d, now: time.Now}
	if bootstrap != "" {
		if len(bootstrap) < MinBootstrapSize || len(bootstrap) > MaxTokenBytes {
			return nil, &gq.InvalidError{Faults: []gq.Fault{{
				Field: "GQ_ADMIN_TOKEN", Problem: fmt.Sprintf("has %d characters; want %d to %d", len(bootstrap), MinBootstrapSize, MaxTokenBytes),
			}}}
		}
		k.bootstrap = hashOf(bootstrap)
		k.root = newIdentity("bootstrap", "bootstrap", []Grant{{all, []string{"*"}}})
	}
	return k, nil
}

// UseClock sets the clock that tells how old the known tokens are. Call it before the first call.
func (k *Keyring) UseClock(now func() time.Time) { k.now = now }

// Empty reports whether there is no token at all, so that nobody could get in.
func (k *Keyring) Empty(ctx context.Context) (bool, error) {
	if k.root != nil {
		return false, nil
	}
	docs, err := k.docs.Docs(ctx, Kind, "", 1)
	if err != nil {
		return false, fmt.Errorf("read tokens: %w", err)
	}
	return len(docs) == 0, nil
}

// Verify returns the identity of a token. Any invalid token gives the same error,
// [gq.ErrUnauthenticated]; if tokens cannot be read, the error is the store's.
func (k *Keyring) Verify(ctx context.Context, text string) (*Identity, error) {
	return k.verify(ctx, text, trustFor)
}

// verify is Verify that relies on tokens read up to trust ago.
func (k *Keyring) verify(ctx context.Context, text string, trust time.Duration) (*Identity, error) {
	if text == "" || len(text) > MaxTokenBytes {
		return nil, gq.ErrUnauthenticated
	}
	if k.root != nil && hashOf(text).equal(k.bootstrap) {
		return k.root, nil
	}
	id, secret, ok := split(text)
	hash := hashOf(secret) // constant work, whether or not the text is well-formed
	if !ok {
		return nil, gq.ErrUnauthenticated
	}
	s, err := k.current(ctx, trust)
	if err != nil {
		return nil, err
	}
	found := s.find(id, hash)
	if found == nil {
		// A wrong secret takes the same path as an unknown id, so the time it takes does
		// not reveal which ids exist.
		if s, err = k.newer(ctx, s); err != nil {
			return nil, err
		}
		if found = s.find(id, hash); found == nil {
			return nil, gq.ErrUnauthenticated
		}
	}
	if err := found.identity.Valid(ctx); err != nil {
		return nil, err
	}
	return found.identity, nil
}

// current returns a snapshot that is at most trust old.
func (k *Keyring) current(ctx context.Context, trust time.Duration) (*snapshot, error) {
	s := k.known.Load()
	if s == nil {
		return k.newer(ctx, nil)
	}
	k.refresh(ctx)
	s = k.known.Load()
	if k.now().Sub(s.at) > trust {
		return k.newer(ctx, s)
	}
	return s, nil
}

// refresh rereads the tokens if the snapshot is old and nobody else is reading. It does not wait
// for long: until a read succeeds, the old snapshot stays valid for a while.
func (k *Keyring) refresh(ctx context.Context) {
	if k.fresh() {
		return
	}
	k.mu.Lock()
	if k.fresh() || k.reading != nil || k.now().Sub(k.failed) < freshFor {
		k.mu.Unlock()
		return
	}
	r := k.readLocked(ctx)
	k.mu.Unlock()
	limit := time.NewTimer(refreshFor)
	defer limit.Stop()
	select {
	case <-r.done:
	case <-limit.C:
	case <-ctx.Done():
	}
}

func (k *Keyring) fresh() bool {
	s := k.known.Load()
	return s != nil && k.now().Sub(s.at) < freshFor
}

// Watch rereads the tokens often enough to end streams whose token another process
// revoked, until the context ends. Without streams it reads nothing.
func (k *Keyring) Watch(ctx context.Context) {
	tick := time.NewTicker(freshFor)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if k.streams.Load() > 0 {
			k.refresh(ctx)
		}
	}
}

// newer returns a snapshot whose read began after this call, for a token that is not in
// seen: another process may have just created it. Reads are at least askAgain apart, and
// concurrent callers share one.
func (k *Keyring) newer(ctx context.Context, seen *snapshot) (*snapshot, error) {
	before := k.reads()
	if seen != nil {
		timer := time.NewTimer(askAgain - k.now().Sub(seen.at))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return k.after(ctx, before, false)
}

// reads returns how many reads have begun.
func (k *Keyring) reads() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.begun
}

// after returns a snapshot of a later read than the given number of reads. If any read fails that
// the caller waits for, so does the caller: in an outage all wait for one read, not one for another.
// own makes only those later reads count.
func (k *Keyring) after(ctx context.Context, before uint64, own bool) (*snapshot, error) {
	for {
		k.mu.Lock()
		if s := k.known.Load(); s != nil && s.read > before {
			k.mu.Unlock()
			return s, nil
		}
		r := k.reading
		if r == nil {
			r = k.readLocked(ctx)
		}
		k.mu.Unlock()
		select {
		case <-r.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if r.err != nil && (r.number > before || !own) {
			return nil, r.err
		}
	}
}

// readLocked begins to read all tokens. One caller's deadline must not fail the read for others, so
// it has a limit of its own, and they need not wait until it ends.
func (k *Keyring) readLocked(ctx context.Context) *reading {
	k.begun++
	r := &reading{number: k.begun, done: make(chan struct{})}
	k.reading = r
	next := &snapshot{at: k.now(), read: k.begun, keys: map[string]*key{}}
	go func() {
		defer close(r.done)
		ctx, cancel := context.WithTimeout(store.Afresh(context.WithoutCancel(ctx)), readLimit)
		defer cancel()
		r.err = k.fill(ctx, next)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.reading = nil
		if r.err != nil {
			k.failed = next.at
			return
		}
		k.failed = time.Time{}
		k.known.Store(next)
	}()
	return r
}

// fill reads all tokens. It keeps the identity of an unchanged token, so that its rate limit and
// streams continue, and revokes the identities of deleted ones.
func (k *Keyring) fill(ctx context.Context, next *snapshot) error {
	old := k.known.Load()
	err := k.each(ctx, func(t Token, hash digest) {
		entry := &key{token: t, hash: hash}
		if old != nil && old.keys[t.ID] != nil && old.keys[t.ID].hash == hash {
			entry.identity = old.keys[t.ID].identity
		} else {
			i := newIdentity(t.ID, t.Name, t.Grants)
			i.expires, i.limit, i.ring = t.ExpiresAt, newLimiter(t.Rate), k
			i.life, i.end = context.WithCancel(context.Background())
			entry.identity = i
		}
		next.keys[t.ID] = entry
	})
	if err != nil || old == nil {
		return err
	}
	for id, entry := range old.keys {
		if now := next.keys[id]; now == nil || now.identity != entry.identity {
			entry.identity.revoke()
		}
	}
	return nil
}

func (k *Keyring) each(ctx context.Context, f func(Token, digest)) error {
	for after := ""; ; {
		docs, err := k.docs.Docs(ctx, Kind, after, store.MaxPage)
		if err != nil {
			return fmt.Errorf("read tokens: %w", err)
		}
		for _, d := range docs {
			t, hash, err := decode(d.Name, d.Data)
			if err != nil {
				return err
			}
			f(t, hash)
		}
		if len(docs) < store.MaxPage {
			return nil
		}
		after = docs[len(docs)-1].Name
	}
}

// Create creates a token and returns its text, which is never shown again. Names are
// unique.
func (k *Keyring) Create(ctx context.Context, t Token) (Token, string, error) {
	t.CreatedAt = time.Now().UTC().Truncate(time.Millisecond)
	if err := t.Validate(t.CreatedAt); err != nil {
		return Token{}, "", fmt.Errorf("create token: %w", err)
	}
	others, err := k.List(ctx)
	if err != nil {
		return Token{}, "", err
	}
	if len(others) >= MaxTokens {
		return Token{}, "", fmt.Errorf("create token: %d exist: %w", len(others), gq.ErrTooMany)
	}
	if slices.ContainsFunc(others, func(o Token) bool { return o.Name == t.Name }) {
		return Token{}, "", fmt.Errorf("create token %.80q: %w", t.Name, takenError("there is one with this name; revoke it, or choose another"))
	}
	t.ID = draw(idBytes)
	secret := draw(secretBytes)
	data, err := t.encode(hashOf(secret))
	if err != nil {
		return Token{}, "", fmt.Errorf("create token %.80q: %w", t.Name, err)
	}
	if _, err := k.docs.PutDocs(ctx, []store.Doc{{Kind: Kind, Name: t.ID, Data: data}}); err != nil {
		return Token{}, "", fmt.Errorf("create token %.80q: %w", t.Name, err)
	}
	return t, tokenPrefix + t.ID + "_" + secret, k.reread(ctx)
}

// List returns all tokens, oldest first.
func (k *Keyring) List(ctx context.Context) ([]Token, error) {
	tokens := []Token{}
	known := k.known.Load()
	if err := k.each(ctx, func(t Token, _ digest) {
		if known != nil && known.keys[t.ID] != nil {
			if used := known.keys[t.ID].identity.used.Load(); used > 0 {
				t.UsedAt = time.Unix(0, used)
			}
		}
		tokens = append(tokens, t)
	}); err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	slices.SortFunc(tokens, func(a, b Token) int {
		if c := a.CreatedAt.Compare(b.CreatedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return tokens, nil
}

// Revoke revokes a token, given its id or its name. This process rejects it at once,
// every other process within two seconds.
func (k *Keyring) Revoke(ctx context.Context, name string) (Token, error) {
	tokens, err := k.List(ctx)
	if err != nil {
		return Token{}, err
	}
	at := slices.IndexFunc(tokens, func(t Token) bool { return t.ID == name })
	if at < 0 {
		at = slices.IndexFunc(tokens, func(t Token) bool { return t.Name == name })
	}
	if at < 0 {
		return Token{}, gq.ErrNotFound.Errorf("token %.80q not found", name)
	}
	for {
		doc, err := k.docs.Doc(ctx, Kind, tokens[at].ID)
		if err == nil {
			doc.Data = nil
			_, err = k.docs.PutDocs(ctx, []store.Doc{doc})
		}
		if errors.Is(err, gq.ErrConflict) {
			continue
		}
		if err != nil {
			return Token{}, fmt.Errorf("revoke token %.80q: %w", name, err)
		}
		break
	}
	return tokens[at], k.reread(ctx)
}

// reread rereads the tokens after a change by this process.
func (k *Keyring) reread(ctx context.Context) error {
	_, err := k.after(ctx, k.reads(), true)
	return err
}
