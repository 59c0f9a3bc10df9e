package codec_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
	"github.com/gopherqueue/gq/store/codec"
)

// TestOneForm checks that a value is decoded only from the encoding that an encoder
// writes.
func TestOneForm(t *testing.T) {
	text := func(s string) []byte { return append([]byte{byte(len(s))}, s...) }
	metadata := func(tags ...string) []byte {
		b := []byte{1, byte(gq.PriorityNormal), byte(len(tags))}
		for _, tag := range tags {
			b = slices.Concat(b, text(tag), text("v"))
		}
		return append(b, 0, 0)
	}
	event := func(has byte, rest ...byte) []byte {
		return append([]byte{byte(gq.EventSubmitted), byte(gq.StatusPending), has, 0}, rest...)
	}
	lease := func(form ...byte) []byte { // version 1
		return event(1, append(form, 1, byte(gq.LeaseActive), 0)...)
	}
	spec := func(contentType ...byte) []byte {
		b := append([]byte{1, 0}, make([]byte, 16)...)
		b = append(b, 0, 0, byte(gq.PresetJobModel), 0, byte(gq.PriorityNormal))
		return append(append(b, contentType...), 0)
	}
	state := func(attempts int) []byte {
		p := machine.DefaultPolicy()
		p.MaxAttempts = attempts
		s, _ := machine.Submit(machine.Submission{ID: machine.NewJobID([16]byte{1}), Sequence: 1, Policy: &p, Own: gq.PriorityNormal, Depth: 1}, time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC))
		return encodeState(t, s)
	}
	// Two policies that differ from their preset in one number show where that number
	// is.
	preset := machine.DefaultPolicy().MaxAttempts
	long, longer := state(preset+1), state(preset+2)
	for i := range long {
		if long[i] != longer[i] {
			longer[i] = binary.AppendVarint(nil, int64(preset))[0]
		}
	}

	decodeMetadata := func(b []byte) error { _, err := codec.DecodeMetadata(b); return err }
	decodeEvent := func(b []byte) error { _, _, err := codec.DecodeEvent(b); return err }
	decodeSpec := func(b []byte) error { _, err := codec.DecodeSpec(b); return err }
	decodeState := func(b []byte) error { _, err := codec.DecodeState(b, 1, intern); return err }
	for _, c := range []struct {
		name         string
		decode       func([]byte) error
		right, wrong []byte
	}{
		{"long number", decodeMetadata, metadata(), append(metadata()[:2], 0x80, 0, 0, 0)},
		{"unsorted tags", decodeMetadata, metadata("a", "b"), metadata("b", "a")},
		{"tag twice", decodeMetadata, metadata("a"), metadata("a", "a")},
		{"empty reason", decodeEvent, event(0), event(1<<4, 0)},
		{"long attempt", decodeEvent, event(0), append(event(0)[:3], 0x80, 0)},
		{"id as text", decodeEvent, lease(append([]byte{1}, make([]byte, 16)...)...), lease(append([]byte{0}, text("00000000-0000-0000-0000-000000000000")...)...)},
		{"JSON as text", decodeSpec, spec(1), spec(append([]byte{0}, text(gq.JSON)...)...)},
		{"preset in full", decodeState, long, longer},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.decode(c.right); err != nil {
				t.Errorf("%x is refused: %v", c.right, err)
			}
			if err := c.decode(c.wrong); !errors.Is(err, gq.ErrCorrupt) {
				t.Errorf("%x is read: %v", c.wrong, err)
			}
		})
	}
}
