package storetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store"
)

var closeCases = []Case{
	{
		Name:   "Close/Twice",
		Clause: "closing twice is fine, also at once",
		run:    closeTwice,
	},
	{
		Name:   "Close/Later",
		Clause: "calls after Close return ErrClosed",
		run:    closeLater,
	},
	{
		Name:    "Close/UnderWay",
		Clause:  "a call during Close is served or returns ErrClosed; what was acknowledged is there after a restart, and once",
		Reopens: true,
		Covers:  []string{"Q-03"},
		run:     closeUnderWay,
	},
	{
		Name:   "Context/Ended",
		Clause: "a call under a context that has ended returns an error, and the store serves the next one",
		run:    contextEnded,
	},
	{
		Name:   "Batch/Empty",
		Clause: "a call without items has no answers and is no error",
		run:    batchEmpty,
	},
}

// calls has one harmless call of every method except Close.
func calls(id gq.JobID, spec gq.Spec) map[string]func(context.Context, store.Store) error {
	return map[string]func(context.Context, store.Store) error{
		"Insert": func(ctx context.Context, s store.Store) error {
			_, err := s.Insert(ctx, []store.Group{store.One(spec)})
			return err
		},
		"Get": func(ctx context.Context, s store.Store) error {
			_, err := s.Get(ctx, []store.Ref{byID(id)}, allParts)
			return err
		},
		"List": func(ctx context.Context, s store.Store) error {
			_, err := s.List(ctx, gq.Query{})
			return err
		},
		"Claim": func(ctx context.Context, s store.Store) error {
			_, err := s.Claim(ctx, []store.Claim{claimOf(1, from("nowhere"))})
			return err
		},
		"Peek": func(ctx context.Context, s store.Store) error {
			_, err := s.Peek(ctx, store.Filter{Queues: []string{"q"}}, 1)
			return err
		},
		"Update": func(ctx context.Context, s store.Store) error {
			_, err := s.Update(ctx, []store.Update{{Ref: byID(id), Apply: advancing}})
			return err
		},
		"Now": func(ctx context.Context, s store.Store) error {
			_, err := s.Now(ctx)
			return err
		},
		"Due": func(ctx context.Context, s store.Store) error {
			_, err := s.Due(ctx, 1)
			return err
		},
		"ReleaseDependents": func(ctx context.Context, s store.Store) error {
			_, err := s.ReleaseDependents(ctx, 1)
			return err
		},
		"Collect": func(ctx context.Context, s store.Store) error {
			_, _, err := s.Collect(ctx, 1)
			return err
		},
		"Counts": func(ctx context.Context, s store.Store) error {
			_, err := s.Counts(ctx)
			return err
		},
		"Events": func(ctx context.Context, s store.Store) error {
			_, err := s.Events(ctx, 0, 1)
			return err
		},
		"LastEvent": func(ctx context.Context, s store.Store) error {
			_, err := s.LastEvent(ctx)
			return err
		},
		"History": func(ctx context.Context, s store.Store) error {
			_, err := s.History(ctx, id)
			return err
		},
		"PutQueue": func(ctx context.Context, s store.Store) error {
			return s.PutQueue(ctx, machine.NewQueue("q"))
		},
		"Queues": func(ctx context.Context, s store.Store) error {
			_, err := s.Queues(ctx, store.QueueQuery{})
			return err
		},
		"PutPool": func(ctx context.Context, s store.Store) error {
			return s.PutPool(ctx, gq.Pool{Name: "call", Capacity: 1})
		},
		"Pools": func(ctx context.Context, s store.Store) error {
			_, err := s.Pools(ctx)
			return err
		},
		"PutDocs": func(ctx context.Context, s store.Store) error {
			_, err := s.PutDocs(ctx, []store.Doc{{Kind: "call", Name: spec.ID.String(), Data: []byte("1")}})
			return err
		},
		"Doc": func(ctx context.Context, s store.Store) error {
			_, err := s.Doc(ctx, "call", "none")
			if errors.Is(err, gq.ErrNotFound) {
				return nil
			}
			return err
		},
		"FindDocs": func(ctx context.Context, s store.Store) error {
			_, err := s.FindDocs(ctx, []store.DocName{{Kind: "call", Name: "1"}})
			return err
		},
		"Docs": func(ctx context.Context, s store.Store) error {
			_, err := s.Docs(ctx, "call", "", 1)
			return err
		},
	}
}

func closeTwice(e *env) {
	e.add()
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() {
			if err := e.s.Close(); err != nil {
				e.Errorf("Close: %v", err)
			}
		})
	}
	wait.Wait()
	e.check("Close once more", e.s.Close())
}

func closeLater(e *env) {
	id := e.add().ID
	e.check("Close", e.s.Close())
	all := calls(id, e.spec())
	for _, method := range slices.Sorted(maps.Keys(all)) {
		e.is(method+" after Close", all[method](e.Context(), e.s), gq.ErrClosed)
	}
}

func contextEnded(e *env) {
	id := e.add().ID
	all := calls(id, e.spec())
	for _, method := range slices.Sorted(maps.Keys(all)) {
		if err := all[method](cancelledContext(), e.s); err == nil {
			e.Errorf("%s under a context that has ended returned no error", method)
		}
	}
	all = calls(id, e.spec())
	for _, method := range slices.Sorted(maps.Keys(all)) {
		e.check(method+" after that", all[method](e.Context(), e.s))
	}
}

func batchEmpty(e *env) {
	e.add()
	inserted, err := e.s.Insert(e.Context(), nil)
	e.check("Insert", err)
	found, err := e.s.Get(e.Context(), nil, 0)
	e.check("Get", err)
	claimed, err := e.s.Claim(e.Context(), nil)
	e.check("Claim", err)
	updated, err := e.s.Update(e.Context(), nil)
	e.check("Update", err)
	if n := len(inserted) + len(found) + len(claimed) + len(updated); n != 0 {
		e.Errorf("calls without items have %d answers", n)
	}
}

func closeUnderWay(e *env) {
	e.open()
	specs := make([][]gq.Spec, 8)
	for i := range specs {
		specs[i] = e.specs(200)
	}
	var (
		wait  sync.WaitGroup
		mu    sync.Mutex
		acked []gq.JobID
	)
	started := make(chan struct{}, len(specs))
	for _, mine := range specs {
		wait.Go(func() {
			for i, s := range mine {
				if i == 3 {
					started <- struct{}{}
				}
				answers, err := e.s.Insert(e.Context(), []store.Group{store.One(s)})
				if errors.Is(err, gq.ErrClosed) {
					return
				}
				if err != nil || answers[0].Err != nil {
					e.Errorf("Insert: %v, %+v", err, answers)
					return
				}
				mu.Lock()
				acked = append(acked, s.ID)
				mu.Unlock()
			}
		})
	}
	for range specs {
		<-started
	}
	e.check("Close", e.s.Close())
	wait.Wait()
	e.reopen()
	for _, id := range acked {
		if found := e.find(byID(id), 0); found.Err != nil {
			e.Fatalf("an acknowledged job is gone after a restart: %v", found.Err)
		}
	}
	// An interrupted call may or may not have happened; an acknowledged call happened once.
	if got := e.counts()["q"].Live(); got < int64(len(acked)) || got > int64(len(acked)+len(specs)) {
		e.Errorf("%d jobs are counted, %d were acknowledged and %d calls cut off", got, len(acked), len(specs))
	}
}
