package client

import (
	"slices"
	"sync"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// CancelRequests calls f with jobs that were claimed or held through the client's Work stream, when
// somebody asks them to stop, until stop returns. f must return at once. These are hints: a
// heartbeat tells what is true. Package worker uses it by itself.
func (c *Client) CancelRequests(f func(jobs []gq.JobID)) (stop func()) { return c.cancels.add(f) }

// listeners are the callers of CancelRequests.
type listeners struct {
	mu  sync.Mutex
	all []*listener // guarded by mu
}

type listener struct{ tell func([]gq.JobID) }

func (l *listeners) add(f func([]gq.JobID)) (stop func()) {
	one := &listener{f}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, one)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = slices.DeleteFunc(l.all, func(o *listener) bool { return o == one })
	}
}

// tell passes on a message that the server sent by itself.
func (l *listeners) tell(m *pb.Answers) {
	jobs := make([]gq.JobID, len(m.GetAnswers()))
	for i, a := range m.GetAnswers() {
		if jobs[i].UnmarshalText([]byte(a.GetState().GetId())) != nil {
			return // heartbeats will tell
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.all {
		one.tell(jobs)
	}
}
