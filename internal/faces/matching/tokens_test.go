package matching_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/faces/matching"
	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/store/local"
)

// A subscriber whose token is revoked or expires is notified and gets nothing more,
// whether or not anything happens meanwhile.
func TestSocketsEndWithTheirToken(t *testing.T) {
	s, err := local.OpenMemory(local.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	ring, err := access.NewKeyring(s, "")
	if err != nil {
		t.Fatal(err)
	}
	token := func(name string, expires time.Time) string {
		grant, err := access.ParseGrant("read@matching")
		if err != nil {
			t.Fatal(err)
		}
		_, text, err := ring.Create(t.Context(), access.Token{Name: name, Grants: []access.Grant{grant}, ExpiresAt: expires})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	revoked, elsewhere := token("revoked", time.Time{}), token("elsewhere", time.Time{})
	gate := access.NewGate(ring, true, nil)
	watching, stop := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		_ = gate.Run(watching)
	}()
	t.Cleanup(func() { stop(); <-watched })
	f := over(t, s, matching.Options{Identify: gate.HTTP}, matchmaker.Options{})
	subscribe := func(token string) *websocket.Conn {
		conn, answer, err := websocket.Dial(t.Context(), f.url+"/events/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
		if err != nil {
			t.Fatal(err)
		}
		if answer.Body != nil {
			answer.Body.Close()
		}
		t.Cleanup(func() { conn.CloseNow() })
		return conn
	}
	ended := func(what string, conn *websocket.Conn) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_, text, err := conn.Read(ctx)
		var closed websocket.CloseError
		if !errors.As(err, &closed) || closed.Code != websocket.StatusPolicyViolation || !strings.HasPrefix(closed.Reason, "the token is no longer valid; resume after ") {
			t.Errorf("%s: %s %v", what, text, err)
		}
	}
	conn := subscribe(revoked)
	if _, err := ring.Revoke(t.Context(), "revoked"); err != nil {
		t.Fatal(err)
	}
	ended("a revoked token", conn)

	conn = subscribe(elsewhere)
	other, err := access.NewKeyring(s, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Revoke(t.Context(), "elsewhere"); err != nil {
		t.Fatal(err)
	}
	ended("a token that another process revoked", conn)

	soon := time.Now().Add(2 * time.Second)
	for { // a slow machine may let it expire before its first use
		expiring := token(fmt.Sprint("expiring", soon.UnixNano()), soon)
		if i, err := ring.Verify(t.Context(), expiring); err == nil && i.Valid(t.Context()) == nil && time.Until(soon) > time.Second {
			conn = subscribe(expiring)
			break
		}
		soon = time.Now().Add(2*time.Until(soon).Abs() + 4*time.Second)
	}
	ended("a token that expired", conn)
}

// crowded is a guard with few places for subscribers.
type crowded struct {
	*access.Guard
	places *access.Places
}

func (c crowded) Subscribe(ctx context.Context) (func(), error) { return c.places.Take(ctx) }

// A WebSocket takes a place among the subscribers, and is refused if there is none.
func TestSocketsTakePlaces(t *testing.T) {
	f := newFixture(t, matching.Options{Guard: crowded{&access.Guard{}, access.NewPlaces("event subscriptions", 1, 1)}})
	first := f.subscribe("/events/ws")
	conn, answer, err := websocket.Dial(t.Context(), f.url+"/events/ws", nil)
	if err == nil {
		conn.CloseNow()
		t.Fatal("there was a place for a second subscriber")
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusTooManyRequests || answer.Header.Get("Retry-After") == "" {
		t.Errorf("it is refused by %s %v", answer.Status, answer.Header)
	}
	first.conn.CloseNow()
	for { // the server notices soon
		conn, answer, err := websocket.Dial(t.Context(), f.url+"/events/ws", nil)
		if err == nil {
			conn.CloseNow()
			return
		}
		answer.Body.Close()
		if t.Context().Err() != nil || answer.StatusCode != http.StatusTooManyRequests {
			t.Fatal(err)
		}
	}
}
