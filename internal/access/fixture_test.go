package access

import (
	"context"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/leaktest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// fixture is a guarded engine on an in-memory store.
type fixture struct {
	testing.TB
	store  store.Store
	engine *engine.Engine
	guard  *Guard
	ring   *Keyring
}

func newFixture(t testing.TB) *fixture {
	t.Helper()
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	e, err := engine.New(s, engine.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ring, err := NewKeyring(s, "")
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{TB: t, store: s, engine: e, guard: NewGuard(e), ring: ring}
}

// token creates a token with grants in text form.
func (f *fixture) token(name string, grants ...string) string {
	f.Helper()
	return f.make(Token{Name: name}, grants...)
}

// ringless creates a token without the check for its name, which reads all tokens.
func (f *fixture) ringless(name string, grants ...string) string {
	f.Helper()
	return f.stored(Token{Name: name}, grants...)
}

// stored creates any token, even an invalid one.
func (f *fixture) stored(t Token, grants ...string) string {
	f.Helper()
	t.ID, t.CreatedAt = draw(idBytes), time.Now()
	for _, text := range grants {
		g, err := ParseGrant(text)
		if err != nil {
			f.Fatal(err)
		}
		t.Grants = append(t.Grants, g)
	}
	secret := draw(secretBytes)
	data, err := t.encode(hashOf(secret))
	if err != nil {
		f.Fatal(err)
	}
	if _, err := f.store.PutDocs(f.Context(), []store.Doc{{Kind: Kind, Name: t.ID, Data: data}}); err != nil {
		f.Fatal(err)
	}
	return tokenPrefix + t.ID + "_" + secret
}

func (f *fixture) make(t Token, grants ...string) string {
	f.Helper()
	for _, text := range grants {
		g, err := ParseGrant(text)
		if err != nil {
			f.Fatal(err)
		}
		t.Grants = append(t.Grants, g)
	}
	_, text, err := f.ring.Create(f.Context(), t)
	if err != nil {
		f.Fatal(err)
	}
	return text
}

// as returns the context of a caller with grants.
func (f *fixture) as(grants ...string) context.Context {
	f.Helper()
	var all []Grant
	for _, text := range grants {
		g, err := ParseGrant(text)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, g)
	}
	return With(f.Context(), newIdentity("t", "t", all))
}

// job returns a claimed job of a queue.
func (f *fixture) job(queue string) gq.Job {
	f.Helper()
	if _, err := f.engine.Submit(f.Context(), gq.Spec{Queue: queue, Type: "t"}); err != nil {
		f.Fatal(err)
	}
	jobs, err := f.engine.Claim(f.Context(), gq.ClaimRequest{Worker: "w", Queues: []string{queue}, TTL: time.Minute, N: 1})
	if err != nil || len(jobs) != 1 {
		f.Fatalf("claimed %d jobs: %v", len(jobs), err)
	}
	return jobs[0]
}
