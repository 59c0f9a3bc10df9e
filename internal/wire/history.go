package wire

import (
	"time"

	"github.com/gopherqueue/gq"
)

// History has what happened in queues over time.
type History struct {
	Points []HistoryPoint `json:"points" doc:"Oldest first, without gaps."`
}

// HistoryPoint is what happened in queues during one interval.
type HistoryPoint struct {
	Time         time.Time `json:"time" doc:"When the interval began."`
	Submitted    int64     `json:"submitted" doc:"Jobs."`
	Started      int64     `json:"started" doc:"Executions."`
	Completed    int64     `json:"completed" doc:"Jobs that succeeded."`
	Failed       int64     `json:"failed" doc:"Jobs that failed for good."`
	Retried      int64     `json:"retried" doc:"Attempts that ended with another one to follow."`
	DeadLettered int64     `json:"dead_lettered" doc:"Jobs."`
	Cancelled    int64     `json:"cancelled" doc:"Jobs."`
	Lost         int64     `json:"lost" doc:"Executions whose lease expired; each is also counted by what became of the job."`
	Wait         Latency   `json:"wait" doc:"Of the executions that started: since the job became claimable."`
	Run          Latency   `json:"run" doc:"Of the executions that ended: since their start."`
}

// Latency summarises durations.
type Latency struct {
	Count int64    `json:"count" doc:"Of durations."`
	P50   Duration `json:"p50" doc:"The percentiles are estimates, at most a fifth off."`
	P90   Duration `json:"p90"`
	P99   Duration `json:"p99"`
}

// Activity has what happened in each queue in the last 60 minutes.
type Activity struct {
	Queues []QueueActivity `json:"queues" doc:"By name."`
}

// QueueActivity is what happened in one queue in the last 60 minutes.
type QueueActivity struct {
	Queue string `json:"queue"`
	HistoryPoint
}

// HistoryOf converts points.
func HistoryOf(points []gq.HistoryPoint) History {
	out := History{Points: make([]HistoryPoint, len(points))}
	for i := range points {
		out.Points[i] = historyPointOf(&points[i])
	}
	return out
}

// ActivityOf converts the activity of queues.
func ActivityOf(list []gq.QueueActivity) Activity {
	out := Activity{Queues: make([]QueueActivity, len(list))}
	for i := range list {
		out.Queues[i] = QueueActivity{list[i].Queue, historyPointOf(&list[i].HistoryPoint)}
	}
	return out
}

func historyPointOf(p *gq.HistoryPoint) HistoryPoint {
	return HistoryPoint{
		Time: utc(p.Time), Submitted: p.Submitted, Started: p.Started, Completed: p.Completed, Failed: p.Failed,
		Retried: p.Retried, DeadLettered: p.DeadLettered, Cancelled: p.Cancelled, Lost: p.Lost,
		Wait: latencyOf(p.Wait), Run: latencyOf(p.Run),
	}
}

func latencyOf(l gq.Latency) Latency {
	return Latency{l.Count, Duration(l.P50), Duration(l.P90), Duration(l.P99)}
}
