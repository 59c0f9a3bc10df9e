package e2e_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/cmdtest"
	"github.com/gopherqueue/gq/internal/testing/pgtest"
)

// TestKilledBeforeTheAnswer kills a server after it has committed a submission without a key and
// before its answer arrives. The client repeats it and gets the job that is there.
func TestKilledBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(t *testing.T) string{
		"embedded":   func(t *testing.T) string { return "file:" + filepath.Join(t.TempDir(), "data") },
		"PostgreSQL": func(t *testing.T) string { return pgtest.Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := newCrashSite(t, store(t))
			site.start()
			line := newCable(t, site.grpc)
			far, near := clientOf(t, line.address()), site.client()
			live := func() int64 {
				counts, err := near.Counts(t.Context(), crashQueue)
				if err != nil {
					t.Fatal(err)
				}
				return counts[0].Live()
			}
			spec := gq.Spec{Queue: crashQueue, Type: "x"}
			if _, err := far.Submit(t.Context(), spec); err != nil { // it is connected
				t.Fatal(err)
			}
			want := int64(1)
			unkeyed := gq.PresetJobModel.Policy()
			unkeyed.IdempotencyWindow = 0
			for _, call := range []func() ([]gq.SubmitResult, error){
				func() ([]gq.SubmitResult, error) {
					out, err := far.Submit(t.Context(), spec)
					return []gq.SubmitResult{out}, err
				},
				func() ([]gq.SubmitResult, error) { return far.SubmitBatch(t.Context(), []gq.Spec{spec, spec, spec}) },
				func() ([]gq.SubmitResult, error) {
					return far.SubmitGraph(t.Context(), []gq.GraphJob{{Spec: spec, Ref: "a"}, {Spec: spec, Needs: []gq.Dependency{{Ref: "a", Kind: gq.DependencyAfter}}}})
				},
				func() ([]gq.SubmitResult, error) {
					out, err := far.Submit(t.Context(), gq.Spec{Queue: crashQueue, Type: "x", Policy: unkeyed})
					return []gq.SubmitResult{out}, err
				},
			} {
				for range 5 {
					line.mute.Store(true)
					type answer struct {
						out []gq.SubmitResult
						err error
					}
					answered := make(chan answer, 1)
					go func() {
						out, err := call()
						answered <- answer{out, err}
					}()
					cmdtest.WaitFor(t, "the commit", func() bool { return live() > want })
					want = live()
					site.kill()
					line.mute.Store(false)
					site.start()
					select {
					case a := <-answered:
						if a.err != nil {
							t.Fatal(a.err)
						}
						for _, s := range a.out {
							if s.Err != nil || s.Existing {
								t.Errorf("%v, existing: %v", s.Err, s.Existing)
							}
							if _, err := near.Get(t.Context(), s.ID(), 0); err != nil {
								t.Errorf("job %s: %v", s.ID(), err)
							}
						}
					case <-time.After(patience):
						t.Fatal("the submission was not answered")
					}
					if n := live(); n != want {
						t.Fatalf("%d jobs, want %d", n, want)
					}
				}
			}
			if n := line.passed.Load(); n < 20 {
				t.Errorf("the client connected %d times", n)
			}
		})
	}
}
