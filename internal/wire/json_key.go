package wire

import (
	"time"

	"github.com/gopherqueue/gq"
)

// QueueKey is a limit key with limits of its own.
type QueueKey struct {
	Queue     string    `json:"queue"`
	Key       string    `json:"key"`
	Limit     int       `json:"limit,omitzero" doc:"In place of the queue's key_limit; absent is that."`
	Rate      *Rate     `json:"rate,omitempty" doc:"In place of the queue's key_rate; absent is that."`
	FreeAt    time.Time `json:"free_at,omitzero" doc:"When the rate allows the next claim, if not now."`
	UpdatedAt time.Time `json:"updated_at,omitzero"`
}

// QueueKeys is a page of limit keys.
type QueueKeys struct {
	Keys       []QueueKey `json:"keys"`
	NextCursor string     `json:"next_cursor" doc:"Of the next page; empty on the last."`
}

// QueueKeyLimits are the limits that a key is given. At least one is required.
type QueueKeyLimits struct {
	Limit int   `json:"limit,omitzero" doc:"Jobs held at once; 0 is the queue's key_limit."`
	Rate  *Rate `json:"rate,omitempty" doc:"Of claims; absent is the queue's key_rate."`
}

// QueueKeyOf converts the limits of a key.
func QueueKeyOf(k *gq.QueueKey) QueueKey {
	return QueueKey{Queue: k.Queue, Key: k.Key, Limit: k.Limit, Rate: rateOf(k.Rate), FreeAt: utc(k.FreeAt), UpdatedAt: utc(k.UpdatedAt)}
}

// QueueKeysOf converts a page of keys.
func QueueKeysOf(keys []gq.QueueKey, next string) QueueKeys {
	out := QueueKeys{Keys: make([]QueueKey, len(keys)), NextCursor: next}
	for i := range keys {
		out.Keys[i] = QueueKeyOf(&keys[i])
	}
	return out
}
