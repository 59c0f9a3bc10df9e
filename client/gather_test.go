package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
	"github.com/gopherqueue/gq/client"
)

// requests counts the requests of a client for submissions. It holds those for single ones, and
// those for several once holdMany is set, until release is closed.
type requests struct {
	mu          sync.Mutex
	alone, many int
	held        chan struct{} // one value for each request that is held
	release     chan struct{}
	holdMany    bool
	cancelled   chan struct{} // one value for each request that was held until its context ended
}

func (r *requests) intercept(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, call grpc.UnaryInvoker, o ...grpc.CallOption) error {
	r.mu.Lock()
	hold := false
	switch method {
	case pb.JobsService_Submit_FullMethodName:
		r.alone++
		hold = true
	case pb.JobsService_SubmitBatch_FullMethodName:
		r.many++
		hold = r.holdMany
	}
	r.mu.Unlock()
	if hold {
		r.held <- struct{}{}
		select {
		case <-r.release:
		case <-ctx.Done():
			r.cancelled <- struct{}{}
		}
	}
	return call(ctx, method, request, answer, conn, o...)
}

func (r *requests) count() (alone, many int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.alone, r.many
}

// serveCounted returns a fixture whose client has as many submissions on their way as it sends
// at once. All of them are held, and others wait for them without end.
func serveCounted(t *testing.T, change ...func(*fixture)) (*fixture, *requests, *submitters) {
	t.Helper()
	r := &requests{held: make(chan struct{}, 1000), release: make(chan struct{}), cancelled: make(chan struct{}, 1000)}
	f := serve(t, append(change, func(f *fixture) {
		f.client.Dial = append(f.client.Dial, grpc.WithUnaryInterceptor(r.intercept))
	})...)
	client.GatherWithin(f.Client, time.Hour, time.Hour)
	c := &submitters{fixture: f}
	for i := range client.SubmitCalls {
		c.submit(t.Context(), gq.Spec{Type: fmt.Sprint("first ", i)})
		<-r.held
	}
	return f, r, c
}

// submitters are goroutines that submit.
type submitters struct {
	*fixture
	all     sync.WaitGroup
	results []*gq.SubmitResult
}

// submit starts a caller.
func (c *submitters) submit(ctx context.Context, s gq.Spec) *gq.SubmitResult {
	out := new(gq.SubmitResult)
	c.results = append(c.results, out)
	c.all.Go(func() {
		var err error
		if *out, err = c.Submit(ctx, s); !errors.Is(err, out.Err) {
			c.Errorf("submit returned %v and the result %v", err, out.Err)
		}
	})
	return out
}

// wait returns once this many callers wait for others.
func (c *submitters) wait(n int) {
	c.Helper()
	for client.Waiting(c.Client) != n {
		if c.Context().Err() != nil {
			c.Fatalf("%d callers wait instead of %d", client.Waiting(c.Client), n)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestSubmissionsShareRequests(t *testing.T) {
	f, r, c := serveCounted(t)
	const n = 50
	for range n {
		c.submit(t.Context(), gq.Spec{Type: "work"})
	}
	c.wait(n)
	close(r.release)
	c.all.Wait()
	alone, many := r.count()
	if alone != client.SubmitCalls || many == 0 || many > client.SubmitCalls {
		t.Errorf("%d requests for one submission and %d for several", alone, many)
	}
	ids := make(map[gq.JobID]bool)
	for _, out := range c.results {
		if out.Err != nil || out.Existing || out.Same {
			t.Fatalf("result %+v", *out)
		}
		ids[out.ID()] = true
		if _, err := f.Get(t.Context(), out.ID(), 0); err != nil {
			t.Error(err)
		}
	}
	if len(ids) != n+client.SubmitCalls {
		t.Errorf("%d jobs instead of %d", len(ids), n+client.SubmitCalls)
	}
}

// A rejected submission returns the same error as it would alone, and the others are stored.
func TestRejectedAmongOthers(t *testing.T) {
	_, r, c := serveCounted(t, func(f *fixture) { f.limits = gq.Limits{PayloadBytes: 1000, ResultBytes: 1000, CheckpointBytes: 1000} })
	good := c.submit(t.Context(), gq.Spec{Type: "work"})
	large := c.submit(t.Context(), gq.Spec{Type: "work", Payload: gq.Payload{Data: make([]byte, 2000)}})
	text := c.submit(t.Context(), gq.Spec{Type: "not UTF-8: \xff"})
	<-r.held // cannot be sent with others
	c.wait(2)
	close(r.release)
	c.all.Wait()
	if good.Err != nil {
		t.Error(good.Err)
	}
	for _, test := range []struct {
		out  *gq.SubmitResult
		spec gq.Spec
	}{
		{large, gq.Spec{Type: "work", Payload: gq.Payload{Data: make([]byte, 2000)}}},
		{text, gq.Spec{Type: "not UTF-8: \xff"}},
	} {
		_, alone := c.Submit(t.Context(), test.spec)
		if test.out.Err == nil || alone == nil || plain(test.out.Err) != plain(alone) || !errors.Is(test.out.Err, gq.ErrInvalid) {
			t.Errorf("error %v, alone %v", test.out.Err, alone)
		}
	}
}

// plain returns the text of an error without the id of its request.
func plain(err error) string { return strings.ReplaceAll(err.Error(), client.RequestID(err), "") }

// A caller whose context ends returns at once, and a request that nobody waits for is canceled.
func TestCallersThatLeave(t *testing.T) {
	_, r, c := serveCounted(t)
	r.mu.Lock()
	r.holdMany = true
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	before := c.submit(ctx, gq.Spec{Type: "never sent"})
	c.wait(1)
	cancel()
	c.wait(0)

	ctx, cancel = context.WithCancel(t.Context())
	first, second := c.submit(ctx, gq.Spec{Type: "given up"}), c.submit(ctx, gq.Spec{Type: "given up"})
	c.wait(2)
	r.release <- struct{}{} // for one of the first requests
	<-r.held                // the one for both
	cancel()
	<-r.cancelled
	close(r.release)
	c.all.Wait()
	for _, out := range []*gq.SubmitResult{before, first, second} {
		if !errors.Is(out.Err, context.Canceled) {
			t.Errorf("error %v", out.Err)
		}
	}
	if alone, many := r.count(); alone != client.SubmitCalls || many != 1 {
		t.Errorf("%d requests for one submission and %d for several", alone, many)
	}
}

// A request that several callers share goes on while one of them waits for it.
func TestOneOfTwoCallersLeaves(t *testing.T) {
	f, r, c := serveCounted(t)
	r.mu.Lock()
	r.holdMany = true
	r.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := c.Submit(ctx, gq.Spec{Type: "shared"})
		left <- err
	}()
	stays := c.submit(t.Context(), gq.Spec{Type: "shared"})
	c.wait(2)
	r.release <- struct{}{} // for one of the first requests
	<-r.held                // the one for both
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left got %v", err)
	}
	close(r.release)
	c.all.Wait()
	if stays.Err != nil {
		t.Errorf("the caller that stayed got %v", stays.Err)
	}
	if alone, many := r.count(); alone != client.SubmitCalls || many != 1 || len(r.cancelled) != 0 {
		t.Errorf("%d requests for one submission and %d for several, %d of them cancelled", alone, many, len(r.cancelled))
	}
	if _, err := f.Get(t.Context(), stays.ID(), 0); err != nil {
		t.Error(err)
	}
}

// A request for several submissions is no larger than a server takes.
func TestSharedRequestsAreBounded(t *testing.T) {
	_, r, c := serveCounted(t, func(f *fixture) {
		f.limits = gq.Limits{PayloadBytes: client.MaxBytes, ResultBytes: 1000, CheckpointBytes: 1000}
	})
	r.mu.Lock()
	r.holdMany = true
	r.mu.Unlock()
	const n = 5
	for range n { // two of them fit into a request
		c.submit(t.Context(), gq.Spec{Type: "large", Payload: gq.Payload{Data: make([]byte, client.MaxBytes*2/5), ContentType: "application/octet-stream"}})
	}
	c.wait(n)
	r.release <- struct{}{} // for one of the first requests
	<-r.held
	c.wait(n - 2)
	close(r.release)
	c.all.Wait()
	for _, out := range c.results {
		if out.Err != nil {
			t.Error(out.Err)
		}
	}
	if alone, _ := r.count(); alone != client.SubmitCalls {
		t.Errorf("%d requests for one submission", alone)
	}
}

// Nobody waits for others without end.
func TestSubmissionsWaitNotLong(t *testing.T) {
	f, r, c := serveCounted(t)
	client.GatherWithin(f.Client, time.Millisecond, time.Hour)
	c.submit(t.Context(), gq.Spec{Type: "late"})
	<-r.held // it is sent alone, though none of the others has returned
	close(r.release)
	c.all.Wait()
}

// A request that takes long, since one of its submissions has to wait, delays the others only for
// a time. They are sent again, each alone, and stored once.
func TestSharedRequestTakesLong(t *testing.T) {
	f, r, c := serveCounted(t)
	client.GatherWithin(f.Client, 10*time.Millisecond, time.Millisecond)
	r.mu.Lock()
	r.holdMany = true
	r.mu.Unlock()
	first, second := c.submit(t.Context(), gq.Spec{Type: "stuck"}), c.submit(t.Context(), gq.Spec{Type: "stuck"})
	// Both go alone, whether or not they shared a request before.
	r.release <- struct{}{}
	for alone := 0; alone < client.SubmitCalls+2; alone, _ = r.count() {
		<-r.held
	}
	close(r.release)
	c.all.Wait()
	jobs, err := f.List(t.Context(), gq.Query{Types: []string{"stuck"}, Limit: 10})
	if err != nil || first.Err != nil || second.Err != nil || len(jobs.Jobs) != 2 {
		t.Errorf("%d jobs, errors %v, %v and %v", len(jobs.Jobs), err, first.Err, second.Err)
	}
}

// What goes with one request alone shares none.
func TestSubmissionsThatShareNothing(t *testing.T) {
	_, r, c := serveCounted(t)
	for _, s := range []struct {
		ctx  context.Context
		spec gq.Spec
	}{
		{metadata.AppendToOutgoingContext(t.Context(), "x-request-id", "mine"), gq.Spec{Type: "named"}},
		{t.Context(), gq.Spec{Type: "keyed", Key: gq.IdempotencyKey{Name: "mine"}}},
		{t.Context(), gq.Spec{Type: "unique", Key: gq.IdempotencyKey{Name: "one"}, Unique: gq.UniqueRule{While: gq.WhileLive}}},
	} {
		c.submit(s.ctx, s.spec)
		<-r.held
	}
	close(r.release)
	c.all.Wait()
}

// Callers of a closed client do not wait for others.
func TestCloseWhileSubmissionsWait(t *testing.T) {
	f, r, c := serveCounted(t)
	c.submit(t.Context(), gq.Spec{Type: "waits"})
	c.wait(1)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	close(r.release)
	c.all.Wait()
	for _, out := range c.results {
		if !errors.Is(out.Err, gq.ErrClosed) {
			t.Errorf("error %v", out.Err)
		}
	}
}

// Submissions that wait when the client is closed end, however many requests they would need.
func TestCloseBesideSubmissions(t *testing.T) {
	f, r, c := serveCounted(t)
	const n = 2*client.SubmitCalls + 2 // two of them fit into a request, so there is one more than the first requests that end
	for range n {
		c.submit(t.Context(), gq.Spec{Type: "large", Payload: gq.Payload{Data: make([]byte, client.MaxBytes*2/5), ContentType: "application/octet-stream"}})
	}
	c.wait(n)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	close(r.release)
	c.all.Wait()
	for _, out := range c.results[client.SubmitCalls:] {
		if out.Err == nil {
			t.Error("a closed client has submitted")
		}
	}
}
