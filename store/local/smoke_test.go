package local

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/store"
)

func spec() gq.Spec {
	var b [16]byte
	rand.Read(b[:])
	return gq.Spec{ID: gq.NewJobID(b), Type: "t", Payload: gq.Payload{Data: make([]byte, 100), ContentType: "application/octet-stream"}}.WithDefaults()
}

func cycle(t *testing.T, s *Store, callers, jobs, batch int) {
	start := time.Now()
	before := s.Meter()
	var wg sync.WaitGroup
	ctx := context.Background()
	per := jobs / callers / batch
	for range callers {
		wg.Go(func() {
			for range per {
				gs := make([]store.Group, batch)
				for i := range gs {
					gs[i] = store.One(spec())
				}
				ins, err := s.Insert(ctx, gs)
				if err != nil {
					t.Error(err)
					return
				}
				for _, i := range ins {
					if i.Err != nil {
						t.Error(i.Err)
						return
					}
				}
				got := 0
				for got < batch {
					cl, err := s.Claim(ctx, []store.Claim{{Filter: store.Filter{Queues: []string{"default"}}, N: batch - got, Worker: "w", Parts: store.WithPayload}})
					if err != nil {
						t.Error(err)
						return
					}
					got += len(cl[0].Jobs)
					ups := make([]store.Update, len(cl[0].Jobs))
					for i, j := range cl[0].Jobs {
						ref := j.State.Lease.Ref()
						ups[i] = store.Update{Ref: store.Ref{Job: j.State.ID}, Apply: func(st gq.State, now time.Time) (gq.State, []gq.Event, error) {
							return st.Complete(ref, nil, now)
						}}
					}
					res, err := s.Update(ctx, ups)
					if err != nil {
						t.Error(err)
						return
					}
					for _, r := range res {
						if r.Err != nil {
							t.Error(r.Err)
						}
					}
				}
			}
		})
	}
	wg.Wait()
	d := time.Since(start)
	m := s.Meter()
	n := per * callers * batch
	fmt.Printf("callers %d batch %d: %d jobs %.0f jobs/s commits/job %.3f syncs/job %.3f disk/job %d\n", callers, batch, n, float64(n)/d.Seconds(), float64(m.Commits-before.Commits)/float64(n), float64(m.Syncs-before.Syncs)/float64(n), m.DiskBytes/uint64(n))
}

func TestSmoke(t *testing.T) {
	s, err := Open(t.TempDir(), Options{CacheMiB: 512})
	if err != nil {
		t.Fatal(err)
	}
	return1 := 0
	_ = return1

	cycle(t, s, 512, 512*300, 1)

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
