package worker

import "sync"

// maxIdle is how many goroutines wait for the next job at most.
const maxIdle = 1024

// pool runs handlers on goroutines that it keeps for the next ones. Starting a
// goroutine is cheap, but growing its stack costs more than everything else that
// a small job needs, so a batch of jobs is not met with as many goroutines:
// whoever takes a job has one more goroutine started if there are more jobs. When
// handlers return at once a few goroutines run them all; when they block there is
// soon one for each.
type pool struct {
	execute func(*Run)

	mu       sync.Mutex
	pending  []*Run
	starting bool            // a goroutine is on its way to take a job; so it is whenever jobs are pending
	idle     []chan struct{} // goroutines that wait; the last to come is the first to go
	closed   bool
	wait     sync.WaitGroup // for goroutines that wait
}

// run has r executed.
func (p *pool) run(r *Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = append(p.pending, r)
	p.startLocked()
}

// startLocked sends a goroutine for what is pending.
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

// loop executes what is pending until there is nothing and nobody should wait.
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

// close sends the goroutines home that wait, and waits for that. Nothing is run
// from then on.
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
