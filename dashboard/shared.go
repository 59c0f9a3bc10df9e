package dashboard

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Limits of the pages that are kept for others.
const (
	maxShared     = 100     // pages
	maxSharedSize = 1 << 20 // of one page, in bytes
)

// sharedPages are the pages that were rendered lately for visitors who have them open. Many people
// leave the same page open, so one of them pays for all.
type sharedPages struct {
	mu    sync.Mutex
	byKey map[string]*sharedPage // guarded by mu
}

// sharedPage is one of them.
type sharedPage struct {
	at        time.Time
	within    time.Duration                       // it is shared for, at most
	publish   func(body []byte, formToken string) // sets the fields below; only the first call does
	done      chan struct{}                       // closed once they are set
	body      []byte                              // nil if others cannot use it
	formToken string                              // of the visitor for whom it was rendered
}

func newSharedPage(at time.Time, within time.Duration) *sharedPage {
	page := &sharedPage{at: at, within: within, done: make(chan struct{})}
	var once sync.Once
	page.publish = func(body []byte, formToken string) {
		once.Do(func() {
			page.body, page.formToken = body, formToken
			close(page.done)
		})
	}
	return page
}

// clear makes the next visitors read again, because somebody has changed something.
func (s *sharedPages) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byKey = nil
}

// get returns the page of a key if it was rendered, or begun to be, within the given time. Otherwise the caller
// renders it, and others wait until it is published.
func (s *sharedPages) get(key string, within time.Duration) (page *sharedPage, render bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if found := s.byKey[key]; found != nil && now.Sub(found.at) <= min(within, found.within) {
		return found, false
	}
	for other, page := range s.byKey {
		if now.Sub(page.at) > min(within, page.within) {
			delete(s.byKey, other)
		}
	}
	if s.byKey == nil || len(s.byKey) >= maxShared {
		s.byKey = make(map[string]*sharedPage)
	}
	page = newSharedPage(now, within)
	s.byKey[key] = page
	return page, true
}

// sharedKey is the same for requests that get the same page, except for its form token. It is empty for requests
// that share nothing: only open pages do, since who comes anew sees everything up to now.
func (v *visit) sharedKey(path string) string {
	if v.who == nil || v.who.Key == "" || v.r.Method != http.MethodGet || !v.reloads() || path == "live" || strings.HasPrefix(path, "assets/") {
		return ""
	}
	signedIn := "0"
	if v.session != "" {
		signedIn = "1"
	}
	return strings.Join([]string{v.who.Key, v.who.Name, signedIn, path, v.r.URL.RawQuery}, "\x00")
}

// share shows what f renders, or what it has rendered for the same page of another visitor lately.
func (v *visit) share(path string, f func(*visit) error) error {
	key := v.sharedKey(path)
	if key == "" {
		return f(v)
	}
	page, render := v.d.shared.get(key, v.d.sharedFor())
	if render {
		defer page.publish(nil, "") // nothing was rendered that others can use
		v.publish = page.publish
		return f(v)
	}
	select {
	case <-page.done:
	case <-v.ctx.Done():
		return context.Cause(v.ctx)
	}
	if page.body == nil { // perhaps only because that browser has gone
		return f(v)
	}
	v.write(bytes.ReplaceAll(page.body, []byte(page.formToken), []byte(v.d.formToken(v.session, v.r.URL.RequestURI()))))
	return nil
}
