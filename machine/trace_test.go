package machine_test

import (
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

func TestTraceParent(t *testing.T) {
	const valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for text, want := range map[string]string{
		valid: valid,
		"":    "",
		"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00":       "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00",
		"ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01":       "",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01":       "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01":       "",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01":       "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0g":       "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-extra": "",
		"00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01":       "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736000f067aa0ba902b7-01":       "",
		"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-\n1":      "",
	} {
		s := gq.Spec{Attributes: map[string]string{gq.AttributeTraceParent: text}}
		if got := machine.TraceParent(&s); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := machine.TraceParent(&gq.Spec{}); got != "" {
		t.Errorf("no attributes: %q", got)
	}
}
