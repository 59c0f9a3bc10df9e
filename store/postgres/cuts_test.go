package postgres_test

import (
	"encoding/binary"
	"errors"
	mathrand "math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
	"github.com/gopherqueue/gq/store"
)

// shears is a proxy between a store and its database. It closes connections to the store
// at random, right after it forwarded a request. The server keeps executing that request,
// because the proxy also drops cancel requests.
type shears struct {
	often atomic.Int64
	cuts  atomic.Int64
}

// newShears returns shears and the URL that goes through them.
func newShears(t *testing.T, to string) (s *shears, through string) {
	t.Helper()
	s = new(shears)
	return s, between(t, to, s.serve)
}

func (s *shears) serve(client, server net.Conn) {
	go func() {
		defer client.Close()
		answer := make([]byte, 1<<16)
		for {
			n, err := server.Read(answer)
			if err != nil {
				return
			}
			_, _ = client.Write(answer[:n]) // keep reading even if the client is gone, so that the server does not block
		}
	}()
	asked := make([]byte, 1<<16)
	for {
		n, err := client.Read(asked)
		if err != nil {
			return
		}
		const cancelRequest = 80877102
		if n == 16 && binary.BigEndian.Uint32(asked[4:]) == cancelRequest {
			return
		}
		if _, err := server.Write(asked[:n]); err != nil {
			return
		}
		if often := s.often.Load(); often > 0 && mathrand.Int64N(often) == 0 {
			s.cuts.Add(1)
			_ = client.Close()
			time.Sleep(time.Duration(mathrand.IntN(5)) * time.Millisecond) // let the server work on the request
			return
		}
	}
}

// TestConnectionsAreCut runs two nodes while their connections are cut at random. Every
// answer must be correct, and each job must be completed once.
func TestConnectionsAreCut(t *testing.T) {
	direct := pgtest.Database(t)
	cutting, through := newShears(t, direct)
	watch := open(t, direct, store.Config{})
	defer watch.Close()
	nodes := []store.Store{open(t, through, store.Config{}), open(t, through, store.Config{})}
	for _, s := range nodes {
		defer s.Close()
	}
	cutting.often.Store(20)
	const each = 30
	var work sync.WaitGroup
	var mu sync.Mutex
	inserted, unknown, completed := map[gq.JobID]bool{}, map[gq.JobID]bool{}, map[gq.JobID]int{}
	var producers atomic.Int64
	for _, s := range nodes {
		for range 2 {
			producers.Add(1)
			work.Go(func() {
				defer producers.Add(-1)
				for range each {
					spec := newSpec("q")
					out, err := s.Insert(t.Context(), []store.Group{{Jobs: []gq.Spec{spec}, Mint: true}})
					if err == nil {
						err = out[0].Err
					}
					mu.Lock()
					switch {
					case err == nil:
						inserted[out[0].Jobs[0].State.ID] = true
					case errors.Is(err, gq.ErrUnavailable):
						unknown[spec.ID] = true
					default:
						t.Errorf("insert: %v", err)
					}
					mu.Unlock()
				}
			})
			work.Go(func() {
				for idle := 0; idle < 3; {
					if producers.Load() == 0 {
						idle++
					}
					out, err := s.Claim(t.Context(), []store.Claim{claimFrom("q", 5)})
					if err != nil {
						if !errors.Is(err, gq.ErrUnavailable) {
							t.Errorf("claim: %v", err)
						}
						continue
					}
					for _, j := range out[0].Jobs {
						u := completing(j)
						u.Settles = true
						done, err := s.Update(t.Context(), []store.Update{u})
						if err == nil {
							err = done[0].Err
						}
						if err != nil && !errors.Is(err, gq.ErrUnavailable) {
							t.Errorf("complete: %v", err)
						}
						if err == nil {
							mu.Lock()
							completed[j.State.ID]++
							mu.Unlock()
						}
					}
				}
			})
		}
	}
	work.Wait()
	cutting.often.Store(0)
	for id := range inserted {
		found, err := watch.Get(t.Context(), []store.Ref{{Job: id}}, 0)
		if err != nil || found[0].Err != nil {
			t.Fatalf("a job that was accepted: %v, %+v", err, found)
		}
		if status := found[0].State.Status; completed[id] > 1 || completed[id] == 1 && status != gq.StatusCompleted {
			t.Errorf("a job that was completed %d times is %v", completed[id], status)
		}
		history, err := watch.History(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		submitted, ended := 0, 0
		for _, e := range history {
			if e.Type == gq.EventSubmitted {
				submitted++
			}
			if e.Type == gq.EventCompleted {
				ended++
			}
		}
		if submitted != 1 || ended > 1 {
			t.Errorf("a job was submitted %d times and ended %d times", submitted, ended)
		}
	}
	counts, err := watch.Counts(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	for _, n := range counts[0].By {
		total += n
	}
	if low, high := int64(len(inserted)), int64(len(inserted)+len(unknown)); total < low || total > high {
		t.Errorf("%d jobs are counted, want %d to %d", total, low, high)
	}
	t.Logf("%d cuts; %d jobs accepted, %d unknown, %d completed", cutting.cuts.Load(), len(inserted), len(unknown), len(completed))
	if cutting.cuts.Load() < 5 {
		t.Error("too few connections were cut to show anything")
	}
}
