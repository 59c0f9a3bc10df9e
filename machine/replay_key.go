package machine

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/gopherqueue/gq"
)

// ReplayScope is the scope of the keys by which a finished job is replayed only once. The name of
// such a key is the id of that job. It is reserved: APIs do not show these keys.
const ReplayScope = "gq.replay"

// ForReplay reports whether a key only makes its job the one replay of another.
func ForReplay(k gq.IdempotencyKey) bool { return k.Scope == ReplayScope && k.Name != "" }

// ReplayKey returns the key of a replay. A unique job keeps its own key, or the one that follows
// from its fields. The fingerprint tells which job is replayed: see [Collide]. A unique job, its
// replay and the replays of that share one key, so their fingerprint tells the first of these jobs.
func ReplayKey(old *gq.Spec) gq.IdempotencyKey {
	if old.Unique.IsZero() {
		return gq.IdempotencyKey{Scope: ReplayScope, Name: old.ID.String(), Fingerprint: replayPrint(old.ID)}
	}
	k := old.Key
	if len(old.Unique.Fields) > 0 {
		k.Scope, k.Name = "", ""
	}
	switch {
	case isReplayPrint(k.Fingerprint):
	case k.Fingerprint == formerPrint(old.ReplayOf):
		k.Fingerprint = replayPrint(old.ReplayOf)
	default:
		k.Fingerprint = replayPrint(old.ID)
	}
	return k
}

// replayPrint is the fingerprint of the keys of the replays of a job. Its lower half follows from the
// upper one, so that it is not taken for a fingerprint of content.
func replayPrint(of gq.JobID) uint64 {
	sum := sha256.Sum256(append([]byte(ReplayScope), of[:]...))
	upper := binary.BigEndian.Uint32(sum[:4])
	return uint64(upper)<<32 | uint64(lowerPrint(upper))
}

func lowerPrint(upper uint32) uint32 {
	sum := sha256.Sum256(binary.BigEndian.AppendUint32([]byte(ReplayScope), upper))
	return binary.BigEndian.Uint32(sum[:4]) | 1 // a zero fingerprint is none
}

// isReplayPrint reports whether a fingerprint is that of a replay.
func isReplayPrint(f uint64) bool { return uint32(f) == lowerPrint(uint32(f>>32)) }

// formerPrint is what replayPrint was at first. Stored replays have it.
func formerPrint(of gq.JobID) uint64 {
	sum := sha256.Sum256(append([]byte(ReplayScope), of[:]...))
	return binary.BigEndian.Uint64(sum[:8]) | 1 // a zero fingerprint is none
}

// replayed reports whether the holder of a key replays the same job as a submission.
func (h *KeyHolder) replayed(s *gq.Spec) bool {
	if s.ReplayOf.IsZero() || !s.Replaces.IsZero() || h.State.ID == s.ReplayOf {
		return false
	}
	switch h.Fingerprint {
	case formerPrint(s.ReplayOf), replayPrint(s.ReplayOf): // the latter also if the replay of a stored one holds the key
		return true
	}
	return h.Fingerprint == s.Key.Fingerprint && isReplayPrint(h.Fingerprint)
}

// ShownKey returns the key of a job as users know it.
func ShownKey(s *gq.Spec) gq.IdempotencyKey {
	if hidden(s.Key) {
		return gq.IdempotencyKey{}
	}
	return s.Key
}

// hidden reports whether a key is not one that a user has chosen.
func hidden(k gq.IdempotencyKey) bool { return ForRetry(k) || ForReplay(k) }

// OwnKey reports whether a user has chosen the key of a job, so that it lasts as long as the user says.
func OwnKey(k gq.IdempotencyKey) bool { return k.Name != "" && !hidden(k) }

// Origin says which job a new one replays and who asked for it, for the event of its submission. It
// is empty for all other jobs.
func Origin(s *gq.Spec) string {
	if s.ReplayOf.IsZero() {
		return ""
	}
	text := "replay of job " + s.ReplayOf.String()
	if by := s.Attributes[gq.AttributeReplayedBy]; by != "" {
		text += " by " + by
	}
	return text
}
