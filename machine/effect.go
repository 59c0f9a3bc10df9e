package machine

import (
	"strconv"

	"github.com/gopherqueue/gq"
)

// Effect says how the end of a dependency affects a job that waits for it.
type Effect uint8

const (
	EffectNone       Effect = iota // nothing: not ended, or not waited for
	EffectCount                    // one fewer to wait for
	EffectRelease                  // the AFTER_ANY group is satisfied
	EffectFail                     // the dependent is FAILED
	EffectDeadLetter               // the dependent is DEAD_LETTER
	EffectCancel                   // the dependent is CANCELLED
)

var effectNames = [...]string{"none", "count", "release", "fail", "dead_letter", "cancel"}

func (e Effect) String() string {
	if int(e) < len(effectNames) {
		return effectNames[e]
	}
	return "unknown(" + strconv.Itoa(int(e)) + ")"
}

// Propagate returns the effect on a dependent when its dependency is in a status. Dependencies
// that do not wait, statuses that are not terminal and unknown values have no effect.
func Propagate(k gq.DependencyKind, ended gq.Status) Effect {
	if !Waits(k) || !ended.Terminal() {
		return EffectNone
	}
	switch {
	case k == gq.DependencyAfterAny:
		return EffectRelease
	case k == gq.DependencyFanIn || k == DependencyOrder || ended == gq.StatusCompleted:
		return EffectCount
	case ended == gq.StatusFailed:
		return EffectFail
	case ended == gq.StatusDeadLetter:
		return EffectDeadLetter
	default:
		return EffectCancel
	}
}
