package gq

import "time"

// Queue is a name with what holds for all its jobs. A queue that nobody has
// configured behaves as [NewQueue].
type Queue struct {
	Name       string
	Policy     Policy    // what a job of this queue starts from
	Paused     bool      // nothing is claimed; submissions go on
	MaxRunning int       // jobs held at once, over all workers; 0 is no limit
	MaxDepth   int       // live jobs; a submission beyond it is refused; 0 is no limit
	UpdatedAt  time.Time // set by the store
}

// NewQueue is a queue with the default policy and no limits.
func NewQueue(name string) Queue { return Queue{Name: name, Policy: Default()} }

// Validate reports everything that is wrong with the queue.
func (q Queue) Validate() error {
	var f faults
	checkQueueName("name", q.Name, &f)
	q.Policy.validate("policy", &f)
	if q.MaxRunning < 0 {
		f.add("max_running", "%d is negative; 0 is no limit", q.MaxRunning)
	}
	if q.MaxDepth < 0 {
		f.add("max_depth", "%d is negative; 0 is no limit", q.MaxDepth)
	}
	return f.err()
}
