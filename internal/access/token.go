package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// A token is gq_ID_SECRET. The id is public: it names the token in lists and logs. Only a
// hash of the secret, 160 random bits, is kept; it needs no salt and no slow hash,
// because the secret cannot be guessed.
const (
	tokenPrefix = "gq_"
	idBytes     = 8
	idSize      = 13
	secretBytes = 20
	secretSize  = 32
	tokenSize   = len(tokenPrefix) + idSize + 1 + secretSize
)

var letters = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

type digest [sha256.Size]byte

func hashOf(secret string) digest { return sha256.Sum256([]byte(secret)) }

func (d digest) equal(o digest) bool { return subtle.ConstantTimeCompare(d[:], o[:]) == 1 }

func draw(n int) string {
	raw := make([]byte, n)
	_, _ = rand.Read(raw) // never fails
	return letters.EncodeToString(raw)
}

// split splits a token into id and secret.
func split(text string) (id, secret string, ok bool) {
	if len(text) != tokenSize || text[:len(tokenPrefix)] != tokenPrefix || text[len(tokenPrefix)+idSize] != '_' {
		return "", "", false
	}
	return text[len(tokenPrefix) : len(tokenPrefix)+idSize], text[len(tokenPrefix)+idSize+1:], true
}

// Token describes a token without its secret.
type Token struct {
	ID        string
	Name      string // given by its owner
	Grants    []Grant
	Rate      int       // calls a second; 0 is no limit
	CreatedAt time.Time // set by Create
	ExpiresAt time.Time // zero never expires
	UsedAt    time.Time // last call that this process has seen; set by List, zero if there was none
}

// Validate reports all faults of a token to be created.
func (t *Token) Validate(now time.Time) error {
	var faults []gq.Fault
	add := func(field, format string, args ...any) {
		faults = append(faults, gq.Fault{Field: field, Problem: fmt.Sprintf(format, args...)})
	}
	faults = append(faults, errs.FaultsOf(machine.CheckName("name", t.Name))...)
	if len(t.Grants) == 0 || len(t.Grants) > MaxGrants {
		add("grants", "%d grants are not between 1 and %d", len(t.Grants), MaxGrants)
	}
	for i, g := range t.Grants {
		at := fmt.Sprintf("grants[%d].", i)
		if g.Scopes == 0 || g.Scopes&^(all|withoutContent) != 0 {
			add(at+"scopes", "want at least one of submit, work, observe, read, admin")
		}
		if len(g.Queues) == 0 || len(g.Queues) > MaxPatterns {
			add(at+"queues", "%d patterns are not between 1 and %d", len(g.Queues), MaxPatterns)
		}
		for k, p := range g.Queues {
			faults = append(faults, errs.FaultsOf(machine.CheckName(fmt.Sprintf("%squeues[%d]", at, k), p))...)
		}
	}
	if t.Rate < 0 || t.Rate > MaxTokenRate {
		add("rate", "%d a second is not between 0, which is no limit, and %d", t.Rate, MaxTokenRate)
	}
	if !t.ExpiresAt.IsZero() && !t.ExpiresAt.After(now) {
		add("expires_at", "%s has passed", t.ExpiresAt.UTC().Format(time.RFC3339))
	}
	if len(faults) > 0 {
		return &gq.InvalidError{Faults: faults}
	}
	return nil
}

// record is the stored form of a token.
type record struct {
	Name      string        `json:"name"`
	Hash      string        `json:"hash"` // SHA-256 of the secret, in hex
	Grants    []grantRecord `json:"grants"`
	Rate      int           `json:"rate,omitempty"`
	CreatedAt time.Time     `json:"created_at"`
	ExpiresAt time.Time     `json:"expires_at,omitzero"`
}

type grantRecord struct {
	Scopes []string `json:"scopes"`
	Queues []string `json:"queues"`
}

// Administers reports whether the token has admin on all queues.
func (t *Token) Administers() bool {
	return newIdentity("", "", t.Grants).MayEverywhere(Admin)
}

func (t *Token) encode(hash digest) ([]byte, error) {
	r := record{Name: t.Name, Hash: hex.EncodeToString(hash[:]), Rate: t.Rate, CreatedAt: t.CreatedAt.UTC(), ExpiresAt: t.ExpiresAt}
	for _, g := range t.Grants {
		r.Grants = append(r.Grants, grantRecord{g.Scopes.Names(), g.Queues})
	}
	return json.Marshal(r)
}

func decode(id string, data []byte) (t Token, hash digest, err error) {
	var r record
	if err := json.Unmarshal(data, &r); err != nil {
		return t, hash, fmt.Errorf("token %.64q: %w: %w", id, gq.ErrCorrupt, err)
	}
	raw, err := hex.DecodeString(r.Hash)
	if err != nil || len(raw) != len(hash) {
		return t, hash, fmt.Errorf("hash of token %.64q: %w", id, gq.ErrCorrupt)
	}
	copy(hash[:], raw)
	t = Token{ID: id, Name: r.Name, Rate: r.Rate, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt}
	for _, g := range r.Grants {
		grant := Grant{Queues: g.Queues}
		for _, name := range g.Scopes {
			scope, err := ParseScope(name)
			if err != nil {
				return t, hash, fmt.Errorf("token %.64q: %w: %w", id, gq.ErrCorrupt, err)
			}
			grant.Scopes = grant.Scopes.With(scope)
		}
		t.Grants = append(t.Grants, grant)
	}
	return t, hash, nil
}

// ParseGrant parses SCOPE,…@PATTERN,… such as submit,read@mail.*; without patterns it
// covers all queues.
func ParseGrant(text string) (Grant, error) {
	scopes, patterns, given := strings.Cut(text, "@")
	if !given {
		patterns = "*"
	}
	g := Grant{Queues: strings.Split(patterns, ",")}
	for name := range strings.SplitSeq(scopes, ",") {
		s, err := ParseScope(strings.TrimSpace(name))
		if err != nil {
			return Grant{}, err
		}
		g.Scopes = g.Scopes.With(s)
	}
	return g, nil
}

func (g Grant) String() string { return g.Scopes.String() + "@" + strings.Join(g.Queues, ",") }
