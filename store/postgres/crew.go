package postgres

import "sync"

// crew runs functions in goroutines that stay for the next ones. The stack of a new goroutine
// grows, by copying it, whenever it first runs a transaction.
type crew struct {
	under   *sync.WaitGroup // functions under way
	idle    chan func()     // received by goroutines that have nothing to do
	end     chan struct{}
	members sync.WaitGroup
}

func newCrew(under *sync.WaitGroup) *crew {
	return &crew{under: under, idle: make(chan func()), end: make(chan struct{})}
}

// Go runs a function in another goroutine.
func (c *crew) Go(f func()) {
	c.under.Add(1)
	select {
	case c.idle <- f:
	default:
		c.members.Go(func() { c.work(f) })
	}
}

func (c *crew) work(f func()) {
	for {
		f()
		c.under.Done()
		select {
		case f = <-c.idle:
		case <-c.end:
			return
		}
	}
}

// stop ends the goroutines once they have nothing to do.
func (c *crew) stop() {
	close(c.end)
	c.members.Wait()
}
