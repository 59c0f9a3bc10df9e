package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/internal/pbconv"
	"github.com/gopherqueue/gq/internal/version"
	"github.com/gopherqueue/gq/internal/wake"
)

var (
	errNoStream    = errors.New("the server has no Work stream")
	errStreamEnded = fmt.Errorf("the stream to the server has ended: %w", ErrUnreachable)
)

// workLink manages the current Work stream of a client.
type workLink struct {
	client *Client
	gate   chan struct{} // held while a stream is opened
	loops  sync.WaitGroup
	life   context.Context // of reopening
	stop   context.CancelFunc

	mu      sync.Mutex
	now     *workStream // guarded by mu; may have ended
	workers []string    // that have claimed jobs, the latest last; guarded by mu
	without bool        // the server has no such stream; guarded by mu
	closed  bool        // guarded by mu
}

// current returns the current stream; nil if there is none.
func (l *workLink) current() (*workStream, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, errClosed
	case l.without:
		return nil, errNoStream
	case l.now != nil && l.now.live():
		return l.now, nil
	default:
		return nil, nil
	}
}

// helloWorkers is how many workers a client names to a server.
const helloWorkers = 100

// claims remembers a worker that claims through the stream.
func (l *workLink) claims(worker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.workers)
	if n > 0 && l.workers[n-1] == worker || slices.Contains(l.workers, worker) {
		return
	}
	if n == helloWorkers {
		l.workers = slices.Delete(l.workers, 0, 1)
	}
	l.workers = append(l.workers, worker)
}

// forgets removes a worker that has stopped: another stream must not introduce it again.
func (l *workLink) forgets(worker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers = slices.DeleteFunc(l.workers, func(name string) bool { return name == worker })
}

// reopen opens another stream after one broke, if workers have used it. They may hold jobs and
// have nothing to say for a while, and the servers must not take them for gone.
func (l *workLink) reopen() {
	l.mu.Lock()
	idle := l.closed || len(l.workers) == 0
	l.mu.Unlock()
	if idle {
		return
	}
	c := l.client
	c.later(func() {
		_ = c.attempts(l.life, func(ctx context.Context) (safety, error) { // otherwise the next call tries again
			_, err := l.open(ctx)
			return repeat, err
		})
	})
}

// open returns an established stream and opens one if there is none.
func (l *workLink) open(ctx context.Context) (*workStream, error) {
	if s, err := l.current(); s != nil || err != nil {
		return s, err
	}
	select {
	case l.gate <- struct{}{}:
		defer func() { <-l.gate }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s, err := l.current(); s != nil || err != nil {
		return s, err
	}
	s, err := l.greet(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case status.Code(err) == codes.Unimplemented:
		l.without = true
		return nil, errNoStream
	case err != nil:
		return nil, err
	case l.closed:
		s.cancel()
		return nil, errClosed
	}
	l.now = s
	return s, nil
}

// greet opens a stream. ctx limits only the opening.
func (l *workLink) greet(ctx context.Context) (*workStream, error) {
	life, cancel := context.WithCancel(l.client.life)
	stop := context.AfterFunc(ctx, cancel)
	stream, err := l.client.workers.Work(life, grpc.ForceCodecV2(workCodec{}))
	if err == nil {
		err = stream.Send(&pb.WorkRequest{Id: 1, Message: &pb.WorkRequest_Hello{Hello: l.hello()}})
	}
	var r *pb.WorkResponse
	if stream != nil { // Recv returns the error
		r, err = stream.Recv()
	}
	if err == nil && r.GetWelcome() == nil {
		err = errors.New("the server did not answer hello with welcome")
	}
	if !stop() && err == nil {
		err = context.Cause(ctx) // and the stream is being cancelled: jobs sent on it would be lost
	}
	if err != nil {
		cancel()
		if ctx.Err() != nil {
			err = status.FromContextError(ctx.Err()).Err()
		}
		return nil, err
	}
	s := &workStream{
		client: l.client, stream: stream, cancel: cancel, messageBytes: int(r.GetWelcome().GetMessageBytes()),
		asked: make(map[uint64]*asked), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	s.last.Store(r.GetId())
	l.loops.Go(s.send)
	l.loops.Go(s.receive)
	return s, nil
}

// hello introduces the client.
func (l *workLink) hello() *pb.Hello {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &pb.Hello{Version: version.Release(), Workers: slices.Clone(l.workers)}
}

// close waits for requests on the stream and closes it.
func (l *workLink) close(within time.Duration) {
	l.mu.Lock()
	l.closed = true
	l.stop()
	s := l.now
	l.mu.Unlock()
	if s == nil {
		return
	}
	s.finish()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-s.done:
	case <-timer.C:
	}
	s.cancel()
	l.loops.Wait()
}

// wait returns when all streams have ended, including one that is being opened.
func (l *workLink) wait() {
	l.gate <- struct{}{}
	<-l.gate
	l.loops.Wait()
}

// workStream is one Work stream. One goroutine sends requests, and one receives answers and wakes
// the callers.
type workStream struct {
	client       *Client
	stream       pb.WorkersService_WorkClient
	cancel       context.CancelFunc
	messageBytes int
	wake         chan struct{} // buffered; signals that there is something to send
	done         chan struct{} // closed when no more answers will arrive
	last         atomic.Uint64 // last request id

	mu       sync.Mutex
	asked    map[uint64]*asked // by id; guarded by mu
	queue    []outgoing        // to be sent; guarded by mu
	finished bool              // accepts no more requests; guarded by mu
	err      error             // why it ended; guarded by mu
}

// outgoing is an encoded request. Encoding it in advance keeps an invalid request from ending the
// stream.
type outgoing struct {
	id      uint64
	message *grpc.PreparedMsg
}

// asked is a request in flight. Its fields are guarded by workStream.mu until the answer arrives.
type asked struct {
	answer chan struct{} // closed when the answer has arrived
	jobs   []gq.Job      // jobs of a credit, as they arrive
	other  *pb.WorkResponse
	err    error
	sent   bool // the server may have received it
	left   bool // nobody waits for the answer
}

func (s *workStream) live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err == nil && !s.finished
}

// ask sends a request and waits for its answer or the end of the context.
func (s *workStream) ask(ctx context.Context, r *pb.WorkRequest) (id uint64, a *asked, err error) {
	a = &asked{answer: make(chan struct{})}
	id = s.last.Add(1)
	message := new(grpc.PreparedMsg)
	if err := message.Encode(s.stream, &pb.WorkRequest{Id: id, Message: r.GetMessage()}); err != nil {
		return 0, a, err
	}
	s.mu.Lock()
	if s.err != nil || s.finished {
		err := s.err
		s.mu.Unlock()
		if err == nil || !passing(err) { // another stream may be welcome
			err = errStreamEnded
		}
		return 0, a, err
	}
	s.asked[id] = a
	s.queue = append(s.queue, outgoing{id, message})
	s.mu.Unlock()
	s.wakeUp()
	select {
	case <-a.answer:
		return id, a, a.err
	case <-ctx.Done():
		return id, a, context.Cause(ctx)
	}
}

func (s *workStream) wakeUp() { wake.Up(s.wake) }

// claim opens a credit and waits for its jobs. It reports whether the server may have received
// it.
func (s *workStream) claim(ctx context.Context, r *pb.ClaimRequest) (jobs []gq.Job, sent bool, err error) {
	id, a, err := s.ask(ctx, &pb.WorkRequest{Message: &pb.WorkRequest_Credit{Credit: r}})
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-a.answer: // it may have arrived at the last moment
		jobs, a.jobs = a.jobs, nil
		if err = a.err; err == nil && a.other.GetProblem() != nil {
			err = pbconv.ErrorFromProblem(a.other.GetProblem())
		}
		return jobs, a.sent, err
	default:
	}
	if id == 0 {
		return nil, false, err
	}
	a.left = true // jobs that still arrive are given back
	message := new(grpc.PreparedMsg)
	withdraw := &pb.WorkRequest{Message: &pb.WorkRequest_Withdraw{Withdraw: &pb.Withdraw{Credit: id}}}
	if message.Encode(s.stream, withdraw) == nil {
		s.queue = append(s.queue, outgoing{message: message})
		s.wakeUp()
	}
	return nil, true, err
}

// report sends beats or outcomes and waits for their answers.
func (s *workStream) report(ctx context.Context, r *pb.WorkRequest) (answers *pb.Answers, sent bool, err error) {
	id, a, err := s.ask(ctx, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.asked, id) // ignore a late answer
	switch {
	case err != nil:
		if ctx.Err() != nil {
			err = status.FromContextError(ctx.Err()).Err()
		}
		return nil, a.sent, err
	case a.other.GetProblem() != nil:
		return nil, true, pbconv.ErrorFromProblem(a.other.GetProblem())
	default:
		return a.other.GetAnswers(), true, nil
	}
}

// send sends requests until the stream ends.
func (s *workStream) send() {
	for {
		s.mu.Lock()
		queue, finished := s.queue, s.finished
		s.queue = nil
		for _, r := range queue {
			if a := s.asked[r.id]; a != nil {
				a.sent = true
			}
		}
		s.mu.Unlock()
		for _, r := range queue {
			if s.stream.SendMsg(r.message) != nil {
				return // receive gets the reason
			}
		}
		if finished && len(queue) == 0 {
			_ = s.stream.CloseSend() // receive gets the reason
			return
		}
		select {
		case <-s.wake:
		case <-s.done:
			return
		}
	}
}

// finish accepts no further requests and lets the server answer the others.
func (s *workStream) finish() {
	s.mu.Lock()
	s.finished = true
	s.mu.Unlock()
	s.wakeUp()
}

// receive wakes callers until the stream ends.
func (s *workStream) receive() {
	var r workResponse
	for {
		if err := s.stream.RecvMsg(&r); err != nil {
			s.end(err)
			s.client.work.reopen()
			return
		}
		switch {
		case r.other != nil && r.other.GetId() == 0: // answers no request
			s.client.cancels.tell(r.other.GetAnswers())
		case r.other != nil:
			s.answer(r.other.GetId(), func(a *asked) { a.other = r.other })
		case r.jobs.More:
			s.mu.Lock()
			if a := s.asked[r.jobs.ID]; a != nil {
				a.add(&r.jobs)
			}
			s.mu.Unlock()
		default:
			s.answer(r.jobs.ID, func(a *asked) { a.add(&r.jobs) })
		}
	}
}

// add adds jobs of a credit.
func (a *asked) add(r *pbconv.JobsResponse) {
	if a.jobs == nil {
		a.jobs = r.Jobs
	} else {
		a.jobs = append(a.jobs, r.Jobs...)
	}
	if r.Err != nil {
		a.err = undecodable("claim", r.Err)
	}
}

// answer wakes the caller of a request.
func (s *workStream) answer(id uint64, fill func(*asked)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.asked[id]
	if a == nil {
		return
	}
	delete(s.asked, id)
	fill(a)
	close(a.answer)
	if a.left {
		s.client.giveBack(a.jobs)
	}
}

// end wakes all callers without an answer. They keep the jobs that have arrived.
func (s *workStream) end(err error) {
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := pbconv.ErrorFromStatus(err); {
	case errs.KindOf(e) == gq.KindUnavailable || errs.KindOf(e) == gq.KindDenied || errs.KindOf(e) == gq.KindUnauthenticated:
		s.err = e
	case errors.Is(err, io.EOF):
		s.err = errStreamEnded
	default:
		s.err = fmt.Errorf("%w: %v", errStreamEnded, e) //nolint:errorlint // it is not about the request
	}
	for id, a := range s.asked {
		delete(s.asked, id)
		if len(a.jobs) == 0 {
			a.err = s.err
		}
		close(a.answer)
		if a.left {
			s.client.giveBack(a.jobs)
		}
	}
	s.queue = nil
	close(s.done)
}
