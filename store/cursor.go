package store

import (
	"encoding/base64"
	"encoding/binary"

	"github.com/gopherqueue/gq"
)

// Cursor is where a page of a list ended: behind the job with this sequence
// number. It begins with a version and has one length, so that what somebody made
// up is hardly ever taken for one.
func Cursor(seq uint64) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64([]byte{1}, seq))
}

// ParseCursor is the sequence number of a cursor, 0 for an empty one.
func ParseCursor(cursor string) (uint64, error) {
	if cursor == "" {
		return 0, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil && len(raw) == 9 && raw[1] <= 0x7f { // as far as sequence numbers go
		if seq := binary.BigEndian.Uint64(raw[1:]); seq > 0 && Cursor(seq) == cursor {
			return seq, nil
		}
	}
	return 0, &gq.InvalidError{Faults: []gq.Fault{{Field: "cursor", Problem: "is not one that a list has returned"}}}
}
