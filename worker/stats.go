package worker

// Stats has the current state of a worker and its counters since the start.
type Stats struct {
	Running   int // handlers that have not returned
	Ignoring  int // running handlers whose context ended more than Config.Grace ago
	Unsettled int // outcomes that the queue has not accepted yet
	Slots     int // handlers that may run at once
	Used      int // slots with a running handler
	Free      int // slots that are neither in use nor reserved by a claim

	Claimed     uint64 // executions started
	Succeeded   uint64 // successes that the queue accepted
	Failed      uint64 // failures that the queue accepted
	Released    uint64 // jobs released without using up an attempt
	TimedOut    uint64 // executions that exceeded their timeout
	Cancelled   uint64 // executions that a user cancelled
	LeasesLost  uint64 // leases that the queue rejected or that expired before the handler returned
	Ignored     uint64 // executions that were ever counted in Ignoring
	Abandoned   uint64 // handlers that still ran when the worker stopped
	Refused     uint64 // outcomes that were late or that the queue rejected
	Undelivered uint64 // outcomes that could not be sent before the lease expired

	Claims, Heartbeats, Settles                   uint64 // calls to the queue
	FailedClaims, FailedHeartbeats, FailedSettles uint64 // of these, calls that returned an error
}

// Stats returns the current statistics. It can be called at any time.
func (w *Worker) Stats() Stats {
	s := Stats{
		Slots:     w.config.Slots,
		Succeeded: w.settler.stats.succeeded.Load(), Failed: w.settler.stats.failed.Load(),
		Released: w.settler.stats.released.Load(), Refused: w.settler.stats.refused.Load(),
		Undelivered: w.settler.stats.undelivered.Load(),
		Claims:      w.calls.claims.Load(), Heartbeats: w.calls.heartbeats.Load(), Settles: w.calls.settles.Load(),
		FailedClaims: w.failures.claims.Load(), FailedHeartbeats: w.failures.heartbeats.Load(), FailedSettles: w.failures.settles.Load(),
	}
	if w.slots != nil { // Run was called
		s.Free, s.Used, s.Unsettled = w.slots.counts()
	}
	k := &w.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	s.Running, s.Ignoring = len(k.runs), k.ignoring
	s.Claimed, s.LeasesLost, s.TimedOut, s.Cancelled = k.stats.claimed, k.stats.leasesLost, k.stats.timedOut, k.stats.cancels
	s.Ignored, s.Abandoned = k.stats.ignored, k.stats.abandoned
	return s
}
