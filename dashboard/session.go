package dashboard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
)

// Limits of sessions.
const (
	maxSessions = 1000           // when there are more, the least recently used one of those with the most ends
	maxOfOne    = 50             // of one visitor; the least recently used one ends when there are more
	sessionLife = 12 * time.Hour // from sign-in
	sessionIdle = 2 * time.Hour  // without a request

	cookieName = "gq_session"
)

// sessions are the visitors who have signed in. They live in the memory of this process.
type sessions struct {
	mu   sync.Mutex
	byID map[string]*session // guarded by mu
}

type session struct {
	visitor *Visitor
	holder  string // the visitor's key or name
	began   time.Time
	used    time.Time
}

func (s *session) over(now time.Time) bool {
	return now.Sub(s.began) > sessionLife || now.Sub(s.used) > sessionIdle
}

// begin starts a session and returns its id.
func (s *sessions) begin(v *Visitor, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID == nil {
		s.byID = make(map[string]*session)
	}
	holder, of := cmp.Or(v.Key, v.Name), make(map[string]int)
	for id, other := range s.byID {
		if other.over(now) {
			delete(s.byID, id)
		} else {
			of[other.holder]++
		}
	}
	if of[holder] >= maxOfOne {
		s.endOldestLocked(func(one *session) bool { return one.holder == holder })
	} else if len(s.byID) >= maxSessions {
		most := slices.Max(slices.Collect(maps.Values(of)))
		s.endOldestLocked(func(one *session) bool { return of[one.holder] == most })
	}
	id := rand.Text()
	s.byID[id] = &session{visitor: v, holder: holder, began: now, used: now}
	return id
}

// endOldestLocked ends the least recently used one of some sessions.
func (s *sessions) endOldestLocked(of func(*session) bool) {
	var oldest string
	for id, one := range s.byID {
		if of(one) && (oldest == "" || one.used.Before(s.byID[oldest].used)) {
			oldest = id
		}
	}
	delete(s.byID, oldest)
}

// find returns the visitor of a session, nil if it is over.
func (s *sessions) find(id string, now time.Time) *Visitor {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.byID[id]
	if found == nil {
		return nil
	}
	if found.over(now) {
		delete(s.byID, id)
		return nil
	}
	found.used = now
	return found.visitor
}

// lasts reports whether a session is not over. Unlike find it is no use of the session.
func (s *sessions) lasts(id string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.byID[id]
	return found != nil && !found.over(now)
}

func (s *sessions) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// identify finds out who a visitor is. Without a session that is valid it returns nil.
func (d *Dashboard) identify(r *http.Request) (v *Visitor, id string) {
	access := d.options.Access
	if access == nil {
		return &Visitor{Name: "everyone", Key: "everyone"}, ""
	}
	if !access.Required(r.Context()) {
		return access.Anonymous(), ""
	}
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return nil, ""
	}
	v = d.sessions.find(cookie.Value, d.now())
	if v == nil {
		return nil, ""
	}
	if v.Valid != nil && v.Valid(r.Context()) != nil {
		d.sessions.end(cookie.Value)
		return nil, ""
	}
	return v, cookie.Value
}

// encrypted reports whether the browser's connection is encrypted, as far as this server or a
// proxy before it knows.
func encrypted(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}

// onLoopback reports whether the browser calls this machine by a loopback name.
func onLoopback(r *http.Request) bool {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return ip.IsLoopback()
	}
	return strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost")
}

// signInView is the page with the form.
type signInView struct {
	Next      string
	Problem   string
	Unusable  bool // the browser would not keep the cookie
	NotNeeded bool
}

func (d *Dashboard) signInPage(v *visit) error {
	return v.signInForm("", v.r.URL.Query().Get("next"), http.StatusOK)
}

// signInForm shows the form, and in place of a page that needs a session.
func (v *visit) signInForm(problem, next string, status int) error {
	v.status = status
	view := signInView{Next: localPath(next), Problem: problem, Unusable: !encrypted(v.r) && !onLoopback(v.r)}
	view.NotNeeded = v.d.options.Access == nil || !v.d.options.Access.Required(v.r.Context())
	return v.show("signin", "Sign in", view)
}

// localPath returns a path within the dashboard to continue at, without its leading slash.
func localPath(next string) string {
	if len(next) > 2000 || strings.ContainsAny(next, "\\\r\n") || strings.HasPrefix(next, "/") || strings.Contains(strings.SplitN(next, "?", 2)[0], ":") {
		return ""
	}
	return next
}

func (d *Dashboard) signIn(v *visit) error {
	next := v.r.PostForm.Get("next")
	if d.options.Access == nil || !d.options.Access.Required(v.r.Context()) {
		return v.redirect(localPath(next))
	}
	token := strings.TrimSpace(v.r.PostForm.Get("token"))
	waiting, cancel := context.WithCancel(v.r.Context())
	defer cancel()
	defer context.AfterFunc(d.serving, cancel)()
	guess, err := d.guesses.begin(waiting, clientOf(v.r), d.now())
	if errors.Is(err, errCrowded) {
		return v.slowDown(fmt.Sprintf("There were too many wrong tokens within a minute. Now one a second is tried from your network, and %d wait already.", maxGuesses), next, maxGuesses*guessPause)
	}
	if err != nil {
		return err
	}
	found, err := d.try(v, guess, token)
	if kindOf(err) == gq.KindUnauthenticated {
		if rest, slowed := guess.slowed(d.now()); slowed {
			return v.slowDown("This is not a valid token, and there were too many wrong ones within a minute. A valid one is accepted at any time.", next, rest)
		}
		return v.signInForm("This is not a valid token.", next, http.StatusUnauthorized)
	}
	if err != nil {
		return err
	}
	if v.session != "" {
		d.sessions.end(v.session)
	}
	// Without a path the cookie belongs to the directory of this page, whatever prefix the
	// browser sees.
	http.SetCookie(v.w, &http.Cookie{
		Name: cookieName, Value: d.sessions.begin(found, d.now()), HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: encrypted(v.r) || !onLoopback(v.r), MaxAge: int(sessionLife / time.Second),
	})
	return v.redirect(localPath(next))
}

// try signs a visitor in when it is the turn of the guess.
func (d *Dashboard) try(v *visit, g *guess, token string) (*Visitor, error) {
	wrong := true
	defer func() { g.end(wrong) }()
	found, err := d.options.Access.SignIn(v.r.Context(), token, v.r.RemoteAddr)
	wrong = kindOf(err) == gq.KindUnauthenticated
	return found, err
}

// slowDown shows the form after too many wrong tokens.
func (v *visit) slowDown(problem, next string, wait time.Duration) error {
	v.w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
	return v.signInForm(problem, next, http.StatusTooManyRequests)
}

func (d *Dashboard) signOut(v *visit) error {
	if v.session != "" {
		d.sessions.end(v.session)
	}
	http.SetCookie(v.w, &http.Cookie{Name: cookieName, HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: encrypted(v.r) || !onLoopback(v.r), MaxAge: -1})
	return v.redirect("signin")
}
