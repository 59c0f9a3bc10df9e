package wire

import "github.com/gopherqueue/gq"

// Unique makes a job the only one with its key.
type Unique struct {
	While       gq.While       `json:"while,omitzero" doc:"How long the job holds its key: waiting (until it is claimed), live (until it ends), done (until it completed or was cancelled) or period; live unless something else is given."`
	OnCollision gq.OnCollision `json:"on_collision,omitzero" doc:"What a submission does if another job holds the key: existing (return that job), refuse, replace (cancel that job if it waits, and take its place), debounce (postpone that job if it waits to now plus the delay) or throttle (wait until its period ends); existing unless given."`
	Period      *Duration      `json:"period,omitempty" doc:"How long, with while period."`
	Fields      []string       `json:"fields,omitempty" doc:"Names of fields of the JSON payload, instead of an idempotency_key: the job is unique by its type and their values. A dot leads to a field of a field."`
}

func (u *Unique) domain() gq.UniqueRule {
	return gq.UniqueRule{While: u.While, OnCollision: u.OnCollision, Period: durationOf(u.Period), Fields: u.Fields}
}

func uniqueOf(u *gq.UniqueRule) *Unique {
	if u.IsZero() {
		return nil
	}
	out := &Unique{While: u.While, OnCollision: u.OnCollision, Fields: u.Fields}
	if u.Period != 0 {
		out.Period = new(Duration(u.Period))
	}
	return out
}
