package gq

import "time"

// How long the history of queues is kept.
const (
	HistoryMinutes   = 24 * time.Hour      // counts by the minute
	HistoryHours     = 31 * 24 * time.Hour // counts by the hour
	MaxHistoryPoints = 1500                // points of one answer
	MaxHistoryQueues = 20                  // queues that one query names
)

// HistoryQuery selects a part of the history of queues.
type HistoryQuery struct {
	Queues []string      // added up, at most MaxHistoryQueues; none is all queues
	Since  time.Time     // zero is 60 steps before Until
	Until  time.Time     // exclusive; zero is now
	Step   time.Duration // of a point: a whole part of an hour in minutes, or a whole number of hours; 0 is a minute
}

// HistoryPoint has what happened in queues during one interval. An execution counts where it
// started and where it ended.
type HistoryPoint struct {
	Time         time.Time // when the interval began
	Submitted    int64     // jobs
	Started      int64     // executions
	Completed    int64     // jobs that succeeded
	Failed       int64     // jobs that failed for good
	Retried      int64     // attempts that ended with another one to follow
	DeadLettered int64     // jobs
	Cancelled    int64     // jobs
	Lost         int64     // executions whose lease expired; each is also counted by what became of the job
	Wait         Latency   // of the executions that started: since the job became claimable
	Run          Latency   // of the executions that ended: since their start
}

// Latency summarises durations. The percentiles are estimates, at most a fifth off.
type Latency struct {
	Count         int64 // of durations
	P50, P90, P99 time.Duration
}

// Ended returns the number of jobs that ended.
func (p *HistoryPoint) Ended() int64 { return p.Completed + p.Failed + p.DeadLettered + p.Cancelled }

// QueueActivity has what happened in one queue in the last 60 minutes.
type QueueActivity struct {
	Queue string
	HistoryPoint
}
