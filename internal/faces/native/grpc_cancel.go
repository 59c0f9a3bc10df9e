package native

import (
	"sync"

	"github.com/gopherqueue/gq"
	pb "github.com/gopherqueue/gq/api/gopherqueue/v1"
)

// holders knows which Work stream holds a job, to pass on requests to stop it.
type holders struct {
	mu      sync.Mutex
	streams map[gq.JobID]*workStream // nil if nobody tells of such requests; guarded by mu
}

// tell passes requests to stop jobs on to their streams.
func (h *holders) tell(jobs []gq.JobID) {
	by := make(map[*workStream][]gq.JobID)
	h.mu.Lock()
	for _, id := range jobs {
		if w := h.streams[id]; w != nil {
			by[w] = append(by[w], id)
		}
	}
	h.mu.Unlock()
	for w, jobs := range by {
		w.goes(func() { w.sendCancels(jobs) })
	}
}

// sendCancels sends a message that answers no request. Clients that do not say their version may
// not expect it.
func (w *workStream) sendCancels(jobs []gq.JobID) {
	if w.version == "" {
		return
	}
	answers := &pb.Answers{Answers: make([]*pb.Answer, len(jobs))}
	for i, id := range jobs {
		answers.Answers[i] = &pb.Answer{State: &pb.State{Id: id.String()}}
	}
	w.send(&pb.WorkResponse{Message: &pb.WorkResponse_Answers{Answers: answers}})
}

// handed records that the worker of the stream holds jobs.
func (w *workStream) handed(jobs []gq.Job) {
	w.holders.mu.Lock()
	defer w.holders.mu.Unlock()
	for i := range jobs {
		if l := jobs[i].State.Lease; l != nil {
			w.holdLocked(l.ID, jobs[i].State.ID)
		}
	}
}

// beaten records which jobs the worker holds after heartbeats: it may have claimed them through
// another stream.
func (w *workStream) beaten(beats []*pb.Beat, answers *pb.Answers) {
	w.holders.mu.Lock()
	defer w.holders.mu.Unlock()
	for i, a := range answers.GetAnswers() {
		lease := gq.LeaseID(beats[i].GetLease().GetId())
		var job gq.JobID
		if a.GetProblem() == nil && job.UnmarshalText([]byte(a.GetState().GetId())) == nil {
			w.holdLocked(lease, job)
		} else {
			w.dropLocked(lease)
		}
	}
}

// settled records that the worker holds jobs no longer.
func (w *workStream) settled(outcomes []*pb.Outcome) {
	w.holders.mu.Lock()
	defer w.holders.mu.Unlock()
	for _, o := range outcomes {
		w.dropLocked(gq.LeaseID(o.GetLease().GetId()))
	}
}

func (w *workStream) holdLocked(lease gq.LeaseID, job gq.JobID) {
	if w.holders.streams != nil && w.leases != nil {
		w.holders.streams[job], w.leases[lease] = w, job
	}
}

func (w *workStream) dropLocked(lease gq.LeaseID) {
	job, ok := w.leases[lease]
	if !ok {
		return
	}
	delete(w.leases, lease)
	if w.holders.streams[job] == w {
		delete(w.holders.streams, job)
	}
}

// dropAll records that the stream has ended.
func (w *workStream) dropAll() {
	w.holders.mu.Lock()
	defer w.holders.mu.Unlock()
	for lease := range w.leases {
		w.dropLocked(lease)
	}
	w.leases = nil
}
