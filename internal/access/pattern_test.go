package access

import (
	"errors"
	"testing"

	"github.com/gopherqueue/gq"
)

// A claim by pattern needs the right to work on every queue that the pattern can match.
func TestClaimByPattern(t *testing.T) {
	f := newFixture(t)
	for _, queue := range []string{"mail.eu", "mail.us", "mail.eu.fast", "other"} {
		if _, err := f.engine.Submit(t.Context(), gq.Spec{Type: "t", Queue: queue}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		grant   []string
		pattern string
		may     bool
	}{
		{[]string{"*"}, "mail.*", true},
		{[]string{"*"}, "*", true},
		{[]string{"mail.*"}, "mail.*", true},
		{[]string{"mail.*"}, "mail.eu*", true},
		{[]string{"mail.*"}, "mail*", false},
		{[]string{"mail.*"}, "*", false},
		{[]string{"mail.eu", "mail.us"}, "mail.*", false},
		{[]string{"mail.eu"}, "mail.eu*", false},
		{[]string{"*.eu"}, "mail.*", false},
		{[]string{"mail.*.fast"}, "mail.*", false},
		{[]string{"mail.*u"}, "mail.eu*", false},
	} {
		ctx := With(t.Context(), newIdentity("t", "t", []Grant{{Work, c.grant}}))
		_, err := f.guard.Claim(ctx, gq.ClaimRequest{Worker: "w", N: 1, Queues: []string{c.pattern}, Types: []string{"none"}})
		if denied := errors.Is(err, gq.ErrDenied); denied == c.may || err != nil && !denied {
			t.Errorf("a token for %q claims %s: %v, want allowed %t", c.grant, c.pattern, err, c.may)
		}
	}
}

// TestObserve checks what becomes of the scope observe beside others.
func TestObserve(t *testing.T) {
	for text, want := range map[string]struct {
		names   string
		content bool
	}{
		"observe": {"observe", false}, "read": {"read", true}, "observe,read": {"read", true}, "read,observe": {"read", true},
		"submit,observe": {"submit,observe", false}, "work,observe": {"work,read", true}, "admin": {"admin", true},
	} {
		g, err := ParseGrant(text + "@mail")
		if err != nil {
			t.Fatal(err)
		}
		i := newIdentity("", "", []Grant{g})
		if got := g.Scopes.String(); got != want.names || i.MaySeeContent("mail") != want.content || i.MaySeeContent("other") || i.MaySeeContent("") || !i.May(Read|Admin, "mail") {
			t.Errorf("%s: %s, content %t", text, got, i.MaySeeContent("mail"))
		}
	}
	both := newIdentity("", "", []Grant{{Observe, []string{"*"}}, {Read, []string{"mail"}}})
	if !both.MaySeeContent("mail") || both.MaySeeContent("other") || both.MaySeeContent("") || !both.MayEverywhere(Read) {
		t.Error("a token that observes all queues and reads one")
	}
}
