package worker

import "sync"

// maxIdle is the maximum number of idle goroutines.
const maxIdle = 1024

// pool runs handlers on goroutines that it reuses. Starting a goroutine is cheap, but growing
// its stack costs more than the rest of a small job. The pool therefore does not start a
// goroutine per job: a goroutine that takes a job starts the next one if more jobs are pending.
// If handlers return quickly, a few goroutines run them all; if they block, there is soon one
// for each.
type pool struct {
	execute func(*Run)

	mu       sync.Mutex
	pending  []*Run
	starting bool            // a goroutine is about to take a job; always true while jobs are pending
	idle     []chan struct{} // idle goroutines, used last in, first out
	closed   bool
	wait     sync.WaitGroup // of idle goroutines
}

// run executes r on a goroutine of the pool.
func (p *pool) run(r *Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, r)
	p.startLocked()
}

// startLocked wakes or starts a goroutine if jobs are pending.
func (p *pool) startLocked() {
	if p.starting || len(p.pending) == 0 {
		return
	}
	p.starting = true
	if last := len(p.idle) - 1; last >= 0 {
		p.idle[last] <- struct{}{}
		p.idle = p.idle[:last]
		return
	}
	go p.loop()
}

// loop executes pending jobs until the pool is closed or has enough idle goroutines.
func (p *pool) loop() {
	wake := make(chan struct{}, 1)
	p.mu.Lock()
	p.starting = false
	for {
		if len(p.pending) > 0 {
			r := p.pending[0]
			p.pending[0] = nil
			p.pending = p.pending[1:]
			p.startLocked()
			p.mu.Unlock()
			p.execute(r) // may end the goroutine
			p.mu.Lock()
			continue
		}
		if p.closed || len(p.idle) >= maxIdle {
			p.mu.Unlock()
			return
		}
		p.idle = append(p.idle, wake)
		p.wait.Add(1)
		p.mu.Unlock()
		<-wake
		p.mu.Lock()
		p.wait.Done()
		p.starting = false
	}
}

// close ends the idle goroutines and waits for them. The pool must not be used afterwards.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	for _, wake := range p.idle {
		wake <- struct{}{}
	}
	p.idle = nil
	p.mu.Unlock()
	p.wait.Wait()
}
