package queue_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gopherqueue/gq/internal/testing/spec"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/queue"
)

type fixture struct {
	*testing.T
	*queue.Service
}

func (f fixture) enqueue(id string) {
	f.Helper()
	answer, err := f.EnqueueJob(f.Context(), &internalpb.EnqueueJobRequest{JobId: id, EnqueuedAtMs: 1})
	if err != nil || !answer.GetAccepted() {
		f.Errorf("enqueue %s: %v, %v", id, answer, err)
	}
}

// dequeue returns an id, empty if there is none.
func (f fixture) dequeue() string {
	f.Helper()
	answer, err := f.DequeueJob(f.Context(), &internalpb.DequeueJobRequest{WorkerId: "w"})
	if err != nil || answer.GetFound() != (answer.GetJobId() != "") {
		f.Errorf("dequeue: %v, %v", answer, err)
	}
	return answer.GetJobId()
}

func (f fixture) remove(id string) bool {
	f.Helper()
	answer, err := f.RemoveJobIfPresent(f.Context(), &internalpb.RemoveJobIfPresentRequest{JobId: id})
	if err != nil {
		f.Errorf("remove %s: %v", id, err)
	}
	return answer.GetRemoved()
}

// A dequeue whose answer was lost can be repeated and gets the same answer, even an
// empty one: a late duplicate must not take a job.
func TestDequeueAgain(t *testing.T) {
	spec.Covers(t, "T-46")
	f := fixture{t, queue.New(queue.Config{})}
	ask := func(name, want string) {
		t.Helper()
		answer, err := f.DequeueJob(t.Context(), &internalpb.DequeueJobRequest{WorkerId: "w", DequeueId: name})
		if err != nil || answer.GetJobId() != want || answer.GetFound() != (want != "") {
			t.Errorf("dequeue %.20s: %v, %v; want %q", name, answer, err, want)
		}
	}
	ask("nothing", "")
	f.enqueue("a")
	f.enqueue("b")
	ask("one", "a")
	ask("one", "a")
	ask("nothing", "")
	ask("two", "b")
	ask("one", "a")
	f.enqueue("c")
	for i := range 50_000 { // as many as are remembered
		ask(fmt.Sprint("later-", i), map[bool]string{true: "c"}[i == 0])
	}
	f.enqueue("d")
	ask("later-0", "c")
	ask("one", "d") // forgotten long ago
	if _, err := f.DequeueJob(t.Context(), &internalpb.DequeueJobRequest{DequeueId: strings.Repeat("x", 129)}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a long name: %v", err)
	}
}

func TestFirstInFirstOut(t *testing.T) {
	spec.Covers(t, "T-174", "T-175", "T-177", "T-262")
	f := fixture{t, queue.New(queue.Config{})}
	for i := range 1000 {
		f.enqueue(fmt.Sprint(i))
	}
	for i := range 1000 {
		if id := f.dequeue(); id != fmt.Sprint(i) {
			t.Fatalf("%s left as number %d", id, i)
		}
	}
	if id := f.dequeue(); id != "" {
		t.Errorf("an empty queue has %s", id)
	}
}

func TestEnqueueTwice(t *testing.T) {
	spec.Covers(t, "T-229")
	f := fixture{t, queue.New(queue.Config{})}
	f.enqueue("a")
	f.enqueue("b")
	f.enqueue("a")
	if x, y, z := f.dequeue(), f.dequeue(), f.dequeue(); x != "a" || y != "b" || z != "" {
		t.Errorf("left: %q %q %q", x, y, z)
	}
}

func TestRemove(t *testing.T) {
	spec.Covers(t, "T-176", "T-230")
	f := fixture{t, queue.New(queue.Config{})}
	for _, id := range []string{"a", "b", "c"} {
		f.enqueue(id)
	}
	if !f.remove("b") || f.remove("b") || f.remove("b") || f.remove("never") {
		t.Error("b must be removed once")
	}
	if x, y, z := f.dequeue(), f.dequeue(), f.dequeue(); x != "a" || y != "c" || z != "" {
		t.Errorf("left: %q %q %q", x, y, z)
	}
	if f.remove("a") {
		t.Error("a dequeued job was removed")
	}
}

// An abandoned removal changes nothing: the caller puts the job back, and a late call
// must not undo that.
func TestRemoveForNobody(t *testing.T) {
	spec.Covers(t, "T-46")
	f := fixture{t, queue.New(queue.Config{})}
	f.enqueue("a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if answer, err := f.RemoveJobIfPresent(ctx, &internalpb.RemoveJobIfPresentRequest{JobId: "a"}); status.Code(err) != codes.Canceled {
		t.Errorf("remove: %v, %v", answer, err)
	}
	if id := f.dequeue(); id != "a" {
		t.Errorf("dequeue: %q", id)
	}
}

func TestRefusals(t *testing.T) {
	spec.Covers(t, "T-213")
	f := fixture{t, queue.New(queue.Config{MaxJobs: 2})}
	f.enqueue("a")
	f.enqueue("b")
	f.enqueue("b") // already waits
	if _, err := f.EnqueueJob(t.Context(), &internalpb.EnqueueJobRequest{JobId: "c"}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a full queue: %v", err)
	}
	for _, id := range []string{"", strings.Repeat("x", 1000)} {
		if _, err := f.EnqueueJob(t.Context(), &internalpb.EnqueueJobRequest{JobId: id}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("enqueue %.10q: %v", id, err)
		}
		if _, err := f.RemoveJobIfPresent(t.Context(), &internalpb.RemoveJobIfPresentRequest{JobId: id}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("remove %.10q: %v", id, err)
		}
	}
}

// However dequeues and removals interleave, each job leaves once.
func TestEachJobLeavesOnce(t *testing.T) {
	spec.Covers(t, "T-46")
	f := fixture{t, queue.New(queue.Config{})}
	const jobs = 2000
	var mu sync.Mutex
	left := make(map[string]int)
	leave := func(id string) {
		mu.Lock()
		defer mu.Unlock()
		left[id]++
	}
	var all sync.WaitGroup
	for c := range 4 {
		all.Go(func() {
			for i := c; i < jobs; i += 4 {
				f.enqueue(fmt.Sprint(i))
			}
		})
		all.Go(func() {
			for i := range jobs / 4 {
				if id := fmt.Sprint(i * 4); f.remove(id) {
					leave(id)
				}
				if id := f.dequeue(); id != "" {
					leave(id)
				}
			}
		})
	}
	all.Wait()
	for id := f.dequeue(); id != ""; id = f.dequeue() {
		leave(id)
	}
	for i := range jobs {
		if n := left[fmt.Sprint(i)]; n != 1 {
			t.Fatalf("job %d left %d times", i, n)
		}
	}
}
