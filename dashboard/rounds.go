package dashboard

import (
	"strconv"

	"github.com/gopherqueue/gq"
)

// Limits of the pages of rounds.
const (
	roundsPerPage = 50
	shownDecided  = 50 // assignments and refused jobs of a round
)

type roundsView struct {
	Rounds []Round
	First  bool
	Next   uint64
}

func (d *Dashboard) rounds(v *visit) error {
	if d.options.Sources.Rounds == nil {
		return v.notHere()
	}
	view := roundsView{First: true}
	before := uint64(0)
	if text := v.r.URL.Query().Get("before"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return &gq.InvalidError{Faults: []gq.Fault{{Field: "before", Problem: "is not the number of a round"}}}
		}
		before, view.First = n, false
	}
	var err error
	if view.Rounds, view.Next, err = d.options.Sources.Rounds(v.ctx, before, roundsPerPage); err != nil {
		return err
	}
	v.watch = "all"
	return v.show("rounds", "Matching rounds", view)
}

func (d *Dashboard) round(v *visit) error {
	number, err := strconv.ParseUint(v.r.PathValue("number"), 10, 64)
	if d.options.Sources.Round == nil || err != nil {
		return v.notHere()
	}
	found, err := d.options.Sources.Round(v.ctx, number, shownDecided)
	if err != nil {
		return err
	}
	return v.show("round", "Round "+strconv.FormatUint(number, 10), found)
}
