package local_test

import (
	"context"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
	"github.com/gopherqueue/gq/store/local"
)

// A job is submitted, claimed under a lease and completed by its holder. A caller with
// an older lease changes nothing.
func Example() {
	ctx := context.Background()
	s, err := local.OpenMemory(local.Options{}) // or local.Open("gq-data", …) for a durable store
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()

	job := gq.Spec{
		ID:      machine.NewJobID([16]byte{1, 2, 3}), // use 16 random bytes
		Type:    "email.send",
		Payload: gq.Payload{Data: []byte(`{"to":"gopher@example.com"}`), ContentType: gq.JSON},
	}
	inserted, err := s.Insert(ctx, []store.Group{store.One(job.WithDefaults())})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("submitted:", inserted[0].Jobs[0].State.Status)

	claimed, err := s.Claim(ctx, []store.Claim{{
		Filter: store.Filter{Queues: []string{gq.DefaultQueue}},
		N:      1, Worker: "worker-1", Parts: gq.WithPayload,
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	held := claimed[0].Jobs[0]
	fmt.Printf("claimed: version %d, %s\n", held.State.Lease.Version, held.Spec.Payload.Data)

	complete := func(lease gq.LeaseRef) store.Updated {
		updated, err := s.Update(ctx, []store.Update{{
			Ref: store.Ref{Job: held.State.ID},
			Apply: func(s gq.State, now time.Time) (gq.State, []gq.Event, error) {
				return machine.Complete(s, lease, []byte("sent"), now)
			},
			Result: []byte("sent"),
		}})
		if err != nil {
			return store.Updated{Err: err}
		}
		return updated[0]
	}
	stale := complete(gq.LeaseRef{ID: "some-older-lease"})
	fmt.Println("stale holder:", errs.CodeOf(stale.Err))
	fmt.Println("holder:", complete(held.State.Lease.Ref()).State.Status)

	// Output:
	// submitted: SCHEDULED
	// claimed: version 1, {"to":"gopher@example.com"}
	// stale holder: stale_lease
	// holder: COMPLETED
}
