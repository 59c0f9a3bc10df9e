package machine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/errs"
	"github.com/gopherqueue/gq/machine"
)

// TestPayloadDeclaredAsJSON checks that a payload declared as JSON must be JSON, and that
// any JSON is accepted unchanged.
func TestPayloadDeclaredAsJSON(t *testing.T) {
	for _, c := range []struct {
		data, contentType string
		fault             string // "" is accepted
	}{
		{`{bad`, gq.JSON, "byte 2"},
		{`{bad`, "", "byte 2"},
		{`{bad`, "application/json; charset=utf-8", "byte 2"},
		{`{bad`, "Application/JSON", "byte 2"},
		{`{bad`, "application/problem+json", "byte 2"},
		{`{} {}`, gq.JSON, "byte 4"},
		{`{"a":1`, gq.JSON, "unexpected end"},
		{``, "application/cloudevents+json", "empty"},
		{"\"\xff\"", "application/problem+json", "UTF-8"},
		{``, gq.JSON, ""}, // no payload is null
		{``, "", ""},
		{" {\"b\": 1.0, \"b\": [1e400, 12345678901234567890]}\n", gq.JSON, ""},
		{`"\ud800"`, "application/problem+json", ""},
		{`{bad`, "text/plain", ""},
		{`{bad`, "application/jsonl", ""},
		{"{bad\xff", gq.OctetStream, ""},
	} {
		s := gq.Spec{
			ID: machine.NewJobID([16]byte{1}), Type: "t", Payload: gq.Payload{Data: []byte(c.data), ContentType: c.contentType},
		}.WithDefaults()
		err := machine.CheckSpec(&s, machine.DefaultLimits())
		if c.fault == "" {
			if err != nil {
				t.Errorf("%q as %q: %v", c.data, c.contentType, err)
			}
			continue
		}
		faults := errs.FaultsOf(err)
		if !errors.Is(err, gq.ErrInvalid) || len(faults) != 1 || faults[0].Field != "payload" || !strings.Contains(faults[0].Problem, c.fault) {
			t.Errorf("%q as %q: %v, want a fault of payload that says %q", c.data, c.contentType, err, c.fault)
		}
	}
}

func BenchmarkValidateSpec(b *testing.B) {
	b.Run("json", func(b *testing.B) { benchmarkValidate(b, gq.JSON) })
	b.Run("bytes", func(b *testing.B) { benchmarkValidate(b, gq.OctetStream) })
}

func benchmarkValidate(b *testing.B, contentType string) {
	s := gq.Spec{
		ID: machine.NewJobID([16]byte{1}), Type: "email.send", Payload: gq.Payload{Data: []byte(`{"to":"ada@example.com","subject":"Hello","n":12345}`), ContentType: contentType},
	}.WithDefaults()
	limits := machine.DefaultLimits()
	for b.Loop() {
		if err := machine.CheckSpec(&s, limits); err != nil {
			b.Fatal(err)
		}
	}
}
