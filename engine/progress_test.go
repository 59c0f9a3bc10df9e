package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/engine"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/postgres"
	"github.com/gopherqueue/gq/store/simple"
)

// followed collects what a follower gets.
type followed struct {
	mu   sync.Mutex
	list []gq.Event
	more chan struct{}
}

func follow(t *testing.T, e *engine.Engine) *followed {
	t.Helper()
	f := &followed{more: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		err := e.Follow(ctx, 0, func(events []gq.Event) error {
			f.mu.Lock()
			f.list = append(f.list, events...)
			f.mu.Unlock()
			select {
			case f.more <- struct{}{}:
			default:
			}
			return nil
		})
		if err != nil {
			t.Errorf("follow: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return f
}

// until waits until something is true of the events.
func (f *followed) until(t *testing.T, what string, is func([]gq.Event) bool) []gq.Event {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		f.mu.Lock()
		list := f.list
		f.mu.Unlock()
		if is(list) {
			return list
		}
		select {
		case <-f.more:
		case <-limit:
			t.Fatalf("no %s among %d events: %+v", what, len(list), list)
		}
	}
}

func has(typ gq.EventType, note string) func([]gq.Event) bool {
	return func(list []gq.Event) bool {
		for i := range list {
			if list[i].Type == typ && list[i].Note == note {
				return true
			}
		}
		return false
	}
}

// Followers of this and of other processes get the newest progress, before the end of the job,
// and nobody gets it later.
func TestFollowProgress(t *testing.T) {
	kinds := map[string]func(t *testing.T) (here, there store.Store){
		"Local": func(t *testing.T) (here, there store.Store) {
			s := open(t)
			return s, s
		},
		"Memory": func(t *testing.T) (here, there store.Store) {
			s, err := simple.Open(store.Config{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s, s
		},
		"PostgreSQL": func(t *testing.T) (here, there store.Store) {
			url := pgtest.Database(t)
			var stores [2]store.Store
			for i := range stores {
				s, err := postgres.Open(t.Context(), url, store.Config{})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = s.Close() })
				stores[i] = s
			}
			return stores[0], stores[1]
		},
	}
	for name, stores := range kinds {
		t.Run(name, func(t *testing.T) {
			here, there := stores(t)
			f := &fixture{T: t, Engine: newEngine(t, here, engine.Options{}), store: here}
			f.run()
			followers := []*followed{follow(t, f.Engine)}
			if there != here {
				other := &fixture{T: t, Engine: newEngine(t, there, engine.Options{}), store: there}
				other.run()
				followers = append(followers, follow(t, other.Engine))
			}
			id := f.submit(gq.Spec{Queue: "mail", Type: "mail.send"})
			_, lease := f.take(func(r *gq.ClaimRequest) { r.Queues = []string{"mail"} })
			for _, to := range followers {
				to.until(t, "start", has(gq.EventStarted, ""))
			}
			beat := func(progress float64, note string) {
				t.Helper()
				out, err := f.Heartbeat(t.Context(), []gq.Heartbeat{{Lease: lease, Progress: progress, Note: note}})
				if err != nil || out[0].Err != nil {
					t.Fatal(err, out)
				}
			}
			beat(-1, "") // renews and reports nothing
			for i := range 50 {
				beat(float64(i)/100, fmt.Sprint("row ", i))
			}
			for _, to := range followers {
				list := to.until(t, "progress", has(gq.EventProgress, "row 49"))
				last := list[len(list)-1]
				if last.Type != gq.EventProgress || last.Job != id || last.Queue != "mail" || last.JobType != "mail.send" || last.Status != gq.StatusRunning ||
					last.Progress != 0.49 || last.Seq != list[len(list)-2].Seq || last.Lease != lease.ID || last.Attempt != 1 || last.Time.IsZero() {
					t.Errorf("the follower gets %+v", last)
				}
				if n := len(list); n > 25 {
					t.Errorf("%d events for 50 quick reports", n)
				}
			}
			beat(0.9, "last")
			if _, err := f.Complete(t.Context(), lease, nil); err != nil {
				t.Fatal(err)
			}
			for i, to := range followers {
				list := to.until(t, "end", has(gq.EventCompleted, ""))
				if i == 0 { // in the same process it comes before the end
					if n := len(list); n < 2 || list[n-1].Type != gq.EventCompleted || list[n-2].Note != "last" {
						t.Errorf("the follower gets at last %+v", list[max(0, n-2):])
					}
				}
				list = to.until(t, "last report", has(gq.EventProgress, "last"))
				for k := 1; k < len(list); k++ {
					if list[k].JobType != "mail.send" || list[k].Queue != "mail" {
						t.Errorf("an event of queue %q and type %q", list[k].Queue, list[k].JobType)
					}
					if list[k].Type != gq.EventProgress && list[k].Seq != list[k-1].Seq+1 {
						t.Errorf("event %d follows %d", list[k].Seq, list[k-1].Seq)
					}
				}
			}
			kept, err := f.Events(t.Context(), 0, 1000)
			if err != nil || has(gq.EventProgress, "last")(kept) {
				t.Errorf("the log has %+v, %v", kept, err)
			}
		})
	}
}
