package worker

// Stats is how a worker stands, and what it has done so far.
type Stats struct {
	Running   int // handlers that have not returned
	Ignoring  int // of these, handlers that went on for longer than the grace after their context ended
	Unsettled int // outcomes that the queue has not taken yet
	Free      int // slots that are neither in use nor reserved by a claim under way

	Claimed     uint64 // executions started
	Succeeded   uint64 // accepted by the queue
	Failed      uint64 // accepted by the queue
	Released    uint64 // given back without fault
	TimedOut    uint64 // executions over their time limit
	Cancelled   uint64 // executions that were asked to stop
	LeasesLost  uint64 // leases that were refused, or ran out before their handler returned
	Ignored     uint64 // executions that were ever counted in Ignoring
	Abandoned   uint64 // handlers that ran on when the worker stopped
	Refused     uint64 // outcomes that came too late or that the queue would not take
	Undelivered uint64 // outcomes that could not be sent while the lease lasted

	Claims, Heartbeats, Settles uint64 // calls to the queue
}

// Stats may be called at any time.
func (w *Worker) Stats() Stats {
	s := Stats{
		Succeeded: w.settler.stats.succeeded.Load(), Failed: w.settler.stats.failed.Load(),
		Released: w.settler.stats.released.Load(), Refused: w.settler.stats.refused.Load(),
		Undelivered: w.settler.stats.undelivered.Load(),
		Claims:      w.calls.claims.Load(), Heartbeats: w.calls.heartbeats.Load(), Settles: w.calls.settles.Load(),
	}
	if w.slots != nil { // it has begun
		s.Free, s.Unsettled = w.slots.counts()
	}
	k := &w.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	s.Running, s.Ignoring = len(k.runs), k.ignoring
	s.Claimed, s.LeasesLost, s.TimedOut, s.Cancelled = k.stats.claimed, k.stats.leasesLost, k.stats.timedOut, k.stats.cancels
	s.Ignored, s.Abandoned = k.stats.ignored, k.stats.abandoned
	return s
}
