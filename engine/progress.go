package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/wake"
	"github.com/gopherqueue/gq/store"
)

// Progress is told to followers and not kept: the state of a job has its last report.

const (
	progressPace  = 200 * time.Millisecond // shortest time between two pages that have nothing but progress
	progressKept  = 10_000                 // jobs whose reports wait for a slow follower
	progressBytes = 6000                   // of reports in one message to other processes
)

// progress passes the reports of workers on to the followers of this process.
type progress struct {
	mu        sync.Mutex
	followers map[*reports]bool // guarded by mu
}

// reports are the newest reports of jobs that one follower has not got.
type reports struct {
	news chan struct{} // holds one

	mu    sync.Mutex
	byJob map[gq.JobID]gq.Event // guarded by mu
	woken bool                  // news has something, or will soon; guarded by mu
	taken time.Time             // when the last reports were taken; guarded by mu
}

func (p *progress) join() *reports {
	r := &reports{news: make(chan struct{}, 1), byJob: make(map[gq.JobID]gq.Event)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.followers == nil {
		p.followers = make(map[*reports]bool)
	}
	p.followers[r] = true
	return r
}

func (p *progress) leave(r *reports) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.followers, r)
}

// tell passes on reports.
func (p *progress) tell(events []gq.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r := range p.followers {
		r.add(events)
	}
}

func (r *reports) add(events []gq.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range events {
		if old, known := r.byJob[e.Job]; known && newer(old, e) || !known && len(r.byJob) >= progressKept {
			continue
		}
		r.byJob[e.Job] = e
	}
	if len(r.byJob) > 0 && !r.woken {
		r.woken = true
		time.AfterFunc(time.Until(r.taken.Add(progressPace)), func() { wake.Up(r.news) })
	}
}

// newer reports whether a is a later report of a job than b.
func newer(a, b gq.Event) bool {
	return cmp.Or(cmp.Compare(a.Version, b.Version), a.Time.Compare(b.Time)) > 0
}

// take returns all reports, unless it has done so a short time ago.
func (r *reports) take() []gq.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.byJob) == 0 {
		r.woken = false
		return nil
	}
	if time.Since(r.taken) < progressPace {
		return nil // news will follow
	}
	r.woken = false
	r.taken = time.Now()
	all := make([]gq.Event, 0, len(r.byJob))
	for _, e := range r.byJob {
		all = append(all, e)
	}
	clear(r.byJob)
	slices.SortFunc(all, func(a, b gq.Event) int { return cmp.Or(a.Time.Compare(b.Time), slices.Compare(a.Job[:], b.Job[:])) })
	return all
}

// takeOf returns the report of one job.
func (r *reports) takeOf(id gq.JobID) (e gq.Event, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e, ok = r.byJob[id]
	delete(r.byJob, id)
	return e, ok
}

// reported tells the followers, here and in other processes, what heartbeats have reported.
func (e *Engine) reported(ctx context.Context, states []*gq.State) {
	events := make([]gq.Event, 0, len(states))
	for _, s := range states {
		if l := s.Lease; l != nil {
			events = append(events, gq.Event{
				Time: l.HeartbeatAt, Job: s.ID, Type: gq.EventProgress, Status: s.Status, Attempt: s.Attempt,
				Lease: l.ID, Version: l.Version, LeaseState: l.State, Worker: l.Worker, Detail: s.Detail,
				Progress: s.Progress, Note: s.Note, TraceParent: s.TraceParent,
			})
		}
	}
	if len(events) == 0 {
		return
	}
	e.progress.tell(events)
	if relay, ok := e.store.(store.Relay); ok {
		_ = relay.Relay(ctx, relayed(events)) // a hint
	}
}

// relayed encodes reports for other processes.
func relayed(events []gq.Event) (messages [][]byte) {
	for _, e := range events {
		one, err := json.Marshal(e)
		if err == nil && len(one) > progressBytes {
			e.Note = ""
			one, err = json.Marshal(e)
		}
		last := len(messages) - 1
		switch {
		case err != nil:
		case last >= 0 && len(messages[last])+len(one) < progressBytes:
			messages[last] = append(append(messages[last], ','), one...)
		default:
			messages = append(messages, append([]byte{'['}, one...))
		}
	}
	for i := range messages {
		messages[i] = append(messages[i], ']')
	}
	return messages
}

// hear receives what the engine of another process has relayed.
func (p *progress) hear(message []byte) {
	var events []gq.Event
	if json.Unmarshal(message, &events) == nil {
		p.tell(events)
	}
}

// withProgress adds reports to the events after a number: each before the event that ends its
// execution, and otherwise at the end. waiting was taken before the events were read, so the
// starts of its executions are among them, or before them.
func (e *Engine) withProgress(ctx context.Context, after uint64, events, waiting []gq.Event, r *reports) []gq.Event {
	type execution struct {
		job     gq.JobID
		version gq.LeaseVersion
	}
	ends := make(map[execution]int) // where executions end
	for i := range events {
		v := &events[i]
		this := execution{v.Job, v.Version}
		if _, known := ends[this]; known || v.Status.Held() || v.Version == 0 {
			continue
		}
		ends[this] = i
		if last, ok := r.takeOf(v.Job); ok {
			waiting = slices.DeleteFunc(waiting, func(w gq.Event) bool { return w.Job == v.Job })
			waiting = append(waiting, last)
		}
	}
	if waiting = e.described(ctx, waiting); len(waiting) == 0 {
		return events
	}
	before := make(map[int][]gq.Event)
	var rest []gq.Event
	for _, w := range waiting {
		if i, ended := ends[execution{w.Job, w.Version}]; ended {
			before[i] = append(before[i], w)
		} else {
			rest = append(rest, w)
		}
	}
	out := make([]gq.Event, 0, len(events)+len(waiting))
	add := func(v gq.Event) {
		v.Seq = after
		out = append(out, v)
	}
	for i := range events {
		for _, v := range before[i] {
			add(v)
		}
		out = append(out, events[i])
		after = events[i].Seq
	}
	for _, v := range rest {
		add(v)
	}
	return out
}

// described fills in the queues and types of the jobs of reports. It leaves out those of jobs that
// are gone.
func (e *Engine) described(ctx context.Context, waiting []gq.Event) (out []gq.Event) {
	for some := range slices.Chunk(waiting, store.MaxPage) {
		refs := make([]store.Ref, len(some))
		for i := range some {
			refs[i].Job = some[i].Job
		}
		found, err := e.store.Get(ctx, refs, 0)
		if err != nil {
			return out
		}
		for i := range found {
			if found[i].Err == nil {
				some[i].Queue, some[i].JobType = found[i].Spec.Queue, found[i].Spec.Type
				out = append(out, some[i])
			}
		}
	}
	return out
}
