package dashboard

import (
	"context"
	"sync"
	"time"
)

// sharedFor is how long visitors who see the same things share what one of them has read for the
// overview. It is the page that many people leave open.
const sharedFor = 500 * time.Millisecond

// maxShared is the number of different visitors whose overview is kept.
const maxShared = 100

// sharedOverviews are the overviews that were read lately.
type sharedOverviews struct {
	mu    sync.Mutex
	byKey map[string]*sharedOverview // guarded by mu
}

// sharedOverview is one of them. Nobody may change view.
type sharedOverview struct {
	at   time.Time
	done chan struct{} // closed once view and err are set
	view overviewView
	err  error
}

// clear makes the next visitor read again, because somebody has changed something.
func (s *sharedOverviews) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byKey = nil
}

// get returns what read returns, or what it has returned for the same key lately. Callers that
// come while one reads wait for it.
func (s *sharedOverviews) get(ctx context.Context, key string, read func() (overviewView, error)) (overviewView, error) {
	if key == "" {
		return read()
	}
	s.mu.Lock()
	found := s.byKey[key]
	if found == nil || time.Since(found.at) > sharedFor {
		mine := &sharedOverview{at: time.Now(), done: make(chan struct{})}
		if s.byKey == nil || len(s.byKey) >= maxShared {
			s.byKey = make(map[string]*sharedOverview)
		}
		s.byKey[key] = mine
		s.mu.Unlock()
		defer close(mine.done)
		mine.err = context.Canceled // unless read returns
		mine.view, mine.err = read()
		return mine.view, mine.err
	}
	s.mu.Unlock()
	select {
	case <-found.done:
	case <-ctx.Done():
		return overviewView{}, ctx.Err()
	}
	if found.err != nil { // perhaps only because that browser has gone
		return read()
	}
	return found.view, nil
}
