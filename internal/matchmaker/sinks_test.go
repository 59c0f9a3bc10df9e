package matchmaker_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gopherqueue/gq/internal/matchmaker"
	"github.com/gopherqueue/gq/internal/testing/race"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/match"
)

// receiver collects the records of a sink and can refuse them.
type receiver[T interface{ RecordID() string }] struct {
	block chan struct{} // if not nil, calls wait for it; set before the first call

	mu   sync.Mutex
	got  []T  // guarded by mu
	n    int  // calls; guarded by mu
	down bool // guarded by mu
}

var errDown = errors.New("the receiver is down")

func (r *receiver[T]) accept(ctx context.Context, some []T) error {
	r.mu.Lock()
	r.n++
	r.mu.Unlock()
	if r.block != nil {
		select {
		case <-r.block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return errDown
	}
	r.got = append(r.got, some...)
	return nil
}

func (r *receiver[T]) setDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

func (r *receiver[T]) calls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n
}

func (r *receiver[T]) records() []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *receiver[T]) ids() (list []string) {
	for _, v := range r.records() {
		list = append(list, v.RecordID())
	}
	return list
}

// A sink that fails gets its records later, each of them once if nothing crashes.
func TestClaimsAreDelivered(t *testing.T) {
	spec.Covers(t, "M-106")
	claims := &receiver[match.Claim]{down: true}
	bubble(t, matchmaker.Options{Hooks: match.Hooks{Claims: claims.accept}}, func(f *fixture) {
		f.run()
		f.provider("p")
		var want []string
		for range 3 {
			f.submit(units(7))
			synctest.Wait()
			time.Sleep(time.Second)
			page, err := f.Leases(f.Context(), "p", 0, 10)
			if err != nil || len(page.Leases) != 1 {
				f.Fatalf("%+v, %v", page, err)
			}
			l := f.ack(page.Leases[0].Lease)
			if _, err := f.Complete(f.Context(), matchmaker.Ref{Lease: l.ID}, match.Completion{Digest: digest, Proof: "ipfs://x"}); err != nil {
				f.Fatal(err)
			}
			want = append(want, "claim-"+string(l.ID))
			f.beats("p")
		}
		time.Sleep(10 * time.Minute)
		if claims.calls() < 10 || claims.calls() > 30 {
			f.Errorf("%d attempts in ten minutes", claims.calls())
		}
		claims.setDown(false)
		time.Sleep(2 * time.Minute)
		got := claims.ids()
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			f.Errorf("claims %v, want %v", got, want)
		}
		if c := claims.records()[0]; c.Provider != "p" || c.Units != 7 || c.Digest != digest || c.Proof != "ipfs://x" || c.Kind != match.AI || c.At.IsZero() {
			f.Errorf("%+v", c)
		}
		if docs, err := f.store.Docs(f.Context(), "matching.claim", "", 10); err != nil || len(docs) != 0 {
			f.Errorf("%d claims are kept, %v", len(docs), err)
		}
		calls := claims.calls()
		time.Sleep(time.Hour)
		if claims.calls() != calls {
			f.Errorf("%d calls without records", claims.calls()-calls)
		}
	})
}

// A sink that never answers delays neither rounds nor completions.
func TestSinksDelayNothing(t *testing.T) {
	claims, rounds, rulings := &receiver[match.Claim]{}, &receiver[match.RoundProof]{}, &receiver[match.Ruling]{}
	o := matchmaker.Options{Hooks: match.Hooks{Claims: claims.accept, Rounds: rounds.accept, Rulings: rulings.accept}}
	bubble(t, o, func(f *fixture) {
		block := make(chan struct{})
		claims.block, rounds.block, rulings.block = block, block, block
		f.run()
		f.provider("p")
		for n := range 5 {
			f.beats("p")
			f.submit()
			began := time.Now()
			var page matchmaker.LeasePage
			for len(page.Leases) == 0 {
				time.Sleep(10 * time.Millisecond)
				var err error
				if page, err = f.Leases(f.Context(), "p", 0, 10); err != nil {
					f.Fatal(err)
				}
			}
			if took := time.Since(began); took > time.Second {
				f.Errorf("job %d was assigned after %v", n, took)
			}
			l := f.ack(page.Leases[0].Lease)
			if err := f.complete(l); err != nil {
				f.Fatal(err)
			}
			if err := f.ReportProof(f.Context(), l.ID, "forged"); err != nil {
				f.Fatal(err)
			}
			if n == 2 {
				time.Sleep(90 * time.Second) // more than a call may take
			}
		}
		if claims.calls() == 0 || rounds.calls() == 0 || rulings.calls() == 0 || len(claims.records())+len(rounds.records())+len(rulings.records()) > 0 {
			f.Errorf("the sinks were not as slow as this test wants: %d, %d, %d calls", claims.calls(), rounds.calls(), rulings.calls())
		}
		close(block)
		time.Sleep(5 * time.Minute)
		if len(claims.records()) != 5 || len(rounds.records()) != 5 || len(rulings.records()) != 5 {
			f.Errorf("%d claims, %d rounds, %d rulings", len(claims.records()), len(rounds.records()), len(rulings.records()))
		}
	})
}

// Every round is delivered once and in order, with digests that its record has.
func TestRoundsAreDelivered(t *testing.T) {
	rounds := &receiver[match.RoundProof]{}
	o := matchmaker.Options{Hooks: match.Hooks{Rounds: rounds.accept}}
	synctest.Test(t, func(t *testing.T) {
		quiet := newFixture(t, openStore(t), matchmaker.Options{})
		for _, id := range names(4) {
			quiet.provider(id)
		}
		quiet.submit()
		if err := quiet.complete(quiet.ack(quiet.assigned())); err != nil { // before there is a sink
			t.Fatal(err)
		}
		f := quiet.another(o)
		if err := f.Deliver(f.Context()); err != nil || len(rounds.records()) != 0 {
			f.Fatalf("%v, %v", rounds.ids(), err)
		}
		for n := range 250 {
			if n == 120 {
				if _, err := quiet.SetStatus(f.Context(), "p1", match.Retired, ""); err != nil {
					f.Fatal(err)
				}
			}
			quiet.submit()
			l := quiet.ack(quiet.assigned())
			if err := quiet.complete(l); err != nil {
				f.Fatal(err)
			}
			if n%100 == 50 {
				f = f.another(o) // the process is replaced
				time.Sleep(2 * time.Minute)
				quiet.beats("p0", "p2", "p3")
				if err := f.Deliver(f.Context()); err != nil {
					f.Fatal(err)
				}
			}
		}
		time.Sleep(2 * time.Minute)
		if err := f.Deliver(f.Context()); err != nil {
			f.Fatal(err)
		}
		if len(rounds.records()) != 250 {
			f.Fatalf("%d rounds", len(rounds.records()))
		}
		for i, r := range rounds.records() {
			if r.Round != uint64(i)+2 {
				f.Fatalf("round %d is at place %d", r.Round, i)
			}
			// Reading a record reads those it builds on, so read all of them only without the
			// race detector, and otherwise those around what has happened.
			if race.Share() && i%10 > 0 && i%50 > 2 && i != 119 {
				continue
			}
			rec, err := f.RoundRecord(f.Context(), r.Round)
			if err != nil {
				f.Fatal(err)
			}
			var input bytes.Buffer
			e := json.NewEncoder(&input)
			e.SetEscapeHTML(false)
			e.SetIndent("", "  ")
			if err := e.Encode(rec.Input); err != nil {
				f.Fatal(err)
			}
			sum := sha256.Sum256(input.Bytes())
			if r.InputDigest != hex.EncodeToString(sum[:]) || r.OrderDigest != rec.OrderDigest || r.Seed != rec.Result.Seed || !slices.Equal(r.Assignments, rec.Result.Assignments) {
				f.Errorf("round %d is not as recorded: %+v", r.Round, r)
			}
			if at := r.Beacon; at.Seed() != r.Seed {
				f.Errorf("round %d: the seed does not follow from %+v", r.Round, at)
			}
		}
	})
}

// Rounds that are older than the horizon are skipped, and the others delivered.
func TestDeletedRoundsAreSkipped(t *testing.T) {
	rounds := &receiver[match.RoundProof]{down: true}
	bubble(t, matchmaker.Options{Hooks: match.Hooks{Rounds: rounds.accept}}, func(f *fixture) {
		if err := f.Deliver(f.Context()); err != nil {
			f.Fatal(err)
		}
		f.policy(`{"ttl":{"gc_horizon_secs":7200}}`)
		f.provider("p", func(p *match.Provider) { p.Stake = 100_000 })
		for range 20 {
			f.submit()
			l := f.ack(f.assigned())
			if err := f.complete(l); err != nil {
				f.Fatal(err)
			}
			if err := f.Deliver(f.Context()); !errors.Is(err, errDown) {
				f.Fatal(err)
			}
			time.Sleep(time.Hour)
			f.beats("p")
		}
		rounds.setDown(false)
		if err := f.Deliver(f.Context()); err != nil {
			f.Fatal(err)
		}
		n := len(rounds.records())
		if n == 0 || n == 20 || rounds.records()[n-1].Round != 20 || rounds.records()[0].Round != uint64(21-n) {
			f.Errorf("delivered %v", rounds.ids())
		}
	})
}

// Every finding is told with its judgement and the stake that was really taken.
func TestRulingsAreDelivered(t *testing.T) {
	rulings, sla := &receiver[match.Ruling]{}, &judge{}
	bubble(t, matchmaker.Options{Hooks: match.Hooks{SLA: sla, Rulings: rulings.accept}}, func(f *fixture) {
		f.provider("p")
		f.submit()
		for n, verdict := range []match.Judgement{{}, {Penalty: 4000, Reason: "bad_proof"}, {Penalty: 99_000, Reason: "fraud", Jail: true}} {
			l := f.ack(f.assigned())
			sla.verdict = verdict
			if err := f.ReportProof(f.Context(), l.ID, fmt.Sprint("flaw ", n)); err != nil {
				f.Fatal(err)
			}
			time.Sleep(20 * time.Second)
			f.beats("p")
		}
		if err := f.Deliver(f.Context()); err != nil {
			f.Fatal(err)
		}
		if want := []string{"sla-1", "sla-2", "sla-3"}; !slices.Equal(rulings.ids(), want) {
			f.Fatalf("%v", rulings.ids())
		}
		for i, want := range []struct {
			stake, before, penalty int64
			jail                   bool
		}{{10_000, 0, 0, false}, {10_000, 1, 4000, false}, {6000, 2, 6000, true}} {
			r := rulings.records()[i]
			if r.Provider != "p" || r.Flaw != fmt.Sprint("flaw ", i) || r.Stake != want.stake || r.Before != want.before || r.Penalty != want.penalty || r.Jail != want.jail || r.At.IsZero() {
				f.Errorf("%+v", r)
			}
		}
	})
}

// Two processes deliver to one sink one after the other, and a dead one is replaced.
func TestOneProcessDelivers(t *testing.T) {
	claims := &receiver[match.Claim]{}
	o := matchmaker.Options{Hooks: match.Hooks{Claims: claims.accept}}
	bubble(t, o, func(f *fixture) {
		f.provider("p")
		other := f.another(o)
		completed := func() {
			f.submit()
			l := f.ack(f.assigned())
			if err := f.complete(l); err != nil {
				f.Fatal(err)
			}
		}
		completed()
		if err := f.Deliver(f.Context()); err != nil || len(claims.records()) != 1 {
			f.Fatalf("%d claims, %v", len(claims.records()), err)
		}
		completed()
		if err := other.Deliver(f.Context()); err != nil || len(claims.records()) != 1 {
			f.Errorf("the other process delivered beside the first: %d claims, %v", len(claims.records()), err)
		}
		time.Sleep(61 * time.Second) // the first one is dead
		if err := other.Deliver(f.Context()); err != nil || len(claims.records()) != 2 {
			f.Errorf("the other process does not continue: %d claims, %v", len(claims.records()), err)
		}
	})
}
