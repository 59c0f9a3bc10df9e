package access

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/store"
)

func TestTokens(t *testing.T) {
	f := newFixture(t)
	text := f.token("ci", "submit,read@mail.*", "work@sms")
	i, err := f.ring.Verify(t.Context(), text)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		scope Scope
		queue string
		may   bool
	}{
		{Submit, "mail.out", true},
		{Read, "mail.", true},
		{Work, "mail.out", false},
		{Work, "sms", true},
		{Read, "sms", false},
		{Submit, "mail", false},
		{Admin, "mail.out", false},
		{Submit, "xmail.out", false},
	} {
		if got := i.May(c.scope, c.queue); got != c.may {
			t.Errorf("%s on %s: %t, want %t", c.scope, c.queue, got, c.may)
		}
	}

	docs, err := f.store.Docs(t.Context(), Kind, "", 10)
	if err != nil || len(docs) != 1 {
		t.Fatalf("%d documents, %v", len(docs), err)
	}
	_, secret, _ := split(text)
	if bytes.Contains(docs[0].Data, []byte(secret)) || bytes.Contains(docs[0].Data, []byte(text)) {
		t.Error("the secret is stored")
	}

	if _, _, err := f.ring.Create(t.Context(), Token{Name: "ci", Grants: []Grant{{Read, []string{"*"}}}}); !errors.Is(err, gq.ErrConflict) || strings.Contains(err.Error(), "meantime") {
		t.Errorf("a second token of that name: %v, want a conflict", err)
	}
	if _, err := f.ring.Revoke(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ring.Verify(t.Context(), text); !errors.Is(err, gq.ErrUnauthenticated) {
		t.Errorf("the revoked token: %v", err)
	}
	if err := i.Valid(t.Context()); !errors.Is(err, gq.ErrUnauthenticated) {
		t.Errorf("a stream of the revoked token: %v", err)
	}
	if _, err := f.ring.Revoke(t.Context(), "ci"); !errors.Is(err, gq.ErrNotFound) {
		t.Errorf("revoked twice: %v", err)
	}
}

// Every invalid token gets the same error.
func TestRefusedAlike(t *testing.T) { synctest.Test(t, refusedAlike) }

func refusedAlike(t *testing.T) {
	f := newFixture(t)
	good := f.token("good", "admin")
	other := f.token("other", "admin")
	expired := f.stored(Token{Name: "expired", ExpiresAt: time.Now().Add(-time.Millisecond)}, "admin")

	id, secret, _ := split(good)
	_, foreign, _ := split(other)
	bad := map[string]string{
		"empty":            "",
		"prefix only":      "gq_",
		"no secret":        "gq_" + id + "_",
		"of another token": "gq_" + id + "_" + foreign,
		"unknown id":       "gq_" + strings.Repeat("a", idSize) + "_" + secret,
		"expired":          expired,
		"oversized":        good + strings.Repeat("x", 100_000),
		"a byte more":      good + "a",
		"upper case":       strings.ToUpper(good),
		"leading space":    " " + good,
		"NUL":              good[:10] + "\x00" + good[11:],
		"hash for secret":  "gq_" + id + "_" + strings.Repeat("0", secretSize),
	}
	for n := 1; n < len(good); n++ {
		bad["truncated to "+good[:n]] = good[:n]
	}
	for n := range good {
		flipped := []byte(good)
		flipped[n] ^= 1
		bad["changed byte "+string(flipped)] = string(flipped)
	}
	for name, text := range bad {
		if _, err := f.ring.Verify(t.Context(), text); err == nil || err.Error() != gq.ErrUnauthenticated.Error() {
			t.Errorf("%.60s: %v, want %v", name, err, gq.ErrUnauthenticated)
		}
	}
	if _, err := f.ring.Verify(t.Context(), good); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

func TestBootstrap(t *testing.T) {
	f := newFixture(t)
	if _, err := NewKeyring(f.store, "short"); errs.KindOf(err) != gq.KindInvalid {
		t.Errorf("a short bootstrap token: %v", err)
	}
	ring, err := NewKeyring(f.store, "correct horse battery")
	if err != nil {
		t.Fatal(err)
	}
	if empty, err := ring.Empty(t.Context()); empty || err != nil {
		t.Errorf("with a bootstrap token nobody could get in: %t, %v", empty, err)
	}
	i, err := ring.Verify(t.Context(), "correct horse battery")
	if err != nil || !i.MayEverywhere(Admin) {
		t.Errorf("the bootstrap token: %v", err)
	}
	if _, err := ring.Verify(t.Context(), "correct horse batterx"); !errors.Is(err, gq.ErrUnauthenticated) {
		t.Errorf("a wrong one: %v", err)
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(10)
		allowed := 0
		for range 100 {
			if l.take(time.Now()) == nil {
				allowed++
			}
		}
		if allowed != 10 {
			t.Errorf("%d calls at once, want 10", allowed)
		}
		err := l.take(time.Now())
		refusal, ok := errors.AsType[*RateError](err)
		if !ok || !errors.Is(err, gq.ErrRateLimited) || refusal.After != 100*time.Millisecond {
			t.Fatalf("refused with %v", err)
		}
		time.Sleep(refusal.After)
		if err := l.take(time.Now()); err != nil {
			t.Errorf("after the wait: %v", err)
		}
	})
}

// A call counts once, however many checks it causes; the next request on a stream is
// another call.
func TestRateCountsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newIdentity("t", "t", []Grant{{all, []string{"*"}}})
		i.limit = newLimiter(1)
		call := With(t.Context(), i)
		for range 3 {
			if _, err := Enter(call); err != nil {
				t.Fatalf("a part of the call: %v", err)
			}
		}
		next := Another(call)
		for range 2 {
			if _, err := Enter(next); !errors.Is(err, gq.ErrRateLimited) {
				t.Fatalf("the next call: %v", err)
			}
		}
		time.Sleep(time.Second)
		if _, err := Enter(next); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}

// failing is documents that cannot be read while broken.
type failing struct {
	Documents
	broken *bool
	reads  *int
}

func (d failing) Docs(ctx context.Context, kind, after string, limit int) ([]store.Doc, error) {
	*d.reads++
	if *d.broken {
		return nil, gq.ErrStoreFailed
	}
	return d.Documents.Docs(ctx, kind, after, limit)
}

// A token that another process created is known at once, and a revocation within two
// seconds; a flood of unknown tokens does not reach the store; an outage is bridged for a
// minute.
func TestFreshness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		broken, reads := false, 0
		ring, err := NewKeyring(failing{f.store, &broken, &reads}, "")
		if err != nil {
			t.Fatal(err)
		}
		first := f.token("first", "read")
		if _, err := ring.Verify(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		second := f.token("second", "read")
		if _, err := ring.Verify(t.Context(), second); err != nil {
			t.Errorf("a token that another process made: %v", err)
		}
		before := reads
		var flood sync.WaitGroup
		for range 1000 {
			flood.Go(func() { _, _ = ring.Verify(t.Context(), "gq_"+draw(idBytes)+"_"+draw(secretBytes)) })
		}
		flood.Wait()
		if reads > before+1 {
			t.Errorf("unknown tokens caused %d reads", reads-before)
		}
		if _, err := f.ring.Revoke(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(freshFor)
		if _, err := ring.Verify(t.Context(), first); !errors.Is(err, gq.ErrUnauthenticated) {
			t.Errorf("a token that another process revoked: %v", err)
		}
		broken = true
		time.Sleep(trustFor / 2)
		if _, err := ring.Verify(t.Context(), second); err != nil {
			t.Errorf("while the store does not answer: %v", err)
		}
		time.Sleep(trustFor)
		if _, err := ring.Verify(t.Context(), second); errs.KindOf(err) != gq.KindUnavailable {
			t.Errorf("after an outage of a minute: %v", err)
		}
	})
}

// The page of metrics answers without the store, so it admits the tokens that were valid when the
// store last answered, for a day.
func TestMetricsDuringAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		broken, reads := false, 0
		ring, err := NewKeyring(failing{f.store, &broken, &reads}, "")
		if err != nil {
			t.Fatal(err)
		}
		gate := NewGate(ring, true, nil)
		call := func(path, token string) error {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			_, err := gate.HTTP(r)
			return err
		}
		first, second := f.token("first", "read"), f.token("second", "admin")
		short := f.make(Token{Name: "short", ExpiresAt: time.Now().Add(time.Hour)}, "read")
		if err := call("/v1/jobs", first); err != nil {
			t.Fatal(err)
		}
		broken = true
		for _, after := range []time.Duration{2 * trustFor, 24*time.Hour - 3*trustFor} {
			time.Sleep(after)
			for _, token := range []string{first, second} {
				if err := call("/metrics", token); err != nil {
					t.Errorf("the metrics after another %v: %v", after, err)
				}
				if !gate.Admits(t.Context(), "/metrics", []string{"Bearer " + token}) {
					t.Errorf("a foreign name for the metrics is refused after another %v", after)
				}
				if err := call("/v1/jobs", token); errs.KindOf(err) != gq.KindUnavailable {
					t.Errorf("the jobs after another %v: %v", after, err)
				}
			}
			if err := call("/metrics", "gq_"+draw(idBytes)+"_"+draw(secretBytes)); err == nil {
				t.Error("an unknown token reads the metrics")
			}
		}
		if err := call("/metrics", short); !errors.Is(err, gq.ErrUnauthenticated) {
			t.Errorf("an expired token: %v", err)
		}
		time.Sleep(2 * trustFor)
		if err := call("/metrics", second); errs.KindOf(err) != gq.KindUnavailable {
			t.Errorf("the metrics after more than %v: %v", trustOffline, err)
		}
	})
}

// unreachable is documents that fail after a while, as a database does that cannot be reached.
type unreachable struct {
	Documents
	gone  *atomic.Bool
	after time.Duration
}

func (d unreachable) Docs(ctx context.Context, kind, after string, limit int) ([]store.Doc, error) {
	if !d.gone.Load() {
		return d.Documents.Docs(ctx, kind, after, limit)
	}
	select {
	case <-time.After(d.after):
	case <-ctx.Done():
	}
	return nil, gq.ErrStoreFailed
}

// During an outage all calls wait for one read of the tokens, and not for longer than their own
// deadline.
func TestCallsShareAFailedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		var gone atomic.Bool
		const lasts = 5 * time.Second
		ring, err := NewKeyring(unreachable{f.store, &gone, lasts}, "")
		if err != nil {
			t.Fatal(err)
		}
		tokens := []string{f.token("first", "read"), f.token("second", "read")}
		if _, err := ring.Verify(t.Context(), tokens[0]); err != nil {
			t.Fatal(err)
		}
		gone.Store(true)
		time.Sleep(freshFor)
		began := time.Now()
		if _, err := ring.Verify(t.Context(), tokens[1]); err != nil || time.Since(began) > refreshFor {
			t.Errorf("at the beginning of the outage: %v after %v", err, time.Since(began))
		}
		time.Sleep(2 * trustFor)
		began = time.Now()
		var calls sync.WaitGroup
		for n := range 40 {
			calls.Go(func() {
				time.Sleep(time.Duration(n) * 50 * time.Millisecond)
				began := time.Now()
				_, err := ring.Verify(t.Context(), tokens[n%2])
				if took := time.Since(began); errs.KindOf(err) != gq.KindUnavailable || took > lasts {
					t.Errorf("call %d: %v after %v", n, err, took)
				}
			})
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				_, err := ring.Verify(ctx, tokens[n%2])
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > time.Second {
					t.Errorf("a call with a deadline of a second: %v after %v", err, took)
				}
			})
		}
		calls.Wait()
		if took := time.Since(began); took > lasts+refreshFor {
			t.Errorf("the calls took %v in all", took)
		}
		gone.Store(false)
		for _, token := range tokens {
			if _, err := ring.Verify(t.Context(), token); err != nil {
				t.Errorf("after the outage: %v", err)
			}
		}
	})
}

// The duration of a rejection and its cost to the store do not reveal whether a token
// with the id exists.
func TestRefusalsTakeAsLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		broken, reads := false, 0
		ring, err := NewKeyring(failing{f.store, &broken, &reads}, "")
		if err != nil {
			t.Fatal(err)
		}
		good := f.token("good", "read")
		id, secret, _ := split(good)
		measure := func(text string) (took time.Duration, read int) {
			time.Sleep(freshFor)
			if _, err := ring.Verify(t.Context(), good); err != nil { // the snapshot is fresh
				t.Fatal(err)
			}
			began, before := time.Now(), reads
			if _, err := ring.Verify(t.Context(), text); !errors.Is(err, gq.ErrUnauthenticated) {
				t.Errorf("%s: %v", text, err)
			}
			return time.Since(began), reads - before
		}
		unknown, reading := measure("gq_" + strings.Repeat("a", idSize) + "_" + secret)
		known, again := measure("gq_" + id + "_" + strings.Repeat("a", secretSize))
		if unknown != known || reading != again {
			t.Errorf("an unknown id takes %v and %d reads, a wrong secret %v and %d", unknown, reading, known, again)
		}
		if took, n := measure(good[:0] + "gq_"); took != 0 || n != 0 {
			t.Errorf("what is no token takes %v and %d reads", took, n)
		}
	})
}

// A stream ends soon after another process revoked its token, even while idle, and at
// once when the token expires; so do claims and waits.
func TestStreamsEndWithTheirToken(t *testing.T) {
	for name, do := range map[string]func(context.Context, *fixture) error{
		"follow": func(ctx context.Context, f *fixture) error {
			return f.guard.Follow(ctx, 0, func([]gq.Event) error { return nil })
		},
		"claim": func(ctx context.Context, f *fixture) error {
			_, err := f.guard.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 1, Wait: time.Hour})
			return err
		},
		"wait": func(ctx context.Context, f *fixture) error {
			job, err := f.engine.Submit(context.Background(), gq.Spec{Type: "t", Queue: "other"})
			if err == nil {
				_, err = f.guard.Wait(ctx, job.ID())
			}
			return err
		},
	} {
		for _, expires := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " expires ", expires), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFixture(t)
					token := Token{Name: "a"}
					if expires {
						token.ExpiresAt = time.Now().Add(time.Minute)
					}
					text := f.make(token, "admin")
					ring, err := NewKeyring(f.store, "")
					if err != nil {
						t.Fatal(err)
					}
					gate := NewGate(ring, true, nil)
					ctx, stop := context.WithCancel(t.Context())
					var wg sync.WaitGroup
					defer wg.Wait()
					defer stop()
					wg.Go(func() { _ = gate.Run(ctx) })
					called, err := gate.Identify(ctx, []string{"Bearer " + text}, "here")
					if err != nil {
						t.Fatal(err)
					}
					began := time.Now()
					done := make(chan error, 1)
					wg.Go(func() { done <- do(called, f) })
					synctest.Wait()
					want := time.Minute
					if !expires {
						want = 2 * freshFor
						if _, err := f.ring.Revoke(ctx, "a"); err != nil {
							t.Fatal(err)
						}
					}
					if err := <-done; !errors.Is(err, gq.ErrUnauthenticated) || time.Since(began) > want {
						t.Errorf("it ended with %v after %v", err, time.Since(began))
					}
				})
			})
		}
	}
}

func TestGate(t *testing.T) {
	f := newFixture(t)
	var lines bytes.Buffer
	gate := NewGate(f.ring, false, slog.New(slog.NewJSONHandler(&lines, nil)))
	ctx, err := gate.Identify(t.Context(), nil, "here")
	if i, _ := From(ctx); err != nil || i != Everyone() {
		t.Fatalf("an open server: %v", err)
	}
	text := f.token("a", "read")
	gate = NewGate(f.ring, true, slog.New(slog.NewJSONHandler(&lines, nil)))
	for name, header := range map[string][]string{
		"none":         nil,
		"two":          {"Bearer " + text, "Bearer " + text},
		"basic":        {"Basic " + text},
		"bare":         {text},
		"joined":       {"Bearer " + text + ", Bearer x"},
		"oversized":    {"Bearer " + strings.Repeat("x", 1<<20)},
		"line feed":    {"Bearer " + text + "\r\nX: y"},
		"other secret": {"Bearer " + text[:len(text)-3] + "zzz"},
	} {
		if _, err := gate.Identify(t.Context(), header, "there"); !errors.Is(err, gq.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := gate.Identify(t.Context(), []string{"bearer " + text}, "there"); err != nil {
		t.Errorf("the token: %v", err)
	}
	_, secret, _ := split(text)
	if logged := lines.String(); logged == "" || strings.Contains(logged, secret[:8]) || strings.Contains(logged, "xxxxxxxx") {
		t.Errorf("the log says %s", logged)
	}
}

// An open server requires tokens as soon as there is one, and keeps doing so.
func TestGateCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		gate := NewGate(f.ring, false, nil)
		if gate.Required(t.Context()) {
			t.Error("a token is required and there is none")
		}
		f.token("a", "admin")
		time.Sleep(freshFor)
		if !gate.Required(t.Context()) {
			t.Error("no token is required though there is one")
		}
		if _, err := f.ring.Revoke(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if !gate.Required(t.Context()) {
			t.Error("revoking the last token opened the server")
		}
	})
}

func TestValidate(t *testing.T) {
	token := Token{Grants: []Grant{{0, nil}, {Read, []string{""}}}, Rate: -1, ExpiresAt: time.Unix(1, 0)}
	var fields []string
	for _, f := range errs.FaultsOf(token.Validate(time.Now())) {
		fields = append(fields, f.Field)
	}
	if got, want := strings.Join(fields, " "), "name grants[0].scopes grants[0].queues grants[1].queues[0] rate expires_at"; got != want {
		t.Errorf("faults with %s, want %s", got, want)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "", true},
		{"*", "x", true},
		{"a", "a", true},
		{"a", "ab", false},
		{"a*", "a", true},
		{"a*", "abc", true},
		{"a*", "ba", false},
		{"*a", "ba", true},
		{"*a", "ab", false},
		{"a*a", "a", false},
		{"a*a", "aa", true},
		{"a*a", "aba", true},
		{"a*b*c", "a1b2c", true},
		{"a*b*c", "a1c2b", false},
		{"a*b*c", "abbc", true},
		{"**", "x", true},
		{"a**b", "ab", true},
		{"", "", true},
		{"", "x", false},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("%q stands for %q: %t", c.pattern, c.name, got)
		}
	}
}

// Authorization costs a lookup of the token and one of the job's queue: under 5 µs.
func BenchmarkAuthorize(b *testing.B) {
	f := newFixture(b)
	var text string
	for n := range 1000 {
		text = f.ringless(fmt.Sprintf("t%d", n), "submit,read@mail.*", "work@sms.*")
	}
	gate := NewGate(f.ring, true, nil)
	header := []string{"Bearer " + text}
	b.ReportAllocs()
	for b.Loop() {
		ctx, err := gate.Identify(b.Context(), header, "")
		if err != nil {
			b.Fatal(err)
		}
		c, err := f.guard.enter(ctx, Work)
		if err != nil {
			b.Fatal(err)
		}
		if c.asking(ctx, Work) == ctx || !c.May(Work, "sms.out") {
			b.Fatal("the engine does not ask, or the caller may not work")
		}
	}
}
