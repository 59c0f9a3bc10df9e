package machine

import (
	"strconv"

	"github.com/gopherqueue/gq"
)

// Effect is what the end of a dependency does to a job that waits for it.
type Effect uint8

// The effects.
const (
	EffectNone       Effect = iota // nothing: not ended, or not waited for
	EffectCount                    // one fewer to wait for
	EffectRelease                  // the AFTER_ANY group is satisfied, whatever else of it is open
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

// Propagate is the effect on a dependent of a dependency that ended in a
// status. It is total: what does not wait, has not ended or is outside the
// vocabulary has no effect.
func Propagate(k gq.DependencyKind, ended gq.Status) Effect {
	if !k.Waits() || !ended.Terminal() {
		return EffectNone
	}
	switch {
	case k == gq.DependencyAfterAny:
		return EffectRelease
	case k == gq.DependencyFanIn || ended == gq.StatusCompleted:
		return EffectCount
	case ended == gq.StatusFailed:
		return EffectFail
	case ended == gq.StatusDeadLetter:
		return EffectDeadLetter
	default:
		return EffectCancel
	}
}
