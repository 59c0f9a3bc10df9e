package main

import (
	"fmt"
	"strings"

	"github.com/gopherqueue/gq"
)

// unable says why none of the workers can run a job, or nothing if one can.
func unable(s *gq.Spec, workers []gq.LiveWorker) string {
	handles, offers := false, false
	for i := range workers {
		w := &workers[i]
		if !w.Serves(s.Queue, s.Type) {
			continue
		}
		handles = true
		if len(w.Lacks(s.Requires)) > 0 {
			continue
		}
		offers = true
		if w.MaxCost == 0 || s.CostUnits <= w.MaxCost {
			return ""
		}
	}
	switch {
	case !handles:
		return fmt.Sprintf("no live worker handles type %s", s.Type)
	case !offers:
		return "no live worker offers all of " + strings.Join(s.Requires, ", ")
	default:
		return fmt.Sprintf("no live worker accepts a cost of %d", s.CostUnits)
	}
}

// diskLow is the free space below which doctor mentions it.
const diskLow = 4 << 30

// disk tells about the space for an embedded store. A store that does not measure it tells nothing.
func (f *findings) disk(s *gq.Stats) {
	free := fmt.Sprintf("%s are free where the store is, which has %s and keeps %s in reserve", bytesText(s.DiskFree), bytesText(s.DiskBytes), bytesText(s.DiskReserve))
	switch {
	case s.DiskReserve == 0:
	case s.DiskRefuses == gq.RefusesWrites:
		f.add("fail", "disk", "%s; submissions, claims and all other changes are refused; free some space", free)
	case s.DiskRefuses != "":
		f.add("fail", "disk", "%s; submissions are refused; free some space", free)
	case s.DiskFree < s.DiskReserve+s.DiskReserve/3:
		f.add("fail", "disk", "%s; submissions are refused soon; free some space", free)
	case s.DiskFree < diskLow || s.DiskFree < s.DiskBytes:
		f.add("note", "disk", "%s", free)
	default:
		f.add("ok", "disk", "%s are free", bytesText(s.DiskFree))
	}
}
