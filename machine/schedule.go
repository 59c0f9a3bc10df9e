package machine

import (
	"bytes"
	"encoding/binary"
	"hash/fnv"
	"math/bits"
	"regexp"
	"strings"
	"time"

	"github.com/gopherqueue/gq"
)

// Overlap says how a schedule fires while the job of its last firing is live.
type Overlap uint8

const (
	OverlapSubmit Overlap = iota // submit the job
	OverlapAfter                 // submit the job; it runs after the live one has ended
	OverlapCancel                // cancel the live job and submit the next one
	OverlapNone                  // submit no job
)

// OverlapOf applies the overlap rule of a schedule. last is the job of the last firing, nil if
// there is none or it was deleted.
func OverlapOf(rule gq.OverlapRule, last *gq.State) Overlap {
	if last == nil || last.Status.Terminal() {
		return OverlapSubmit
	}
	switch rule {
	case gq.OverlapSkip:
		return OverlapNone
	case gq.OverlapQueueOne:
		// A job without a lease still waits for its first execution. One that was put off may have had a lease
		// under another id.
		// The new job extends the dependency chain of the live one. At the limit one firing
		// is skipped, and the chain begins anew.
		if (last.Lease != nil || last.Version > 0) && last.Depth < gq.MaxDepth {
			return OverlapAfter
		}
		return OverlapNone
	case gq.OverlapCancelRunning:
		return OverlapCancel
	}
	return OverlapSubmit
}

// JitterOf returns the delay of the job of a slot, from 0 to less than limit. It depends only on
// the schedule's name and the slot, so every process computes the same.
func JitterOf(name string, slot time.Time, limit time.Duration) time.Duration {
	if limit <= 0 {
		return 0
	}
	h := fnv.New64a()
	h.Write([]byte(name))
	h.Write(binary.BigEndian.AppendUint64([]byte{0}, uint64(slot.Unix())))
	share, _ := bits.Mul64(mix(h.Sum64()), uint64(limit))
	return time.Duration(share)
}

// mix spreads every bit of x over all bits (the finalizer of SplitMix64). FNV alone changes
// its upper bits little from one slot to the next.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// The placeholders of a template's payload.
var (
	placeholderSlot = []byte("{{slot}}")
	placeholderDate = []byte("{{slot_date}}")
)

// SlotPayload replaces the placeholders of a JSON payload: {{slot}} by the slot in UTC,
// {{slot_date}} by its date in the time zone of the schedule. Other payloads stay as they are.
func SlotPayload(p gq.Payload, slot time.Time, zone *time.Location) gq.Payload {
	if !p.IsJSON() || !bytes.Contains(p.Data, []byte("{{slot")) {
		return p
	}
	p.Data = bytes.ReplaceAll(p.Data, placeholderSlot, []byte(slot.UTC().Format(time.RFC3339)))
	p.Data = bytes.ReplaceAll(p.Data, placeholderDate, []byte(slot.In(zone).Format(time.DateOnly)))
	return p
}

// placeholder finds what looks like a placeholder in JSON, and slotPlaceholder one of a slot.
var (
	placeholder     = regexp.MustCompile(`\{\{[^{}"\\]{0,64}\}\}`)
	slotPlaceholder = regexp.MustCompile(`(?i)\{\{\s*\.?slot\w*\s*\}\}`)
)

// checkPlaceholders reports a placeholder that [SlotPayload] has not replaced.
func checkPlaceholders(p gq.Payload, f *faults) {
	if p.IsJSON() {
		if found := placeholder.Find(p.Data); found != nil {
			f.add("template.payload", "%.70s is not a placeholder; use {{slot}}, the time of the slot, or {{slot_date}}, its date; to pass it on unchanged, write the first brace as \\u007b", found)
		}
		return
	}
	if found := slotPlaceholder.Find(p.Data); found != nil && strings.HasPrefix(p.ContentType, "text/") {
		f.add("template.payload", "%.64s is replaced only in JSON, and the content_type is %.64s; write the payload as JSON, or leave it out and let the handler read the slot of its job", found, p.ContentType)
	}
}

// CheckBackfill reports all faults of a backfill.
func CheckBackfill(b *gq.Backfill, now time.Time) error {
	var f faults
	checkQueueName("schedule", b.Schedule, &f)
	for _, at := range []struct {
		field string
		time  time.Time
	}{{"from", b.From}, {"to", b.To}} {
		switch year := at.time.UTC().Year(); {
		case at.time.IsZero():
			f.add(at.field, "is missing")
		case year < 1970 || year > 2200:
			f.add(at.field, "the year %d is not between 1970 and 2200", year)
		}
	}
	switch {
	case b.To.Before(b.From) && !b.To.IsZero():
		f.add("to", "%s is before from, %s", b.To.UTC().Format(time.RFC3339), b.From.UTC().Format(time.RFC3339))
	case b.From.After(now):
		f.add("from", "%s is in the future, where the schedule fires by itself", b.From.UTC().Format(time.RFC3339))
	}
	if b.Limit < 0 || b.Limit > gq.MaxBackfill {
		f.add("limit", "%d is not between 0 (the default) and %d", b.Limit, gq.MaxBackfill)
	}
	return f.err()
}
