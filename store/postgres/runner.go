package postgres

import "sync"

// runner runs functions in goroutines that stay for the next ones: the stack of a new goroutine
// has to grow, by copying it, when it first runs a transaction. There are as many as functions
// have run at a time.
type runner struct {
	under *sync.WaitGroup // functions under way
	idle  chan func()     // received by goroutines that have nothing to do
	end   chan struct{}
	all   sync.WaitGroup // the goroutines
}

func newRunner(under *sync.WaitGroup) *runner {
	return &runner{under: under, idle: make(chan func()), end: make(chan struct{})}
}

// Go runs a function in a goroutine that stays.
func (r *runner) Go(f func()) {
	r.under.Add(1)
	select {
	case r.idle <- f:
	default:
		r.all.Go(func() { r.work(f) })
	}
}

func (r *runner) work(f func()) {
	for {
		f()
		r.under.Done()
		select {
		case f = <-r.idle:
		case <-r.end:
			return
		}
	}
}

// stop ends the goroutines once they have nothing to do.
func (r *runner) stop() {
	close(r.end)
	r.all.Wait()
}
