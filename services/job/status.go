package job

import (
	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
)

// move is a change of status.
type move struct{ from, to publicpb.JobStatus }

// legal lists all legal moves, and who may make them. Actors other than these two are
// not restricted.
var legal = map[move]map[string]bool{
	{publicpb.JobStatus_QUEUED, publicpb.JobStatus_RUNNING}:   {"coordinator": true},
	{publicpb.JobStatus_QUEUED, publicpb.JobStatus_CANCELED}:  {"gateway": true},
	{publicpb.JobStatus_RUNNING, publicpb.JobStatus_DONE}:     {"coordinator": true},
	{publicpb.JobStatus_RUNNING, publicpb.JobStatus_FAILED}:   {"coordinator": true},
	{publicpb.JobStatus_RUNNING, publicpb.JobStatus_CANCELED}: {"coordinator": true},
}

// verdict is the result of judging a transition.
type verdict uint8

const (
	applied      verdict = iota + 1
	missing              // no such job
	illegal              // no such move
	notAllowed           // not for this actor
	mismatch             // the job has another status
	lateTerminal         // the job has already ended, and this would end it again
)

// judge decides about a transition of a job whose status is current.
func judge(m move, actor string, current publicpb.JobStatus) verdict {
	actors, ok := legal[m]
	switch {
	case !ok:
		return illegal
	case !actors[actor] && (actor == "gateway" || actor == "coordinator" || actor == "worker"):
		return notAllowed
	case current == m.from:
		return applied
	case terminal(current) && terminal(m.to):
		return lateTerminal
	default:
		return mismatch
	}
}

func known(s publicpb.JobStatus) bool {
	return s >= publicpb.JobStatus_QUEUED && s <= publicpb.JobStatus_CANCELED
}

func terminal(s publicpb.JobStatus) bool {
	return s >= publicpb.JobStatus_DONE && s <= publicpb.JobStatus_CANCELED
}
