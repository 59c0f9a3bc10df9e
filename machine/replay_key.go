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
// from its fields. In both cases the fingerprint tells which job is replayed: see [Collide].
func ReplayKey(old *gq.Spec) gq.IdempotencyKey {
	k := gq.IdempotencyKey{Scope: ReplayScope, Name: old.ID.String()}
	if !old.Unique.IsZero() {
		k = old.Key
	}
	if len(old.Unique.Fields) > 0 {
		k = gq.IdempotencyKey{}
	}
	k.Fingerprint = replayPrint(old.ID)
	return k
}

// replayPrint is the fingerprint of the key of every replay of a job.
func replayPrint(of gq.JobID) uint64 {
	sum := sha256.Sum256(append([]byte(ReplayScope), of[:]...))
	return binary.BigEndian.Uint64(sum[:8]) | 1 // zero is none
}

// replayed reports whether the holder of a key replays the same job as a submission.
func (h *KeyHolder) replayed(s *gq.Spec) bool {
	return !s.ReplayOf.IsZero() && s.Replaces.IsZero() && h.State.ID != s.ReplayOf && h.Fingerprint == s.Key.Fingerprint && h.Fingerprint == replayPrint(s.ReplayOf)
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
