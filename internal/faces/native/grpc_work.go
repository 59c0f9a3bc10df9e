package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/internal/access"
	"github.com/gopherqueue/gq/internal/pbconv"
)

// errStopping ends the Work streams of a draining server.
var errStopping = fmt.Errorf("the server is stopping: %w", gq.ErrClosed)

// Limits of Work streams.
const (
	partBytes      = 1 << 20          // approximate size of the jobs in one message
	requestTimeout = 30 * time.Second // for one heartbeat or settle
	streamWorkers  = 1000             // that count as connected
)

// workStream is one Work stream. One goroutine reads, and each request gets its own
// goroutine. Their number is bounded: unread requests stay with the client, so a fast
// client cannot flood the server and a slow one delays only itself.
type workStream struct {
	*GRPC
	rpc    *rpc
	stream pb.WorkersService_WorkServer
	ended  chan error // why the stream ends; the first reason wins

	claims  context.Context // context of all open credits; ends with the stream
	stop    context.CancelFunc
	worker  string
	version string        // of the client library
	places  chan struct{} // one for each heartbeat or settle in progress
	running sync.WaitGroup

	leases map[gq.LeaseID]gq.JobID // of jobs that the worker holds; nil once the stream has ended; guarded by GRPC.holders.mu

	sending sync.Mutex // held while a message is sent
	broken  bool       // sending has failed; guarded by sending

	mu      sync.Mutex
	credits map[uint64]context.CancelFunc // the open ones; guarded by mu
	names   map[string]func(broke bool)   // ends the connection of each worker that uses the stream; guarded by mu
	marked  context.Context               // child of claims, once a worker is connected; guarded by mu
	closing bool                          // start nothing new; guarded by mu
}

func (s *workersServer) Work(stream pb.WorkersService_WorkServer) error {
	ctx := stream.Context()
	free, err := s.options.Streams.Take(ctx)
	if err != nil {
		return fmt.Errorf("work: %w", err)
	}
	defer free()
	w := &workStream{
		GRPC: s.GRPC, rpc: rpcOf(ctx), stream: stream, ended: make(chan error, 1),
		places: make(chan struct{}, s.options.Requests), credits: make(map[uint64]context.CancelFunc), names: make(map[string]func(bool)),
		leases: make(map[gq.LeaseID]gq.JobID),
	}
	w.claims, w.stop = context.WithCancel(ctx)
	defer w.stop()
	late := time.AfterFunc(s.options.Hello, func() { w.end(invalid("hello", "did not come within %v", s.options.Hello)) })
	defer late.Stop()
	go w.read(late)

	valid, cancel := access.WhileValid(ctx)
	defer cancel()
	broke := false
	select {
	case err = <-w.ended:
		broke = (ctx.Err() != nil || w.unsent()) && s.draining.Err() == nil
	case <-valid.Done():
		if err = ctx.Err(); err == nil {
			err = access.StillValid(ctx)
		} else {
			broke = s.draining.Err() == nil
		}
	case <-s.draining.Done():
		err = errStopping
	}
	w.mu.Lock()
	w.closing = true
	w.mu.Unlock()
	w.stop()
	w.dropAll()
	w.running.Wait()
	for _, end := range w.names { // nobody adds to them any more
		end(broke)
	}
	return err
}

// unsent reports whether a message could not be sent.
func (w *workStream) unsent() bool {
	w.sending.Lock()
	defer w.sending.Unlock()
	return w.broken
}

// connect says that a worker uses the stream.
func (w *workStream) connect(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing || w.names[name] != nil || len(w.names) >= streamWorkers {
		return
	}
	ctx, end, err := w.engine.Connected(w.claims, name, w.version)
	if err == nil { // otherwise its claims tell
		w.names[name], w.marked = end, ctx
	}
}

// context is that of the claims, marked for the engine if a worker is connected.
func (w *workStream) context() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.marked != nil {
		return w.marked
	}
	return w.claims
}

func invalid(field, format string, args ...any) error {
	return &gq.InvalidError{Faults: []gq.Fault{{Field: field, Problem: fmt.Sprintf(format, args...)}}}
}

// read handles requests until the stream ends. It may return shortly after the stream has
// ended.
func (w *workStream) read(late *time.Timer) {
	err := w.greet(late)
	for err == nil {
		var r *pb.WorkRequest
		if r, err = w.stream.Recv(); err == nil {
			err = w.begin(r)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	w.end(err)
}

// end makes the stream end with an error or nil.
func (w *workStream) end(err error) {
	select {
	case w.ended <- err:
	default:
	}
}

func (w *workStream) greet(late *time.Timer) error {
	r, err := w.stream.Recv()
	if err != nil {
		return err
	}
	hello := r.GetHello()
	if hello == nil {
		return invalid("hello", "must come first")
	}
	if err := w.authorize(w.stream.Context(), w.rpc.method, r); err != nil {
		return err
	}
	late.Stop()
	w.worker, w.version = hello.GetWorker(), hello.GetVersion()
	for _, name := range hello.GetWorkers() {
		w.connect(name)
	}
	w.send(&pb.WorkResponse{Id: r.GetId(), Message: &pb.WorkResponse_Welcome{Welcome: &pb.Welcome{
		MessageBytes: int64(w.options.messageBytes()), Items: MaxItems,
		Credits: int64(w.options.Credits), Requests: int64(w.options.Requests),
	}}})
	return nil
}

// begin starts a request. An error ends the stream.
func (w *workStream) begin(r *pb.WorkRequest) error {
	if withdraw := r.GetWithdraw(); withdraw != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		if cancel := w.credits[withdraw.GetCredit()]; cancel != nil {
			cancel()
		}
		return nil
	}
	id := r.GetId()
	if id == 0 {
		return invalid("id", "must be above 0")
	}
	if err := w.authorize(w.stream.Context(), w.rpc.method, r); err != nil {
		w.refuse(id, err)
		return nil
	}
	switch m := r.GetMessage().(type) {
	case *pb.WorkRequest_Credit:
		w.open(id, m.Credit)
	case *pb.WorkRequest_Heartbeat:
		return w.serve(id, func(ctx context.Context) (*pb.Answers, error) {
			answers, err := w.heartbeat(ctx, m.Heartbeat)
			if err == nil {
				w.beaten(m.Heartbeat.GetBeats(), answers)
			}
			return answers, err
		})
	case *pb.WorkRequest_Settle:
		w.settled(m.Settle.GetOutcomes())
		return w.serve(id, func(ctx context.Context) (*pb.Answers, error) { return w.settle(ctx, m.Settle) })
	case *pb.WorkRequest_Hello:
		w.refuse(id, invalid("hello", "was said before"))
	default:
		w.refuse(id, invalid("message", "is none that this server knows"))
	}
	return nil
}

// goes runs f in its own goroutine, unless the stream is closing.
func (w *workStream) goes(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closing {
		return false
	}
	w.running.Go(func() {
		defer func() {
			if p := recover(); p != nil {
				w.panicked(w.rpc, p)
				w.end(errPanicked)
			}
		}()
		f()
	})
	return true
}

// serve runs a heartbeat or settle. It finishes even if the stream breaks: when the
// client retries, it finds the work done.
func (w *workStream) serve(id uint64, f func(context.Context) (*pb.Answers, error)) error {
	select {
	case w.places <- struct{}{}:
	case <-w.claims.Done():
		return nil
	}
	ok := w.goes(func() {
		defer func() { <-w.places }()
		ctx, cancel := context.WithTimeout(access.Another(context.WithoutCancel(w.context())), requestTimeout)
		defer cancel()
		answers, err := f(ctx)
		if err != nil {
			w.refuse(id, err)
			return
		}
		w.send(&pb.WorkResponse{Id: id, Message: &pb.WorkResponse_Answers{Answers: answers}})
	})
	if !ok {
		<-w.places
	}
	return nil
}

// open opens a credit.
func (w *workStream) open(id uint64, m *pb.ClaimRequest) {
	claim, err := pbconv.ClaimFromProto(m)
	claim.N = given(claim.N)
	if claim.Worker == "" {
		claim.Worker = w.worker
	}
	if err == nil {
		w.connect(claim.Worker)
	}
	ctx, cancel := context.WithCancel(access.Another(w.context()))
	w.mu.Lock()
	switch {
	case err != nil:
		err = fmt.Errorf("claim for worker %.80q: %w", claim.Worker, err)
	case w.credits[id] != nil:
		err = invalid("id", "%d is that of an open credit", id)
	case len(w.credits) >= w.options.Credits:
		err = fmt.Errorf("%d credits are open: %w", len(w.credits), gq.ErrTooMany)
	default:
		w.credits[id] = cancel
	}
	w.mu.Unlock()
	if err != nil {
		cancel()
		w.refuse(id, err)
		return
	}
	ok := w.goes(func() {
		jobs, err := w.engine.Claim(ctx, claim)
		if err != nil {
			w.close(id, cancel)
			w.refuse(id, err)
			return
		}
		w.hand(id, jobs, func() { w.close(id, cancel) })
	})
	if !ok {
		w.close(id, cancel)
	}
}

// close ends a credit. Call it before sending the credit's last message, after which the
// client may reuse the id.
func (w *workStream) close(id uint64, cancel context.CancelFunc) {
	cancel()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.credits, id)
}

// hand sends the jobs of a credit in messages of about partBytes and gives back those it
// cannot send. It closes the credit.
func (w *workStream) hand(id uint64, jobs []gq.Job, closeCredit func()) {
	w.handed(jobs)
	for more := true; more; {
		n, size := 0, 0
		for n < len(jobs) && size < partBytes {
			size += len(jobs[n].Spec.Payload.Data) + len(jobs[n].Checkpoint)
			n++
		}
		more = n < len(jobs)
		if !more {
			closeCredit()
		}
		if !w.send(&pbconv.JobsResponse{ID: id, Jobs: jobs[:n], More: more}) {
			if more {
				closeCredit()
			}
			w.giveBack(w.stream.Context(), jobs)
			return
		}
		jobs = jobs[n:]
	}
}

// refuse responds to a request with an error.
func (w *workStream) refuse(id uint64, err error) {
	w.note(w.rpc, err)
	defer func() {
		if errors.Is(err, gq.ErrUnauthenticated) { // the token is no longer valid
			w.end(err)
		}
	}()
	w.send(&pb.WorkResponse{Id: id, Message: &pb.WorkResponse_Problem{Problem: pbconv.ProtoProblem(err, w.rpc.request())}})
}

// send reports whether it passed the message, a [pb.WorkResponse] or [pbconv.JobsResponse], to
// the transport.
func (w *workStream) send(m any) bool {
	w.sending.Lock()
	defer w.sending.Unlock()
	if w.broken {
		return false
	}
	if err := w.stream.SendMsg(m); err != nil {
		w.broken = true
		w.stop()
		w.end(err)
		return false
	}
	return true
}
