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

// Documents is where tokens are kept; every store is one.
type Documents interface {
	PutDocs(ctx context.Context, docs []store.Doc) ([]uint64, error)
	Doc(ctx context.Context, kind, name string) (store.Doc, error)
	Docs(ctx context.Context, kind, after string, limit int) ([]store.Doc, error)
}

// Kind is the kind of the documents that tokens are.
const Kind = "token"

// How long a keyring relies on what it has read. A token that another process
// revoked is refused after freshFor, and nobody gets in while the tokens could
// not be read for trustFor.
const (
	freshFor  = 2 * time.Second
	trustFor  = time.Minute
	askAgain  = 200 * time.Millisecond // between two looks for tokens that are not known
	readLimit = 10 * time.Second
)

// Keyring knows the tokens.
type Keyring struct {
	docs      Documents
	bootstrap digest
	root      *Identity // of the bootstrap token; nil without one

	known   atomic.Pointer[snapshot]
	streams atomic.Int64 // that last only as long as their tokens
	mu      sync.Mutex   // held while tokens are read
}

// snapshot is what was read at one time. It does not change.
type snapshot struct {
	at   time.Time
	keys map[string]*key
}

type key struct {
	token    Token
	hash     digest
	identity *Identity
}

// find is the key of an id and the hash of its secret, nil for none.
func (s *snapshot) find(id string, hash digest) *key {
	if found := s.keys[id]; found != nil && found.hash.equal(hash) {
		return found
	}
	return nil
}

// NewKeyring makes a keyring over documents. A caller with the bootstrap token
// may do everything; "" is none.
func NewKeyring(d Documents, bootstrap string) (*Keyring, error) {
	k := &Keyring{docs: d}
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

// Verify finds out who shows a token. Whatever is wrong with the token, the
// error is the same, [gq.ErrUnauthenticated]; where tokens cannot be read it is
// that of the store.
func (k *Keyring) Verify(ctx context.Context, text string) (*Identity, error) {
	if text == "" || len(text) > MaxTokenBytes {
		return nil, gq.ErrUnauthenticated
	}
	if k.root != nil && hashOf(text).equal(k.bootstrap) {
		return k.root, nil
	}
	id, secret, ok := split(text)
	hash := hashOf(secret) // as much work for any text
	if !ok {
		return nil, gq.ErrUnauthenticated
	}
	s, err := k.current(ctx)
	if err != nil {
		return nil, err
	}
	found := s.find(id, hash)
	if found == nil {
		// A wrong secret takes the same way as an unknown id, and so the same time:
		// how long it takes does not tell which ids exist.
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

// current is what is known, read not too long ago.
func (k *Keyring) current(ctx context.Context) (*snapshot, error) {
	s := k.known.Load()
	if s == nil {
		return k.newer(ctx, nil)
	}
	k.refresh(ctx)
	s = k.known.Load()
	if time.Since(s.at) > trustFor {
		return k.newer(ctx, s)
	}
	return s, nil
}

// refresh reads the tokens again if it is time and nobody else does.
func (k *Keyring) refresh(ctx context.Context) {
	s := k.known.Load()
	if s != nil && time.Since(s.at) < freshFor || !k.mu.TryLock() {
		return
	}
	defer k.mu.Unlock()
	_ = k.readLocked(ctx) // what is known is relied on for a while
}

// Watch reads the tokens as often as it takes to end streams whose token another
// process revoked, until the context ends. While there are no streams it reads
// nothing.
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

// newer is what is known after a look that begins from now on, for a token that is not
// in what was seen: another process may have made it a moment ago. Looks keep their
// distance, and all who wait for one share it.
func (k *Keyring) newer(ctx context.Context, seen *snapshot) (*snapshot, error) {
	began := time.Now()
	if seen != nil {
		timer := time.NewTimer(askAgain - time.Since(seen.at))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if s := k.known.Load(); s != nil && s != seen && !s.at.Before(began) {
		return s, nil
	}
	if err := k.readLocked(ctx); err != nil {
		return nil, err
	}
	return k.known.Load(), nil
}

// readLocked reads all tokens. Identities stay what they are as long as their
// token does, so that rates and streams go on; those of tokens that are gone are
// revoked.
func (k *Keyring) readLocked(ctx context.Context) error {
	// One caller's hurry is not to be the others' error.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readLimit)
	defer cancel()
	next := &snapshot{at: time.Now(), keys: map[string]*key{}}
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
	if err != nil {
		return err
	}
	if old != nil {
		for id, entry := range old.keys {
			if now := next.keys[id]; now == nil || now.identity != entry.identity {
				entry.identity.revoke()
			}
		}
	}
	k.known.Store(next)
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

// Create makes a token and returns its text, which is told this once. Two tokens
// do not have the same name.
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

// List reads all tokens, the oldest first.
func (k *Keyring) List(ctx context.Context) ([]Token, error) {
	tokens := []Token{}
	if err := k.each(ctx, func(t Token, _ digest) { tokens = append(tokens, t) }); err != nil {
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

// Revoke ends a token, named by its id or its name. It is refused here at once
// and by every other process within two seconds.
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

// reread is for what this process has changed itself.
func (k *Keyring) reread(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.readLocked(ctx)
}
